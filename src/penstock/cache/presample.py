"""Hotness by sampling: visit counts of epochs sampled for that purpose (GNNLab, PreSC), or of the epochs to be measured (the oracle)."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import starmap
from queue import SimpleQueue

import numpy as np

from penstock import rng
from penstock.cache.hotness import check_hotness
from penstock.errors import NodeIdError, UsageError
from penstock.kernels.cache_lookup.cpu import lies_inside
from penstock.kernels.placement import cpu as placement
from penstock.order import Order
from penstock.records import EdgeType, NodeType, Sample
from penstock.sample import NeighborSampler, Workspace
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import NodeSeeds
from penstock.store.process_memory import free_bytes, usable_cores
from penstock.store.progress import told

NUM_THREADS = min(8, usable_cores())
"""Threads that presample, while nothing else runs. The caller counts, which takes an eighth of their time."""
BATCHES_AGAIN = 4
"""Batches drawn twice by `reads_again`: with some thousand rows each, the share is accurate to a percent."""
ROOM = 1 / 8
"""Share of the free memory that sampling with several threads may take."""


def sample_batches(
    sampler: NeighborSampler, seed_type: NodeType, seeds: np.ndarray, order: Order, *, batch_size: int, epochs: Iterable[int]
) -> Iterator[dict[NodeType, np.ndarray]]:
    """Sample epochs and yield the nodes that each batch reads.

    Args:
        sampler: its seed determines the draws.
        seed_type, seeds: node type and int64[order.num_seeds] ids.
        order, batch_size: determine the seeds of each batch.
        epochs: numbers of epochs.
    Yields:
        per batch: node type -> int64[n], distinct ids in first-seen order.
    """
    for sample in iterate_samples(SampledBatches(sampler, NodeSeeds(seed_type, seeds), order, batch_size), epochs=epochs):
        yield distinct_nodes(sampler, sample)


def iterate_samples(
    batches: SampledBatches, *, epochs: Iterable[int], max_batches: int | None = None, num_threads: int = 1
) -> Iterator[Sample]:
    """Sample epochs and yield every batch in order, or `max_batches` spread evenly over each epoch.

    Up to `num_threads` threads sample ahead; fewer if their workspaces and samples do not fit into `ROOM` of the free memory.
    """
    sampler, places = batches.sampler, places_of(batches, epochs, max_batches)
    idle, workspace = SimpleQueue[Workspace](), sampler.workspace()
    idle.put(workspace)

    def draw(epoch: int, batch: int) -> Sample:
        workspace = idle.get()
        try:
            return batches.draw(epoch, batch, workspace)
        finally:
            idle.put(workspace)

    if num_threads > 1 and (place := next(places, None)) is not None:
        yield (sample := draw(*place))
        num_threads = min(num_threads, int(ROOM * free_bytes()) // (workspace.num_bytes + 3 * sample.num_bytes))
    if num_threads < 2:
        yield from starmap(draw, places)
        return
    for _ in range(num_threads - 1):
        idle.put(sampler.workspace())
    pool, ahead = ThreadPoolExecutor(num_threads, "penstock-presample"), deque[Future[Sample]]()
    try:
        for place in places:
            ahead.append(pool.submit(draw, *place))
            if len(ahead) > 2 * num_threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def places_of(batches: SampledBatches, epochs: Iterable[int], max_batches: int | None) -> Iterator[tuple[int, int]]:
    """Return (epoch, index) of all batches, or of `max_batches` spread evenly over each epoch."""
    if batches.order.num_seeds != (num_seeds := len(batches.seeds)):
        raise UsageError(f"the order is over {batches.order.num_seeds} seeds, given are {num_seeds}")
    return ((epoch, batch) for epoch in epochs for batch in spread(batches.num_batches, max_batches))


def spread(count: int, most: int | None) -> list[int]:
    """Return at most `most` evenly spaced numbers of [0, count); None: all."""
    chosen = count if most is None else min(most, count)
    return [(2 * i + 1) * count // (2 * chosen) for i in range(chosen)]


def distinct_nodes(sampler: NeighborSampler, sample: Sample) -> dict[NodeType, np.ndarray]:
    """Return the rows that a batch reads: node type -> int64[n], distinct ids in first-seen order."""
    if sampler.disjoint:
        return {node_type: _distinct(ids) for node_type, ids in sample.nodes.items()}
    nodes = dict(sample.nodes)
    for node_type, count in sample.num_seeds.items():
        if count:  # only seeds can occur twice
            known = nodes[node_type]
            nodes[node_type] = np.concatenate([_distinct(known[:count]), known[count:]])
    return nodes


@dataclass(frozen=True, slots=True)
class Visits:
    """How often sampling read each row and each neighbour list, in the narrowest unsigned integers that hold the counts.

    Attributes:
        nodes: node type -> uint[num_nodes], batches that read the row of each node.
        lists: edge type -> uint[num_dst], how often the neighbour list of each node was read, in whole or in part.
    """

    nodes: dict[NodeType, np.ndarray]
    lists: dict[EdgeType, np.ndarray]


def presample_visits(batches: SampledBatches, *, num_epochs: int = 1, max_batches: int | None = None, num_threads: int = 1) -> Visits:
    """Sample `num_epochs` epochs and count visits of rows and of neighbour lists.

    Args:
        batches: of training; the draws differ from those of training, by a seed derived from its seed.
        num_epochs: 1 or 2 are enough (GNNLab).
        max_batches: batches to sample of each epoch, spread evenly, if a whole epoch takes too long; only their visits are counted.
        num_threads: most threads that sample, see `iterate_samples`; the visits do not depend on it.
    """
    if num_epochs < 1:
        raise UsageError(f"presampling takes at least 1 epoch, got {num_epochs}")
    apart, graph = draw_apart(batches.sampler), batches.sampler.graph
    count = num_epochs * len(spread(batches.num_batches, max_batches))
    narrow, wide = count_types(apart, count)
    nodes = {t: np.zeros(num_nodes, narrow) for t, num_nodes in graph.num_nodes.items()}
    lists = {e: np.zeros(csc.num_dst, wide) for e, csc in graph.adjacency.items()}
    how = {"epochs": range(num_epochs), "max_batches": max_batches, "num_threads": num_threads}
    for sample in told(iterate_samples(replace(batches, sampler=apart), **how), "finding out what is hot: batch", count):
        for node_type, ids in distinct_nodes(apart, sample).items():
            placement.count_up_to(ids, np.iinfo(narrow).max, nodes[node_type])
        for edge_type in graph.adjacency:
            placement.count_up_to(lists_read(apart, sample, edge_type), np.iinfo(wide).max, lists[edge_type])
    return Visits(nodes, lists)


def count_types(sampler: NeighborSampler, num_batches: int) -> tuple[np.dtype, np.dtype]:
    """Return the narrowest dtypes for counts of (rows, lists): a batch counts a row once, and a list once, or once per tree that reads
    it."""
    narrow = np.min_scalar_type(num_batches)
    return narrow, np.dtype(np.uint32) if sampler.disjoint else narrow


def reads_again(batches: SampledBatches) -> dict[NodeType | EdgeType, float]:
    """Draw a few batches of an epoch twice. Returns the shares of rows, by node type, and of lists, by edge type, that a batch reads both
    times. The first draws are those of `presample_visits`."""
    apart, graph, workspace = draw_apart(batches.sampler), batches.sampler.graph, batches.sampler.workspace()
    draws = apart, draw_apart(apart)
    same, asked = ({key: 0.0 for key in (*graph.num_nodes, *graph.adjacency)} for _ in range(2))
    for batch in spread(batches.num_batches, BATCHES_AGAIN):
        first, second = (_reads(one, replace(batches, sampler=one).draw(0, batch, workspace)) for one in draws)
        for key, ids in first.items():
            same[key] += np.intersect1d(ids, second[key], assume_unique=True).size
            asked[key] += (ids.size + second[key].size) / 2
    return {key: same[key] / max(1.0, asked[key]) for key in same}


def _reads(sampler: NeighborSampler, sample: Sample) -> dict[NodeType | EdgeType, np.ndarray]:
    """Return the distinct ids of the rows and of the lists that a batch reads."""
    return {**distinct_nodes(sampler, sample), **{e: np.unique(lists_read(sampler, sample, e)) for e in sampler.graph.adjacency}}


def draw_apart(sampler: NeighborSampler) -> NeighborSampler:
    """Return the sampler with another seed, derived from its own, so that presampled batches are not those of training. It draws no induced
    subgraphs, whose nodes are those of the edges drawn."""
    low, high = map(int, rng.derive_key(sampler.seed, 0, rng.PRESAMPLE))
    apart = copy.copy(sampler)
    apart.seed, apart.induced = high << 32 | low, False
    return apart


def lists_read(sampler: NeighborSampler, sample: Sample, edge_type: EdgeType) -> np.ndarray:
    """Return int64[n]: the nodes whose neighbour lists of an edge type a sample reads; a list that is read twice occurs twice.

    With walks: all nodes of the sample, for the edge types of their path, since a sample has only the nodes that walks visited most.
    Layer-wise: also nodes from whose lists nothing is taken. By numbers of nodes: all nodes of the sample.
    """
    if sampler.num_samples:
        return sample.nodes[edge_type[2]]
    if sampler.walks is not None:
        nodes = distinct_nodes(sampler, sample)[edge_type[2]]
        return nodes if edge_type in (sampler.walks.path or ()) else nodes[:0]
    num_read = np.diff(sample.edges[edge_type].row_ptr)
    return np.ascontiguousarray(sample.nodes[edge_type[2]][: num_read.size][(num_read > 0) | sampler.layer_wise])


def oracle_hotness(batches: Iterable[np.ndarray], num_nodes: int) -> np.ndarray:
    """Return int64[num_nodes]: in how many of the given batches each node occurs: the best ranking for a static cache over these
    batches."""
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
