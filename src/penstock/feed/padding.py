"""Batches of few sizes: each hop is filled up, so that a compiled model is compiled once, and a step can be recorded as a CUDA graph.

In: samples of a few batches. Out: a `Padding`, and samples padded to it. Invariants: added nodes have edges among themselves only, so that
a model computes the same for the nodes of the sample, unless it computes over all nodes, as batch norm does; the size of a batch is a
function of what was sampled. Each hop is filled up separately, so that `penstock.layers` and PyG's `trim_to_layer` cut such a batch as any
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import NotSupportedError, UsageError
from penstock.feed.inputs import RemoteInput
from penstock.feed.subgraph import Subgraph, SubgraphEdges
from penstock.gather.hops import size_of
from penstock.kernels.pad_hops import cpu
from penstock.order import GivenOrder
from penstock.records import Allocator, EdgeType, Graph, NodeType, Sample
from penstock.sample.batches import SampledBatches
from penstock.store.tiers.pinned import to_device

if TYPE_CHECKING:
    from penstock.feed.maker import BatchMaker

MEASURED = 16
"""Batches that are sampled to choose the sizes."""
HEADROOM, SPARE, MULTIPLE = 1 / 3, 8, 8
"""A size is the largest among them, plus a third of their range, plus 8, rounded up to a multiple of 8."""
MASKS = ("pad_node_mask", "pad_edge_mask")
"""PyG's names; `feed/assemble.py` sets them."""
STEP = 1.25
"""Larger samples are padded to these sizes times this, or its square, and so on: seldom, and each is compiled once as well."""


@dataclass(frozen=True, slots=True)
class Padding:
    """Sizes that batches are padded to; larger batches are padded to these sizes times 1.25, or 1.25 squared, and so on.

    Attributes:
        num_nodes: node type (homogeneous: "node") -> nodes of each hop, seeds first.
        num_edges: edge type (homogeneous: ("node", "to", "node")) -> edges of each hop.
    """

    num_nodes: Mapping[NodeType, tuple[int, ...]]
    num_edges: Mapping[EdgeType, tuple[int, ...]]

    @classmethod
    def measure(cls, batches: SampledBatches) -> Padding:
        """Choose sizes that have room for most batches, by sampling some of the first epoch, and of later ones if it is short."""
        graph, workspace, num_batches = batches.sampler.graph, batches.sampler.workspace(), batches.num_batches
        every = max(1, num_batches // MEASURED)
        places = [divmod(number * every, num_batches) for number in range(MEASURED)]
        counted = [_counts_of(batches.draw(epoch, index, workspace)) for epoch, index in places]
        sizes: dict[Any, tuple[int, ...]] = {}
        for key in counted[0]:
            each = np.array([counts[key] for counts in counted])
            most = each.max(axis=0)
            size = most + (HEADROOM * (most - each.min(axis=0))).astype(np.int64) + SPARE
            sizes[key] = tuple((-(-size // MULTIPLE) * MULTIPLE).tolist())
        return cls({t: sizes[t] for t in graph.num_nodes}, {e: sizes[e] for e in graph.adjacency})

    def check(self, graph: Graph, num_hops: int) -> None:
        """Raise unless there are sizes for all hops of all types."""
        for what, wanted, sizes in (("num_nodes", graph.num_nodes, self.num_nodes), ("num_edges", graph.adjacency, self.num_edges)):
            if sizes.keys() != wanted.keys():
                raise UsageError(f"pad: {what} has sizes for {_names(sizes)}, and the graph has {_names(wanted)}")
            length = num_hops + (what == "num_nodes")
            for key, each in sizes.items():
                if np.shape(each) != (length,) or not all(isinstance(size, (int, np.integer)) and size >= 1 for size in each):
                    raise UsageError(f"pad: {what} of {_names([key])} must be {length} numbers from 1, one for each hop; got {each}")

    def fit(self, sample: Sample | Subgraph) -> tuple[int, dict[NodeType | EdgeType, np.ndarray]]:
        """Return (the first step of sizes that holds a sample, its hops: see `Subgraph`). Each hop gets a node more, for added edges."""
        needed = _counts_of(sample)
        for step, sizes in enumerate(self._steps()):
            hops = {key: np.stack([np.array(needed[key], np.int64), size], axis=1) for key, size in sizes.items()}
            if all((each[:, 0] + isinstance(key, str) <= each[:, 1]).all() for key, each in hops.items()):
                return step, hops
        raise AssertionError

    def _steps(self) -> Iterator[dict[NodeType | EdgeType, np.ndarray]]:
        factor = 1.0
        while True:
            sizes = {**self.num_nodes, **self.num_edges}
            yield {key: np.ceil(np.array(size) * factor).astype(np.int64) for key, size in sizes.items()}
            factor *= STEP

    def describe(self) -> dict[str, list[int]]:
        """Plain values, for states."""
        sizes = {**self.num_nodes, **self.num_edges}
        return {"/".join([key] if isinstance(key, str) else key): [int(each) for each in size] for key, size in sizes.items()}


def choose_padding(pad: bool | Padding, maker: BatchMaker) -> Padding | None:
    """Return the sizes for a loader's argument `pad`; None where batches keep their own."""
    pad = bool(pad) if isinstance(pad, (bool, np.bool_)) or pad is None else pad
    if pad is False:
        return None
    if pad is not True and not isinstance(pad, Padding):
        raise UsageError(f"pad must be True, or sizes (the `padding` of another loader), got {type(pad).__name__}")
    if maker.subgraph_type != SubgraphType.directional or maker.transform_output is not None:
        raise UsageError("pad fills up samples hop by hop: take subgraph_type='directional', and no transform_sampler_output")
    if maker.sampler.walks is not None:
        raise NotSupportedError("pad does not go with walks, whose edges have weights and no ids: leave out one of them")
    if isinstance(maker.source, RemoteInput):
        raise NotSupportedError("pad with a FeatureStore is not supported: its rows come as it gives them; load from the data, or a store")
    if taken := {field.name for fields in maker.source.fields() for field in fields}.intersection(MASKS):
        raise UsageError(f"{min(taken)} is the name of a mask that padding adds to batches: rename this field, or do not pad")
    if isinstance(pad, Padding):
        pad.check(maker.sampler.graph, maker.sampler.num_hops)
        return pad
    if isinstance(maker.order, GivenOrder):
        raise UsageError(
            "pad=True measures sizes before the first batch, and what a sampler gives is not known then: say pad=loader.padding"
        )
    return Padding.measure(maker.batches)


def padded(subgraph: Subgraph, num_trees: int, allocate: Allocator) -> Subgraph:
    """Return a sample with its hops filled up, in memory from `allocate`. Added ids are -1, and belong to tree `num_trees`."""
    fill = _Fill(subgraph, allocate)
    nodes, trees = {t: fill.ids(t, ids) for t, ids in subgraph.nodes.items()}, subgraph.trees
    if trees is not None:
        trees = {t: fill.ids(t, each).masked_fill_(nodes[t] < 0, num_trees) for t, each in trees.items()}
    edges = {e: fill.edges(e, each) for e, each in subgraph.edges.items()}
    per_hop = {t: subgraph.hops[t][:, 1].tolist() for t in nodes}
    return replace(subgraph, nodes=nodes, edges=edges, num_nodes_per_hop=per_hop, trees=trees, on_host={}, marks={})


def count_added(subgraph: Subgraph) -> tuple[int, int]:
    """(nodes, edges) added to a sample."""
    of_nodes, of_edges = (sum(int(np.diff(subgraph.hops[key]).sum()) for key in keys) for keys in (subgraph.nodes, subgraph.edges))
    return of_nodes, of_edges


def _counts_of(sample: Sample | Subgraph) -> dict[Any, list[int]]:
    """Node or edge type -> how many there are in each hop."""
    of_edges = {e: edges.num_per_hop or [] for e, edges in sample.edges.items()}
    return {**(sample.num_nodes_per_hop or {}), **of_edges}


class _Fill:
    """The kernels of the CPU, or of the device that has the sample."""

    def __init__(self, subgraph: Subgraph, allocate: Allocator) -> None:
        self._hops = subgraph.hops
        if subgraph.is_on_device:
            from penstock.kernels.pad_hops import gpu

            device = next(iter(subgraph.nodes.values())).device
            self._there = {key: to_device(hops, device) for key, hops in self._hops.items()}
            self._kernels, self._empty = gpu, lambda size: torch.empty(size, dtype=torch.int64, device=device)
            self._as_given = lambda tensor: tensor
        else:
            self._there = {key: torch.from_numpy(hops) for key, hops in self._hops.items()}
            self._kernels, self._empty = cpu, lambda size: torch.from_numpy(allocate(size, np.int64)[:size])
            self._as_given = torch.Tensor.numpy

    def ids(self, key: NodeType | EdgeType, ids: torch.Tensor) -> torch.Tensor:
        """Padded int64 ids of nodes or edges, -1 for added ones."""
        out = self._empty(size_of(self._hops[key], 0))
        self._run(self._kernels.pad_ids, ids, self._there[key], out)
        return out

    def edges(self, key: EdgeType, edges: SubgraphEdges) -> SubgraphEdges:
        """Padded edges of a type."""
        assert edges.row_ptr is not None
        assert edges.edge_ids is not None
        num_edges, num_rows = size_of(self._hops[key], 0), size_of(self._hops[key[2]][:-1], 0)
        edge_index, row_ptr = self._empty(2 * num_edges).view(2, num_edges), self._empty(num_rows + 1)
        hops, sources, targets = (self._there[each] for each in (key, key[0], key[2]))
        self._run(self._kernels.pad_edges, *edges.edge_index, hops, sources, targets, *edge_index)
        self._run(self._kernels.pad_row_ptr, edges.row_ptr, hops, targets, row_ptr)
        ids = self.ids(key, edges.edge_ids)
        return SubgraphEdges(edge_index, row_ptr, edges.positions, ids, self._hops[key][:, 1].tolist())

    def _run(self, kernel: Callable[..., None], *tensors: torch.Tensor) -> None:
        kernel(*map(self._as_given, tensors))


def _names(keys: Iterable[NodeType | EdgeType]) -> str:
    return ", ".join("/".join([key] if isinstance(key, str) else key) for key in keys)
