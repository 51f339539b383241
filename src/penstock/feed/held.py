"""Samples held ahead, packed into half the memory or less: as bytes, in the form in which samples travel between processes.

In: a subgraph as sampled. Out: its packed form, and the subgraph again, bit for bit. What a user's transform has touched is held as it is.
"""

from __future__ import annotations

import numpy as np

from penstock.feed.subgraph import Subgraph, number_edges, subgraph_of
from penstock.records import Allocator, EdgeType, Graph, Sample, SampledEdges
from penstock.sample.factored.wire import Packed, unpack


def hold(subgraph: Subgraph, graph: Graph, allocate: Allocator) -> np.ndarray | Subgraph:
    """Pack a subgraph: uint8[n], see `Packed`. One that is not as the sampler makes them is returned as it is."""
    edges: dict[EdgeType, SampledEdges] = {}
    for edge_type, one in subgraph.edges.items():
        if one.row_ptr is None or one.positions is None or one.original is not None:
            return subgraph
        edges[edge_type] = SampledEdges(one.edge_index.numpy(), one.row_ptr.numpy(), one.positions.numpy(), one.num_per_hop)
    if subgraph.trees is not None:
        return subgraph
    nodes = {t: ids.numpy() for t, ids in subgraph.nodes.items()}
    packed = Packed(Sample(nodes, edges, subgraph.num_nodes_per_hop or {t: [] for t in nodes}), graph)
    held = allocate(packed.num_bytes, np.uint8)
    packed.write(held)
    return held


def release(held: np.ndarray | Subgraph, graph: Graph, allocate: Allocator) -> Subgraph:
    """Unpack it, into memory from `allocate`."""
    if isinstance(held, Subgraph):
        return held
    subgraph = subgraph_of(unpack(held, graph, disjoint=False, allocate=allocate))
    number_edges(subgraph, graph, allocate)
    return subgraph
