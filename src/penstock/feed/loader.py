"""`Loader`: what loaders of nodes and of links have in common, all but their seeds, over the house's pipeline.

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
from penstock.feed.fit import check_room, read_apart
from penstock.feed.huge_pages import HugePages, read_at_random
from penstock.feed.inputs import open_input
from penstock.feed.options import choose_seed, read_options, samples_ahead
from penstock.feed.padding import Padding, choose_padding
from penstock.feed.setup import CacheToCome, check_shards, choose_drawing, fill_caches, make_maker
from penstock.feed.stages import locate
from penstock.feed.state import check_state, make_state
from penstock.feed.stats import LoaderStats
from penstock.feed.stream import BatchStream
from penstock.feed.timeline import Recording
from penstock.feed.told import ToldOfEpochs
from penstock.feed.verify import PlainMaker, apart, compare
from penstock.gather import Seat, TieredTable
from penstock.order import GivenOrder, Order, SequentialOrder
from penstock.plan import Plan, make_plan
from penstock.sample.times import time_bytes
from penstock.sample.walks import Walks
from penstock.sample.weights import weight_bytes
from penstock.store.fingerprint import fingerprint
from penstock.store.process_memory import free_in_container, processes_here
from penstock.threads import Guard, Threads

Batch = Data | HeteroData

OF_CALLS = (1 << 64) - 1
"""An epoch that no pass has: its draws are those of single calls."""


class Loader:
    """Mini-batches of sampled neighbourhoods; `choose` says from which seeds, the other arguments are as of `NeighborLoader`, which has
    their defaults."""

    _ranks_wait = True
    """Whether ranks may wait for each other in each step, so that they need equally many batches."""

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
        of_seeds = self._maker.seeds.describe(fingerprint)
        if seed is None:
            warn_of_the_same_again(self.seed, self._maker.describe(), of_seeds, shuffle=self._options.shuffle)
        if self.num_ranks == 1 and self._options.shuffle:
            warn_of_equal_ranks(of_seeds)
        self._num_batches = self._count_batches(self._maker.order, self.num_ranks)
        is_said = self._ranks_wait and self.rank == 0
        check_batches(
            self._num_batches, len(self._maker.seeds), self.batch_size, self.num_ranks, drop_last=self._options.drop_last, is_said=is_said
        )
        self._drawing = choose_drawing(plan, self._maker)
        tables = {**self._maker.source.tables(), **(tables or {})}
        plainly = apart(self._maker)
        self._caches = fill_caches(plan, self._maker, self._options, self._drawing, tables, step, shards)
        self._plainly = PlainMaker(plainly, self._caches.only(tables))
        self._cache_to_come = CacheToCome(plan, self._maker, self._caches) if plan.is_device_cache_found else None
        self._bound = None
        if self._caches.fitted is None:
            in_flight = self._options.under_way(is_read_ahead=plan.is_read_ahead)
            self._options = dataclasses.replace(self._options, max_in_flight=in_flight)
            left = free_in_container()
            if step is None and delivery.device is None and left is not None:
                read_apart(read_at_random(plan, self._maker), left)
            if step is not None and delivery.device is None:
                tried = dataclasses.replace(plainly, transform=self._maker.transform)
                room = check_room(
                    tried, self._plainly.caches, self._caches, plan, num_threads=self._options.num_workers, max_in_flight=in_flight,
                    step=step, num_here=processes_here(self.num_ranks), files=read_at_random(plan, self._maker),
                )  # fmt: skip
                if room is not None:
                    self._bound = room.bound
                    self._options = dataclasses.replace(self._options, num_workers=room.num_workers, max_in_flight=room.max_in_flight)
        else:
            fitted = self._caches.fitted
            self._bound = fitted.bound
            self._options = dataclasses.replace(self._options, num_workers=fitted.num_workers, max_in_flight=fitted.max_in_flight)
        self._sampling = dataclasses.replace(self._options, max_in_flight=max(1, samples_ahead(plan, self._options.num_workers)))
        self._workers, self._samplers = (Threads(self._options.num_workers, "penstock") for _ in range(2))
        self._huge_pages = HugePages(
            partial(read_at_random, plan if self._bound is None else dataclasses.replace(plan, huge_pages=False), self._maker), self
        )
        self._stats = LoaderStats()
        self._recording: Recording | None = None
        self._going: BatchStream | None = None
        self._configuration: dict[str, Any] | None = None
        self._at, self._calls, self._beginning = Position(), itertools.count(), Guard()

    def __len__(self) -> int:
        """Number of batches per epoch of this rank; of a sampler of the user's, as its length says now."""
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
        """Called on each batch; may be exchanged."""
        return self._transform

    @transform.setter
    def transform(self, transform: Callable[[Batch], Any] | None) -> None:
        check_kinds(None, transform=transform)
        self._transform, self._going = transform, None
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
        """What says which seeds come when, for its length and its `set_epoch`: as it was given, or in its place what torch's loaders have;
        None beside a batch_sampler."""
        if self._options.sampler is not None or self._options.batch_sampler is not None:
            return self._options.sampler
        return SequentialSampler(self.dataset) if isinstance(self._maker.order, SequentialOrder) else ToldOfEpochs(self)

    @property
    def batch_sampler(self) -> Any:
        """What says so of whole batches, as it was given; None where nothing was."""
        return self._options.batch_sampler

    @property
    def padding(self) -> Padding | None:
        """Sizes that batches are padded to, for the `pad` of another loader; None where they keep their own."""
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
        """The epoch that the current iterator delivers, or the next one."""
        return self._at.epoch

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch; after `load_state_dict`, the rest of the epoch of the state. Which that is, is seen when the first batch is
        asked for."""
        return Epoch(self)

    def __call__(self, index: Any = None, *, epoch: int | None = None, batch: int | None = None) -> Any:
        """Make one batch of the seeds at positions `index` of the set of seeds, with draws of its own at each call, as in PyG: those of the
        n-th call are the same in every run. `epoch` and `batch` select the draws of a batch instead. Without `index`, of the seeds that
        these have in the loader's order, so that it is that batch again (`batch` counts those of all ranks). Not of a `sampler`."""
        if index is not None and epoch is None and batch is None:
            epoch, batch = OF_CALLS, next(self._calls)
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
        """Make the batch that was delivered last again, plainly, and compare: bit for bit, on any device, under any plan.

        Plainly is on the CPU, by this thread, out of the arrays that the loader was made from: it takes as long as a batch takes there, and
        memory for one more, beside `host_memory`. The `transform` is called on it too, and gives the same where it is a function of the
        batch alone.

        Raises:
            MismatchError: they differ; says where first.
            UsageError: nothing was delivered yet; or a sampler gives the seeds, and what it gave is not known afterwards.
        """
        at = self._at
        if at.delivered == 0:
            raise UsageError("verify takes the batch that was delivered last, and none was: iterate over the loader first")
        if isinstance(self._maker.order, GivenOrder):
            raise UsageError("a batch of a sampler is not verified: what it gave for it is not known afterwards")
        index = (at.delivered - 1) * self.num_ranks + self.rank
        expected = self._plainly.make(self._maker.order.batch(at.epoch, index, self.batch_size), at.epoch, index)
        expected = expected if self._transform is None else self._transform(expected)
        compare(batch, expected, f"batch {index} of epoch {at.epoch}")

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last delivered batch: a few integers, and the configuration they belong to."""
        at = self._at
        batch = at.delivered * self.num_ranks
        is_to_be_read = at.is_fresh and isinstance(self._maker.order, GivenOrder)  # how many batches there are, the next pass finds out
        if at.is_over or (batch >= self._num_batches and not is_to_be_read):
            return make_state(self._configure(), epoch=at.epoch + 1, batch=0)
        return make_state(self._configure(), epoch=at.epoch, batch=batch, sequence=at.sequence if batch else None)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state: the next iterator delivers exactly the batches that were not delivered before it was taken.

        The number of threads, the look-ahead and the number of ranks may differ. Raises StateError for any other difference.
        """
        epoch, batch, sequence = check_state(state, self._configure())
        if batch > self._num_batches and not isinstance(self._maker.order, GivenOrder):
            raise StateError(f"the state stands at batch {batch} of an epoch of {self._num_batches}: take it from loader.state_dict()")
        if batch % self.num_ranks:
            raise StateError(f"the state stands at batch {batch} of the global order, which {self.num_ranks} ranks do not reach together")
        self._at = Position(epoch, batch // self.num_ranks, sequence=sequence)
        self._going = None  # somebody may still go on with it

    def stats(self) -> LoaderStats:
        """Return what was counted so far, over all batches delivered; it does not change when more are."""
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
        """Return a loader over other seeds, in their order, with the same settings and over the same tiers, without memory of its own."""
        other, maker = object.__new__(type(self)), self._maker
        vars(other).update(vars(self))
        seeds = choose(maker.source, maker.times)
        other._maker = dataclasses.replace(maker, seeds=seeds, order=SequentialOrder(len(seeds)))
        if maker.padding is not None and set(seeds.node_types) != set(maker.seeds.node_types):
            other._maker.padding = Padding.measure(other._maker.batches)
        other._plainly = self._plainly.over(other._maker)
        other._num_batches = other._maker.order.num_batches(self.batch_size, False)
        other.rank, other.num_ranks = as_rank(rank, num_ranks)
        other._cache_to_come = None
        other._caches, other._stats, other._recording, other._configuration = self._caches.aside(), LoaderStats(), None, None
        other._at, other._going, other._non_stop, other._calls = Position(), None, False, itertools.count()
        other._beginning = Guard()
        return other

    @property
    def is_settled(self) -> bool:
        """Nothing is being moved into huge pages beside the batches, which takes time from them for some seconds of the first epoch."""
        return not self._huge_pages.is_moving

    def timeline(self) -> dict[str, Any] | None:
        """Return what overlapped with what in the middle of the latest epoch, see `penstock.feed.timeline`; None before that."""
        return None if self._recording is None else self._recording.as_dict()

    def _count_batches(self, order: Order, num_ranks: int) -> int:
        """Of an epoch, over all ranks."""
        count = order.num_batches(self._options.batch_size, self._options.drop_last)
        return count - count % num_ranks if self._options.drop_last else count

    def _batch_asked(self, got: float) -> float:
        """Note that the user asks for a batch, who has had the one before since `got` (0: none). Returns when, by a device's clock too."""
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
        """Apply the user's transform unless the threads did. What that raises is the user's own, and arrives as it is."""
        if self._transform is None or self._is_transformed_by_threads:
            return batch
        try:
            return self._transform(batch)
        except StopIteration as error:  # would end the user's loop in silence
            raise locate(error, "transform", index) from error
        except Exception as error:
            error.add_note(f"in the transform of batch {index}")
            raise
