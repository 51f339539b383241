"""Who is hot, by sampling: visit counts of epochs sampled for that purpose (GNNLab, PreSC), or of those to be measured (the oracle)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from penstock import rng
from penstock.cache.hotness import check_hotness
from penstock.errors import NodeIdError, UsageError
from penstock.kernels.cache_lookup.cpu import lies_inside
from penstock.kernels.placement import cpu as placement
from penstock.order import Order
from penstock.records import NodeType, Sample
from penstock.sample import NeighborSampler


def sample_batches(
    sampler: NeighborSampler, seed_type: NodeType, seeds: np.ndarray, order: Order, *, batch_size: int, epochs: Iterable[int]
) -> Iterator[dict[NodeType, np.ndarray]]:
    """Sample epochs and yield the nodes that each batch reads.

    Args:
        sampler: its seed decides what is drawn.
        seed_type, seeds: node type and int64[order.num_seeds] ids.
        order, batch_size: which seeds make a batch.
        epochs: numbers of epochs.
    Yields:
        per batch: node type -> int64[n], distinct ids in first-seen order.
    """
    for sample in iterate_samples(sampler, seed_type, seeds, order, batch_size=batch_size, epochs=epochs):
        yield distinct_nodes(sampler, sample)


def iterate_samples(
    sampler: NeighborSampler, seed_type: NodeType, seeds: np.ndarray, order: Order, *, batch_size: int, epochs: Iterable[int]
) -> Iterator[Sample]:
    """Sample epochs and yield every batch; arguments as in `sample_batches`."""
    if order.num_seeds != len(seeds):
        raise UsageError(f"the order is over {order.num_seeds} seeds, given are {len(seeds)}")
    workspace = sampler.workspace()
    for epoch in epochs:
        for batch in range(order.num_batches(batch_size, False)):
            chosen = np.ascontiguousarray(seeds[order.batch(epoch, batch, batch_size)], dtype=np.int64)
            yield sampler.sample(seed_type, chosen, epoch=epoch, batch=batch, workspace=workspace)


def distinct_nodes(sampler: NeighborSampler, sample: Sample) -> dict[NodeType, np.ndarray]:
    """Return the rows that a batch reads: node type -> int64[n], distinct ids in first-seen order."""
    nodes = dict(sample.nodes)
    if sampler.disjoint:
        return {node_type: _distinct(ids) for node_type, ids in nodes.items()}
    known, count = nodes[sample.seed_type], sample.num_seeds  # nothing but seeds can be there twice
    nodes[sample.seed_type] = np.concatenate([_distinct(known[:count]), known[count:]])
    return nodes


def presample_hotness(
    sampler: NeighborSampler,
    node_type: NodeType,
    seed_type: NodeType,
    seeds: np.ndarray,
    order: Order,
    *,
    batch_size: int,
    num_epochs: int = 1,
) -> np.ndarray:
    """Sample `num_epochs` epochs and return float64[num_nodes]: mean visits of each node per epoch. Other draws than training's.

    Args:
        sampler: gives graph, fanouts and seed; the draws come from another seed, derived from its own.
        node_type: whose visits are counted.
        seed_type, seeds, order, batch_size: as in `sample_batches`.
        num_epochs: 1 or 2 are enough (GNNLab).
    """
    if num_epochs < 1:
        raise UsageError(f"presampling takes at least 1 epoch, got {num_epochs}")
    batches = sample_batches(draw_apart(sampler), seed_type, seeds, order, batch_size=batch_size, epochs=range(num_epochs))
    visits = oracle_hotness((nodes[node_type] for nodes in batches), sampler.graph.num_nodes[node_type])
    return visits / num_epochs


def draw_apart(sampler: NeighborSampler) -> NeighborSampler:
    """Return a sampler that draws otherwise: under a seed derived from that of the given one."""
    low, high = map(int, rng.derive_key(sampler.seed, 0, rng.PRESAMPLE))
    return NeighborSampler(
        sampler.graph, sampler.fanouts, replace=sampler.replace, disjoint=sampler.disjoint, seed=high << 32 | low
    )  # fmt: skip


def oracle_hotness(batches: Iterable[np.ndarray], num_nodes: int) -> np.ndarray:
    """Return int64[num_nodes]: in how many of the given batches each node is: the best any static cache can rank by."""
    visits = np.zeros(num_nodes, dtype=np.int64)
    for ids in batches:
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if not lies_inside(ids, num_nodes):
            raise NodeIdError(f"a batch has ids outside [0, {num_nodes}): from {ids.min()} to {ids.max()}")
        placement.count_keys(ids, 0, visits)
    return check_hotness(visits, num_nodes)


def _distinct(ids: np.ndarray) -> np.ndarray:
    """The ids without repetitions, in first-seen order."""
    return ids[np.sort(np.unique(ids, return_index=True)[1])]
