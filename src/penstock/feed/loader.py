"""`NeighborLoader`: PyG's loader, argument for argument, over the house's pipeline.

In: a graph and a set of seeds. Out: PyG batches, seeds first. Invariant: batch i of epoch e is a pure function of (graph, seeds,
configuration, seed, e, i); thread count and look-ahead change nothing but the time.
"""

from __future__ import annotations

import copy
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import NotSupportedError, StateError, UsageError
from penstock.feed.arguments import (
    as_positions,
    as_rank,
    check_batches,
    check_kinds,
    check_strategy,
    choose_seeds,
    choose_subgraph,
    refuse_sampler,
    warn_of_overrides,
    warn_of_the_same_again,
    with_moments,
)
from penstock.feed.delivery import choose_device
from penstock.feed.epoch import Epoch, Position
from penstock.feed.huge_pages import HugePages, read_at_random
from penstock.feed.inputs import open_input
from penstock.feed.options import choose_seed, read_options, samples_ahead
from penstock.feed.setup import CacheToCome, check_shards, choose_drawing, fill_caches, make_maker
from penstock.feed.stages import locate
from penstock.feed.state import check_state, make_state
from penstock.feed.stats import LoaderStats
from penstock.feed.timeline import Recording
from penstock.gather import Seat, TieredTable
from penstock.order import GivenOrder, Order, SequentialOrder
from penstock.plan import Plan, make_plan
from penstock.sample.times import time_bytes
from penstock.sample.weights import weight_bytes
from penstock.store.process_memory import give_back_freed_memory, let_go_of_libraries
from penstock.threads import Threads

Batch = Data | HeteroData


class NeighborLoader:
    """Mini-batches of sampled neighbourhoods. A drop-in for `torch_geometric.loader.NeighborLoader`.

    Args:
        data: `Data`, `HeteroData`, a (FeatureStore, GraphStore) pair, a `penstock.Store`, or the path of one.
        num_neighbors: fanout per hop, -1 = all; a list, or one per edge type.
        input_nodes: seeds: ids, a mask, None for all; for typed graphs (node type, ids); or a split: "train", ("paper", "train").
        replace: sample with replacement.
        subgraph_type: "directional" (sampled edges), "bidirectional" (and their reverses), "induced" (all edges among the nodes).
        disjoint: one tree per seed; the batch then has `batch`, the seed of each node.
        transform: called on each batch, in the caller's thread and in order (in the threads with filter_per_worker=True).
        transform_sampler_output: called on PyG's `SamplerOutput` before features are gathered.
        is_sorted: `edge_index` is already sorted by destination; UsageError where it is not.
        weight_attr: edge attribute to draw by: with a probability in proportion to it, 0 = never (see `penstock.sample.weights`); read
            once. Edge types without it are drawn uniformly.
        directed: False means "induced", as in PyG, where it is deprecated.
        input_id: int64[num_seeds], what the batches' `input_id` says of each seed; default: its position in the set of seeds, of a mask the
            node's id.
        custom_cls: makes the batches of a (FeatureStore, GraphStore) pair; default: `Data` or `HeteroData`.
        time_attr: node or edge attribute, whole numbers: when each came (an edge with its source). No edge of a seed's tree is later than
            the seed's time; trees are disjoint then (see `penstock.sample.times`). Read once. Types without it are always there.
        input_time: int64[num_seeds], the times of the seeds, which the batch then says (`seed_time`); default: those of the seeds as nodes.
        temporal_strategy: "uniform", any of the edges that are not later, or "last", the latest of them.
        neighbor_sampler: not supported, see `docs/compat.md`.
        **kwargs: torch's DataLoader's: batch_size, shuffle, drop_last, num_workers (threads), prefetch_factor, timeout, ...
        seed: of all randomness; default: torch's seed.
        split: for stores with several splits, the one that "train", "val" and "test" mean.
        order: in place of `shuffle`: "random", "sequential", "proximity" or "community" (the last two: near seeds in batches that follow
            each other, each batch as mixed as a random one), or an order of your own (see `penstock.order`).
        rank, num_ranks: this process takes batches rank, rank + num_ranks, ... of the one order. Some ranks have a batch more than others
            unless they divide evenly; with drop_last all have equally many.
        plan: what is kept in faster memory, and the order of the seeds: a `penstock.Plan` or the name of a recipe. Fields that a plan or
            a device keeps in tiers are read once: a pass after they were exchanged is refused, or after a tensor, or what it is a view
            of, was written to. Writes by NumPy or by a tensor's `data` nobody sees.
        device: "cuda" or "cuda:1": batches are delivered there, drawn there where the device can (uniform and directional; else
            `stats().sampling` says why not), and features gathered there by the plan: out of memory of the host that the device reads, the
            best rows kept on it. Threads make them ahead, one at least. None, or "cpu": batches on the CPU.
        shards: this rank's seat (`penstock.gather.shard_seats`), where several processes have a device each: what the plan keeps on devices
            is shared, a disjoint part on each, read by all; its size is that of each part. All ranks make their loaders at the same point.
        tables: node or edge type -> `penstock.gather.TieredTable` whose fields take the place of the input's, rows numbered as there
            (homogeneous: "node" and ("node", "to", "node")).
        step: batch -> anything: a training step, on a copy of the model. Tried on small batches where the plan has a budget of memory, to
            learn what it takes.
    Raises:
        UsageError, InputError, NotSupportedError: at construction, for anything that cannot work.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[tuple[str, str, str], Sequence[int]],
        input_nodes: Any = None,
        input_time: torch.Tensor | None = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Batch], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        input_id: torch.Tensor | None = None,
        custom_cls: Callable[[], Any] | None = None,
        seed: int | None = None,
        split: str | None = None,
        order: Order | str | None = None,
        rank: int = 0,
        num_ranks: int = 1,
        plan: Plan | str | None = None,
        tables: Mapping[Any, TieredTable] | None = None,
        step: Callable[[Any], object] | None = None,
        device: Any = None,
        shards: Seat | None = None,
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
        options = read_options(**kwargs)
        self._options = options if delivery.device is None else options.ahead()
        self._data, self._transform, self._is_transformed_by_threads = data, transform, bool(filter_per_worker)
        self.rank: int
        self.num_ranks: int
        self.rank, self.num_ranks = as_rank(rank, num_ranks)
        if not directed:
            warnings.warn("directed=False is deprecated: use subgraph_type='induced'", stacklevel=2)
            subgraph_type = "induced"
        self._maker = make_maker(
            open_input(data, is_sorted=is_sorted, custom_cls=custom_cls, split=split),
            num_neighbors,
            input_nodes,
            input_id,
            plan,
            self._options,
            order=order,
            subgraph_type=choose_subgraph(subgraph_type),
            replace=replace,
            disjoint=disjoint,
            weight_attr=weight_attr,
            time_attr=time_attr,
            input_time=input_time,
            takes_last=check_strategy(temporal_strategy) == "last",
            seed=self.seed,
            transform_output=transform_sampler_output,
            transform=transform if self._is_transformed_by_threads else None,
            delivery=delivery,
        )
        if seed is None and self._options.shuffle:
            warn_of_the_same_again(self.seed, self._maker.describe())
        self._num_batches = self._count_batches(self._maker.order, self.num_ranks)
        check_batches(self._num_batches, self._maker.seeds.ids.size, self.batch_size, self.rank, self.num_ranks)
        self._drawing = choose_drawing(plan, self._maker)
        self._caches = fill_caches(plan, self._maker, self._options, self._drawing, tables or {}, step, shards)
        self._cache_to_come = CacheToCome(plan, self._maker, self._caches) if plan.is_device_cache_found else None
        if self._caches.fitted is None:
            in_flight = self._options.under_way(is_read_ahead=plan.is_read_ahead)
            self._options = dataclasses.replace(self._options, max_in_flight=in_flight)
        else:
            fitted = self._caches.fitted
            self._options = dataclasses.replace(self._options, num_workers=fitted.num_workers, max_in_flight=fitted.max_in_flight)
        self._sampling = dataclasses.replace(self._options, max_in_flight=max(1, samples_ahead(plan, self._options.num_workers)))
        self._workers, self._samplers = (Threads(self._options.num_workers, "penstock") for _ in range(2))
        self._huge_pages = HugePages(partial(read_at_random, plan, self._maker), self)
        self._stats = LoaderStats()
        self._recording: Recording | None = None
        self._configuration: dict[str, Any] | None = None
        self._at = Position()

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
        self._transform = transform
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
    def drop_last(self) -> bool:
        """Whether the last, incomplete batch is left out."""
        return self._options.drop_last

    @property
    def dataset(self) -> range:
        """Positions in the set of seeds, as PyG has it: `len(loader.dataset)` is the number of seeds."""
        return range(self._maker.seeds.ids.size)

    @property
    def epoch(self) -> int:
        """The epoch that the current iterator delivers, or the next one."""
        return self._at.epoch

    def __iter__(self) -> Iterator[Any]:
        """Start the next epoch; after `load_state_dict`, the rest of the epoch of the state."""
        at = dataclasses.replace(self._at) if self._at.is_fresh else Position(self._at.epoch + 1)
        if self._caches.fitted is not None:
            let_go_of_libraries()  # what was read of them to load kernels
            give_back_freed_memory()
        begun = Epoch(self, at)
        at.is_fresh = False
        self._at = at  # at once: another thread may ask for the state
        return begun

    def __call__(self, index: Any = None, *, epoch: int = 0, batch: int = 0) -> Any:
        """Make one batch of the seeds at positions `index` of the set of seeds; `epoch` and `batch` select the random draws. None: of those
        that they have in the loader's order, so that it is that batch again (`batch` counts those of all ranks). Not of a `sampler`."""
        if index is None:
            if isinstance(self._maker.order, GivenOrder):
                raise UsageError("what a sampler gives is not known before or after: say the positions of the batch's seeds")
            if not isinstance(batch, (int, np.integer)) or not 0 <= batch < self._num_batches:
                raise UsageError(f"batch must be a whole number in [0, {self._num_batches}), the batches of an epoch, got {batch!r}")
            index = self._maker.order.batch(epoch, batch, self._maker.batch_size)
        positions = as_positions(index, len(self.dataset))
        return self._transformed(self._maker.make(self._caches, positions, epoch, batch), batch)

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

    def beside(self, input_nodes: Any, input_time: torch.Tensor | None = None) -> NeighborLoader:
        """Return a loader over other seeds, in their order, with the same settings and over the same tiers, without memory of its own.

        Args:
            input_nodes, input_time: as for a loader. Batches are those that a new loader over these seeds would give.
        """
        other, maker = object.__new__(type(self)), self._maker
        vars(other).update(vars(self))
        seeds = choose_seeds(maker.source, input_nodes)
        maker.sampler.check_seeds(seeds.node_type, seeds.ids)
        seeds = with_moments(seeds, input_time, maker.times)
        other._maker = dataclasses.replace(maker, seeds=seeds, order=SequentialOrder(seeds.ids.size))
        other._num_batches, other.rank, other.num_ranks = other._maker.order.num_batches(self.batch_size, False), 0, 1
        other._cache_to_come = None
        other._caches, other._stats, other._recording, other._configuration = self._caches.aside(), LoaderStats(), None, None
        other._at = Position()
        return other

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
        """Apply the user's transform unless the threads did."""
        if self._transform is None or self._is_transformed_by_threads:
            return batch
        try:
            return self._transform(batch)
        except Exception as error:
            raise locate(error, "transform", index) from error
