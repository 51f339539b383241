"""What a hit saves, measured: seconds per neighbour list and per row that come from memory in place of the tier beneath.

In: what will be sampled, and the tiers. Out: a slope per edge type and node type. A few batches are sampled, and what each asks for is read
three times: all of it from the tier beneath, half, nothing, at random; the rest is what a cache would have. The time over the misses is
nearly a line (DUCATI, Figure 19); its slope is what one hit saves.
Source: DUCATI (SIGMOD'23), workload profiling. There random caches are built and the training is run over them; here hits are simply left
out of the read, so that nothing has to be loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock.cache.presample import distinct_nodes, draw_apart, iterate_samples, lists_read
from penstock.cache.workload import Workload
from penstock.gather import TieredTable
from penstock.records import EdgeType, Sample
from penstock.sample import NeighborSampler
from penstock.store.tiers import Tier

NUM_BATCHES = 4
SHARES = (1.0, 0.5, 0.0)
LEAST_S = 1e-12
"""What saves nothing that can be measured comes last, but before empty memory."""


@dataclass(slots=True)
class Line:
    """Points (misses, seconds), and the slope through them: what a hit saves."""

    misses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, num_misses: int, read: Callable[[], object]) -> None:
        """Do a read and remember how long it takes."""
        started = time.perf_counter()
        read()
        self.note(num_misses, time.perf_counter() - started)

    def note(self, num_misses: float, seconds: float) -> None:
        """Remember how long a read took."""
        self.misses.append(num_misses)
        self.seconds.append(seconds)

    def slope(self) -> float:
        """Seconds per miss, least squares."""
        misses, seconds = np.array(self.misses, np.float64), np.array(self.seconds)
        if misses.size == 0 or misses.min() == misses.max():
            return LEAST_S
        off = misses - misses.mean()
        return max(LEAST_S, float(off @ seconds / (off @ off)))


def measure_slopes(
    workload: Workload, tables: Mapping[Any, TieredTable], bottoms: Mapping[EdgeType, Tier], *, num_batches: int = NUM_BATCHES
) -> tuple[dict[EdgeType, float], dict[Any, float]]:
    """Return (edge type -> seconds per list hit, node type -> seconds per row hit).

    Args:
        workload: what will be sampled; the draws here are not those of training.
        tables: node type -> its rows, without a cache.
        bottoms: edge type -> where all its lists are.
        num_batches: sampled.
    """
    apart, random = draw_apart(workload.sampler), np.random.default_rng(workload.sampler.seed)
    of_lists, of_rows = {e: Line() for e in workload.sampler.graph.adjacency}, {t: Line() for t in tables}
    samples = iterate_samples(replace(workload, sampler=apart), epochs=[0])
    for _, sample in zip(range(num_batches), samples, strict=False):
        for edge_type, bottom in bottoms.items():
            _time_lists(of_lists[edge_type], bottom, *_read(apart, sample, edge_type), random)
        nodes = distinct_nodes(apart, sample)
        for node_type, table in tables.items():
            time_rows(of_rows[node_type], table, nodes[node_type], random)
    return {e: line.slope() for e, line in of_lists.items()}, {t: line.slope() for t, line in of_rows.items()}


def _read(sampler: NeighborSampler, sample: Sample, edge_type: EdgeType) -> tuple[np.ndarray, np.ndarray]:
    """(positions that a sample reads, list after list; how many of each list): lists that draw together are read whole, and of walks a
    neighbour of each list that they came by."""
    if sampler.walks is None and not sampler.reads_whole_lists:
        return sample.edges[edge_type].positions, np.diff(sample.edges[edge_type].row_ptr)
    csc, nodes = sampler.graph.adjacency[edge_type], lists_read(sampler, sample, edge_type)
    num_read = csc.degrees(nodes) if sampler.walks is None else np.minimum(csc.degrees(nodes), 1)
    firsts = csc.indptr[nodes] - (np.cumsum(num_read) - num_read)
    return np.repeat(firsts, num_read) + np.arange(num_read.sum()), num_read


def _time_lists(line: Line, bottom: Tier, all_positions: np.ndarray, num_read: np.ndarray, random: np.random.Generator) -> None:
    for share in SHARES:
        is_missed = (random.random(num_read.size) < share) & (num_read > 0)
        positions = all_positions[np.repeat(is_missed, num_read)]
        out = np.empty(positions.size * bottom.row_bytes[0], np.uint8)
        places = np.arange(positions.size)
        line.add(int(is_missed.sum()), lambda read=(positions, [out], places): bottom.submit(*read).wait())


def time_rows(
    line: Line, table: TieredTable, ids: np.ndarray, random: np.random.Generator, hand_over: Callable[[np.ndarray], Any] = np.asarray
) -> None:
    """Read rows: all of them, half, none. `hand_over` gives their ids to the table as a batch's are, before the clock starts."""
    for share in SHARES:
        missed = ids[random.random(ids.size) < share]
        given = hand_over(missed)
        table.settle()
        line.add(missed.size, lambda given=given: (table.submit(given).wait(), table.settle()))
