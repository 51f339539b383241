"""Streams, events and the memory they use, pretended. What is asked of a stream is done as late as it may be: when the processor waits for
it, or a stream that is waited for waits for it. So what is read or overwritten too early comes out wrong.

Whether a stream has waited for what it uses is told by vector clocks, however the work is ordered in the end: each stream, and the
processor, knows up to which number of each stream it has waited.
"""

import gc
import sys
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.cuda import guard


class _Lock:
    """No garbage is collected meanwhile: memory that it lets go, or waits for, would be asked for in the midst of other work."""

    def __init__(self):
        self._lock, self._depth, self._was_enabled = threading.RLock(), 0, True

    def __enter__(self):
        self._lock.acquire()
        if not self._depth:
            self._was_enabled = gc.isenabled()
            gc.disable()
        self._depth += 1

    def __exit__(self, *_):
        self._depth -= 1
        if not self._depth and self._was_enabled:
            gc.enable()
        self._lock.release()


LOCK = _Lock()
"""Held while anything is asked or done."""

races = None
"""File of lines: what was used without waiting, in this process and those that it began."""
here = threading.local()
streams = []
peers = set()
"""(device, other one whose memory its kernels reach)."""
contexts = set()
"""Devices of which this process has asked something."""
host = {}
"""Clock of the processor."""
pools, generators = set(), set()
"""Pools of memory, and devices whose random numbers, torch takes to be recorded: still, where a recording failed, as torch 2.11 does."""


@dataclass(slots=True)
class Work:
    """Something that a stream is asked for. Attributes: clock, what the stream had waited for; asked_at, lines of the project's code."""

    do: object
    what: str
    stream: object
    number: int
    clock: dict
    asked_at: tuple

    def __str__(self):
        return f"{self.what} on stream {self.stream.number} ({' < '.join(self.asked_at)})"

    def is_after(self, other):
        return self.stream is other.stream or self.clock.get(other.stream.number, 0) >= other.number


class Stream:
    """Work in order."""

    def __init__(self, device=None, priority=0):
        with LOCK:
            self.number, self.clock, self.works, self.num_done = len(streams), {}, deque(), 0
            self.captured, self.is_broken = None, False
            streams.append(self)
        self.device, self.cuda_stream = torch.device("cuda", index_of(device)), self.number
        self.device_index = self.device.index

    def ask(self, do, what, at_once=False):
        """Have something done. Returns its number. `at_once`: also where what is asked for is captured."""
        with LOCK:
            if self.captured is not None and not at_once:
                self.captured.append((do, what))
                return self.num_done
            contexts.add(self.device_index)
            _learn(self.clock, host)
            self.clock[self.number] = number = self.num_done + len(self.works) + 1
            self.works.append(Work(do, what, self, number, dict(self.clock), _places()))
            return number

    def run(self, number):
        """Do all up to a number."""
        with LOCK:
            while self.num_done < number:
                work, before = self.works.popleft(), doing()
                self.num_done, here.doing = self.num_done + 1, work
                try:
                    work.do()
                finally:
                    here.doing = before

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        with LOCK:
            stream, number = event.stream, event.number
            self.ask(lambda: stream.run(number), "waiting")
            _learn(self.clock, event.clock)

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def synchronize(self):
        with LOCK:
            if self.captured is not None:
                self.is_broken = True
                raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
            self.run(self.num_done + len(self.works))
            _learn(host, self.clock)

    def query(self):
        return not self.works


class Graph:
    """What a stream was asked for while it was captured, to be asked for again. Memory that was made for it meanwhile stays."""

    def __init__(self):
        self.works, self.device = [], None

    def reset(self):
        self.works = []

    def replay(self):
        """On the current stream of its device, whatever device is the current one, as torch does."""
        for do, what in self.works:
            current(self.device).ask(do, what)


@contextmanager
def capture(graph, pool=None, stream=None, capture_error_mode="global"):
    synchronize()
    stream = stream or Stream()
    graph.device = stream.device
    with stream_of(stream):
        stream.captured, stream.is_broken = graph.works, False
        pools.add(pool)
        generators.add(stream.device_index)
        try:
            yield
        finally:
            stream.captured = None
            if stream.is_broken:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
            pools.discard(pool)
            generators.discard(stream.device_index)


def end_allocation(pool):
    if pool not in pools:
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
    pools.remove(pool)


def empty_cache():
    if pools:
        raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")


class Event:
    """A place in a stream."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self.stream, self.number, self.clock = defaults[0], 0, {}

    def record(self, stream=None):
        with LOCK:
            self.stream = stream or current()
            self.number = self.stream.ask(lambda: None, "event")
            self.clock = dict(self.stream.clock)

    def wait(self, stream=None):
        (stream or current()).wait_event(self)

    def synchronize(self):
        with LOCK:
            self.stream.run(self.number)
            _learn(host, self.clock)

    def query(self):
        return self.stream.num_done >= self.number

    def elapsed_time(self, other):
        assert self.query(), "an event that is not over has no time"
        assert other.query(), "an event that is not over has no time"
        return 1.0


def _learn(clock, other):
    for stream, number in list(other.items()):
        clock[stream] = max(clock.get(stream, 0), number)


def index_of(device=None):
    """Number of a device; of the current one where none is named."""
    index = device if device is None or isinstance(device, int) else torch.device(device).index
    return guard.library.get_device() if index is None else index


def current(device=None):
    index = index_of(device)
    return here.__dict__.get(index) or defaults[index]


@contextmanager
def device_of(device):
    before = index_of()
    guard.library.set_device(index_of(device))
    here.has_context = True
    try:
        yield
    finally:
        guard.library.set_device(before)


@contextmanager
def stream_of(stream):
    if stream is None:
        yield
        return
    index, was = stream.device_index, index_of()
    with device_of(index):
        before = here.__dict__.get(index)
        here.__dict__[index] = stream
        try:
            yield
        finally:
            here.__dict__[index] = before
    if was != index and was not in contexts and _places()[0].startswith("src/"):  # a user may
        found_here(f"to leave a stream of cuda:{index} for cuda:{was} makes a context there")


def synchronize(device=None):
    for stream in list(streams):
        if stream.device.index == index_of(device):
            stream.synchronize()


def doing():
    """What is being done."""
    return getattr(here, "doing", None)


def settle():
    """Do all that was asked of any stream. Returns lines: errors, and what was used without waiting, which is forgotten."""
    errors = []
    while any(stream.works for stream in list(streams)):
        try:
            for device in range(guard.NUM_DEVICES):
                synchronize(device)
        except Exception as error:
            errors.append(repr(error))
    if races.exists():
        errors += races.read_text().splitlines()
        races.unlink()
    return errors


def _found(race):
    with races.open("a") as file:
        file.write(f"{race}\n")


def found_here(what):
    """What is wrong with what is asked for now."""
    _found(f"{what} ({' < '.join(_places())})")


class Memory:
    """A piece of a device's memory, and who uses it. Attributes: told, streams that the allocator was told of (`record_stream`)."""

    def __init__(self, address, size):
        self.address, self.size, self.owner, self.told, self.device = address, size, current(), set(), index_of()
        self._write, self._uses, self._end = None, {}, None

    def use(self, is_write):
        """To be called while work is done that uses it."""
        work = doing()
        before = [self._write] if self._write and not is_write else list(self._uses.values())
        for other in before:
            if not work.is_after(other):
                _found(f"{work} has not waited for {other}")
        if (ours := work.stream.device.index) != self.device and (ours, self.device) not in peers:
            _found(f"{work} uses memory of another device, {self.device}, without access to it")
        if self._end and work.stream not in self.told:
            _found(f"{work} uses memory that was let go before: {self._end}")
        self._uses[work.stream] = work
        if is_write:
            self._write = work

    def let_go(self):
        """Its owner may use it again for what is asked from now on."""
        self.owner.ask(self._let_go, "letting go", at_once=True)

    def _let_go(self):
        self._end = doing()
        for other in self._uses.values():
            if other.stream not in self.told and not self._end.is_after(other):
                _found(f"memory is let go that is used without the allocator being told: {other}; {self._end}")


def _places():
    """Lines of the project's code that are being run, the innermost first."""
    frame, places = sys._getframe(2), []
    while frame is not None and len(places) < 4:
        path = frame.f_code.co_filename
        if path.startswith(_ROOT) and not path.startswith(_PRETENDING) and "/.venv/" not in path:
            places.append(f"{path[len(_ROOT) :]}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(places)


_ROOT = f"{Path(__file__).parents[2]}/"
_PRETENDING = (f"{_ROOT}tests/cuda/", f"{_ROOT}tests/ptx/")
defaults = [Stream(device) for device in range(guard.NUM_DEVICES)]
