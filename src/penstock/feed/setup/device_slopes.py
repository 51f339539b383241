"""What a hit saves on a device, of a neighbour list and of a row: what `penstock.plan.plan_shared` divides its memory by.

In: what will be sampled, and tables that the device reads over the link. Out: seconds per hit.
Source: DUCATI (SIGMOD'23): sampling is timed with random lists on the device, gathering with random rows; both are nearly straight over the
hits, and their slopes are what a hit saves. Random lists, of those that the samples read, are placed for it; rows that would be hits are
left out of the read. The paper has one slope for all lists; here there is one for all lines that the link carries for them: a list within
one line saves less than one of many, of which fifteen are read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from penstock.cache.hotness import blocks
from penstock.cache.presample import distinct_nodes, draw_apart, iterate_samples, lists_read
from penstock.cache.workload import Workload
from penstock.feed.setup.slopes import NUM_BATCHES, SHARES, Line, time_rows
from penstock.gather import TieredTable
from penstock.records import EdgeType, NodeType, Sample
from penstock.sample import NeighborSampler
from penstock.sample.device_graph import device_sampler
from penstock.sample.seeds import BatchSeeds
from penstock.store.device_memory import settle
from penstock.store.tiers.pinned import to_device

if TYPE_CHECKING:
    import torch

LINE_BYTES = 128
"""That the link carries at a time."""
WARMING = 3
"""Samples before one is like those after it: memory is taken, what is launched is written down, and a graph is made of it."""


def measure_device_slopes(
    workload: Workload, tables: Mapping[NodeType, TieredTable], device: torch.device, *, num_batches: int = NUM_BATCHES
) -> tuple[dict[EdgeType, np.ndarray], dict[NodeType, float]]:
    """Measure what a hit saves on a device.

    Args:
        workload: what will be sampled, from arrays.
        tables: node type -> its rows, delivered to the device, without a cache.
        device: from `tensor_device`.
        num_batches: sampled and read again and again.
    Returns:
        (edge type -> float32[num_dst], seconds per hit of each list; node type -> seconds per row hit).
    """
    apart, random = draw_apart(workload.sampler), np.random.default_rng(workload.sampler.seed)
    batches = replace(workload, sampler=apart)
    samples = list(islice(iterate_samples(batches, epochs=[0]), num_batches))
    seeds = [batches.seeds_of(0, batch) for batch in range(len(samples))]
    of_lists = {e: _list_slope(apart, seeds, samples, e, device, random) for e in apart.graph.adjacency}
    of_rows = {t: Line() for t in tables}
    for number, sample in enumerate((samples[0], *samples)):  # the first one twice, as with lists
        nodes = distinct_nodes(apart, sample)
        for node_type, table in tables.items():
            time_rows(of_rows[node_type] if number else Line(), table, nodes[node_type], random, lambda ids: to_device(ids, device))
    return of_lists, {t: line.slope() for t, line in of_rows.items()}


def _list_slope(
    apart: NeighborSampler,
    seeds: list[BatchSeeds],
    samples: list[Sample],
    edge_type: EdgeType,
    device: torch.device,
    random: np.random.Generator,
) -> np.ndarray:
    """Seconds per hit of each list of one edge type: the samples drawn again, with random lists of it on the device."""
    line, csc = Line(), apart.graph.adjacency[edge_type]
    lines = lines_per_read(apart, edge_type)
    reads = [lists_read(apart, sample, edge_type) for sample in samples]
    asked = np.unique(np.concatenate(reads))  # others need not be placed: that takes longer than all else
    for share in SHARES:
        is_missed = random.random(csc.num_dst) < share
        ours = device_sampler(apart, device, "pinned", {edge_type: asked[~is_missed[asked] & (lines[asked] > 0)]})
        workspace = ours.workspace()
        for number, of_batch in enumerate((*WARMING * seeds[:1], *seeds)):
            batch = max(0, number - WARMING)
            started = time.perf_counter()
            ours.sample(of_batch.nodes, epoch=0, batch=batch, workspace=workspace, times=of_batch.times)
            settle(device)
            if number >= WARMING:
                line.note(float(lines[reads[batch]] @ is_missed[reads[batch]]), time.perf_counter() - started)
    return np.multiply(lines, line.slope(), out=lines)


def lines_per_read(sampler: NeighborSampler, edge_type: EdgeType) -> np.ndarray:
    """Return float32[num_dst]: lines that the link carries for a read of each list, in the mean of all hops.

    One for each neighbour drawn, but no more than the list has. Cost: the result.
    """
    csc = sampler.graph.adjacency[edge_type]
    lines = np.empty(csc.num_dst, np.float32)
    for block in blocks(csc.num_dst):
        lengths = np.diff(csc.indptr[block.start : block.stop + 1])
        most = -(-lengths * csc.indices.dtype.itemsize // LINE_BYTES)
        lines[block] = np.mean([most if fanout < 0 else np.minimum(most, fanout) for fanout in sampler.fanouts[edge_type]], axis=0)
    return lines
