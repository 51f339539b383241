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
from torch_geometric.loader.utils import get_input_nodes

from penstock.errors import InputError, UsageError
from penstock.feed.fields import Field
from penstock.feed.inputs.base import IDS_GIVEN, Input, as_ends, as_numbers, as_seed_ids, is_pair
from penstock.feed.links import Ends
from penstock.records import CSC, EDGE, NODE, EdgeType, Graph, NodeType
from penstock.sample.seeds import NodeSeeds
from penstock.sample.times import Timestamps, choose_times
from penstock.threads import Guard


class RemoteInput(Input):
    """A (FeatureStore, GraphStore) pair; the topology is read whole, as PyG does. `custom_cls` makes the batches."""

    def __init__(self, feature_store: FeatureStore, graph_store: GraphStore, custom_cls: Callable[[], Any] | None) -> None:
        self.feature_store, self.graph_store, self._custom_cls = feature_store, graph_store, custom_cls
        self.is_whole = not feature_store.get_all_tensor_attrs()
        self._guard, self._is_thread_safe = Guard(), bool(getattr(feature_store, "is_thread_safe", False))
        attributes: list[Any] = graph_store.get_all_edge_attrs()
        arrays: tuple[Any, Any, Any] = graph_store.csc()
        is_homogeneous = {attribute.edge_type for attribute in attributes} == {None}  # in one layout or several
        if is_homogeneous:
            num_nodes = {NODE: max(attributes[0].size)}
            adjacency = {EDGE: _csc_of_tensors(EDGE, *arrays, num_nodes[NODE], num_nodes[NODE])}
        else:
            groups = [a.group_name for a in feature_store.get_all_tensor_attrs() if isinstance(a.group_name, str)]
            ends = [node_type for a in attributes for node_type in (a.edge_type[0], a.edge_type[2])]
            num_nodes = {t: remote_backend_utils.num_nodes(feature_store, graph_store, t) for t in dict.fromkeys([*groups, *ends])}
            rows, indptrs, permutations = arrays[0], arrays[1], arrays[2] or {}
            edge_types = dict.fromkeys(a.edge_type for a in attributes)
            adjacency = {
                e: _csc_of_tensors(e, rows[e], indptrs[e], permutations.get(e), num_nodes[e[0]], num_nodes[e[2]]) for e in edge_types
            }
        self.graph = Graph(num_nodes, adjacency, is_homogeneous)

    def seeds(self, input_nodes: Any, input_id: torch.Tensor | None) -> NodeSeeds:
        """Resolve by PyG's rules."""
        if input_nodes is None:
            raise UsageError("input_nodes must be given for a (FeatureStore, GraphStore) pair")
        named = is_pair(input_nodes, self.graph.num_nodes)
        self.refuse_text(input_nodes[0] if named else NODE, input_nodes[1] if named else input_nodes)
        node_type, nodes, ids = get_input_nodes((self.feature_store, self.graph_store), input_nodes, input_id)
        return NodeSeeds(node_type or NODE, as_seed_ids(nodes), None if ids is None else as_seed_ids(ids, IDS_GIVEN))

    def all_links(self, edge_type: EdgeType) -> tuple[Ends, np.ndarray | None]:
        """As the graph store lists them."""
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
            store = batch if self.graph.is_homogeneous else batch[attribute.group_name]
            store.num_nodes = attribute.index.numel()
            store[attribute.attr_name] = value


def _csc_of_tensors(
    edge_type: EdgeType, row: torch.Tensor, indptr: torch.Tensor, permutation: torch.Tensor | None, num_src: int, num_dst: int
) -> CSC:
    """Check the lists of a graph store; nodes at the end that it has no list of get an empty one."""
    begins, ids = indptr.to(torch.int64).numpy(), row.numpy()
    num_missing = num_dst + 1 - begins.size
    if not begins.size or num_missing < 0 or begins[0] != 0 or begins[-1] != ids.size or (np.diff(begins) < 0).any():
        raise InputError(
            f"edges {'/'.join(edge_type)}: indptr must have num_dst + 1 = {num_dst + 1} entries that rise from 0 to the {ids.size} edges"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() < num_src:
        raise InputError(f"edges {'/'.join(edge_type)}: source ids lie outside [0, {num_src}); is the size of its edges too small?")
    if num_missing:
        begins = np.append(begins, np.full(num_missing, ids.size))
    return CSC(begins, ids, None if permutation is None else permutation.numpy())
