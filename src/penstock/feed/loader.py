"""`Loader`: what the loaders of nodes and of links share: everything but the choice of the seeds.

In: a graph and a set of seeds. Out: PyG batches, seeds first. Invariant: batch i of epoch e is a pure function of (graph, seeds,
configuration, seed, e, i); thread count and look-ahead change nothing but the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from torch.utils.data import SequentialSampler, get_worker_info
from torch_geometric.data import Data, HeteroData

from penstock.errors import NotSupportedError, StateError, UsageError
from penstock.feed.arguments import (
    NO_PARTS,
    NO_PROCESSES,
    NO_SAMPLER,
    Absent,
    Choose,
    as_positions,
    as_rank,
    check_batches,
    check_kinds,
    check_non_stop,
    refuse_sampler,
    warn_of_equal_ranks,
    warn_of_overrides,
    warn_of_the_same_again,
)
from penstock.feed.delivery import choose_device
from penstock.feed.engine import Position
from penstock.feed.epoch import Epoch
from penstock.feed.epoch_sampler import EpochSampler
from penstock.feed.inputs import open_input
from penstock.feed.options import choose_seed, read_options
from penstock.feed.padding import Padding, choose_padding
from penstock.feed.sampling_rule import SamplingRule
from penstock.feed.setup import check_shards, make_engine, make_maker
from penstock.feed.state import check_state, make_state
from penstock.feed.stats import LoaderStats
from penstock.feed.verify import compare
from penstock.gather import Seat, TieredTable
from penstock.order import GivenOrder, Order, SequentialOrder
from penstock.plan import Plan, make_plan
from penstock.store.fingerprint import fingerprint

Batch = Data | HeteroData

EPOCH_OF_CALLS = (1 << 64) - 1
"""The epoch under which `loader(index)` draws; no pass ever reaches it."""


def _epoch_of_calls() -> int:
    """That epoch; in a worker process of torch's, which counts calls from 0 in each pass, one of its seed, which is new in each pass."""
    worker = get_worker_info()
    return EPOCH_OF_CALLS if worker is None else EPOCH_OF_CALLS - 1 - worker.seed % (1 << 63)


class Loader:
    """Mini-batches of sampled neighbourhoods.

    Args:
        rule: how neighbourhoods are sampled.
        choose: makes the set of seeds.
        others: as of `NeighborLoader`, which documents them and has their defaults.
    Attributes:
        seed: of all randomness.
        engine: what its passes work with; for use within Penstock.
    """

    _ranks_wait = True
    """Whether ranks may wait for each other in each step, in which case they need equally many batches."""

    collate_fn = Absent(NO_PARTS)
    filter_fn = Absent(NO_PARTS)
    node_sampler = Absent(NO_SAMPLER)
    link_sampler = Absent(NO_SAMPLER)
    enable_cpu_affinity = Absent(NO_PROCESSES)
    enable_multithreading = Absent(NO_PROCESSES)
    enable_memory_log = Absent(NO_PROCESSES)

    def __init__(
        self,
        data: Any,
        rule: SamplingRule,
        choose: Choose,
        /,
        *,
        transform: Callable[[Batch], Any] | None,
        transform_sampler_output: Callable[[Any], Any] | None,
        is_sorted: bool,
        filter_per_worker: bool | None,
        neighbor_sampler: Any,
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
        non_stop: bool | int,
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
        options = options if delivery.device is None else options.ahead()
        rank, num_ranks = as_rank(rank, num_ranks)
        self._data, self._transform, self._is_transformed_by_threads = data, transform, bool(filter_per_worker)
        self._calls = itertools.count()
        maker = make_maker(
            open_input(data, is_sorted=is_sorted, custom_cls=custom_cls, split=split),
            rule,
            choose,
            plan,
            options,
            order=order,
            seed=self.seed,
            num_ranks=num_ranks,
            transform_output=transform_sampler_output,
            transform=transform if self._is_transformed_by_threads else None,
            delivery=delivery,
        )
        non_stop = check_non_stop(non_stop, maker.order)
        maker.padding = choose_padding(pad, maker)
        of_seeds = maker.seeds.describe(fingerprint)
        if seed is None:
            warn_of_the_same_again(self.seed, maker.describe(), of_seeds, shuffle=options.shuffle)
        if num_ranks == 1 and options.shuffle:
            warn_of_equal_ranks(of_seeds)
        num_batches = options.count_batches(maker.order, num_ranks)
        is_said = self._ranks_wait and rank == 0
        check_batches(num_batches, len(maker.seeds), options.batch_size, num_ranks, drop_last=options.drop_last, is_said=is_said)
        self.engine = make_engine(
            plan,
            maker,
            options,
            tables=tables,
            step=step,
            shards=shards,
            rank=rank,
            num_ranks=num_ranks,
            num_batches=num_batches,
            non_stop=non_stop,
            transform=None if self._is_transformed_by_threads else transform,
        )

    def __len__(self) -> int:
        """Number of batches of this rank in an epoch; with a sampler of the user's, what its length says now."""
        return len(self.engine)

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
        self._transform, self.engine.running = transform, None
        if self._is_transformed_by_threads:
            self.engine.maker.transform = transform
        else:
            self.engine.transform = transform

    @property
    def rank(self) -> int:
        """This process takes batches rank, rank + num_ranks, ... of an epoch."""
        return self.engine.rank

    @property
    def num_ranks(self) -> int:
        """Number of processes that share the batches of an epoch."""
        return self.engine.num_ranks

    @property
    def batch_size(self) -> int:
        """Seeds per batch."""
        return self.engine.options.batch_size

    @property
    def num_workers(self) -> int:
        """Number of sampling threads."""
        return self.engine.options.num_workers

    @property
    def sampler(self) -> Any:
        """The user's sampler; without one, an equivalent of the sampler that torch's loaders have, for its length and its `set_epoch`; None
        beside a batch_sampler."""
        options = self.engine.options
        if options.sampler is not None or options.batch_sampler is not None:
            return options.sampler
        return SequentialSampler(self.dataset) if isinstance(self.engine.maker.order, SequentialOrder) else EpochSampler(self.engine)

    @property
    def batch_sampler(self) -> Any:
        """The user's batch_sampler; None without one."""
        return self.engine.options.batch_sampler

    @property
    def padding(self) -> Padding | None:
        """Sizes that batches are padded to, to give another loader as its `pad`; None without padding."""
        return self.engine.maker.padding

    @property
    def drop_last(self) -> bool:
        """Whether the last, incomplete batch is left out."""
        return self.engine.options.drop_last

    @property
    def dataset(self) -> range:
        """Positions in the set of seeds, as PyG has it: `len(loader.dataset)` is the number of seeds."""
        return range(len(self.engine.maker.seeds))

    @property
    def epoch(self) -> int:
        """The epoch of the current iterator; where there is none, the next epoch."""
        return self.engine.at.epoch

    @property
    def is_settled(self) -> bool:
        """Whether maps are no longer being moved into huge pages, which slows batches for some seconds of the first epoch."""
        return not self.engine.huge_pages.is_moving

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch; after `load_state_dict`, the rest of the epoch that the state is in. Nothing is decided or begun before the
        first batch is asked for."""
        return Epoch(self.engine)

    def __call__(self, index: Any = None, *, epoch: int | None = None, batch: int | None = None) -> Any:
        """Make one batch of the seeds at positions `index` of the set of seeds.

        As in PyG, each call draws anew; the n-th call draws the same in every run. `epoch` and `batch` choose the draws of that batch
        instead (`batch` counts the batches of all ranks). Without `index`, the seeds are those of that batch in the loader's order: it is
        made again as it is delivered. A `sampler` has no such order, so it needs an `index`."""
        engine, maker = self.engine, self.engine.maker
        if index is not None and epoch is None and batch is None:
            epoch, batch = _epoch_of_calls(), next(self._calls)
        epoch, batch = epoch or 0, batch or 0
        if index is None:
            if isinstance(maker.order, GivenOrder):
                raise UsageError("what a sampler gives is not known before or after: say the positions of the batch's seeds")
            if not isinstance(batch, (int, np.integer)) or not 0 <= batch < engine.num_batches:
                raise UsageError(f"batch must be a whole number in [0, {engine.num_batches}), the batches of an epoch, got {batch!r}")
            index = maker.order.batch(epoch, batch, maker.batch_size)
        positions = as_positions(index, len(self.dataset))
        return engine.transformed(maker.make(engine.caches, positions, epoch, batch), batch)

    def verify(self, batch: Any) -> None:
        """Make the batch that was delivered last again, without any caches, and compare the two bit for bit, on any device, under any plan.

        It is made on the CPU, in this thread, out of the arrays that the loader was made from. That takes the time and the memory of one
        more batch, which `host_memory` does not count. The `transform` is called on it too, and must be a function of the batch alone.

        Raises:
            MismatchError: they differ; the message names the first place.
            UsageError: nothing was delivered yet; or the seeds come from a sampler, whose output is not kept.
        """
        engine, order, at = self.engine, self.engine.maker.order, self.engine.at
        if at.delivered == 0:
            raise UsageError("verify takes the batch that was delivered last, and none was: iterate over the loader first")
        if isinstance(order, GivenOrder):
            raise UsageError("verify cannot make a batch of your own sampler again: the positions that it gave are not kept")
        index = (at.delivered - 1) * self.num_ranks + self.rank
        expected = engine.plain_maker.make(order.batch(at.epoch, index, self.batch_size), at.epoch, index)
        expected = expected if self._transform is None else self._transform(expected)
        compare(batch, expected, f"batch {index} of epoch {at.epoch}")

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last delivered batch: a few integers, and the configuration that they belong to."""
        engine, at = self.engine, self.engine.at
        batch = at.delivered * self.num_ranks
        is_to_be_read = at.is_fresh and isinstance(engine.maker.order, GivenOrder)  # how many batches there are, the next pass finds out
        if at.is_over or (batch >= engine.num_batches and not is_to_be_read):
            return make_state(engine.configuration, epoch=at.epoch + 1, batch=0)
        return make_state(engine.configuration, epoch=at.epoch, batch=batch, sequence=at.sequence if batch else None)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state: the next iterator delivers exactly the batches that had not been delivered when it was taken.

        The numbers of threads and ranks and the look-ahead may differ.

        Raises:
            StateError: anything else differs.
        """
        engine, num_batches = self.engine, self.engine.num_batches
        epoch, batch, sequence = check_state(state, engine.configuration)
        if batch > num_batches and not isinstance(engine.maker.order, GivenOrder):
            raise StateError(f"the state stands at batch {batch} of an epoch of {num_batches}: take it from loader.state_dict()")
        if batch % self.num_ranks:
            raise StateError(f"the state stands at batch {batch} of the global order, which {self.num_ranks} ranks do not reach together")
        engine.at = Position(epoch, batch // self.num_ranks, sequence=sequence)
        engine.running = None  # somebody may still go on with it

    def stats(self) -> LoaderStats:
        """Return what was counted over all batches delivered so far, as a copy."""
        return self.engine.counted()

    def timeline(self) -> dict[str, Any] | None:
        """Return which work overlapped in the middle of the latest epoch, see `penstock.feed.timeline`; None before that."""
        recording = self.engine.recording
        return None if recording is None else recording.as_dict()

    def _beside(self, choose: Choose, rank: int = 0, num_ranks: int = 1) -> Self:
        """Return a loader over other seeds, taken in their order, with the same settings, that shares this one's tiers and buffers."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other.engine, other._calls = self.engine.beside(choose, *as_rank(rank, num_ranks)), itertools.count()
        return other
