"""How one batch is made: order -> sample -> gather -> assemble. Runs on any thread.

In: the epoch and index of a batch. Out: the batch, and counts and times of its making. Invariants: the batch is a pure function of (epoch,
index); an error says in which stage of which batch it happened; reads from tiers are submitted in the order of the batches.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import UsageError
from penstock.feed.assemble import Assembler, UnderWay
from penstock.feed.bidirectional import with_reverses
from penstock.feed.buffers import BufferPool, Loan
from penstock.feed.delivery import Delivery
from penstock.feed.held import hold, release
from penstock.feed.inputs import Input
from penstock.feed.layers import note_edges
from penstock.feed.links import EXCLUDED_EDGES, leave_out
from penstock.feed.padding import Padding, count_added, padded
from penstock.feed.stages import StageClock, located
from penstock.feed.state import describe_graph, fingerprint
from penstock.feed.stats import BatchStats
from penstock.feed.subgraph import Subgraph, as_numpy, number_edges, subgraph_of, subgraph_on_device, through_pyg, weigh_edges
from penstock.kernels.edges.cpu import are_distinct
from penstock.order import Order
from penstock.records import NodeType
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import BatchSeeds, SeedSet
from penstock.sample.times import Timestamps

if TYPE_CHECKING:
    from penstock.feed.caches import Caches
    from penstock.sample.device import DeviceSampler, DeviceWorkspace

Transform = Callable[[Any], Any]


def ordinary(is_learning: bool) -> AbstractContextManager[None]:
    """Leave inference mode: buffers of a batch are used again, perhaps outside that mode. Gradients are recorded, for the user's own
    functions, where the user has them on (`is_learning`)."""
    is_so = torch.is_grad_enabled() == is_learning and not torch.is_inference_mode_enabled()
    return nullcontext() if is_so else _ordinary(is_learning)


@contextmanager
def _ordinary(is_learning: bool) -> Iterator[None]:
    with torch.inference_mode(False), torch.set_grad_enabled(is_learning):
        yield


@dataclass(slots=True)
class Sampled:
    """A batch after the first half of its making.

    Attributes:
        index: of the batch.
        subgraph: what was sampled.
        seeds: what the batch begins from, and what it says of its seeds.
        are_distinct: no node comes twice.
        clock: times of the stages so far.
        event: done when the sample is, on the device that draws it; see `Delivery.record`.
        loan: the memory of its rows, once they are read.
        padding_step: see `Padding.fit`.
        whole: the padded subgraph, where the device that drew the sample has padded it already.
    """

    index: int
    subgraph: Subgraph
    seeds: BatchSeeds
    are_distinct: bool
    clock: StageClock
    event: Any = None
    loan: Loan | None = None
    padding_step: int = 0
    whole: Subgraph | None = None


class HeldSample(NamedTuple):
    """A sample that waits for its turn: `sampled` without its subgraph, and the subgraph in packed form, see `penstock.feed.held`."""

    sampled: Sampled
    subgraph: np.ndarray | Subgraph


@dataclass(slots=True, kw_only=True)
class BatchMaker:
    """Makes the batches of a loader.

    Attributes:
        source, seeds, order, sampler, batch_size, subgraph_type: what decides the batches.
        times: times of nodes, where samples are by time; for the seeds of loaders beside this one.
        transform_output: the user's, on PyG's `SamplerOutput`.
        transform: the user's, on the batch, where it runs in the threads; else None.
        delivery: puts batches on a device, or leaves them where they are.
        device_sampler: draws the samples in place of `sampler`; None: the CPU does.
        padding: sizes that the hops of samples are filled up to, or None.
        looked_at: returns the node types whose ids the host needs. A device's are copied when its sample is waited for.
        pool: memory of the batches.
        held_pool: memory of the samples that wait in packed form: many and for long, so they are kept out of the buffers of batches.
    """

    source: Input
    seeds: SeedSet
    order: Order
    sampler: NeighborSampler
    batch_size: int
    subgraph_type: SubgraphType
    times: Timestamps | None = None
    transform_output: Transform | None = None
    transform: Transform | None = None
    delivery: Delivery = field(default_factory=Delivery)
    device_sampler: DeviceSampler | None = None
    padding: Padding | None = None
    looked_at: Callable[[], Iterable[NodeType]] = tuple
    pool: BufferPool = field(default_factory=BufferPool)
    held_pool: BufferPool = field(default_factory=BufferPool)
    _workspaces: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    _of_device: list[DeviceWorkspace] = field(default_factory=list)

    def make(self, caches: Caches, positions: np.ndarray, epoch: int, index: int) -> Any:
        """Make a batch of the seeds at `positions` in this thread. A `BatchStream` takes the same three steps on several threads: `sample`
        and `finish` at any time, `submit` in the order of the batches."""
        with ordinary(torch.is_grad_enabled()):
            assembler, sampled = Assembler(self.source, caches), self.sample_of(positions, epoch, index)
            batch, stats = self.finish(assembler, sampled, self.submit(assembler, sampled))
            return self.delivery.hand_over(batch, stats.event)

    def sample(self, epoch: int, index: int, order: Order | None = None) -> Sampled:
        """Make the first half of batch `index` of an epoch: its seeds and its neighbourhood. `order`: that of a pass that has its own."""
        clock = StageClock("order")
        with located(clock, index):
            positions = (order or self.order).batch(epoch, index, self.batch_size)
            return self._sample(clock, positions, epoch, index)

    def sample_of(self, positions: np.ndarray, epoch: int, index: int) -> Sampled:
        """Likewise for the seeds at `positions` of the set of seeds, drawn as batch `index` of an epoch."""
        clock = StageClock("sample")
        with located(clock, index):
            return self._sample(clock, positions, epoch, index)

    def ask(self, clock: StageClock, positions: np.ndarray, epoch: int, index: int, workspace: Any) -> Callable[[], Sampled]:
        """Ask the device for the sample that `sample_of` would draw. Returns what waits for it; a workspace serves one sample at a time."""
        assert self.device_sampler is not None
        number_edges, seeds = self.device_sampler.number_edges, self._begin(clock, positions, epoch, index)
        with self.delivery.drawing():
            place = {"epoch": epoch, "batch": index, "workspace": workspace}
            run = self.device_sampler.ask(seeds.nodes, **place, left_out=seeds.left_out, times=seeds.times)
        clock.rest()

        def wait() -> Sampled:
            clock.enter("sample")
            with self.delivery.drawing():
                sample = run.finish()
                if seeds.left_out:
                    seeds.notes[EXCLUDED_EDGES] = sample.num_left_out
                self.seeds.finish(sample, seeds)
                subgraph = subgraph_on_device(sample, number_edges)
                subgraph.on_host = {t: as_numpy(subgraph.nodes[t]) for t in self.looked_at()}
                sampled = self._sampled(index, subgraph, seeds, clock)
                if self.padding is not None:  # here, beside the reads of batches before: where it is needed, they would wait for it
                    sampled.padding_step, subgraph.hops = self.padding.fit(subgraph)
                    sampled.whole = padded(subgraph, seeds.num_seeds, self.pool.empty)
                sampled.event = self.delivery.record()
            clock.rest()
            return sampled

        return wait

    def borrow_workspace(self) -> Any:
        """Take scratch memory to sample with."""
        try:
            return self._workspaces.get_nowait()
        except queue.Empty:
            if self.device_sampler is None:
                return self.sampler.workspace()
            with self.delivery.drawing():  # its tables are filled there
                self._of_device.append(workspace := self.device_sampler.workspace())
            return workspace

    def give_back(self, workspace: Any) -> None:
        """Return what `borrow_workspace` gave."""
        self._workspaces.put(workspace)

    def hold(self, sampled: Sampled) -> HeldSample:
        """Pack a sample that is held until its turn comes. A sample on a device stays there as it is."""
        if sampled.subgraph.is_on_device:
            return HeldSample(sampled, sampled.subgraph)
        smaller = hold(sampled.subgraph, self.sampler.sampled, self.held_pool.empty)
        return HeldSample(replace(sampled, subgraph=Subgraph({}, {}, None, None)), smaller)

    def release(self, held: HeldSample) -> Sampled:
        """Unpack a held sample."""
        return replace(held.sampled, subgraph=release(held.subgraph, self.sampler.sampled, self.pool.empty))

    def submit(self, assembler: Assembler, sampled: Sampled) -> UnderWay:
        """Begin to read the rows that live in tiers. Must be called in the order of the batches."""
        sampled.clock.enter("gather")
        if self.sampler.walks is not None:
            weigh_edges(sampled.subgraph, self.pool.empty)
        if self.padding is not None and sampled.whole is None:
            sampled.padding_step, sampled.subgraph.hops = self.padding.fit(sampled.subgraph)
        sampled.loan = Loan(self.pool)
        with located(sampled.clock, sampled.index), self.working_on(sampled):
            return assembler.submit(sampled.subgraph, sampled.loan.empty, are_distinct=sampled.are_distinct)

    def working_on(self, sampled: Sampled) -> AbstractContextManager[None]:
        """Within the block, this thread's work on a device goes to the stream of batches, after the drawing of the sample."""
        return nullcontext() if self.delivery.device is None else self._working_after(sampled)

    @contextmanager
    def _working_after(self, sampled: Sampled) -> Iterator[None]:
        with self.delivery.working():
            of_whole = [] if sampled.whole is None else sampled.whole.tensors()
            self.delivery.hand_over([*sampled.subgraph.tensors(), *of_whole], sampled.event)
            yield

    def finish(self, assembler: Assembler, sampled: Sampled, under_way: UnderWay, num_threads: int = 1) -> tuple[Any, BatchStats]:
        """Make the second half: wait for rows, assemble the batch. `num_threads` share the copying, where other threads are idle."""
        clock, subgraph = sampled.clock, sampled.subgraph
        with located(clock, sampled.index), self.delivery.working():
            rows, num_bytes = assembler.gather(subgraph, self.pool.empty, under_way, clock.spans, num_threads)
            clock.enter("assemble")
            whole = sampled.whole
            if whole is None:
                whole = padded(subgraph, sampled.seeds.num_seeds, self.pool.empty) if subgraph.hops else subgraph
            batch = assembler.assemble(whole, rows, self.seeds, sampled.seeds)
            if self.delivery.device is not None:
                clock.enter("move")
                batch = self.delivery.move(batch)
            note_edges(batch)
            if self.transform is not None:
                clock.enter("transform")
                batch = self.transform(batch)
            event = self.delivery.record()
            clock.rest()
        num_nodes = sum(ids.numel() for ids in subgraph.nodes.values())
        num_edges = sum(edges.edge_index.shape[1] for edges in subgraph.edges.values())
        stats = BatchStats(sampled.seeds.num_seeds, num_nodes, num_edges, num_bytes, clock.seconds, clock.spans, event, sampled.loan)
        if subgraph.hops:
            stats.padding_step, (stats.padding_nodes, stats.padding_edges) = sampled.padding_step, count_added(subgraph)
        return batch, stats

    @property
    def may_wait(self) -> bool:
        """Whether making a batch may be anything but work for a processor: reads of mapped files, a device, functions of the user's."""
        is_own = self.source.is_whole and self.transform is None and self.transform_output is None
        return self.source.is_mapped or self.delivery.device is not None or not is_own

    @property
    def batches(self) -> SampledBatches:
        """The batches as far as sampling goes."""
        return SampledBatches(self.sampler, self.seeds, self.order, self.batch_size)

    @property
    def device_bytes(self) -> int:
        """Memory of the device for sampling: the topology, and the workspaces of threads."""
        return self.device_topology_bytes + sum(workspace.num_bytes for workspace in self._of_device)

    @property
    def device_topology_bytes(self) -> int:
        """Memory of the device that the topology takes there."""
        return 0 if self.device_sampler is None else self.device_sampler.graph.device_bytes

    def describe(self) -> dict[str, Any]:
        """Everything that decides what each batch is; which batches come (`drop_last`, ranks) is not in it."""
        sampler = self.sampler
        seed = getattr(self.order, "seed", sampler.seed)
        strategy = {"temporal_strategy": "last" if sampler.takes_last else "uniform"} if sampler.is_temporal else {}
        return {
            **describe_graph(sampler.graph),
            **self.seeds.describe(fingerprint),
            **strategy,
            "num_neighbors": {"/".join(e): list(fanouts) for e, fanouts in sampler.fanouts.items()},
            "replace": sampler.replace,
            "disjoint": sampler.disjoint,
            "subgraph_type": self.subgraph_type.value,
            "batch_size": self.batch_size,
            "order": self.order.name if seed == sampler.seed else f"{self.order.name}, seed {seed}",
            "seed": sampler.seed,
            **({"shared_draws": sampler.shared_draws} if sampler.shared_draws else {}),
            **({} if sampler.walks is None else {"walks": sampler.walks.describe()}),
            **({"layer_wise": True} if sampler.layer_wise else {}),
            **({"num_samples": {t: list(counts) for t, counts in sampler.num_samples.items()}} if sampler.num_samples else {}),
            **({} if self.padding is None else {"padding": self.padding.describe()}),
        }

    def with_own_memory(self, **changes: Any) -> BatchMaker:
        """A maker of the same batches, but for `changes` of its attributes, that shares no buffers or workspaces with this one."""
        return replace(self, pool=BufferPool(), held_pool=BufferPool(), _workspaces=queue.SimpleQueue(), _of_device=[], **changes)

    def let_go(self) -> None:
        """Drop all idle buffers and workspaces."""
        self.pool, self.held_pool = BufferPool(), BufferPool()
        while True:
            try:
                workspace = self._workspaces.get_nowait()
            except queue.Empty:
                return
            if workspace in self._of_device:
                self._of_device.remove(workspace)

    def _sample(self, clock: StageClock, positions: np.ndarray, epoch: int, index: int) -> Sampled:
        workspace = self.borrow_workspace()
        if self.device_sampler is not None:
            try:
                return self.ask(clock, positions, epoch, index, workspace)()
            finally:
                self.give_back(workspace)
        seeds = self._begin(clock, positions, epoch, index)
        subgraph = self._draw(seeds, epoch, index, workspace)
        self.give_back(workspace)  # not after an error, or a Ctrl-C between any two steps: what it knows then may not be what was done
        clock.rest()
        return self._sampled(index, subgraph, seeds, clock)

    def _begin(self, clock: StageClock, positions: np.ndarray, epoch: int, index: int) -> BatchSeeds:
        """The seeds of a batch, by their positions in the set, as tensors; raises for positions outside it."""
        num_seeds = len(self.seeds)
        if not isinstance(positions, np.ndarray) or positions.ndim != 1 or positions.dtype.kind not in "iu":
            gave = f"{positions.dtype}{list(positions.shape)}" if isinstance(positions, np.ndarray) else f"{positions!r:.60}"
            raise UsageError(f"an order gives positions in the set of seeds, int64[n]; {self.order.name} gave {gave}")
        if positions.size and not 0 <= positions.min() <= positions.max() < num_seeds:
            first = positions[(positions < 0) | (positions >= num_seeds)][0]
            raise UsageError(f"position {first} of the seeds was asked for, and there are {num_seeds}, from 0 on: see the sampler or order")
        clock.enter("sample")
        seeds = self.seeds.at(positions, seed=self.sampler.seed, epoch=epoch, batch=index)
        seeds.metadata = tuple(torch.from_numpy(each) if isinstance(each, np.ndarray) else each for each in seeds.metadata)
        return seeds

    def _sampled(self, index: int, subgraph: Subgraph, seeds: BatchSeeds, clock: StageClock) -> Sampled:
        is_plain = not self.sampler.disjoint and self.transform_output is None
        is_plain = is_plain and all(are_distinct(ids) for ids in seeds.nodes.values())
        seeds.metadata = seeds.metadata if subgraph.metadata is None else subgraph.metadata
        return Sampled(index, subgraph, seeds, is_plain, clock)

    def _draw(self, seeds: BatchSeeds, epoch: int, index: int, workspace: Any) -> Subgraph:
        """Sample on the CPU."""
        place = {"epoch": epoch, "batch": index, "workspace": workspace, "times": seeds.times}
        sample = self.sampler.sample(seeds.nodes, **place, allocate=self.pool.empty)
        if seeds.left_out:
            seeds.notes[EXCLUDED_EDGES] = leave_out(sample, seeds.left_out)
        self.seeds.finish(sample, seeds)
        subgraph = subgraph_of(sample)
        if self.subgraph_type == SubgraphType.bidirectional:
            subgraph = with_reverses(subgraph, self.sampler.graph.is_homogeneous, workspace, self.pool.empty)
        if self.transform_output is not None:
            subgraph = through_pyg(subgraph, graph=self.source.graph, transform=self.transform_output, metadata=seeds.metadata)
        number_edges(subgraph, self.sampler.sampled, self.pool.empty)
        return subgraph
