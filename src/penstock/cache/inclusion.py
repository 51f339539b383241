"""Who is hot, by calculation: the probability that a batch's sample includes a node (SALIENT++, vertex inclusion probability)."""

from __future__ import annotations

import numpy as np

from penstock.errors import CorruptStoreError, NotSupportedError, UsageError
from penstock.kernels.inclusion import cpu as kernels
from penstock.records import NodeType
from penstock.sample import NeighborSampler


def inclusion_probability(
    sampler: NeighborSampler, seed_type: NodeType, seeds: np.ndarray, *, batch_size: int
) -> dict[NodeType, np.ndarray]:
    """Return node type -> float64[num_nodes]: the probability that a random batch of seeds reads each node.

    Args:
        sampler: gives graph, fanouts and whether it draws with replacement; nothing is sampled.
        seed_type, seeds: node type and ids of all seeds, distinct.
        batch_size: a seed is in a batch with probability batch_size / number of seeds.
    Exact for the draws of one list; nodes of one hop, and hops, are taken as independent of each other.
    Cost: one pass over the edges per hop and edge type, 24 bytes a node.
    """
    graph = sampler.graph
    seeds = np.asarray(seeds, dtype=np.int64)
    sampler.check_seeds(seed_type, seeds)
    if any(csc.sums is not None for csc in graph.adjacency.values()):
        raise NotSupportedError(
            "inclusion probability is of uniform draws: by weight take the policy presample, which samples what it counts"
        )
    if batch_size < 1:
        raise UsageError(f"batch_size is at least 1, got {batch_size}")
    frontier = {node_type: np.zeros(count) for node_type, count in graph.num_nodes.items()}
    frontier[seed_type][seeds] = min(1.0, batch_size / max(seeds.size, 1))
    avoided = {node_type: 1.0 - probability for node_type, probability in frontier.items()}
    for hop in range(sampler.num_hops):
        missed = {node_type: np.ones(count) for node_type, count in graph.num_nodes.items()}
        for edge_type, csc in graph.adjacency.items():
            fanout, source, into = sampler.fanouts[edge_type][hop], missed[edge_type[0]], frontier[edge_type[2]]
            bad = kernels.spread_inclusion(csc.indptr, csc.indices, fanout, sampler.replace, into, source)
            if bad >= 0:
                where = f"the edge at position {bad} comes from node {csc.indices[bad]}"
                raise CorruptStoreError(f"edges {'/'.join(edge_type)} are damaged: {where}, '{edge_type[0]}' has {source.size} nodes")
        for node_type, probability in missed.items():
            avoided[node_type] *= probability
            frontier[node_type] = np.subtract(1.0, probability, out=probability)
    return {node_type: np.subtract(1.0, probability, out=probability) for node_type, probability in avoided.items()}
