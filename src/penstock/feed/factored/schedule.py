"""Decide which process samples which batch next, and which process gets it. It only decides: it sends nothing, waits for nothing, and holds
no process.

In: messages of seats (processes), one at a time. Out: messages to seats. Invariants: each batch of a pass is handed out once; each trainer
gets its batches in order; there are never more samples being drawn or waiting than slots; every request is answered, now or at a later
event.

Samplers are seats 0 to S - 1, trainers S to S + T - 1. Without switching, each trainer has a stream of batches: trainer t takes t, t + T,
...; each stream has its own slots, so no process waits for a trainer that is slow or has left. With switching, there is one stream for all,
any seat may sample or train, and timing decides which seat trains on a batch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.plan.factored import sampling_profit, standby_profit
from penstock.sample.factored.messages import Ask, Begin, Do, Done, Job, Over, Release, Taken

Event = Ask | Begin | Done | Release
Message = Job | Taken | Over | Do


@dataclass(slots=True)
class _Mean:
    """A moving mean that weights older values less; None before the first value."""

    value: float | None = None

    def add(self, value: float) -> None:
        """Add a value."""
        self.value = value if self.value is None else 0.75 * self.value + 0.25 * value


@dataclass(slots=True)
class _Stream:
    """The batches of one trainer, or of all trainers."""

    key: int
    takers: tuple[int, ...]
    indices: range
    free: deque[int]
    number: int = 0
    epoch: int = 0
    next: int = 0
    ready: dict[int, Done] = field(default_factory=dict)
    making: set[int] = field(default_factory=set)
    begun: dict[int, Begin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.next = len(self.indices)

    @property
    def can_be_sampled(self) -> bool:
        return bool(self.free) and self.next < len(self.indices)

    @property
    def first_ready(self) -> int | None:
        """The next batch to hand out, in order; None if it is still being sampled or there is none."""
        first = min(self.ready, default=None)
        return None if first is None or min(self.making, default=first) < first else first

    @property
    def is_over(self) -> bool:
        return self.next >= len(self.indices) and not self.ready and not self.making


class Schedule:
    """The schedule; see the head of this file.

    Args:
        batches: batches of an epoch, over all trainers.
        num_samplers, num_trainers: numbers of seats.
        depth: slots per trainer.
        switching: seats take over each other's work where that is faster.
    """

    def __init__(self, batches: range, *, num_samplers: int, num_trainers: int, depth: int, switching: bool = False) -> None:
        self.num_samplers, self.num_trainers, self.switching = num_samplers, num_trainers, switching
        seats = range(num_samplers + num_trainers)
        if switching:
            self._streams = [_Stream(0, tuple(seats), batches, deque(range(depth * max(1, num_trainers))))]
        else:
            self._streams = [
                _Stream(t, (num_samplers + t,), batches[t::num_trainers], deque(range(t * depth, (t + 1) * depth)))
                for t in range(num_trainers)
            ]
        self.num_slots = sum(len(stream.free) for stream in self._streams)
        self._of = {seat: stream for stream in self._streams for seat in stream.takers}
        self._parked: list[tuple[int, Ask]] = []
        self.sample_s, self.train_s, self._standby_s = _Mean(), _Mean(), _Mean()
        self.at_work: dict[int, Job | None] = dict.fromkeys(seats)
        self.latest: dict[int, Job | None] = dict.fromkeys(seats)

    def name_of(self, seat: int) -> str:
        """The name of a seat, for messages."""
        return f"sampler {seat}" if seat < self.num_samplers else f"trainer {seat - self.num_samplers}"

    def is_trainer(self, seat: int) -> bool:
        """Whether a seat takes batches."""
        return seat in self._of

    def leave(self, seat: int) -> list[tuple[int, Message]]:
        """Note that a seat takes no more batches. Returns messages to others."""
        stream = self._of[seat]
        stream.takers = tuple(taker for taker in stream.takers if taker != seat)
        stream.begun.pop(seat, None)
        self._parked = [one for one in self._parked if one[0] != seat]
        if not stream.takers:
            stream.next = len(stream.indices)
        return self._answer()

    def handle(self, seat: int, event: Event) -> list[tuple[int, Message]]:
        """Process a message of a seat. Returns [(seat, message to it)]."""
        said: list[tuple[int, Message]] = []
        if isinstance(event, Begin):
            stream = self._of[seat]
            stream.begun[seat] = event
            said = self._turn_over(stream)
        elif isinstance(event, Ask):
            self._note_time(seat, event.train_s)
            self._parked.append((seat, event))
        else:
            stream = self._streams[event.job.stream if isinstance(event, Done) else event.stream]
            if isinstance(event, Release):
                stream.free.append(event.slot)
            else:
                self._done(seat, stream, event)
        return said + self._answer()

    def _turn_over(self, stream: _Stream) -> list[tuple[int, Message]]:
        """Begin the next pass once all trainers of the stream request it, or once the current pass is over and one does."""
        wanted = [event for event in stream.begun.values() if event.number > stream.number]
        if not wanted or not (stream.is_over or len(wanted) == len(stream.takers)):
            return []
        event = min(wanted)
        stream.number, stream.epoch, stream.next = event.number, event.epoch, event.first
        stream.free.extend(done.job.slot for done in stream.ready.values())
        stream.ready.clear()
        stream.making.clear()  # their slots are freed when they are done
        late = [(seat, ask) for seat, ask in self._parked if self._of.get(seat) is stream and 0 <= ask.number < stream.number]
        self._parked = [one for one in self._parked if one not in late]
        return [(seat, Over(ask.number, ask.index)) for seat, ask in late]

    def _done(self, seat: int, stream: _Stream, done: Done) -> None:
        self.at_work[seat] = None
        if done.error is None:
            self.sample_s.add(done.seconds)
        if done.job.number != stream.number:
            stream.free.append(done.job.slot)
            return
        stream.making.discard(done.job.index)
        stream.ready[done.job.index] = done

    def _note_time(self, seat: int, train_s: float) -> None:
        if train_s > 0:
            (self._standby_s if seat < self.num_samplers else self.train_s).add(train_s)

    def _answer(self) -> list[tuple[int, Message]]:
        """Answer all requests that can be answered now: trainers first, since taking a sample makes room."""
        said: list[tuple[int, Message]] = []
        for stream in self._streams:
            said += self._turn_over(stream)
        is_changing = True
        while is_changing:
            is_changing = False
            for one in sorted(self._parked, key=lambda one: -one[0]):
                message = self._answer_one(*one)
                if message is not None:
                    self._parked.remove(one)
                    said.append((one[0], message))
                    is_changing = True
        return said

    def _answer_one(self, seat: int, ask: Ask) -> Message | None:
        if ask.number < 0:
            open_streams = [stream for stream in self._streams if stream.can_be_sampled]
            if not open_streams:
                return None
            return self._claim(seat, min(open_streams, key=lambda stream: stream.indices[stream.next]))
        stream = self._of[seat]
        if ask.number != stream.number:  # a pass that is over, or has not begun
            return Over(ask.number, ask.index) if ask.number < stream.number else None
        if not self.switching:
            return self._hand_out(seat, stream, ask, ask.index) if ask.index in stream.ready else None
        if stream.is_over:
            return Over(ask.number, ask.index)
        return self._do_either(seat, stream, ask)

    def _do_either(self, seat: int, stream: _Stream, ask: Ask) -> Message | None:
        """Decide whether a seat samples or trains next, with switching."""
        first = stream.first_ready
        if seat < self.num_samplers:
            if stream.can_be_sampled:
                return Do(ask.number, self._claim(seat, stream))
            return None if first is None or not self._standby_pays(len(stream.ready)) else self._hand_out(seat, stream, ask, first)
        if first is not None:
            return self._hand_out(seat, stream, ask, first)
        if stream.can_be_sampled and self._sampling_pays():
            return Do(ask.number, self._claim(seat, stream))
        return None

    def _standby_pays(self, num_ready: int) -> bool:
        train_s = self.train_s.value
        if train_s is None:  # not measured yet
            return num_ready > 0 and self.num_trainers == 0
        own_s = train_s if self._standby_s.value is None else self._standby_s.value
        return standby_profit(num_ready, train_s, self.num_trainers, own_s) > 0

    def _sampling_pays(self) -> bool:
        waiting = sum(seat >= self.num_samplers for seat, _ in self._parked)
        sample_s = self.sample_s.value
        return self.num_samplers == 0 or (sample_s is not None and sampling_profit(waiting, sample_s, self.num_samplers, sample_s) > 0)

    def _claim(self, seat: int, stream: _Stream) -> Job:
        job = Job(stream.key, stream.number, stream.epoch, stream.indices[stream.next], stream.free.popleft())
        stream.next += 1
        stream.making.add(job.index)
        self.at_work[seat] = job
        return job

    def _hand_out(self, seat: int, stream: _Stream, ask: Ask, index: int) -> Taken:
        done = stream.ready.pop(index)
        self.latest[seat] = done.job
        return Taken(ask.number, ask.index, done.job, done.num_bytes, done.error)
