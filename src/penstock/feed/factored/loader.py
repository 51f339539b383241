"""`FactoredLoader`: a loader that samples in processes of its own.

In: a `NeighborLoader`'s arguments, with a store as the graph, and the number of samplers. Out: a `NeighborLoader`'s batches. Invariants:
the same batches, bit for bit, in the same order; an error in any process is raised here, with the process and the batch; no process and no
memory is left behind, however the loader ends.
Source: GNNLab (EuroSys'22): samplers hold the topology, trainers hold the hot rows, and a queue in host memory connects them.
"""

from __future__ import annotations

import weakref
from typing import Any

from penstock.errors import UsageError
from penstock.feed.factored.group import Group
from penstock.feed.factored.measure import measure_times
from penstock.feed.factored.schedule import Schedule
from penstock.feed.factored.spec import Devices, check_counts, check_plan, device_of, make_specs, path_of, plan_of_rows
from penstock.feed.factored.trainer import TrainerLoader
from penstock.plan import Plan, Times, make_plan, plan_samplers_beside
from penstock.store.process_memory import usable_cores


class FactoredLoader(TrainerLoader):
    """A `NeighborLoader` whose samples other processes draw; this process trains.

    Args:
        data: a `penstock.Store`, or its path; every process opens it.
        num_neighbors, input_nodes, **options: as for `NeighborLoader`. This process keeps the plan's rows, the samplers keep its lists.
        num_samplers: number of sampling processes; None: as many as keep `step` busy, by times measured on a few batches (see
            `measure_times`).
        sampler_devices: devices of the samplers: None for the CPU, "cuda:0", or a list, assigned in turn. A sampler on a device holds the
            topology there; it may share this process's device.
        queue_depth: batches sampled ahead, in host memory.
    Raises:
        The errors of `NeighborLoader`; PipelineError if a process fails, with its name, its number and the batch.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        *,
        num_samplers: int | None = None,
        sampler_devices: Devices = None,
        queue_depth: int = 4,
        plan: Plan | str | None = None,
        **options: Any,
    ) -> None:
        plan = make_plan(plan)
        check_plan(plan, options)
        super().__init__(path_of(data), num_neighbors, input_nodes, plan=plan_of_rows(plan), **options)
        if num_samplers is None:
            if options.get("step") is None:
                raise UsageError("give num_samplers, or step, to find out by a few batches how many are needed")
            num_samplers = plan_samplers_beside(1, measure_times(self, options["step"]), max(1, usable_cores() - 1))
        check_counts(num_samplers, 1, queue_depth)
        of_samplers, _ = make_specs(self, num_neighbors, plan, options)
        batches = range(self.rank, self.engine.num_batches, self.num_ranks)
        self._group = Group(Schedule(batches, num_samplers=num_samplers, num_trainers=1, depth=queue_depth))
        self.close = weakref.finalize(self, self._group.close)
        """End the samplers. Also happens when the loader is deleted, and at the end of the program."""
        self._group.start_samplers(of_samplers, [device_of(sampler_devices, seat) for seat in range(num_samplers)])
        self.connect(self._group.attach(num_samplers))
        self._group.run()

    @property
    def num_samplers(self) -> int:
        """Number of processes that sample."""
        return self._group.schedule.num_samplers

    @property
    def pids(self) -> dict[str, int]:
        """Name of each process -> its process id."""
        return self._group.pids

    def times(self) -> Times:
        """Seconds per batch measured so far: sampling in a sampler, rows and training here; 0 where nothing was measured."""
        stats = self.stats()
        seconds = sum(stats.stage_s.get(stage, 0.0) for stage in ("gather", "assemble", "move"))
        per_batch = seconds / max(1, stats.num_batches) / max(1, self.num_workers)
        return Times(self._group.schedule.sample_s.value or 0.0, per_batch, stats.user_s / max(1, stats.num_batches))

    def __enter__(self) -> FactoredLoader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
