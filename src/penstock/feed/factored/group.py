"""Start, steer, watch and end the processes behind a factored loader, from one thread.

In: messages from the processes. Out: the answers of the `Schedule`. Invariants: a process that dies or fails ends the group, and every
trainer learns at once which process it was, why it ended, and at which batch; closing leaves no process and no memory behind.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from penstock.errors import PipelineError, UsageError
from penstock.feed.factored.client import Client
from penstock.feed.factored.schedule import Schedule
from penstock.sample.factored.messages import Ask, Begin, Broken, Done, Failed, Finished, Keeps, Ready, Release
from penstock.sample.factored.process import SamplerSpec, run_sampler
from penstock.sample.factored.slots import Slots

_END_S = 1.0
"""Seconds in which processes may end by themselves, and again after SIGTERM."""


class Group:
    """The processes, by seat (their number in the schedule).

    Args:
        schedule: decides which seat does what.
    """

    def __init__(self, schedule: Schedule) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise UsageError(
                "samplers are processes of their own, and each of them runs the main script's imports again: start the work of the script "
                'under `if __name__ == "__main__":`'
            )
        self.schedule, self.slots = schedule, Slots(schedule.num_slots + 1)
        self.broken: Broken | None = None
        self.trace = ""
        self.results: dict[int, Any] = {}
        self.over = threading.Event()
        self._context = multiprocessing.get_context("spawn")
        self._connections: dict[int, Connection] = {}
        self._processes: dict[int, BaseProcess] = {}
        self._ending: list[BaseProcess] = []
        self._clients: list[Client] = []
        self._is_ready: dict[int, bool] = {}
        self._closing = False
        self._wake, self._waker = self._context.Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, name="penstock-factored", daemon=True)

    def start_samplers(self, spec: SamplerSpec, devices: Sequence[str | None]) -> None:
        """Start a sampler for each device."""
        for seat, device in enumerate(devices):
            self.start(seat, run_sampler, spec, device)

    def start(self, seat: int, target: Callable[..., None], *args: Any) -> None:
        """Start the process of a seat; it calls target(*args, connection, slots)."""
        ours, theirs = self._context.Pipe()
        name = f"penstock {self.schedule.name_of(seat)}"
        process = self._context.Process(target=target, args=(*args, theirs, self.slots), name=name, daemon=target is run_sampler)
        process.start()
        theirs.close()
        self._connections[seat], self._processes[seat], self._is_ready[seat] = ours, process, False

    def attach(self, seat: int) -> Client:
        """Return a client for a seat in this process."""
        ours, theirs = self._context.Pipe()
        self._connections[seat] = ours
        self._clients.append(Client(theirs, self.slots))
        return self._clients[-1]

    def run(self) -> None:
        """Start the thread that steers."""
        self._thread.start()

    @property
    def pids(self) -> dict[str, int]:
        """Name of each process -> its process id."""
        return {self.schedule.name_of(seat): process.pid or 0 for seat, process in self._processes.items()}

    def close(self) -> None:
        """End all processes. May be called again."""
        self._closing = True
        for client in self._clients:
            client.close()
        with contextlib.suppress(OSError):
            self._waker.send_bytes(b"x")
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(2 * _END_S)
        for connection in self._connections.values():
            connection.close()
        end_processes([*self._processes.values(), *self._ending])
        self.slots.close()
        self._wake.close()
        self._waker.close()
        self._connections = {}
        self._processes = {}
        self._ending = []
        self._clients = []

    def _run(self) -> None:
        try:
            while not self._closing and not self.over.is_set():
                self._step()
        except Exception as error:
            self._break(Broken(f"{type(error).__name__} where samplers and trainers are steered: {error}"))

    def _step(self) -> None:
        seats: dict[Any, int] = {connection: seat for seat, connection in self._connections.items()}
        ends: dict[Any, int] = {process.sentinel: seat for seat, process in self._processes.items()}
        ready = wait([*seats, *ends, self._wake])
        for one in ready:
            if one in seats and not self._hear(seats[one]):
                self._lost(seats[one])
        for one in ready:
            if one in ends and ends[one] in self._connections:
                self._lost(ends[one])

    def _hear(self, seat: int) -> bool:
        """Handle all messages of a seat. Returns False if the seat is gone without having said so."""
        connection = self._connections[seat]
        try:
            while connection.poll():
                self._take_in(seat, connection.recv())
        except (EOFError, OSError):
            return seat not in self._connections
        return True

    def _take_in(self, seat: int, said: Any) -> None:
        if isinstance(said, (Ask, Begin, Done, Release)):
            for other, message in self.schedule.handle(seat, said):
                self._tell(other, message)
        elif isinstance(said, Keeps):
            for other in range(self.schedule.num_samplers):
                self._tell(other, said)
        elif isinstance(said, Ready):
            self._is_ready[seat] = True
        elif isinstance(said, Finished):
            self.results[seat] = said.result
            for other, message in self.schedule.leave(seat):
                self._tell(other, message)
            self._drop(seat)
        elif isinstance(said, Failed):
            self.trace = said.trace
            kind, message = said.error
            doing = "could not start: " if not self._is_ready[seat] else f"failed{self._where(seat)}: "
            self._break(Broken(f"{self.schedule.name_of(seat)} {doing}{kind}: {message}", self._batch(seat)))

    def _tell(self, seat: int, message: Any) -> None:
        connection = self._connections.get(seat)
        if connection is not None:
            with contextlib.suppress(OSError):  # `_step` notices if it is gone
                connection.send(message)

    def _drop(self, seat: int) -> None:
        self._connections.pop(seat).close()
        process = self._processes.pop(seat, None)
        if process is not None:
            self._ending.append(process)
        if not any(self.schedule.is_trainer(one) for one in self._connections):
            self.over.set()

    def _lost(self, seat: int) -> None:
        """Handle a seat that is gone without having said why."""
        process = self._processes.get(seat)
        if self._closing or self.over.is_set():
            return
        if process is None:  # the loader in this process was dropped
            self._drop(seat)
            return
        process.join(_END_S)
        code = process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with exit code {code}"
        hint = "" if self._is_ready[seat] else ' before it was ready; does the script start its work under `if __name__ == "__main__":`?'
        message = f"{self.schedule.name_of(seat)} (process {process.pid}) {how}{hint or self._where(seat)}"
        self._break(Broken(message, self._batch(seat)))

    def _where(self, seat: int) -> str:
        job, latest = self.schedule.at_work[seat], self.schedule.latest[seat]
        if job is not None:
            return f" while it sampled batch {job.index} of epoch {job.epoch}"
        return "" if latest is None else f" after it was given batch {latest.index} of epoch {latest.epoch}"

    def _batch(self, seat: int) -> int | None:
        job = self.schedule.at_work[seat] or self.schedule.latest[seat]
        return None if job is None else job.index

    def _break(self, broken: Broken) -> None:
        """Tell all trainers, end the samplers, and stop steering."""
        self.broken = self.broken or broken
        for seat in list(self._connections):
            if self.schedule.is_trainer(seat):
                self._tell(seat, broken)
            else:
                self._connections.pop(seat).close()  # a sampler ends when its connection closes
        self.over.set()

    def check(self) -> None:
        """Raise PipelineError if the group is broken."""
        if self.broken is not None:
            error = PipelineError(self.broken.message, stage="sample", batch=self.broken.batch)
            if self.trace:
                error.add_note(self.trace)
            raise error


def end_processes(processes: Sequence[BaseProcess]) -> None:
    """End processes: wait until they end by themselves, then send SIGTERM, then SIGKILL."""
    for end in (None, BaseProcess.terminate, BaseProcess.kill):
        alive = [process for process in processes if process.is_alive()]
        for process in alive:
            if end is not None:
                end(process)
        until = time.monotonic() + _END_S
        for process in alive:
            process.join(max(0.0, until - time.monotonic()))
    for process in processes:
        with contextlib.suppress(ValueError):
            process.join()
            process.close()
