"""PyG's remote backend as an input of a loader: features by `FeatureStore`, topology by `GraphStore`.

In: the pair. Out: a graph, read whole and checked, and per batch one question to the feature store. Invariant: what the stores hand out is
theirs: nothing of it is changed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData, remote_backend_utils
from torch_geometric.data.graph_store import EdgeLayout

from penstock.errors import InputError, UsageError
from penstock.feed.fields import Field
from penstock.feed.inputs.base import Input, as_ends, as_numbers
from penstock.feed.inputs.pyg import csc_of_edges
from penstock.feed.links import Ends
from penstock.records import CSC, EDGE, NODE, EdgeType, Graph, NodeType
from penstock.sample.times import Timestamps, choose_times
from penstock.threads import Guard

_WORST_FIRST = (EdgeLayout.CSR, EdgeLayout.COO, EdgeLayout.CSC)
"""Which is read of a type whose edges a store has in several: the last of these."""


class RemoteInput(Input):
    """A (FeatureStore, GraphStore) pair; the topology is read whole, as PyG does. `custom_cls` makes the batches."""

    def __init__(self, feature_store: FeatureStore, graph_store: GraphStore, custom_cls: Callable[[], Any] | None) -> None:
        self.feature_store, self.graph_store, self._custom_cls = feature_store, graph_store, custom_cls
        self.is_whole = not feature_store.get_all_tensor_attrs()
        self._guard, self._is_thread_safe = Guard(), bool(getattr(feature_store, "is_thread_safe", False))
        attributes: list[Any] = graph_store.get_all_edge_attrs()
        is_homogeneous = {attribute.edge_type for attribute in attributes} == {None}  # in one layout or several
        if is_homogeneous:
            if not isinstance(attributes[0].size, (tuple, list)):
                raise UsageError("the edges of a GraphStore need a size, (num_src, num_dst): put_edge_index(..., size=...)")
            num_nodes = {NODE: max(attributes[0].size)}
            adjacency = {EDGE: self._csc(EDGE, attributes[0], num_nodes[NODE], num_nodes[NODE])}
        else:
            groups = [a.group_name for a in feature_store.get_all_tensor_attrs() if isinstance(a.group_name, str)]
            ends = [node_type for a in attributes for node_type in (a.edge_type[0], a.edge_type[2])]
            num_nodes = {t: remote_backend_utils.num_nodes(feature_store, graph_store, t) for t in dict.fromkeys([*groups, *ends])}
            best = {a.edge_type: a for a in sorted(reversed(attributes), key=lambda a: _WORST_FIRST.index(EdgeLayout(a.layout)))}
            edge_types = dict.fromkeys(a.edge_type for a in attributes)
            adjacency = {e: self._csc(e, best[e], num_nodes[e[0]], num_nodes[e[2]]) for e in edge_types}
        self.graph = Graph(num_nodes, adjacency, is_homogeneous)

    def _csc(self, edge_type: EdgeType, attribute: Any, num_src: int, num_dst: int) -> CSC:
        """The lists of an edge type, checked. PyG converts without a look, and writes past its memory for ids that are none."""
        name, layout = f"edges {'/'.join(edge_type)}", EdgeLayout(attribute.layout)
        row, column = (_as_ids(each, name) for each in self.graph_store.get_edge_index(attribute))
        if layout == EdgeLayout.CSC:
            if row.size and not 0 <= row.min() <= row.max() < num_src:
                raise InputError(f"{name}: source ids lie outside [0, {num_src}); is the size of its edges too small?")
            return CSC(_as_indptr(column, row.size, num_dst, "num_dst", name), row)
        if layout == EdgeLayout.CSR:
            row = np.repeat(np.arange(num_src), np.diff(_as_indptr(row, column.size, num_src, "num_src", name)))
        return csc_of_edges(row, column, name, num_src, num_dst, is_sorted=bool(attribute.is_sorted))

    def choose(self, input_nodes: Any) -> tuple[NodeType | None, Any]:
        """As PyG, which takes no nodes for none of them here."""
        if input_nodes is None:
            raise UsageError("input_nodes must be given for a (FeatureStore, GraphStore) pair")
        return super().choose(input_nodes)

    def all_links(self, edge_type: EdgeType) -> tuple[Ends, np.ndarray | None]:
        """All edges, in the order of the graph store."""
        rows, columns, _ = self.graph_store.coo(None if self.graph.is_homogeneous else [edge_type])
        [row], [column] = ([*each.values()] if isinstance(each, dict) else [each] for each in (rows, columns))
        return as_ends(torch.stack([row, column])), None

    def fields(self) -> tuple[list[Field], list[Field]]:
        """None of ours: the feature store is asked for all attributes of a batch at once, see `fetch`."""
        return [], []

    def times(self, name: str) -> Timestamps:
        """The times that the feature store has under a name, of nodes or of edges, the latter by the graph store's numbers."""
        nodes: dict[NodeType, np.ndarray] = {}
        edges: dict[EdgeType, np.ndarray] = {}
        for attribute in self.feature_store.get_all_tensor_attrs():
            if attribute.attr_name != name:
                continue
            attribute = copy.copy(attribute)
            attribute.index = None  # all of it
            key: Any = attribute.group_name
            if self.graph.is_homogeneous:  # by PyG's rule: nothing else says whose it is
                key = NODE if name == "time" else EDGE
            values = as_numbers(self.feature_store.get_tensor(attribute), name)
            if isinstance(key, tuple):
                edges[key] = values
            else:
                nodes[key] = values
        choose_times(dict.fromkeys(nodes, (name,)), dict.fromkeys(edges, (name,)), name, type(self.feature_store).__name__)
        return Timestamps(nodes, edges, name)

    def new_batch(self) -> Data | HeteroData:
        """Return an empty batch."""
        if self._custom_cls is not None:
            return self._custom_cls()
        return Data() if self.graph.is_homogeneous else HeteroData()

    def fetch(self, batch: Any, nodes: dict[NodeType, torch.Tensor]) -> None:
        """Ask the feature store for all node attributes of a batch in one call; one thread at a time, unless it `is_thread_safe`."""
        wanted = []
        with nullcontext() if self._is_thread_safe else self._guard.lock:
            for attribute in self.feature_store.get_all_tensor_attrs():
                node_type = NODE if self.graph.is_homogeneous else attribute.group_name
                if node_type in nodes:
                    attribute = copy.copy(attribute)  # it may be the store's own
                    attribute.index = nodes[node_type]
                    wanted.append(attribute)
            values = self.feature_store.multi_get_tensor(wanted)
        for attribute, value in zip(wanted, values, strict=True):
            num_rows, num_nodes = getattr(value, "shape", (None,))[:1], attribute.index.numel()
            if num_rows != (None,) and tuple(num_rows) != (num_nodes,):
                label = f"{attribute.group_name} {attribute.attr_name}" if attribute.group_name else attribute.attr_name
                raise InputError(f"the feature store gave {[*num_rows]} rows of {label} for {num_nodes} nodes of a batch")
            store = batch if self.graph.is_homogeneous else batch[attribute.group_name]
            store.num_nodes = attribute.index.numel()
            store[attribute.attr_name] = value


def _as_ids(values: Any, name: str) -> np.ndarray:
    """int32[n] or int64[n] contiguous, or raise InputError."""
    array = np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{name}: the graph store gives {array.dtype} {list(array.shape)} where ids are a vector of whole numbers")
    return np.ascontiguousarray(array, array.dtype if array.dtype in (np.int32, np.int64) else np.int64)


def _as_indptr(begins: np.ndarray, num_edges: int, num_nodes: int, count: str, name: str) -> np.ndarray:
    """int64[num_nodes + 1], checked; nodes at the end that a graph store has no list of get an empty one."""
    num_missing = num_nodes + 1 - begins.size
    if not begins.size or num_missing < 0 or begins[0] != 0 or begins[-1] != num_edges or (np.diff(begins) < 0).any():
        raise InputError(f"{name}: indptr must have {count} + 1 = {num_nodes + 1} entries that rise from 0 to the {num_edges} edges")
    return np.append(begins, np.full(num_missing, num_edges)).astype(np.int64)
