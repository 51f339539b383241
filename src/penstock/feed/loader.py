"""`Loader`: what the loaders of nodes and of links share: everything but the choice of the seeds.

In: a graph and a set of seeds. Out: PyG batches, seeds first. Invariant: batch i of epoch e is a pure function of (graph, seeds,
configuration, seed, e, i); thread count and look-ahead change nothing but the time.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from torch.utils.data import SequentialSampler
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import NotSupportedError, StateError, UsageError
from penstock.feed.arguments import (
    Choose,
    as_positions,
    as_rank,
    check_batches,
    check_kinds,
    check_layer_wise,
    check_non_stop,
    check_rule,
    check_shared_draws,
    check_strategy,
    choose_subgraph,
    refuse_sampler,
    warn_of_equal_ranks,
    warn_of_overrides,
    warn_of_the_same_again,
)
from penstock.feed.delivery import choose_device
from penstock.feed.epoch import Epoch, Position
from penstock.feed.epoch_sampler import EpochSampler
from penstock.feed.fit import check_room
from penstock.feed.fit.memory import Bound
from penstock.feed.huge_pages import HugePages, read_at_random
from penstock.feed.inputs import open_input
from penstock.feed.maker import BatchMaker
from penstock.feed.options import LoaderOptions, choose_seed, read_options, samples_ahead
from penstock.feed.padding import Padding, choose_padding
from penstock.feed.setup import CacheToCome, check_shards, choose_drawing, fill_caches, make_maker
from penstock.feed.stages import locate
from penstock.feed.state import check_state, make_state
from penstock.feed.stats import LoaderStats
from penstock.feed.stream import BatchStream
from penstock.feed.timeline import Recording
from penstock.feed.verify import PlainMaker, compare
from penstock.gather import Seat, TieredTable
from penstock.order import GivenOrder, Order, SequentialOrder
from penstock.plan import Plan, make_plan
from penstock.sample.times import time_bytes
from penstock.sample.walks import Walks
from penstock.sample.weights import weight_bytes
from penstock.store.fingerprint import fingerprint
from penstock.store.process_memory import processes_here
from penstock.threads import Guard, Threads

Batch = Data | HeteroData

EPOCH_OF_CALLS = (1 << 64) - 1
"""The epoch under which `loader(index)` draws; no pass ever reaches it."""


class Loader:
    """Mini-batches of sampled neighbourhoods. `choose` makes the set of seeds; the other arguments are those of `NeighborLoader`, which
    documents them and has their defaults."""

    _ranks_wait = True
    """Whether ranks may wait for each other in each step, in which case they need equally many batches."""

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[tuple[str, str, str], Sequence[int]],
        choose: Choose,
        /,
        *,
        replace: bool,
        subgraph_type: SubgraphType | str,
        disjoint: bool,
        temporal_strategy: str,
        temporal_rule: str,
        time_attr: str | None,
        weight_attr: str | None,
        transform: Callable[[Batch], Any] | None,
        transform_sampler_output: Callable[[Any], Any] | None,
        is_sorted: bool,
        filter_per_worker: bool | None,
        neighbor_sampler: Any,
        directed: bool,
        custom_cls: Callable[[], Any] | None,
        seed: int | None,
        split: str | None = None,
        order: Order | str | None,
        rank: int,
        num_ranks: int,
        plan: Plan | str | None,
        tables: Mapping[Any, TieredTable] | None,
        step: Callable[[Any], object] | None,
        device: Any,
        shards: Seat | None,
        pad: bool | Padding,
        shared_draws: bool | int,
        non_stop: bool | int,
        walks: Walks | None,
        layer_wise: bool,
        **kwargs: Any,
    ) -> None:
        refuse_sampler(neighbor_sampler)
        check_kinds(tables, transform=transform, transform_sampler_output=transform_sampler_output, custom_cls=custom_cls, step=step)
        warn_of_overrides(type(self))
        plan = make_plan(plan)
        delivery = choose_device(device, plan)
        plan = plan.resolved(has_device=delivery.device is not None)
        check_shards(plan, shards, delivery.device)
        self.seed: int = choose_seed(seed, kwargs.pop("generator", None))
        options = read_options(type(self), **kwargs)
        self._options = options if delivery.device is None else options.ahead()
        self._data, self._transform, self._is_transformed_by_threads = data, transform, bool(filter_per_worker)
        self.rank, self.num_ranks = as_rank(rank, num_ranks)
        if not directed:
            warnings.warn("directed=False is deprecated: use subgraph_type='induced'", stacklevel=3)
            subgraph_type = "induced"
        self._maker = make_maker(
            open_input(data, is_sorted=is_sorted, custom_cls=custom_cls, split=split),
            num_neighbors,
            choose,
            plan,
            self._options,
            order=order,
            subgraph_type=choose_subgraph(subgraph_type),
            replace=replace,
            disjoint=disjoint,
            weight_attr=weight_attr,
            time_attr=time_attr,
            takes_last=check_strategy(temporal_strategy) == "last",
            is_strict=check_rule(temporal_rule),
            shared_draws=check_shared_draws(shared_draws),
            walks=walks,
            layer_wise=check_layer_wise(layer_wise),
            seed=self.seed,
            transform_output=transform_sampler_output,
            transform=transform if self._is_transformed_by_threads else None,
            delivery=delivery,
        )
        self._non_stop = check_non_stop(non_stop, self._maker.order)
        self._maker.padding = choose_padding(pad, self._maker)
        self._num_batches = self._count_epoch(is_seed_given=seed is not None)
        self._drawing = choose_drawing(plan, self._maker)
        tables = {**self._maker.source.tables(), **(tables or {})}
        plain = self._maker.with_own_memory(transform=None)  # before anything is put elsewhere
        self._caches = fill_caches(plan, self._maker, self._options, self._drawing, tables, step, shards)
        self._plain_maker = PlainMaker(plain, self._caches.only(tables))
        self._cache_to_come = CacheToCome(plan, self._maker, self._caches) if plan.is_device_cache_found else None
        self._options, self._bound = self._fit_to_memory(plan, plain, step)
        self._sampling_options = dataclasses.replace(self._options, max_in_flight=max(1, samples_ahead(plan, self._options.num_workers)))
        self._workers, self._sampling_threads = (Threads(self._options.num_workers, "penstock") for _ in range(2))
        may_move = plan.huge_pages and plan.host_memory is None and self._bound is None
        self._huge_pages = HugePages(partial(read_at_random, plan, self._maker) if may_move else tuple, self)
        self._stats = LoaderStats()
        self._recording: Recording | None = None
        self._running: BatchStream | None = None
        self._configuration: dict[str, Any] | None = None
        self._at, self._calls, self._beginning = Position(), itertools.count(), Guard()

    def _count_epoch(self, *, is_seed_given: bool) -> int:
        """Count the batches of an epoch, over all ranks. Refuses what makes none, and warns of loaders that would give the same ones."""
        maker, options = self._maker, self._options
        of_seeds = maker.seeds.describe(fingerprint)
        if not is_seed_given:
            warn_of_the_same_again(self.seed, maker.describe(), of_seeds, shuffle=options.shuffle)
        if self.num_ranks == 1 and options.shuffle:
            warn_of_equal_ranks(of_seeds)
        num_batches = self._count_batches(maker.order, self.num_ranks)
        is_said = self._ranks_wait and self.rank == 0
        check_batches(num_batches, len(maker.seeds), self.batch_size, self.num_ranks, drop_last=options.drop_last, is_said=is_said)
        return num_batches

    def _fit_to_memory(self, plan: Plan, plain: BatchMaker, step: Callable[[Any], object] | None) -> tuple[LoaderOptions, Bound | None]:
        """Settle how many threads and batches in flight there are. Returns (the options, what keeps the process within its memory or None).

        A plan's budget has settled both. Without one, in a container, batches of `plain` are looked at, and a `step` is tried, to see
        that both fit.
        """
        maker, fitted = self._maker, self._caches.fitted
        if fitted is not None:
            options = dataclasses.replace(self._options, num_workers=fitted.num_workers, max_in_flight=fitted.max_in_flight)
            return options, fitted.bound
        options = dataclasses.replace(self._options, max_in_flight=self._options.under_way(is_read_ahead=plan.is_read_ahead))
        if maker.delivery.device is not None:
            return options, None
        tried = dataclasses.replace(plain, transform=maker.transform)
        room = check_room(
            tried, self._plain_maker.caches, self._caches, plan, num_threads=options.num_workers, max_in_flight=options.max_in_flight,
            step=step, num_here=processes_here(self.num_ranks), files=read_at_random(plan, maker),
        )  # fmt: skip
        if room is None:
            return options, None
        return dataclasses.replace(options, num_workers=room.num_workers, max_in_flight=room.max_in_flight), room.bound

    def __len__(self) -> int:
        """Number of batches of this rank in an epoch; with a sampler of the user's, what its length says now."""
        order = self._maker.order
        count = self._count_batches(order, self.num_ranks) if isinstance(order, GivenOrder) else self._num_batches
        return len(range(self.rank, count, self.num_ranks))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> Any:
        raise NotSupportedError("a loader is neither pickled nor copied: make it where it is used, in each process")

    @property
    def data(self) -> Any:
        """What it loads from."""
        return self._data

    @property
    def transform(self) -> Callable[[Batch], Any] | None:
        """Called on each batch; may be set to another function."""
        return self._transform

    @transform.setter
    def transform(self, transform: Callable[[Batch], Any] | None) -> None:
        check_kinds(None, transform=transform)
        self._transform, self._running = transform, None
        self._maker.transform = transform if self._is_transformed_by_threads else None

    @property
    def batch_size(self) -> int:
        """Seeds per batch."""
        return self._options.batch_size

    @property
    def num_workers(self) -> int:
        """Number of sampling threads."""
        return self._options.num_workers

    @property
    def sampler(self) -> Any:
        """The user's sampler; without one, an equivalent of the sampler that torch's loaders have, for its length and its `set_epoch`; None
        beside a batch_sampler."""
        if self._options.sampler is not None or self._options.batch_sampler is not None:
            return self._options.sampler
        return SequentialSampler(self.dataset) if isinstance(self._maker.order, SequentialOrder) else EpochSampler(self)

    @property
    def batch_sampler(self) -> Any:
        """The user's batch_sampler; None without one."""
        return self._options.batch_sampler

    @property
    def padding(self) -> Padding | None:
        """Sizes that batches are padded to, to give another loader as its `pad`; None without padding."""
        return self._maker.padding

    @property
    def drop_last(self) -> bool:
        """Whether the last, incomplete batch is left out."""
        return self._options.drop_last

    @property
    def dataset(self) -> range:
        """Positions in the set of seeds, as PyG has it: `len(loader.dataset)` is the number of seeds."""
        return range(len(self._maker.seeds))

    @property
    def epoch(self) -> int:
        """The epoch of the current iterator; where there is none, the next epoch."""
        return self._at.epoch

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch; after `load_state_dict`, the rest of the epoch that the state is in. Nothing is decided or begun before the
        first batch is asked for."""
        return Epoch(self)

    def __call__(self, index: Any = None, *, epoch: int | None = None, batch: int | None = None) -> Any:
        """Make one batch of the seeds at positions `index` of the set of seeds.

        As in PyG, each call draws anew; the n-th call draws the same in every run. `epoch` and `batch` choose the draws of that batch
        instead (`batch` counts the batches of all ranks). Without `index`, the seeds are those of that batch in the loader's order: it is
        made again as it is delivered. A `sampler` has no such order, so it needs an `index`."""
        if index is not None and epoch is None and batch is None:
            epoch, batch = EPOCH_OF_CALLS, next(self._calls)
        epoch, batch = epoch or 0, batch or 0
        if index is None:
            if isinstance(self._maker.order, GivenOrder):
                raise UsageError("what a sampler gives is not known before or after: say the positions of the batch's seeds")
            if not isinstance(batch, (int, np.integer)) or not 0 <= batch < self._num_batches:
                raise UsageError(f"batch must be a whole number in [0, {self._num_batches}), the batches of an epoch, got {batch!r}")
            index = self._maker.order.batch(epoch, batch, self._maker.batch_size)
        positions = as_positions(index, len(self.dataset))
        return self._transformed(self._maker.make(self._caches, positions, epoch, batch), batch)

    def verify(self, batch: Any) -> None:
        """Make the batch that was delivered last again, without any caches, and compare the two bit for bit, on any device, under any plan.

        It is made on the CPU, in this thread, out of the arrays that the loader was made from. That takes the time and the memory of one
        more batch, which `host_memory` does not count. The `transform` is called on it too, and must be a function of the batch alone.

        Raises:
            MismatchError: they differ; the message names the first place.
            UsageError: nothing was delivered yet; or the seeds come from a sampler, whose output is not kept.
        """
        at = self._at
        if at.delivered == 0:
            raise UsageError("verify takes the batch that was delivered last, and none was: iterate over the loader first")
        if isinstance(self._maker.order, GivenOrder):
            raise UsageError("a batch of a sampler is not verified: what it gave for it is not known afterwards")
        index = (at.delivered - 1) * self.num_ranks + self.rank
        expected = self._plain_maker.make(self._maker.order.batch(at.epoch, index, self.batch_size), at.epoch, index)
        expected = expected if self._transform is None else self._transform(expected)
        compare(batch, expected, f"batch {index} of epoch {at.epoch}")

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last delivered batch: a few integers, and the configuration that they belong to."""
        at = self._at
        batch = at.delivered * self.num_ranks
        is_to_be_read = at.is_fresh and isinstance(self._maker.order, GivenOrder)  # how many batches there are, the next pass finds out
        if at.is_over or (batch >= self._num_batches and not is_to_be_read):
            return make_state(self._configure(), epoch=at.epoch + 1, batch=0)
        return make_state(self._configure(), epoch=at.epoch, batch=batch, sequence=at.sequence if batch else None)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state: the next iterator delivers exactly the batches that had not been delivered when it was taken.

        The numbers of threads and ranks and the look-ahead may differ.

        Raises:
            StateError: anything else differs.
        """
        epoch, batch, sequence = check_state(state, self._configure())
        if batch > self._num_batches and not isinstance(self._maker.order, GivenOrder):
            raise StateError(f"the state stands at batch {batch} of an epoch of {self._num_batches}: take it from loader.state_dict()")
        if batch % self.num_ranks:
            raise StateError(f"the state stands at batch {batch} of the global order, which {self.num_ranks} ranks do not reach together")
        self._at = Position(epoch, batch // self.num_ranks, sequence=sequence)
        self._running = None  # somebody may still go on with it

    def stats(self) -> LoaderStats:
        """Return what was counted over all batches delivered so far, as a copy."""
        stats, maker, caches = self._stats, self._maker, self._caches
        stats.buffer_bytes = maker.pool.total_bytes + maker.held_pool.total_bytes
        stats.peak_buffer_bytes = maker.pool.peak_bytes + maker.held_pool.peak_bytes
        stats.weight_bytes, stats.time_bytes = weight_bytes(maker.sampler.graph), time_bytes(maker.sampler.graph)
        stats.cache_bytes, stats.list_bytes = caches.resident_bytes, caches.list_bytes
        stats.loaded_bytes = caches.loaded_bytes + self._huge_pages.num_bytes
        stats.device_bytes, stats.devices = caches.device_bytes + maker.device_bytes, caches.devices
        stats.sampling = self._drawing.why
        stats.device_cache = "" if self._cache_to_come is None else self._cache_to_come.report
        stats.tiers, stats.lists = caches.stats(), caches.list_stats()
        stats.memory = "" if caches.fitted is None else str(caches.fitted.memory)
        stats.disks = {name: tier.describe() for name, tier in caches.disks.items()}
        return copy.deepcopy(stats)

    def _beside(self, choose: Choose, rank: int = 0, num_ranks: int = 1) -> Self:
        """Return a loader over other seeds, taken in their order, with the same settings, that shares this one's tiers and buffers."""
        other, maker = object.__new__(type(self)), self._maker
        vars(other).update(vars(self))
        seeds = choose(maker.source, maker.times)
        other._maker = dataclasses.replace(maker, seeds=seeds, order=SequentialOrder(len(seeds)))
        if maker.padding is not None and set(seeds.node_types) != set(maker.seeds.node_types):
            other._maker.padding = Padding.measure(other._maker.batches)
        other._plain_maker = self._plain_maker.over(other._maker)
        other._num_batches = other._maker.order.num_batches(self.batch_size, False)
        other.rank, other.num_ranks = as_rank(rank, num_ranks)
        other._cache_to_come = None
        other._caches, other._stats, other._recording, other._configuration = self._caches.aside(), LoaderStats(), None, None
        other._at, other._running, other._non_stop, other._calls = Position(), None, False, itertools.count()
        other._beginning = Guard()
        return other

    @property
    def is_settled(self) -> bool:
        """Whether maps are no longer being moved into huge pages, which slows batches for some seconds of the first epoch."""
        return not self._huge_pages.is_moving

    def timeline(self) -> dict[str, Any] | None:
        """Return which work overlapped in the middle of the latest epoch, see `penstock.feed.timeline`; None before that."""
        return None if self._recording is None else self._recording.as_dict()

    def _count_batches(self, order: Order, num_ranks: int) -> int:
        """Number of batches in an epoch, over all ranks."""
        count = order.num_batches(self._options.batch_size, self._options.drop_last)
        return count - count % num_ranks if self._options.drop_last else count

    def _batch_asked(self, got: float) -> float:
        """Note that the user, who has had a batch since `got` (0: none), asks for the next. Returns when, once a device has caught up."""
        self._maker.delivery.keep_up()
        if self._bound is not None:
            self._bound.keep_within()
        asked = time.perf_counter()
        self._stats.user_s += asked - got if got else 0.0
        if self._cache_to_come is not None:
            self._cache_to_come.batch_asked()
        return asked

    def _configure(self) -> dict[str, Any]:
        """Everything that decides what the batches are."""
        if self._configuration is None:
            self._configuration = {**self._maker.describe(), "drop_last": self._options.drop_last}
        return self._configuration

    def _transformed(self, batch: Any, index: int) -> Any:
        """Apply the user's transform unless the threads have. Its exceptions are the user's own, and are raised as they are."""
        if self._transform is None or self._is_transformed_by_threads:
            return batch
        try:
            return self._transform(batch)
        except StopIteration as error:  # would end the user's loop in silence
            raise locate(error, "transform", index) from error
        except Exception as error:
            error.add_note(f"in the transform of batch {index}")
            raise
