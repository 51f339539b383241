"""The last stage before the user: a sampled subgraph and its rows become a PyG batch with every attribute that PyG sets.

Beyond PyG, each edge store carries `row_ptr`: the edges into destination i are `edge_index[:, row_ptr[i]:row_ptr[i + 1]]`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from operator import setitem
from typing import Any, cast

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage

from penstock.errors import PenstockError, UsageError, argument
from penstock.feed.caches import Caches
from penstock.feed.fields import ROW_PTR, row_ptr_is_taken, states_of
from penstock.feed.inputs import Input, RemoteInput
from penstock.feed.subgraph import Subgraph, SubgraphEdges, as_numpy
from penstock.gather import RowKind, RowsUnderWay
from penstock.gather.hops import repeat_first, size_of
from penstock.records import EDGE, NODE, Allocator, EdgeType, NodeType, Span
from penstock.sample.seeds import BatchSeeds, SeedSet
from penstock.store.budget import format_bytes, require_room

_NO_IDS = torch.empty(0, dtype=torch.int64, device="cpu")

UnderWay = list[tuple[Any, RowsUnderWay | None]]
"""Reads begun: (key of the table, its rows; None: the batch has none of that type)."""

Gathered = list[tuple[Any, str, Any]]
"""Fields cut to the batch, as `Told`; their type is None in a homogeneous graph."""


class Assembler:
    """Makes batches of one input.

    Args:
        source: the input; its fields are read when the assembler is made.
        caches: tables that serve some of the fields in place of their arrays.
        number: of the pass over the loader, from `Caches.begin`; -1 for batches outside a pass.
    """

    def __init__(self, source: Input, caches: Caches, number: int = -1) -> None:
        self._source = source
        self._caches = caches
        self._tables = caches.tables
        self._number = number
        self._is_homogeneous = source.graph.is_homogeneous
        self.node_fields, self.edge_fields = source.fields()
        for field in [*self.edge_fields, *(self.node_fields if self._is_homogeneous else ())]:
            if field.name == ROW_PTR:
                raise row_ptr_is_taken()
        self._refuse_changed()
        self._served = {(key, kind.name) for key, table in self._tables.items() for kind in table.kinds}

    def _refuse_changed(self) -> None:
        """Raise where the user has changed a field that a table was made of: the table would still have the old rows."""
        states = states_of(self.node_fields, self.edge_fields) if self._caches.states else {}
        for (key, name), state in self._caches.states.items():
            if states.get((key, name)) != state:
                label = name if self._is_homogeneous else f"{key} {name}"
                raise UsageError(f"{label} was changed after the loader was made, which keeps it in tiers: make the loader again")

    def submit(self, subgraph: Subgraph, allocate: Allocator, *, are_distinct: bool) -> UnderWay:
        """Begin to read the fields that live in tiers, in the order of the batches. `are_distinct`: no node comes twice."""
        self._check_room(subgraph)
        under_way: UnderWay = []
        try:
            for key in self._tables:
                ids: Any = self.ids_of(subgraph, key)
                if ids is None:
                    under_way.append((key, None))
                    continue
                if not (subgraph.is_on_device and getattr(self._tables[key], "is_asked_by_device", False)):
                    ids = self.host_ids_of(subgraph, key)
                distinct = are_distinct and isinstance(key, str)
                how = {"marks": subgraph.marks.get(key) if distinct else None, "hops": subgraph.hops.get(key)}
                under_way.append((key, self._caches.submit(self._number, key, ids, allocate, are_distinct=distinct, **how)))
        except BaseException:
            _abandon(under_way)
            raise
        return under_way

    def _check_room(self, subgraph: Subgraph) -> None:
        """Raise BudgetError, rather than be killed, where rows take more than a budget has counted on and memory has no room for them."""
        fitted = self._caches.fitted
        if fitted is None or fitted.batch_bytes is None:
            return
        counted, num_bytes = max(fitted.batch_bytes, self._caches.most_bytes), 0
        for key, table in self._tables.items():
            ids = self.ids_of(subgraph, key)
            num_bytes += 0 if ids is None else size_of(subgraph.hops.get(key), ids.numel()) * table.row_bytes
        if num_bytes > counted:
            what = f"a batch of {format_bytes(num_bytes)}, where {argument('host_memory')} has counted on {format_bytes(counted)},"
            require_room(num_bytes - counted, what, "take smaller fanouts or batches, or more memory")
            self._caches.most_bytes = num_bytes  # memory of batches is used again

    def gather(
        self, subgraph: Subgraph, allocate: Allocator, under_way: UnderWay, spans: list[Span], num_threads: int = 1
    ) -> tuple[Gathered, int]:
        """Wait for what `submit` began, and gather all other fields. Returns (all fields, bytes moved), and appends to `spans`."""
        try:
            started = time.perf_counter()
            rows, num_bytes = self._gather_plain(subgraph, allocate, num_threads)
            if rows:
                spans.append(("gather", started, time.perf_counter(), threading.get_ident()))
            while under_way:
                key, pending = under_way.pop(0)
                kinds = self._tables[key].kinds
                found = [None] * len(kinds) if pending is None else pending.wait()
                for kind, values in zip(kinds, found, strict=True):
                    value = None if values is None else _as_tensor(kind, values)
                    if value is not None and key in subgraph.hops:
                        repeat_first(value, subgraph.hops[key])
                    rows.append((None if self._is_homogeneous else key, kind.name, value))
                ids = None if pending is None else self.ids_of(subgraph, key)
                num_bytes += 0 if ids is None else ids.numel() * self._tables[key].row_bytes
                spans += [] if pending is None else pending.spans
        except BaseException:
            _abandon(under_way)
            raise
        return rows, num_bytes

    def _gather_plain(self, subgraph: Subgraph, allocate: Allocator, num_threads: int) -> tuple[Gathered, int]:
        """The fields that do not live in tiers."""
        rows, num_bytes, on_host = [], 0, {}
        for field in self.node_fields:
            key = field.key or NODE
            if (key, field.name) not in self._served:
                ids = on_host[key] = on_host[key] if key in on_host else self.host_ids_of(subgraph, key)
                rows.append((field.key, field.name, field.source.gather(ids, allocate, num_threads, subgraph.hops.get(key))))
                num_bytes += ids.size * field.source.row_bytes
        for field in self.edge_fields:
            if (field.key or EDGE, field.name) not in self._served:
                key = cast(EdgeType, field.key or EDGE)
                ids = self.ids_of(subgraph, key) if key in subgraph.edges else _NO_IDS
                hops = subgraph.hops.get(key)
                found = None if ids is None else field.source.gather(as_numpy(ids), allocate, num_threads, hops)
                rows.append((field.key, field.name, found))
                num_bytes += 0 if ids is None else ids.numel() * field.source.row_bytes
        return rows, num_bytes

    def ids_of(self, subgraph: Subgraph, key: NodeType | EdgeType) -> torch.Tensor | None:
        """int64[n]: the nodes of a type in the batch, or its edges as rows of the input's edge fields are numbered; None where edges have
        no such numbers."""
        if isinstance(key, str):
            ids = subgraph.nodes.get(key)
            return _NO_IDS if ids is None else ids
        edges = subgraph.edges.get(key)
        return None if edges is None else edges.positions if self._source.by_position else edges.edge_ids

    def host_ids_of(self, subgraph: Subgraph, key: NodeType | EdgeType) -> np.ndarray:
        """The same for the host, which waits for a device's ids where it does not have them."""
        known = subgraph.on_host.get(key) if isinstance(key, str) else None
        if known is not None:
            return known
        ids = self.ids_of(subgraph, key)
        return np.empty(0, np.int64) if ids is None else as_numpy(ids)

    def assemble(self, subgraph: Subgraph, rows: Gathered, seed_set: SeedSet, seeds: BatchSeeds) -> Data | HeteroData:
        """Make the batch of a sample and its rows; `seeds` are those of `seed_set` that it began from."""
        batch, edge_types = self._source.new_batch(), list(self._source.graph.adjacency)
        store_of = self._stores(batch)
        for key, name, value in rows:
            _put(store_of(key), {name: value}, how=setitem)
        if isinstance(self._source, RemoteInput):
            self._source.fetch(batch, {t: ids.cpu() for t, ids in subgraph.nodes.items()})
        for node_type in self._source.graph.num_nodes:
            nodes = subgraph.nodes.get(node_type)
            self._set_nodes(store_of(node_type), node_type, _NO_IDS.clone() if nodes is None else nodes, subgraph)
        if any(edges.weights is not None for edges in subgraph.edges.values()):  # a batch has the edges of walks only
            for edge_type in batch.edge_types if isinstance(batch, HeteroData) else ():
                del batch[edge_type]  # pyright: ignore[reportArgumentType] (PyG takes types of nodes and of edges)
            edge_types, store_of = list(subgraph.edges), self._stores(batch)
        for edge_type in edge_types:
            edges = subgraph.edges.get(edge_type)
            if edges is None:
                edges = SubgraphEdges(_NO_IDS.clone().view(2, 0), None, _NO_IDS.clone(), _NO_IDS.clone(), None)
            self._set_edges(store_of(edge_type), edges, subgraph)
        for key, name, value in seed_set.told(seeds):
            _put(store_of(key), {name: value})
        return batch

    def _stores(self, batch: Any) -> Callable[[Any], Any]:
        """Node or edge type -> what takes the attributes of that type in a batch. PyG would look it up for each attribute."""
        if self._is_homogeneous:
            only = batch.stores[0] if type(batch) is Data else batch  # a class of the user's may set them otherwise
            return lambda key: only
        known = {None: batch} | {store._key: store for store in (*batch.node_stores, *batch.edge_stores)}

        def store_of(key: Any) -> Any:
            if key not in known:
                known[key] = batch[key]
            return known[key]

        return store_of

    def _set_nodes(self, store: Any, node_type: NodeType, nodes: torch.Tensor, subgraph: Subgraph) -> None:
        told: dict[str, Any] = {} if store.get("num_nodes") is None else {"num_nodes": nodes.numel()}
        told["n_id"] = nodes
        if subgraph.trees is not None and node_type in subgraph.trees:
            told["batch"] = subgraph.trees[node_type]
        told["num_sampled_nodes"] = (subgraph.num_nodes_per_hop or {}).get(node_type)
        if subgraph.hops:
            told["pad_node_mask"] = nodes >= 0
        _put(store, told, kept="n_id")

    def _set_edges(self, store: Any, edges: SubgraphEdges, subgraph: Subgraph) -> None:
        told = {"edge_index": edges.edge_index, "row_ptr": edges.row_ptr, "e_id": edges.edge_ids, "num_sampled_edges": edges.num_per_hop}
        if edges.weights is not None:
            told["edge_weight"] = edges.weights
        if subgraph.hops and edges.edge_ids is not None:
            told["pad_edge_mask"] = edges.edge_ids >= 0
        _put(store, told, kept="e_id")
        store._orig_edge_index = edges.original


def _put(store: Any, told: Mapping[str, Any], *, kept: str = "", how: Callable[[Any, str, Any], None] = setattr) -> None:
    """Set attributes of a new batch; None: it has none of that name.

    Args:
        kept: a name under which what the user has stays, as in PyG.
        how: an object of a class of the user's is given them.
    """
    if not isinstance(store, BaseStorage):
        for name, value in told.items():
            if name != kept or name not in store:
                how(store, name, value)
        return
    attributes = store._mapping  # PyG sets them in four times the time: it looks for what it might know of each, of a new batch nothing
    for name, value in told.items():
        if name == kept and name in attributes:
            continue
        if value is None:
            attributes.pop(name, None)
        else:
            attributes[name] = value


def _as_tensor(kind: RowKind, rows: Any) -> torch.Tensor:
    tensor = torch.from_numpy(rows) if isinstance(rows, np.ndarray) else rows
    return tensor.view(torch.bfloat16) if kind.is_bfloat16 else tensor


def _abandon(under_way: UnderWay) -> None:
    """Wait for reads whose rows nobody wants: later reads of the same tiers wait for them."""
    for _, pending in under_way:
        if pending is not None:
            with contextlib.suppress(PenstockError):
                pending.wait()
