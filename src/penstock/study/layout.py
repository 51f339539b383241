"""A packed layout for a store: sample, make orders, measure them, and write the copy that reads the fewest pages.

In: a store and a way of training on it. Out: a packed copy in the store (or none, if none helps) and its measured effect: the pages that a
batch reads, for all its rows, and for those that a cache misses. Invariants: orders are measured on other draws than those from which they
are made; only the copy changes; memory and disk space are forecast before the work, and refused then if they do not suffice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

import penstock
from penstock.cache import Belady, Policy, Static, plan_static
from penstock.cache.belady import NUM_CLASSES, hotness_classes
from penstock.cache.choose import DYNAMIC
from penstock.cache.packing import LAYOUTS, RANDOM, Accesses, Layouts, count_pages, plain_of, record_accesses
from penstock.cache.presample import sample_batches
from penstock.cache.simulate import announced
from penstock.errors import BudgetError, StoreError, UsageError, argument
from penstock.plan.capacity import parse_capacity, plan_rows
from penstock.plan.settings import check_choice, check_positive, settle, show
from penstock.records import NodeType, index_dtype
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import NodeSeeds
from penstock.sample.weights import declare_weights, store_weights, with_weights
from penstock.store import Progress, Quiet, Store, format_bytes, parse_bytes
from penstock.store.budget import MIB, RESERVE_BYTES
from penstock.store.change import StoreChange
from penstock.store.files import Scratch
from penstock.store.format import DATA_OFFSET
from penstock.store.packing import choose_fields, drop, pack, rows_of
from penstock.store.process_memory import free_bytes, resident_bytes
from penstock.store.progress import stage
from penstock.store.reorder import scratch_bytes
from penstock.study.config import CacheStudy
from penstock.study.orders import ORDERS, Seeds, make_order
from penstock.study.run import choose_seeds

AUTO, ORIGINAL, PRESAMPLE = "auto", "original", "presample"
POLICIES = (PRESAMPLE, *DYNAMIC, Belady.name)
LEAST_GAIN = 0.02
"""`auto` writes a copy only if it saves at least this share of the pages."""

MEASURED_BATCHES = 64
WARM_BATCHES = 16
"""Most batches that warm a dynamic cache before batches are counted; if there are few batches, a quarter of them."""

NODE_BYTES = 48
"""Memory per node of all types while an order is made: counts, the order being made and the best so far, communities; or the tables of
sampler and cache."""

LEAST_WORK_BYTES = 16 * MIB
EDGES_PER_S, ORDERED_PER_S, COPY_BYTES_PER_S = 8e6, 80e6, 500e6
"""Rates for the forecast of time, estimates: sampled edges; per order tried, nodes and edges of graph and samples; copied bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSettings:
    """Settings of a layout.

    Attributes:
        by: one of LAYOUTS or "random", or "auto": the one of LAYOUTS that reads the fewest pages on this store.
        num_neighbors: fanout of each hop, element 0 next to the seeds.
        batch_size: seeds per batch.
        order: of the seeds, one of `penstock.study.orders.ORDERS`.
        cache: rows kept in memory above the disk: "10%", "2GiB" or "5000 rows"; only pages of the other rows count.
        policy: of this cache: "presample", which keeps the hottest rows, "belady" or another dynamic one.
        window: batches that Belady knows.
        fields: to copy; None: all of the type with more than one number per row (labels are not worth a page).
        node_type, seed_type, split, train_fraction, weight: as in a `CacheStudy`.
        page_bytes: size of a page, which the disk reads at a time.
        memory: bound for the process; None: half of the free memory.
        seed: of everything random.
    """

    by: str = AUTO
    num_neighbors: tuple[int, ...] = (15, 10)
    batch_size: int = 1024
    order: str = "random"
    cache: str = "10%"
    policy: str = PRESAMPLE
    window: int = 16
    fields: tuple[str, ...] | None = None
    node_type: str | None = None
    seed_type: str | None = None
    split: str | None = None
    train_fraction: float | None = None
    weight: str | None = None
    page_bytes: int = 4096
    memory: str | int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the settings."""
        settle(self)
        for name, known in (("by", (AUTO, *LAYOUTS, RANDOM)), ("order", ORDERS), ("policy", POLICIES)):
            check_choice(self, name, known)
        check_positive(self, "batch_size", "window")
        if self.page_bytes < 512 or self.page_bytes & (self.page_bytes - 1):
            raise UsageError(f"{argument('page_bytes')} must be a power of two from 512 on, got {self.page_bytes}")
        parse_capacity(self.cache)

    __repr__ = show

    def as_study(self) -> CacheStudy:
        """Return the settings for choosing seeds as a `CacheStudy`, which also checks them."""
        return CacheStudy(
            num_neighbors=self.num_neighbors, batch_size=self.batch_size, orders=(self.order,), train_fraction=self.train_fraction,
            split=self.split, seed_type=self.seed_type, node_type=self.node_type, seed=self.seed,
        )  # fmt: skip


def lay_out(path: str | os.PathLike[str], settings: LayoutSettings, *, progress: Progress | None = None) -> dict[str, Any]:
    """Pack the features of one node type of a store.

    Args:
        path: of the store; no other process may be writing it.
        settings: of the layout.
        progress: receives the forecast and each stage.
    Returns:
        Plain data: `by` (None if nothing was written), `fields`, `num_bytes` added, `measured`: by order, pages and runs per batch (for all
            its rows, and for those missed).
    Raises:
        UsageError: there is nothing to pack. BudgetError: the memory does not suffice. StoreError: the disk does not, or is read-only.
    """
    progress = progress or Quiet()
    with StoreChange(path) as change:
        work = _Work(change.store, settings)
        budget = _plan_memory(work)
        _announce(work, budget, progress)
        sampled = work.accesses(progress)
        batches = work.batches(sampled.visits[work.node_type], change.scratch, progress)
        names = LAYOUTS if settings.by == AUTO else (settings.by,)
        measured, chosen, mapping = work.choose(names, sampled, batches, progress)
        batches.close()
        del sampled
        result = {
            "store": str(change.store.path), "penstock": penstock.__version__, "settings": asdict(settings), "node_type": work.node_type,
            "by": chosen, "fields": work.fields, "row_bytes": work.row_bytes, "page_bytes": settings.page_bytes, "num_bytes": 0,
            "measured": measured,
        }  # fmt: skip
        if chosen is not None:
            made = {key: result[key] for key in ("by", "penstock", "settings", "row_bytes", "page_bytes", "measured")}
            pack(change, work.node_type, mapping, work.fields, made=made, work_bytes=budget, progress=progress)
            result["num_bytes"] = work.copy_bytes
    return result


def drop_layout(path: str | os.PathLike[str], node_type: NodeType | None = None) -> list[NodeType]:
    """Remove the packed copies of a node type, or of all (None). Returns the types that had any."""
    with StoreChange(path) as change:
        if node_type is not None:
            change.store.node_entry(node_type)  # refuses an unknown type
        nodes = change.store.manifest.nodes
        found = [name for name, entry in nodes.items() if entry.packed is not None and node_type in (None, name)]
        if found:
            drop(change, found)
    return found


class _Work:
    """The work: a store, what is packed, and how batches are sampled."""

    def __init__(self, store: Store, settings: LayoutSettings) -> None:
        self.store, self.settings, self.graph = store, settings, store.graph()
        self.seeds: Seeds = choose_seeds(store, settings.as_study())
        self.node_type = settings.node_type or self.seeds.node_type
        entry = store.node_entry(self.node_type)
        self.num_nodes, self.fields = entry.num_nodes, choose_fields(entry, self.node_type, settings.fields)
        self.specs = [entry.fields[name] for name in self.fields]
        self.row_bytes = max(spec.row_bytes for spec in self.specs)
        self.weights = {} if settings.weight is None else store_weights(store, settings.weight)
        mapping_bytes = self.num_nodes * np.dtype(index_dtype(self.num_nodes)).itemsize
        self.copy_bytes = sum(spec.data_bytes for spec in self.specs) + mapping_bytes + DATA_OFFSET * (len(self.specs) + 1)

    @cached_property
    def sampler(self) -> NeighborSampler:
        """Return a sampler like that of training; computes sums of weights."""
        return NeighborSampler(with_weights(self.graph, self.weights), list(self.settings.num_neighbors), seed=self.settings.seed)

    def accesses(self, progress: Progress) -> Accesses:
        """Sample an epoch, with other draws than those of training."""
        order = make_order(self.settings.order, self.seeds)
        with stage(progress, "sample", order.num_batches(self.settings.batch_size, False), "batches"):
            batches = SampledBatches(self.sampler, NodeSeeds(self.seeds.node_type, self.seeds.ids), order, self.settings.batch_size)
            return record_accesses(batches, progress.advance)

    @property
    def num_kept(self) -> int:
        """Number of rows that the cache keeps."""
        row_bytes, is_static = sum(spec.row_bytes for spec in self.specs), self.settings.policy == PRESAMPLE
        return plan_rows(self.settings.cache, {0: self.num_nodes}, {0: row_bytes}, is_static=is_static)[0]

    def batches(self, visits: np.ndarray, scratch: Scratch, progress: Progress) -> _Batches:
        """Return batches of epoch 0, after those that warm the cache, with the rows of each that the cache misses."""
        settings, order = self.settings, make_order(self.settings.order, self.seeds)
        sampled = sample_batches(
            self.sampler, self.seeds.node_type, self.seeds.ids, order, batch_size=settings.batch_size, epochs=range(1)
        )  # fmt: skip
        num_batches = order.num_batches(settings.batch_size, False)
        policy = make_policy(settings.policy, self.num_nodes, self.num_kept, settings.window, visits)
        num_warm = 0 if isinstance(policy, Static) else min(WARM_BATCHES, num_batches // 4)
        count, kept = min(num_batches - num_warm, MEASURED_BATCHES), _Batches(scratch)
        with stage(progress, "sample what is measured", num_warm + count, "batches"):
            ids_of = islice((batch[self.node_type] for batch in sampled), num_warm + count)
            for number, (ids, left) in enumerate(play(policy, ids_of)):
                progress.advance(1)
                if number >= num_warm:
                    kept.add(ids, left)
        return kept

    def choose(
        self, names: Sequence[str], sampled: Accesses, batches: _Batches, progress: Progress
    ) -> tuple[dict[str, Any], str | None, np.ndarray]:
        """Make one order after the other and count its pages, for all rows and for those that the cache misses.

        Returns:
            (mean pages and runs per batch by order, the name of the order to write, the row of each node in it).
        """
        layouts = Layouts(
            self.graph, self.node_type, sampled, self.sampler.fanouts, num_hot=self.num_kept, seed=self.settings.seed
        )  # fmt: skip
        means = {ORIGINAL: batches.count(np.arange(self.num_nodes, dtype=index_dtype(self.num_nodes)), self)}
        best_name, best, fewest = names[0], np.empty(0, np.int32), (np.inf, 0)
        with stage(progress, f"order {self.node_type}", len(names), "orders"):
            for name in sorted(names, key=plain_of):  # common parts of orders are made once
                rows = rows_of(layouts.make(name), self.num_nodes)
                means[name] = batches.count(rows, self)
                pages = float(means[name][1, 0]), names.index(name)  # among equally good ones the first
                if pages < fewest:
                    best_name, fewest, best = name, pages, rows
                del rows
                progress.advance(1)
        means = {name: means[name] for name in (ORIGINAL, *names)}
        measured = {
            "num_batches": batches.num_batches,
            "rows_per_batch": batches.num_rows[0] / max(batches.num_batches, 1),
            "missed_rows_per_batch": batches.num_rows[1] / max(batches.num_batches, 1),
            "pages": {name: mean[:, 0].tolist() for name, mean in means.items()},
            "runs": {name: mean[:, 1].tolist() for name, mean in means.items()},
        }
        is_better = self.settings.by != AUTO or fewest[0] < (1 - LEAST_GAIN) * means[ORIGINAL][1, 0]
        return measured, best_name if is_better else None, best


class _Batches:
    """Batches to be counted for several orders, kept in a scratch file: ids, and which of them a cache misses.

    Attributes:
        num_batches: batches added. num_rows: of all batches together, requested and missed.
    """

    def __init__(self, scratch: Scratch) -> None:
        self._file, self._sizes, self.num_rows = scratch.file(), list[tuple[int, int]](), [0, 0]

    @property
    def num_batches(self) -> int:
        return len(self._sizes)

    def add(self, ids: np.ndarray, missed: np.ndarray) -> None:
        """Add a batch; both arguments are int64."""
        at = 8 * sum(self.num_rows)
        self._file.write(ids, at)
        self._file.write(missed, at + ids.nbytes)
        self._sizes.append((ids.size, missed.size))
        self.num_rows = [self.num_rows[0] + ids.size, self.num_rows[1] + missed.size]

    def count(self, rows: np.ndarray, work: _Work) -> np.ndarray:
        """Return float64[2, 2]: mean pages and runs per batch, for all its rows and for those missed."""
        total, at = np.zeros((2, 2)), 0

        def batches() -> Iterator[np.ndarray]:
            nonlocal at
            for sizes in self._sizes:
                for size in sizes:
                    yield self._file.read(np.empty(size, np.int64), at)
                    at += 8 * size

        for number, counts in enumerate(count_pages(batches(), rows, work.row_bytes, page_bytes=work.settings.page_bytes)):
            total[number % 2] += counts
        return (total / max(self.num_batches, 1)).round(1)

    def close(self) -> None:
        """Close the file, which frees its disk space."""
        self._file.close()


def make_policy(name: str, num_nodes: int, capacity: int, window: int, visits: np.ndarray) -> Policy:
    """Return a cache with one of POLICIES and its initial content."""
    if name == Belady.name:
        return Belady(num_nodes, capacity, window, hotness_classes(visits, NUM_CLASSES))
    if name in DYNAMIC:
        return DYNAMIC[name](num_nodes, capacity)
    policy = Static(num_nodes, capacity)
    policy.fill(plan_static(visits, capacity))
    return policy


def play(policy: Policy, batches: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Simulate a policy on batches, announcing them if it looks ahead; yields (ids, missed ids) of each."""
    for ids in announced(policy, batches):
        yield ids, ids[policy.access(ids).hit_slots < 0]


def _plan_memory(work: _Work) -> int:
    """Return the memory for rows being copied; refuse a bound that is too small."""
    baseline, all_nodes = resident_bytes(), sum(work.graph.num_nodes.values())
    node_bytes = NODE_BYTES * all_nodes
    text, left = work.settings.memory, free_bytes()
    weights = declare_weights(work.weights) if work.weights else 0
    least = max(LEAST_WORK_BYTES, 8 * work.row_bytes)
    needed = baseline + RESERVE_BYTES + node_bytes + weights + least
    bound = parse_bytes(text) if text is not None else baseline + min(left, max(left // 2, needed - baseline))
    if bound < needed:
        of_weights = f"{format_bytes(weights)} for {work.settings.weight} + " if weights else ""
        raise BudgetError(
            f"{format_bytes(bound)} of memory is too little: {format_bytes(baseline)} are held already + {format_bytes(RESERVE_BYTES)} "
            f"reserve + {format_bytes(node_bytes)} to order {all_nodes:,} nodes + {of_weights}{format_bytes(least)} for rows = "
            f"{format_bytes(needed)} at least"
            + (f", and {format_bytes(left)} are free" if text is None else f". Declare more by {argument('memory')}")
        )
    return bound - needed + least


def _announce(work: _Work, work_bytes: int, progress: Progress) -> None:
    """Report the forecast; refuse if the disk has too little space."""
    scratch = max(scratch_bytes(work.num_nodes, spec.row_bytes, work_bytes) for spec in work.specs)
    fanouts = np.cumprod(np.abs(work.settings.num_neighbors), dtype=np.float64)
    num_sampled, graph = work.seeds.ids.size * fanouts.sum(), work.graph
    num_ordered = num_sampled + sum(graph.num_nodes.values()) + sum(csc.num_edges for csc in graph.adjacency.values())
    num_orders = len(LAYOUTS) if work.settings.by == AUTO else 1
    seconds = num_sampled / EDGES_PER_S + num_orders * num_ordered / ORDERED_PER_S
    seconds += (2 if scratch == 0 else 4) * work.copy_bytes / COPY_BYTES_PER_S
    held = min(work_bytes, max(spec.data_bytes for spec in work.specs))
    progress.note(
        f"disk    {format_bytes(work.copy_bytes)} for the copy, {format_bytes(scratch)} beside it while it is made\n"
        f"memory  up to {format_bytes(NODE_BYTES * sum(work.graph.num_nodes.values()))} for the order, {format_bytes(held)} for "
        f"rows; topology is mapped and gives way\n"
        f"time    about {max(1, round(seconds))} s"
    )
    free, needed = shutil.disk_usage(work.store.path).free, work.copy_bytes + scratch
    if needed > free:
        raise StoreError(
            f"cannot pack {work.store.path}: {format_bytes(work.copy_bytes)} for the copy + {format_bytes(scratch)} while it is made = "
            f"{format_bytes(needed)}, and the disk has {format_bytes(free)} free: free some space, or choose fewer fields"
        )
