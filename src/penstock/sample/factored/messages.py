"""Messages between samplers, trainers, and the process that schedules them.

A seat is a sampler or trainer. A stream is the batches of one trainer, or of all trainers. A pass is one run over an epoch. Messages have
only a few numbers and strings; samples are in slots of shared memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.errors import PenstockError


class Ask(NamedTuple):
    """A seat asks for work. A dedicated sampler asks with `number` -1. A trainer asks for batch `index` of its pass `number`, or, with
    switching, for any work (`index` -1). `train_s`: seconds that the trainer took for the batch before; 0: unknown."""

    number: int
    index: int
    train_s: float = 0.0


class Begin(NamedTuple):
    """A trainer begins pass `number` (1, 2, ...): epoch `epoch`, from its `first` batch on."""

    number: int
    epoch: int
    first: int


class Done(NamedTuple):
    """A batch was sampled into its slot, in `seconds`. Or sampling failed: `error` is (name of the exception, message)."""

    job: Job
    num_bytes: int
    seconds: float
    error: tuple[str, str] | None = None


class Keeps(NamedTuple):
    """A trainer has published the directories of its static caches, see `penstock.sample.factored.marks`. Forwarded to samplers, it tells
    them to mark samples."""


class Release(NamedTuple):
    """A trainer has read a slot, which is free again."""

    stream: int
    slot: int


class Job(NamedTuple):
    """Sample a batch into a slot."""

    stream: int
    number: int
    epoch: int
    index: int
    slot: int


class Taken(NamedTuple):
    """To a trainer: a batch is in its slot. `number` and `asked` repeat `number` and `index` of the `Ask`."""

    number: int
    asked: int
    job: Job
    num_bytes: int
    error: tuple[str, str] | None = None


class Over(NamedTuple):
    """To a trainer: this pass has no more batches, or it was abandoned for another pass."""

    number: int
    asked: int


class Do(NamedTuple):
    """To a trainer that asked for any work: sample a batch."""

    number: int
    job: Job


class Ready(NamedTuple):
    """A process can begin."""


class Failed(NamedTuple):
    """A process cannot continue. `error`: (name of the exception, message); `trace`: its traceback."""

    error: tuple[str, str]
    trace: str = ""


class Finished(NamedTuple):
    """A trainer has finished."""

    result: Any = None


class Broken(NamedTuple):
    """To all processes: the error that ends the run, and the batch that it belongs to, if any."""

    message: str
    batch: int | None = None


def describe(error: BaseException) -> tuple[str, str]:
    """Return an exception in the form of messages: (its name, its message)."""
    return type(error).__name__, str(error.args[0]) if isinstance(error, PenstockError) and len(error.args) == 1 else str(error)
