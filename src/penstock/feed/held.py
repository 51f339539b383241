"""Samples held ahead, in half the memory or less: positions and ids as 32-bit numbers where they fit, what follows from the rest left out.

In: a subgraph as sampled. Out: the same, smaller, and back again, bit for bit. What a user's transform has touched is held as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from penstock.feed.subgraph import Subgraph, SubgraphEdges, number_edges
from penstock.kernels.edges import cpu as edge_kernels
from penstock.records import Allocator, EdgeType, Graph, NodeType, index_dtype


@dataclass(slots=True)
class _HeldEdges:
    """Edges of one type: sources, row pointers, positions; destinations and the user's numbers follow."""

    rows: np.ndarray
    row_ptr: np.ndarray
    positions: np.ndarray
    num_per_hop: list[int] | None


@dataclass(slots=True)
class HeldSubgraph:
    """What a subgraph is made of."""

    nodes: dict[NodeType, np.ndarray]
    edges: dict[EdgeType, _HeldEdges]
    num_nodes_per_hop: dict[NodeType, list[int]] | None

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        edges = (array for held in self.edges.values() for array in (held.rows, held.row_ptr, held.positions))
        return sum(array.nbytes for array in (*self.nodes.values(), *edges))


def hold(subgraph: Subgraph, graph: Graph, allocate: Allocator) -> HeldSubgraph | Subgraph:
    """Make a subgraph smaller; one that is not as the sampler makes them stays."""
    edges = subgraph.edges
    is_as_sampled = all(one.row_ptr is not None and one.positions is not None and one.original is None for one in edges.values())
    if subgraph.trees is not None or not is_as_sampled:
        return subgraph
    sizes: Mapping[EdgeType, int] = {e: csc.num_edges for e, csc in graph.adjacency.items()}
    return HeldSubgraph(
        {t: _narrowed(ids, graph.num_nodes[t], allocate) for t, ids in subgraph.nodes.items()},
        {
            e: _HeldEdges(
                _narrowed(one.edge_index[0], subgraph.nodes[e[0]].numel(), allocate),
                _narrowed(one.row_ptr, one.edge_index.shape[1], allocate),
                _narrowed(one.positions, sizes[e], allocate),
                one.num_per_hop,
            )
            for e, one in edges.items()
        },
        subgraph.num_nodes_per_hop,
    )


def release(held: HeldSubgraph | Subgraph, graph: Graph, allocate: Allocator) -> Subgraph:
    """Make it whole again."""
    if isinstance(held, Subgraph):
        return held
    edges = {}
    for edge_type, one in held.edges.items():
        num_edges, row_ptr = one.rows.size, _widened(one.row_ptr, allocate)
        edge_index = allocate(2 * num_edges, np.int64)
        edge_index[:num_edges] = one.rows
        edge_kernels.fill_columns(row_ptr, edge_index[num_edges:])
        positions = _widened(one.positions, allocate)
        whole, pointers, places = map(torch.from_numpy, (edge_index.reshape(2, num_edges), row_ptr, positions))
        edges[edge_type] = SubgraphEdges(whole, pointers, places, None, one.num_per_hop)
    nodes = {t: torch.from_numpy(_widened(ids, allocate)) for t, ids in held.nodes.items()}
    subgraph = Subgraph(nodes, edges, held.num_nodes_per_hop, None)
    number_edges(subgraph, graph, allocate)
    return subgraph


def _narrowed(values: torch.Tensor | None, largest: int, allocate: Allocator) -> np.ndarray:
    assert values is not None
    held = allocate(values.numel(), index_dtype(largest))
    held[:] = values.numpy()
    return held


def _widened(values: np.ndarray, allocate: Allocator) -> np.ndarray:
    whole = allocate(values.size, np.int64)
    whole[:] = values
    return whole
