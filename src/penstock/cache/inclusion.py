"""Hotness by calculation: the probability that a batch's sample includes a node (SALIENT++, vertex inclusion probability)."""

from __future__ import annotations

import numpy as np

from penstock.errors import NotSupportedError, UsageError, damaged_neighbor
from penstock.kernels.inclusion import cpu as kernels
from penstock.records import NodeType
from penstock.sample import NeighborSampler
from penstock.sample.neighbor import check_ids
from penstock.sample.seeds import NodeSeeds
from penstock.store.progress import told


def inclusion_probability(
    sampler: NeighborSampler, seed_type: NodeType, seeds: np.ndarray, *, batch_size: int, num_hops: int | None = None
) -> dict[NodeType, np.ndarray]:
    """Return node type -> float64[num_nodes]: the probability that a random batch of seeds reads each node.

    Args:
        sampler: provides graph, fanouts and whether it draws with replacement; nothing is sampled.
        seed_type, seeds: node type and ids of all seeds, distinct.
        batch_size: a seed is in a batch with probability batch_size / number of seeds.
        num_hops: only the first hops; None: all. All hops except the last give the nodes whose neighbour lists a batch reads.
    Exact for the draws of one list. Draws of different lists and hops are assumed to be independent; with shared draws they are not, and a
    batch reads fewer nodes than calculated.
    Cost: one pass over the edges per hop and edge type; 24 bytes per node.
    """
    seeds = np.asarray(seeds, dtype=np.int64)
    check_ids(sampler.graph, seed_type, seeds)
    if batch_size < 1:
        raise UsageError(f"batch_size is at least 1, got {batch_size}")
    first = NodeSeeds(seed_type, seeds).share(batch_size, sampler.graph.num_nodes)
    return spread_inclusion(sampler, first, sampler.num_hops if num_hops is None else num_hops)


def spread_inclusion(sampler: NeighborSampler, first: dict[NodeType, np.ndarray], num_hops: int) -> dict[NodeType, np.ndarray]:
    """Likewise, from the probabilities `first` that a batch starts at each node, by node type. Empties `first`, to free its memory."""
    graph = sampler.graph
    if not draws_uniformly(sampler):
        raise NotSupportedError(
            "inclusion probabilities are known for uniform draws only: by weight, time, walks or layers take the policy presample, which "
            "samples what it counts"
        )
    frontier = {t: np.zeros(count) if t not in first else first.pop(t) for t, count in graph.num_nodes.items()}
    avoided = {node_type: 1.0 - probability for node_type, probability in frontier.items()}
    for hop in told(range(num_hops), "calculating what a batch reaches, a pass over the edges a hop: hop", num_hops):
        missed = {node_type: np.ones(count) for node_type, count in graph.num_nodes.items()}
        for edge_type, csc in graph.adjacency.items():
            source_type, _, node_type = edge_type
            fanout = sampler.fanouts[edge_type][hop]
            indices = csc.all_indices("inclusion probability")
            bad = kernels.spread_inclusion(csc.indptr, indices, fanout, sampler.replace, frontier[node_type], missed[source_type])
            if bad >= 0:
                raise damaged_neighbor(edge_type, graph.num_nodes[source_type], bad, int(indices[bad]))
        for node_type, probability in missed.items():
            avoided[node_type] *= probability
            frontier[node_type] = np.subtract(1.0, probability, out=probability)
    return {node_type: np.subtract(1.0, probability, out=probability) for node_type, probability in avoided.items()}


def draws_uniformly(sampler: NeighborSampler) -> bool:
    """Whether all edges of a list are equally likely, independently of other lists."""
    if sampler.walks is not None or sampler.layer_wise or sampler.num_samples:
        return False
    return all(csc.sums is None and csc.timed is None for csc in sampler.graph.adjacency.values())
