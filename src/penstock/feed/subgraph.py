"""A sample as tensors, and PyG's own form of it for the user's `transform_sampler_output`.

In: a `Sample` (NumPy). Out: a `Subgraph` (torch, sharing its memory), from which the batch is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from penstock.errors import UsageError
from penstock.kernels.edges import cpu as edge_kernels
from penstock.records import EDGE, NODE, Allocator, EdgeType, Graph, NodeType, Sample
from penstock.store.tiers.pinned import to_host

if TYPE_CHECKING:
    from penstock.sample.device_sample import DeviceSample


@dataclass(slots=True)
class SubgraphEdges:
    """Edges of one type.

    Attributes:
        edge_index: int64[2, num_edges], positions in the batch.
        row_ptr: int64[num_rows + 1]; None where the edges are not grouped by destination.
        positions: int64[num_edges] in the CSC; None where edges do not stand for single edges of the input.
        edge_ids: int64[num_edges], the user's numbers, set by `number_edges`; None where `positions` is.
        num_per_hop: edges of each hop, or None.
        original: int64[2, num_edges], the edges before they were made bidirectional; None if they were not.
        weights: float32[num_edges], how often walks visited the source; None of sampled edges.
    """

    edge_index: torch.Tensor
    row_ptr: torch.Tensor | None
    positions: torch.Tensor | None
    edge_ids: torch.Tensor | None
    num_per_hop: list[int] | None
    original: torch.Tensor | None = None
    weights: torch.Tensor | None = None


Metadata = tuple[Any, ...]
"""PyG's sampler metadata: `input_id` of the seeds, int64[num_seeds], and what else their kind has, tensors or None."""


@dataclass(slots=True)
class Subgraph:
    """What is sampled for one batch, as tensors; attributes as in `Sample`.

    Attributes:
        is_on_device: a device sampled it, and has the tensors.
        on_host: node type -> int64[n], ids that the host has as well.
        marks: as in `Sample`; lost where the sample is transformed.
        metadata: of the seeds, as a transform of the user's returned it; None without one.
        hops: node or edge type -> int64[n, 2], the size and padded size of each hop (see `penstock.gather.hops`); empty without padding.
    """

    nodes: dict[NodeType, torch.Tensor]
    edges: dict[EdgeType, SubgraphEdges]
    num_nodes_per_hop: dict[NodeType, list[int]] | None
    trees: dict[NodeType, torch.Tensor] | None
    is_on_device: bool = False
    on_host: dict[NodeType, np.ndarray] = field(default_factory=dict)
    marks: dict[NodeType, np.ndarray] = field(default_factory=dict)
    metadata: Metadata | None = None
    hops: Mapping[NodeType | EdgeType, np.ndarray] = field(default_factory=dict)

    def tensors(self) -> list[torch.Tensor | None]:
        """All of its tensors."""
        edges = [one for each in self.edges.values() for one in (each.edge_index, each.row_ptr, each.positions, each.edge_ids)]
        return [*self.nodes.values(), *(self.trees or {}).values(), *edges]


def subgraph_of(sample: Sample) -> Subgraph:
    """Wrap a sample, without a copy."""
    edges = {}
    for edge_type, sampled in sample.edges.items():
        edge_index, row_ptr, positions = map(torch.from_numpy, (sampled.edge_index, sampled.row_ptr, sampled.positions))
        edges[edge_type] = SubgraphEdges(edge_index, row_ptr, positions, None, sampled.num_per_hop)
    trees = None if sample.trees is None else {t: torch.from_numpy(tree) for t, tree in sample.trees.items()}
    nodes = {t: torch.from_numpy(ids) for t, ids in sample.nodes.items()}
    is_induced = any(sampled.num_per_hop is None for sampled in sample.edges.values())
    return Subgraph(nodes, edges, None if is_induced else sample.num_nodes_per_hop, trees, marks=sample.marks)


def subgraph_on_device(sample: DeviceSample, number: Callable[[EdgeType, torch.Tensor], torch.Tensor]) -> Subgraph:
    """Wrap a sample on a device, without a copy; `number`: (edge type, positions) -> the user's numbers of these edges."""
    edges = {
        e: SubgraphEdges(each.edge_index, each.row_ptr, each.positions, number(e, each.positions), each.num_per_hop)
        for e, each in sample.edges.items()
    }
    return Subgraph(sample.nodes, edges, sample.num_nodes_per_hop, sample.trees, is_on_device=True)


def number_edges(subgraph: Subgraph, graph: Graph, allocate: Allocator) -> None:
    """Set `edge_ids`: the positions, translated to the user's numbers where these differ."""
    for edge_type, edges in subgraph.edges.items():
        csc, positions = graph.adjacency[edge_type], edges.positions
        if positions is not None and csc.numbers is not None:
            edges.edge_ids = torch.from_numpy(csc.numbers[positions.numpy()].astype(np.int64))
        elif positions is None or csc.edge_ids is None or not positions.numel():
            edges.edge_ids = positions
        else:
            numbers = allocate(positions.numel(), np.int64)
            numbers[:] = positions.numpy()
            edge_kernels.translate(csc.edge_ids, numbers)
            edges.edge_ids = torch.from_numpy(numbers)


def weigh_edges(subgraph: Subgraph, allocate: Allocator) -> None:
    """Turn the numbers of visits that samples of walks have as positions into weights. In NumPy: torch would wake its threads for it."""
    for edges in subgraph.edges.values():
        if edges.positions is not None:
            weights = allocate(edges.positions.numel(), np.float32)
            weights[:] = edges.positions.numpy()
            edges.weights, edges.positions, edges.edge_ids = torch.from_numpy(weights), None, None


def through_pyg(
    subgraph: Subgraph,
    *,
    graph: Graph,
    transform: Callable[[Any], Any],
    metadata: Metadata,
) -> Subgraph:
    """Let the user transform the sample in PyG's form, `SamplerOutput`, and read it back."""
    made: Any = _to_homogeneous(subgraph, metadata) if graph.is_homogeneous else _to_heterogeneous(subgraph, metadata)
    output = transform(made)
    if not isinstance(output, type(made)):
        raise UsageError(f"transform_sampler_output must return a {type(made).__name__}, got {type(output).__name__}")
    result = _from_homogeneous(output) if graph.is_homogeneous else _from_heterogeneous(output)
    _check_transformed(result, graph)
    if output.metadata is not None and output.metadata[0] is not None:
        result.metadata = (*output.metadata, *metadata[len(output.metadata) :])
    return result


def _check_transformed(subgraph: Subgraph, graph: Graph) -> None:
    """Raise unless a user's transform returned nodes and edges of the graph: rows are read by their numbers."""
    nodes = [(t, f"nodes of '{t}'", ids, graph.num_nodes.get(t)) for t, ids in subgraph.nodes.items()]
    edges = [
        (e, f"edges {'/'.join(e)}", each.positions, csc and csc.num_edges)
        for e, each in subgraph.edges.items()
        for csc in [graph.adjacency.get(e)]
    ]
    for key, what, ids, count in (*nodes, *edges):
        if count is None:
            raise UsageError(f"transform_sampler_output returned {what}, and there is no such type: {key}")
        if ids is None:
            continue
        if not isinstance(ids, torch.Tensor) or ids.dim() != 1 or ids.dtype != torch.int64:
            raise UsageError(f"transform_sampler_output returned {what} that are no int64 vector of their numbers")
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < count:
            raise UsageError(f"transform_sampler_output returned {what} from {int(ids.min())} to {int(ids.max())}, and there are {count}")


def _to_homogeneous(subgraph: Subgraph, metadata: Any) -> SamplerOutput:
    edges, per_hop, trees = subgraph.edges[EDGE], subgraph.num_nodes_per_hop, subgraph.trees
    return SamplerOutput(
        node=subgraph.nodes[NODE],
        row=edges.edge_index[0],
        col=edges.edge_index[1],
        edge=edges.positions,
        batch=None if trees is None else trees[NODE],
        num_sampled_nodes=None if per_hop is None else per_hop[NODE],
        num_sampled_edges=edges.num_per_hop,
        metadata=metadata,
    )


def _to_heterogeneous(subgraph: Subgraph, metadata: Any) -> HeteroSamplerOutput:
    edges = subgraph.edges
    return HeteroSamplerOutput(
        node=dict(subgraph.nodes),
        row={e: sampled.edge_index[0] for e, sampled in edges.items()},
        col={e: sampled.edge_index[1] for e, sampled in edges.items()},
        edge={e: sampled.positions for e, sampled in edges.items()},
        batch=subgraph.trees,
        num_sampled_nodes=subgraph.num_nodes_per_hop,
        num_sampled_edges={e: sampled.num_per_hop for e, sampled in edges.items() if sampled.num_per_hop is not None} or None,
        metadata=metadata,
    )


def _edges(row: torch.Tensor, col: torch.Tensor, positions: Any, num_per_hop: Any, original: Any) -> SubgraphEdges:
    return SubgraphEdges(torch.stack([row, col]), None, positions, None, num_per_hop, original)


def _from_homogeneous(output: SamplerOutput) -> Subgraph:
    original = None if output.orig_row is None else torch.stack([output.orig_row, output.orig_col])
    edges = _edges(output.row, output.col, output.edge, output.num_sampled_edges, original)
    per_hop = None if output.num_sampled_nodes is None else {NODE: output.num_sampled_nodes}
    return Subgraph({NODE: output.node}, {EDGE: edges}, per_hop, None if output.batch is None else {NODE: output.batch})


def _from_heterogeneous(output: HeteroSamplerOutput) -> Subgraph:
    edges = {}
    for edge_type, row in output.row.items():
        row_before, col_before = (output.orig_row or {}).get(edge_type), (output.orig_col or {}).get(edge_type)
        original = None if row_before is None or col_before is None else torch.stack([row_before, col_before])
        positions = (output.edge or {}).get(edge_type)
        per_hop = (output.num_sampled_edges or {}).get(edge_type)
        edges[edge_type] = _edges(row, output.col[edge_type], positions, per_hop, original)
    return Subgraph(dict(output.node), edges, output.num_sampled_nodes, output.batch)


def as_numpy(ids: torch.Tensor) -> np.ndarray:
    """Return contiguous int64 ids for a gather on the host; those of a device are waited for."""
    return np.ascontiguousarray(to_host(ids)[0], dtype=np.int64)
