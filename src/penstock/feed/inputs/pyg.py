"""PyG's `Data` and `HeteroData` as an input of a loader.

In: the user's object. Out: a `Graph`, fields, an empty batch, seeds. Invariant: nothing is copied but the topology of a graph whose edges
are not sorted by destination.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import EdgeStorage, NodeStorage

from penstock.errors import InputError, MissingFieldError, NotSupportedError, UsageError
from penstock.feed.fields import ROW_PTR, Field, row_ptr_is_taken, rows_of
from penstock.feed.inputs.base import PARTS, Input, as_ends, as_numbers, check_mask, is_pair
from penstock.feed.links import Ends
from penstock.feed.tensors import is_frame
from penstock.kernels.build_csc import cpu as build_kernels
from penstock.records import CSC, EDGE, NODE, EdgeType, Graph, NodeType, index_dtype
from penstock.sample.times import Timestamps, choose_times
from penstock.sample.weights import Weights, choose_weights


class PyGInput(Input):
    """A `Data` or `HeteroData` in memory."""

    def __init__(self, data: Data | HeteroData, *, is_sorted: bool) -> None:
        self.data = data
        node_stores, edge_stores = stores_of(data)
        num_nodes = {t: count_nodes(t, store) for t, store in node_stores.items()}
        for edge_type in edge_stores:
            for end in (edge_type[0], edge_type[2]):
                if end not in num_nodes:
                    raise InputError(f"edges {'/'.join(edge_type)}: '{end}' is no node type here; give data['{end}'].num_nodes")
        adjacency = {e: csc_of(store, e, num_nodes[e[0]], num_nodes[e[2]], is_sorted=is_sorted) for e, store in edge_stores.items()}
        self.graph = Graph(num_nodes, adjacency, isinstance(data, Data))
        for node_type, store in node_stores.items():
            _warn_of_lengths(node_type, store, ("y", "train_mask", "val_mask", "test_mask"), f"{num_nodes[node_type]} nodes")
        for edge_type, store in edge_stores.items():
            _warn_of_lengths(edge_type, store, ("edge_attr", "edge_weight"), f"{adjacency[edge_type].num_edges} edges")

    def choose(self, input_nodes: Any) -> tuple[NodeType | None, Any]:
        """(node type of a heterogeneous graph, what is chosen of it): ids, a mask, a part, or None for all. PyG would make a new type of
        a name that it does not know."""
        types = self.graph.node_types
        is_typed = is_pair(input_nodes, types)
        if self.graph.is_homogeneous:
            if is_typed:
                raise UsageError("input_nodes names a node type, and the graph has but one: give ids, a mask or a part alone")
            if isinstance(input_nodes, str) and input_nodes not in PARTS:
                raise UsageError(f"input_nodes={input_nodes!r} is no part of a split: give one of {', '.join(PARTS)}, node ids or a mask")
            return None, input_nodes
        node_type, chosen = input_nodes if is_typed else (input_nodes, None)
        if not isinstance(node_type, str):
            raise UsageError(
                f"input_nodes must name a node type of a heterogeneous graph: one of {types}, or a pair of it and ids or a mask"
            )
        if node_type not in types:
            part = f"; for a part write ('{types[0]}', '{node_type}')" if node_type in PARTS and not is_typed else ""
            raise UsageError(f"input_nodes: '{node_type}' is not a node type; the node types are {types}{part}")
        if isinstance(chosen, str) and chosen not in PARTS:
            raise UsageError(f"input_nodes={input_nodes!r}: '{chosen}' is no part of a split, which are {', '.join(PARTS)}")
        return node_type, chosen

    def part(self, name: str, node_type: NodeType | None) -> np.ndarray:
        """Nodes that a mask names."""
        store = self.data if node_type is None else self.data[node_type]
        mask = store.get(f"{name}_mask")
        if mask is None:
            raise MissingFieldError(f"input_nodes='{name}', but the data has no {name}_mask; give node ids or a mask")
        if mask.dim() != 1:
            raise UsageError(f"{name}_mask holds {mask.shape[1]} splits; choose one: input_nodes=data.{name}_mask[:, 0]")
        check_mask(mask, self.graph.num_nodes[node_type or NODE])
        return mask.nonzero().view(-1).cpu().numpy()

    def all_links(self, edge_type: EdgeType) -> tuple[Ends, np.ndarray | None]:
        """All edges, in the order of `edge_index`."""
        store: Any = self.data if isinstance(self.data, Data) else self.data[edge_type]
        edge_index = store.get("edge_index")  # a graph without edges may have none
        return as_ends(np.empty((2, 0), np.int64) if edge_index is None else edge_index), None

    def fields(self) -> tuple[list[Field], list[Field]]:
        """Every attribute that PyG itself would cut to the batch."""
        nodes, edges = [], []
        data: Any = self.data
        stores: list[Any] = [data._store] if isinstance(data, Data) else [*data.node_stores, *data.edge_stores]
        for store in stores:
            key = store._key
            for name, value in store.items():
                if name in ("num_nodes", "edge_index", "adj_t"):
                    continue
                if name == ROW_PTR and (isinstance(data, Data) or isinstance(store, EdgeStorage)):
                    if is_row_ptr(value, store):
                        continue  # the data is a batch of ours: it has one of its own
                    raise row_ptr_is_taken()
                label, dim = name if key is None else f"{key} {name}", self.data.__cat_dim__(name, value, store)
                is_feature = isinstance(store, NodeStorage) and (name == "x" or (name == "tf" and is_frame(value)))
                if store.is_node_attr(name) or is_feature:  # a feature of whatever length: PyG passes on a wrong one
                    nodes.append(Field(key, name, rows_of(value, label, self.graph.num_nodes[key or NODE], dim)))
                elif store.is_edge_attr(name):
                    edges.append(Field(key, name, rows_of(value, label, self.graph.adjacency[key or EDGE].num_edges, dim)))
        return nodes, edges

    def weights(self, name: str) -> dict[EdgeType, Weights]:
        """The weights of edges of that name, by edge type, in the order of `edge_index`."""
        stores: list[Any] = [self.data._store] if isinstance(self.data, Data) else self.data.edge_stores
        fields = {
            store._key or EDGE: {k: v for k, v in store.items() if k != "edge_index" and (k == name or store.is_edge_attr(k))}
            for store in stores
        }
        chosen = choose_weights(fields, name, type(self.data).__name__)
        return {e: Weights(as_numbers(value, name), name) for e, value in chosen.items()}

    def times(self, name: str) -> Timestamps:
        """The times of that name, of nodes or of edges, the latter in the order of `edge_index`."""
        of_nodes, of_edges = stores_of(self.data)
        if self.graph.is_homogeneous and name in of_nodes[NODE]:  # one store for both, and lengths say whose it is
            of_nodes, of_edges = ({}, of_edges) if of_nodes[NODE].is_edge_attr(name) else (of_nodes, {})
        chosen, named = choose_times(of_nodes, of_edges, name, type(self.data).__name__)
        nodes = {t: as_numbers(of_nodes[t][name], name).copy() for t in chosen}  # read once, for seeds to come too
        return Timestamps(nodes, {e: as_numbers(of_edges[e][name], name) for e in named}, name)

    def new_batch(self) -> Data | HeteroData:
        """Return a shallow copy of the data; every per-node and per-edge attribute is replaced later."""
        return copy.copy(self.data)


def stores_of(data: Data | HeteroData) -> tuple[dict[NodeType, Any], dict[EdgeType, Any]]:
    """Return where PyG keeps what it has of nodes and of edges, by type; of `Data` one place for both, which a subclass may count by."""
    if isinstance(data, Data):
        return {NODE: data}, {EDGE: data._store}
    return {t: data[t] for t in data.node_types}, {e: data[e] for e in data.edge_types}


def count_nodes(node_type: NodeType, store: Any) -> int:
    """Return the number of nodes of a type, or raise where PyG cannot tell."""
    if store.num_nodes is None:
        raise InputError(f"the number of nodes of type '{node_type}' cannot be told: set num_nodes, or give it features")
    return int(store.num_nodes)


def is_row_ptr(value: Any, store: Any) -> bool:
    """Whether an attribute is what a batch calls so: where the edges of each node begin."""
    if not isinstance(value, torch.Tensor) or value.dim() != 1 or value.dtype != torch.int64:
        return value is None
    is_whole = value.numel() and value[0] == 0 and value[-1] == store.num_edges and (value[1:] >= value[:-1]).all()
    is_cut = "e_id" in store and not (store.is_node_attr(ROW_PTR) or store.is_edge_attr(ROW_PTR))  # whose edges were changed since
    return bool(is_whole) or is_cut


def _warn_of_lengths(key: NodeType | EdgeType, store: Any, names: tuple[str, ...], count: str) -> None:
    """Say so where what is of nodes or edges by its name has another length: PyG takes it as the graph's, whole in every batch."""
    for name in names:
        value = store.get(name)
        length = len(value) if is_frame(value) or (isinstance(value, torch.Tensor) and value.dim()) else 0
        if length > 1 and not (store.is_node_attr(name) or store.is_edge_attr(name)):
            of = "" if key in (NODE, EDGE) else f" of '{key if isinstance(key, str) else '/'.join(key)}'"
            warnings.warn(
                f"{name}{of} has {length} entries for {count}: as in PyG each batch gets all of it, not the rows that are its own",
                stacklevel=6,
            )


def csc_of(store: Any, edge_type: EdgeType, num_src: int, num_dst: int, *, is_sorted: bool) -> CSC:
    """Build the in-neighbour lists of one edge type from its `edge_index`, in the order of the edges."""
    edge_index = store.get("edge_index")
    name = "edge_index" if edge_type == EDGE else f"edge_index of {edge_type}"
    if "adj_t" in store:
        give = "give edge_index (torch_geometric.utils.to_edge_index)" if edge_index is None else "delete it, edge_index says the same"
        raise NotSupportedError(f"adj_t is not supported as input: {give}")
    if edge_index is None:
        edge_index = torch.empty(2, 0, dtype=torch.int64, device="cpu")
    is_pair = isinstance(edge_index, torch.Tensor) and edge_index.dim() == 2 and edge_index.shape[0] == 2
    if not is_pair or edge_index.dtype not in (torch.int32, torch.int64):
        got = f"{edge_index.dtype} {list(edge_index.shape)}" if isinstance(edge_index, torch.Tensor) else type(edge_index).__name__
        raise InputError(f"{name} must be int64 or int32 [2, num_edges], got {got}")
    return csc_of_edges(*_halves(edge_index), name, num_src, num_dst, is_sorted=is_sorted)


def csc_of_edges(src: np.ndarray, dst: np.ndarray, name: str, num_src: int, num_dst: int, *, is_sorted: bool) -> CSC:
    """Check edges, int32[n] or int64[n] contiguous, and build the lists of them. `name`: what messages call them."""
    for end, ids, count in (("source", src, num_src), ("destination", dst, num_dst)):
        if ids.size and not (ids.min() >= 0 and ids.max() < count):
            bad = np.flatnonzero((ids < 0) | (ids >= count))
            raise InputError(
                f"{name}: {bad.size} of {ids.size} {end} ids lie outside [0, {count}); first is edge {bad[0]} with {ids[bad[0]]}"
                + (". Is num_nodes too small?" if ids.min() >= 0 else "")
            )
    try:
        degrees = np.zeros(num_dst + 1, dtype=np.int64)
    except MemoryError:
        raise InputError(f"{name}: lists of {num_dst} nodes do not fit into memory: number them from 0 on, if ids are far apart") from None
    build_kernels.count_degrees(dst, degrees[1:])
    indptr = np.cumsum(degrees, out=degrees)
    id_dtype = index_dtype(num_src)
    in_order = bool((dst[1:] >= dst[:-1]).all())
    if is_sorted and not in_order:
        raise UsageError(f"is_sorted=True, but {name} is not sorted by destination: leave is_sorted out")
    if in_order:
        return CSC(indptr, src.astype(id_dtype, copy=False))  # half the bytes: sampling is a quarter faster
    indices = np.empty(src.size, dtype=id_dtype)
    edge_ids = np.empty(src.size, dtype=index_dtype(src.size))
    build_kernels.place_edges(src, dst, indptr[:-1].copy(), indices, edge_ids)
    return CSC(indptr, indices, edge_ids)


def _halves(edge_index: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    plain = edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
    return plain[0].contiguous().cpu().numpy(), plain[1].contiguous().cpu().numpy()
