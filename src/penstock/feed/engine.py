"""`Engine`: what all passes over a loader work with. A `Loader` is its face: arguments, PyG's attributes, states.

In: the maker of the batches, the caches that it reads through, threads, and where the loader stands. Out: passes (`Epoch`, `BatchStream`),
which take what they need from here, and count here what they deliver. Invariant: only the latest pass moves the position.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.feed.arguments import Choose
from penstock.feed.caches import Caches
from penstock.feed.fit.memory import Bound
from penstock.feed.huge_pages import HugePages
from penstock.feed.maker import BatchMaker
from penstock.feed.options import LoaderOptions
from penstock.feed.padding import Padding
from penstock.feed.stages import locate
from penstock.feed.stats import LoaderStats
from penstock.feed.timeline import Recording
from penstock.feed.verify import PlainMaker
from penstock.order import GivenOrder, SequentialOrder
from penstock.sample.times import time_bytes
from penstock.sample.weights import weight_bytes
from penstock.threads import Guard, Threads

if TYPE_CHECKING:
    from penstock.feed.setup import CacheToCome
    from penstock.feed.stream import BatchStream


@dataclass(slots=True)
class Position:
    """Where a pass is. A loader has the position of its latest pass, or of the one to come.

    Attributes:
        epoch: of the pass.
        delivered: batches of this rank delivered in it.
        is_fresh: no pass has begun from here yet.
        is_over: the pass has delivered its last batch.
        sequence: digest of what the user's sampler gave for this epoch.
    """

    epoch: int = 0
    delivered: int = 0
    is_fresh: bool = True
    is_over: bool = False
    sequence: str | None = None


@dataclass(kw_only=True, eq=False)
class Engine:
    """What makes the batches of a loader, pass after pass.

    Attributes:
        maker: makes its batches.
        plain_maker: makes them again without caches, to verify them.
        caches: tiers that rows and neighbour lists are read through.
        sampled_by: who draws the samples and why, in words; empty without a device.
        options: of the DataLoader, with as many threads and batches in flight as memory has room for.
        sampling_options: the same for samples that are drawn ahead of their rows.
        workers, samplers: threads that make batches, and that draw samples ahead of them.
        bound: keeps the process within its memory; None where nothing has to.
        cache_to_come: makes the device's cache after the first steps; None where there is none to make.
        huge_pages: moves maps into huge pages beside the batches.
        rank, num_ranks: this process takes batches rank, rank + num_ranks, ... of an epoch.
        num_batches: batches of an epoch, over all ranks.
        non_stop: threads begin the next epoch while one ends; a number: up to so many epochs.
        transform: the user's, called on each batch in his thread; None: there is none, or threads call it.
        at: where the latest pass is, or where the next begins.
        running: what the latest pass took its batches from, where the next may go on with it.
        recording: which work overlapped in the latest epoch.
        stats: what was counted so far.
        beginning: held by a pass while it begins.
    """

    maker: BatchMaker
    plain_maker: PlainMaker
    caches: Caches
    sampled_by: str
    options: LoaderOptions
    sampling_options: LoaderOptions
    workers: Threads
    samplers: Threads
    bound: Bound | None
    cache_to_come: CacheToCome | None
    huge_pages: HugePages
    rank: int
    num_ranks: int
    num_batches: int
    non_stop: bool | int
    transform: Callable[[Any], Any] | None
    at: Position = field(default_factory=Position)
    running: BatchStream | None = None
    recording: Recording | None = None
    stats: LoaderStats = field(default_factory=LoaderStats)
    beginning: Guard = field(default_factory=Guard)

    def __len__(self) -> int:
        """Number of batches of this rank in an epoch; with a sampler of the user's, what its length says now."""
        order = self.maker.order
        count = self.options.count_batches(order, self.num_ranks) if isinstance(order, GivenOrder) else self.num_batches
        return len(range(self.rank, count, self.num_ranks))

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """Everything that decides what the batches are, and which of them come."""
        return {**self.maker.describe(), "drop_last": self.options.drop_last}

    def batch_asked(self, got: float) -> float:
        """Note that the user, who has had a batch since `got` (0: none), asks for the next. Returns when, once a device has caught up."""
        self.maker.delivery.keep_up()
        if self.bound is not None:
            self.bound.keep_within()
        asked = time.perf_counter()
        self.stats.user_s += asked - got if got else 0.0
        if self.cache_to_come is not None:
            self.cache_to_come.batch_asked()
        return asked

    def transformed(self, batch: Any, index: int) -> Any:
        """Apply the user's transform unless the threads have. Its exceptions are the user's own, and are raised as they are."""
        if self.transform is None:
            return batch
        try:
            return self.transform(batch)
        except StopIteration as error:  # would end the user's loop in silence
            raise locate(error, "transform", index) from error
        except Exception as error:
            error.add_note(f"in the transform of batch {index}")
            raise

    def counted(self) -> LoaderStats:
        """Return what was counted over all batches delivered so far, and what memory is in use, as a copy."""
        stats, maker, caches = self.stats, self.maker, self.caches
        stats.buffer_bytes = maker.pool.total_bytes + maker.held_pool.total_bytes
        stats.peak_buffer_bytes = maker.pool.peak_bytes + maker.held_pool.peak_bytes
        stats.weight_bytes, stats.time_bytes = weight_bytes(maker.sampler.graph), time_bytes(maker.sampler.graph)
        stats.cache_bytes, stats.list_bytes = caches.resident_bytes, caches.list_bytes
        stats.loaded_bytes = caches.loaded_bytes + self.huge_pages.num_bytes
        stats.device_bytes, stats.devices = caches.device_bytes + maker.device_bytes, caches.devices
        stats.sampling = self.sampled_by
        stats.device_cache = "" if self.cache_to_come is None else self.cache_to_come.report
        stats.tiers, stats.lists = caches.stats(), caches.list_stats()
        stats.memory = "" if caches.fitted is None else str(caches.fitted.memory)
        stats.disks = {name: tier.describe() for name, tier in caches.disks.items()}
        return copy.deepcopy(stats)

    def beside(self, choose: Choose, rank: int, num_ranks: int) -> Engine:
        """Return an engine over other seeds, taken in their order, that shares this one's tiers, buffers and threads."""
        maker = self.maker
        seeds = choose(maker.source, maker.times)
        other = replace(maker, seeds=seeds, order=SequentialOrder(len(seeds)))
        if maker.padding is not None and set(seeds.node_types) != set(maker.seeds.node_types):
            other.padding = Padding.measure(other.batches)
        return replace(
            self, maker=other, plain_maker=self.plain_maker.over(other), caches=self.caches.aside(), cache_to_come=None,
            rank=rank, num_ranks=num_ranks, num_batches=other.order.num_batches(other.batch_size, False), non_stop=False,
            at=Position(), running=None, recording=None, stats=LoaderStats(), beginning=Guard(),
        )  # fmt: skip
