"""A batch cut into what each layer of a model needs: sparse products in place of edge lists, and only the rows that matter.

In: a batch from `NeighborLoader`. Out: one `Layer` per hop, first the one next to the features. Invariant: feeding a PyG layer with
`(x, x[:num_dst])` and `layer.adj_t()` gives, for the seeds, what the whole `edge_index` gives, at a fraction of the work: no node is
computed that no later layer reads, and no message is written to memory.

It costs nothing: the sampler groups edges by destination and orders destinations by hop, so every layer is a prefix of the batch. That is
true of the edges as the loader made them, so a batch remembers those (`note_edges`): the same tensors need no check; copies, on a device
for instance, are compared; edges that a transform has changed are refused. A layer inside a model, which has the edges and not the batch,
asks `hops_of`.

    for conv, layer in zip(convs, penstock.layers(batch), strict=True):
        x = conv((x, x[: layer.num_dst]), layer.adj_t()).relu()
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, overload

import torch
from torch.utils.weak import WeakIdRef, WeakTensorKeyDictionary
from torch_geometric.data import Data, HeteroData

from penstock.errors import MissingFieldError, UsageError
from penstock.records import EdgeType, NodeType

_ones: dict[tuple[torch.device, int, torch.dtype], torch.Tensor] = {}
"""(device, stream, dtype) -> ones. By stream, since another stream would not wait until they are written."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The edges of one type that one layer needs.

    Attributes:
        num_src, num_dst: rows that go in and come out; destination i is source i.
        row_ptr: int64[num_dst + 1]; the edges into destination i are `row_ptr[i]:row_ptr[i + 1]`.
        sources: int64[num_edges], the source of each edge.
        edge_index: int64[2, num_edges], the same edges as a list, for layers that want one (attention).
        edge_ids: int64[num_edges], the batch's `e_id`, or None.
    """

    num_src: int
    num_dst: int
    row_ptr: torch.Tensor
    sources: torch.Tensor
    edge_index: torch.Tensor
    edge_ids: torch.Tensor | None

    def __repr__(self) -> str:
        return f"Layer(num_src={self.num_src}, num_dst={self.num_dst}, num_edges={self.sources.numel()})"

    def adj_t(self, values: torch.Tensor | None = None) -> torch.Tensor:
        """Return the transposed adjacency as a sparse CSR tensor [num_dst, num_src]; `values` float[num_edges], default ones."""
        if values is None:
            device = self.sources.device
            stream = torch.cuda.current_stream(device.index).cuda_stream if device.type == "cuda" else 0
            place = device, stream, torch.get_default_dtype()
            ones = _ones.get(place)
            if ones is None or ones.numel() < self.sources.numel():
                ones = _ones[place] = torch.ones(self.sources.numel() * 5 // 4, device=device)
            values = ones[: self.sources.numel()]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks are implicitly)")
            return torch.sparse_csr_tensor(
                self.row_ptr, self.sources, values, size=(self.num_dst, self.num_src), dtype=values.dtype, check_invariants=False
            )

    def adj_t_with_loops(self, values: torch.Tensor, loops: torch.Tensor) -> torch.Tensor:
        """As `adj_t`, with a self-loop of weight `loops` float[num_dst] at the end of each row."""
        device, num_edges = self.sources.device, self.sources.numel()
        rows = torch.arange(self.num_dst, device=device)
        row_ptr = self.row_ptr + torch.arange(self.num_dst + 1, device=device)
        at = torch.arange(num_edges, device=device) + self.edge_index[1]
        sources = torch.empty(num_edges + self.num_dst, dtype=torch.int64, device=device)
        weights = torch.empty(num_edges + self.num_dst, dtype=values.dtype, device=device)
        sources[at], weights[at] = self.sources, values
        sources[row_ptr[1:] - 1], weights[row_ptr[1:] - 1] = rows, loops
        return Layer(self.num_src, self.num_dst, row_ptr, sources, self.edge_index, None).adj_t(weights)


def ones_in_use() -> list[torch.Tensor]:
    """The ones that `Layer.adj_t` takes as weights by default. Larger ones may replace them: keep a reference to those in use."""
    return list(_ones.values())


def has_weights(adj_t: torch.Tensor) -> bool:
    """Whether `Layer.adj_t` was given values: else they are the shared ones, which are known by their address."""
    address = adj_t.values().data_ptr()
    return all(ones.data_ptr() != address for ones in _ones.values())


@dataclass(frozen=True, slots=True)
class Hops:
    """How the edges of one type of a batch fall into hops. All are one hop, with all nodes before and after it, where there are none.

    Attributes:
        num_src, num_dst: nodes known after each hop, seeds first, of the types of sources and destinations.
        num_edges: edges of each hop; hops follow each other.
        row_ptr: int64[>= num_dst[-2] + 1].
        num_writes: how often the edges had been written to in place (torch's version counter).
    """

    num_src: tuple[int, ...]
    num_dst: tuple[int, ...]
    num_edges: tuple[int, ...]
    row_ptr: torch.Tensor
    num_writes: int

    def layer(self, edge_index: torch.Tensor, num_hops: int, edge_ids: torch.Tensor | None = None) -> Layer:
        """Return the `Layer` from which the seeds are `num_hops` hops away: its own hop, and one for each later layer."""
        num_src, num_dst, num_edges = self.num_src[num_hops], self.num_dst[num_hops - 1], sum(self.num_edges[:num_hops])
        row_ptr, edge_index = self.row_ptr[: num_dst + 1], edge_index[:, :num_edges]
        return Layer(num_src, num_dst, row_ptr, edge_index[0], edge_index, None if edge_ids is None else edge_ids[:num_edges])


_hops: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""`edge_index` of a batch -> its `Hops`, while the tensor lives."""
_copies: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Copy of an `edge_index` -> (reference to the original, `Hops`)."""


@dataclass(frozen=True, slots=True)
class TypedLayer:
    """What one layer of a model over typed graphs needs.

    Attributes:
        num_src, num_dst: node type -> rows that go in and come out.
        edges: edge type -> its edges.
    """

    num_src: dict[NodeType, int]
    num_dst: dict[NodeType, int]
    edges: dict[EdgeType, Layer]


@overload
def layers(batch: Data) -> list[Layer]: ...
@overload
def layers(batch: HeteroData) -> list[TypedLayer]: ...
def layers(batch: Data | HeteroData) -> list[Layer] | list[TypedLayer]:
    """Cut a batch into one layer per hop, first the one that reads the features.

    Args:
        batch: from `NeighborLoader` with subgraph_type="directional".
    Returns:
        list[Layer] for `Data`, list[TypedLayer] for `HeteroData`.
    Raises:
        MissingFieldError: not a batch of such a loader.
        UsageError: the edges were changed after the loader made the batch.
    """
    if not isinstance(batch, (Data, HeteroData)):
        raise UsageError(f"layers takes a batch (Data or HeteroData), got {type(batch).__name__}")
    for store in batch.edge_stores:
        if hasattr(store, "_made_with"):
            _check_edges(store)
    known = _known_after(batch)
    if isinstance(batch, Data):
        hops = _hops_in(batch.edge_stores[0], known)
        return [hops.layer(batch["edge_index"], number, batch.get("e_id")) for number in range(len(hops.num_src) - 1, 0, -1)]
    stores = {store._key: store for store in batch.edge_stores if "edge_index" in store}  # others tell of links only
    hops_by_type = {edge_type: _hops_in(store, known) for edge_type, store in stores.items()}
    after = {node_type: _told(known[node_type]) for node_type in batch.node_types}
    cut = []
    for number in range(len(next(iter(after.values()))) - 1, 0, -1):
        num_src, num_dst = ({node_type: each[at] for node_type, each in after.items()} for at in (number, number - 1))
        edges = {e: hops.layer(stores[e].edge_index, number, stores[e].get("e_id")) for e, hops in hops_by_type.items()}
        cut.append(TypedLayer(num_src, num_dst, edges))
    return cut


def hops_of(edge_index: torch.Tensor, num_src: int, num_dst: int | None) -> Hops | None:
    """Return how edges fall into hops; None for edges that no loader made. num_src, num_dst: numbers of nodes known after some of the hops;
    num_dst None: not told.

    Copies of the edges of a batch, on a device for instance, are recognised while the batch lives, by comparing them once.

    Raises:
        UsageError: the edges were written to since.
    """
    hops = _hops.get(edge_index) or _copied(edge_index, num_src, num_dst)
    if hops is None:
        return None
    if hops.num_writes != _num_writes(edge_index):
        raise UsageError("the edges of this batch were written to since the loader made it, and a trimmed layer cuts those: change a copy")
    return hops


def row_ptr_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """What layers read beside edges that a loader made, or known copies of them, though a transform may have left it out of the batch; None
    for what is no such."""
    if tensor.dim() != 2:
        return None
    hops, known = _hops.get(tensor), _copies.get(tensor)
    return hops.row_ptr if hops is not None else known[1].row_ptr if known is not None else None


def _copied(edge_index: torch.Tensor, num_src: int, num_dst: int | None) -> Hops | None:
    """Return the hops of the batch whose memory the edges are, or of one with equal edges; None if several differ. If there are no edges,
    those of any batch with such numbers of nodes."""
    copies, noted = (  # copied first: threads add to them meanwhile
        [(reference(), value) for reference, value in list(table.data.items())] for table in (_copies, _hops)
    )
    for copy, (original, hops) in copies:
        if copy is None or original() is None:
            continue
        if copy is edge_index or (hops.num_writes == _num_writes(edge_index) and _is_same(edge_index, copy)):
            return hops
    there = [(edges, hops) for edges, hops in noted if edges is not None and hops.num_writes == _num_writes(edges)]
    found = [(edges, hops) for edges, hops in there if _is_same(edge_index, edges)] or [
        (edges, hops)
        for edges, hops in there
        if num_src in hops.num_src and (num_dst is None or num_dst in hops.num_dst) and _are_equal(edge_index, edges)
    ]
    if not found or (edge_index.numel() and len({(hops.num_src, hops.num_dst) for _, hops in found}) > 1):
        return None
    edges, hops = found[-1]
    row_ptr = hops.row_ptr.to(edge_index.device)
    if row_ptr.is_cuda:  # of a batch of which perhaps only copies were handed over to this stream
        row_ptr.record_stream(torch.cuda.current_stream(row_ptr.device.index))
    hops = replace(hops, row_ptr=row_ptr, num_writes=_num_writes(edge_index))
    if edge_index.numel():
        _copies[edge_index] = WeakIdRef(edges), hops
    return hops


def note_edges(batch: Data | HeteroData) -> None:
    """Have a batch remember the edges that it was made with: (edge_index, row_ptr, (id of edge_index, its version counter))."""
    known = _known_after(batch)
    for store in batch.edge_stores:
        if (row_ptr := store.get("row_ptr")) is not None:
            edge_index = store["edge_index"]
            vars(store)["_made_with"] = edge_index, row_ptr, (id(edge_index), _num_writes(edge_index))
            _hops[edge_index] = _without_hops(batch, store) if store.get("num_sampled_edges") is None else _hops_in(store, known)


def _num_writes(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _check_edges(store) -> None:
    edge_index, row_ptr, (number, num_writes) = store._made_with
    is_written = id(edge_index) == number and _num_writes(edge_index) != num_writes  # a copy counts anew
    pairs = ((store.edge_index, edge_index), (store.row_ptr, row_ptr))
    if is_written or not all(now is made or _are_equal(now, made) for now, made in pairs):
        raise UsageError(
            "the edges of this batch are not those that the loader made it with, and layers() cuts those: change edges layer by layer "
            "(layer.edge_index, layer.adj_t(values)), or give the model the batch's edge_index"
        )


def _are_equal(now: torch.Tensor, made: torch.Tensor) -> bool:
    return (now.shape, now.dtype) == (made.shape, made.dtype) and (_is_same(now, made) or torch.equal(now, made.to(now.device)))


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both are the same memory, read alike: a view of all of a tensor, which needs no look at its numbers."""
    if one.layout != torch.strided:
        return False
    read, others = ((each.dtype, each.shape, each.stride()) for each in (one, other))
    return read == others and place_of(one) == place_of(other)


def place_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor begins: in which memory, which lives no longer than its tensors, and at which number of it; of what `torch.func` makes
    of a tensor, which has none, something that no other tensor has."""
    try:
        return tensor.untyped_storage()._cdata, int(tensor.storage_offset())
    except (NotImplementedError, RuntimeError):
        return id(tensor), -1


def are_counts(counts: Sequence[int]) -> bool:
    """Whether a batch that is there has so many new nodes of a type, or edges, in each hop."""
    known = tuple(accumulate(counts))
    return any(known in (hops.num_src, hops.num_dst) or tuple(counts) == hops.num_edges for hops in list(_hops.data.values()))


def _known_after(batch: Data | HeteroData) -> dict[NodeType | None, tuple[int, ...] | None]:
    """Node type -> number of nodes known after each hop, seeds first, or None where the batch does not tell. `Data` has the type None."""
    told = {store._key: store.get("num_sampled_nodes") for store in batch.node_stores}
    return {node_type: None if counts is None else tuple(accumulate(counts)) for node_type, counts in told.items()}


def _told(known: tuple[int, ...] | None) -> tuple[int, ...]:
    if known is None:
        raise MissingFieldError("no num_sampled_nodes: layers() takes batches of penstock.NeighborLoader, subgraph_type='directional'")
    return known


def _hops_in(store: Any, known: Mapping[NodeType | None, tuple[int, ...] | None]) -> Hops:
    """How the edges in a store of a batch fall into hops."""
    src, _, dst = store._key or (None, None, None)
    num_src, num_dst = _told(known.get(src)), _told(known.get(dst))
    row_ptr, edge_index = store.get("row_ptr"), store.get("edge_index")
    if row_ptr is None or not hasattr(store, "_made_with"):
        raise MissingFieldError("no row_ptr: layers() takes batches of penstock.NeighborLoader, subgraph_type='directional'")
    return Hops(num_src, num_dst, tuple(store["num_sampled_edges"]), row_ptr, _num_writes(edge_index))


def _without_hops(batch: Data | HeteroData, store) -> Hops:
    """Of induced and bidirectional batches: a hop that finds no node, so that each layer is given all rows and gives all."""
    num_dst = store.row_ptr.numel() - 1
    num_src = batch[store._key[0]].num_nodes if isinstance(batch, HeteroData) else num_dst
    assert num_src is not None
    return Hops((num_src, num_src), (num_dst, num_dst), (store.edge_index.shape[1],), store.row_ptr, _num_writes(store.edge_index))
