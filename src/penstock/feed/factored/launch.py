"""`run_factored`: start, watch and end samplers and trainers as processes over one store.

In: a function that trains with a loader, a `NeighborLoader`'s arguments, and the number of processes. Out: the results of the function.
Invariants: trainer t of T takes batches t, t + T, ..., as rank t of T ranks does, so all trainers together take exactly the batches of one
process; a process that fails ends all of them.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from penstock.errors import UsageError
from penstock.feed.factored.client import Client
from penstock.feed.factored.group import Group
from penstock.feed.factored.schedule import Schedule
from penstock.feed.factored.spec import Devices, LoaderSpec, check_counts, check_plan, device_of, make_specs, path_of
from penstock.feed.factored.trainer import SwitchingLoader, TrainerLoader
from penstock.feed.neighbor_loader import NeighborLoader
from penstock.plan import Plan, Times, make_plan, plan_samplers
from penstock.sample.factored.messages import Failed, Finished, Ready, describe
from penstock.sample.factored.slots import Slots


class Role(NamedTuple):
    """The role of a process that trains."""

    rank: int
    num_trainers: int
    device: str | None
    is_sampler: bool
    switching: bool


def run_factored(
    train: Callable[..., Any],
    data: Any,
    num_neighbors: Any,
    input_nodes: Any = None,
    *,
    num_processes: int,
    num_samplers: int | None = None,
    times: Times | None = None,
    sampler_devices: Devices = None,
    devices: Devices = None,
    queue_depth: int = 4,
    switching: bool = False,
    args: Sequence[Any] = (),
    plan: Plan | str | None = None,
    **options: Any,
) -> list[Any]:
    """Train in several processes, while other processes sample for them.

    Args:
        train: a module-level function; each trainer's process, rank `loader.rank` of `loader.num_ranks`, calls train(loader, *args). With
            `switching`, every process calls it.
        data, num_neighbors, input_nodes, plan, **options: as for `FactoredLoader`.
        num_processes: samplers and trainers together.
        num_samplers: how many of them sample; None: `plan_samplers` decides by `times`.
        sampler_devices, devices: devices of samplers and of trainers, assigned in turn; samplers and trainers may share a device.
        queue_depth: batches sampled ahead per trainer.
        switching: where it is faster, a sampler that is ahead trains on a waiting batch, and a trainer that waits samples. Then a batch
            goes to whichever process is free, so training must not depend on that (asynchronous updates).
        args: further arguments of `train`, sent to the processes.
    Returns:
        The results of `train`, by trainer (with `switching`: by process, samplers first).
    Raises:
        PipelineError: a process failed or died, and the others were ended. Its traceback is in the notes.
    """
    plan = make_plan(plan)
    check_plan(plan, options)
    if num_samplers is None:
        if times is None:
            raise UsageError("give num_samplers, or measured times to choose it by")
        num_samplers = plan_samplers(num_processes, times)
    num_trainers = num_processes - num_samplers
    check_counts(num_samplers, num_trainers, queue_depth, switching=switching)
    template = NeighborLoader(path_of(data), num_neighbors, input_nodes, plan=Plan(order=plan.order), **options)
    of_samplers, of_trainers = make_specs(template, num_neighbors, plan, options)
    batches = range(template.engine.options.count_batches(template.engine.maker.order, 1 if switching else num_trainers))
    group = Group(Schedule(batches, num_samplers=num_samplers, num_trainers=num_trainers, depth=queue_depth, switching=switching))
    try:
        if not switching:
            group.start_samplers(of_samplers, [device_of(sampler_devices, seat) for seat in range(num_samplers)])
        for seat in range(0 if switching else num_samplers, num_processes):
            rank, is_sampler = (seat, True) if seat < num_samplers else (seat - num_samplers, False)
            told = Role(rank, num_trainers, device_of(sampler_devices if is_sampler else devices, rank), is_sampler, switching)
            group.start(seat, _run_trainer, of_trainers, told, train, tuple(args))
        group.run()
        group.over.wait()
        group.check()
        return [group.results[seat] for seat in sorted(group.results)]
    finally:
        group.close()


def _run_trainer(
    spec: LoaderSpec, seat: Role, train: Callable[..., Any], args: tuple[Any, ...], connection: Connection, slots: Slots
) -> None:
    """Train. Entry point of a spawned process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process says when to end
    client = Client(connection, slots, is_child=True)
    try:
        loader = _make_loader(spec, seat, client)
        client.tell(Ready())
        client.tell(Finished(train(loader, *args)))
    except Exception as error:
        client.tell(Failed(describe(error), traceback.format_exc()))


def _make_loader(spec: LoaderSpec, seat: Role, client: Client) -> NeighborLoader:
    if seat.switching:
        loader = spec.make(SwitchingLoader, device=seat.device)
        loader.connect(client, seat.device, is_sampler=seat.is_sampler)
    else:
        loader = spec.make(TrainerLoader, device=seat.device, rank=seat.rank, num_ranks=seat.num_trainers)
        loader.connect(client, publishes=seat.rank == 0)
    return loader
