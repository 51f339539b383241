"""What processes that sample and processes that train say to each other, and to the one that steers them.

A seat is one of these processes; a stream is the batches of one trainer, or of all; a pass is one run over an epoch. Nothing but small
numbers and words: samples themselves are in slots.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.errors import PenstockError


class Ask(NamedTuple):
    """A seat asks: a dedicated sampler for work (`number` -1), a trainer for batch `index` of its pass `number`, or, with switching, for
    anything to do (-1). `train_s`: it took for the batch before, 0 where it does not say."""

    number: int
    index: int
    train_s: float = 0.0


class Begin(NamedTuple):
    """A trainer begins pass `number` (1, 2, ...): epoch `epoch`, from its `first` batch on."""

    number: int
    epoch: int
    first: int


class Done(NamedTuple):
    """A batch was sampled into its slot; or it failed, and `error` says how: (name of the exception, message)."""

    job: Job
    num_bytes: int
    seconds: float
    error: tuple[str, str] | None = None


class Keeps(NamedTuple):
    """A trainer has published what its caches keep and will keep, see `penstock.sample.factored.marks`; then, to samplers: mark samples."""


class Release(NamedTuple):
    """A slot was read."""

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
    """Here is a batch. `number` and `asked`: of the question."""

    number: int
    asked: int
    job: Job
    num_bytes: int
    error: tuple[str, str] | None = None


class Over(NamedTuple):
    """There is no more in this pass, or the pass was given up for another."""

    number: int
    asked: int


class Do(NamedTuple):
    """To a trainer that asked for anything: sample a batch."""

    number: int
    job: Job


class Ready(NamedTuple):
    """A process can begin."""


class Failed(NamedTuple):
    """A process cannot go on: (name of the exception, message), and where it was raised."""

    error: tuple[str, str]
    trace: str = ""


class Finished(NamedTuple):
    """A trainer is through."""

    result: Any = None


class Broken(NamedTuple):
    """To everybody: the error that ends it all, and its batch where there is one."""

    message: str
    batch: int | None = None


def describe(error: BaseException) -> tuple[str, str]:
    """An exception on its way to another process: (its name, its message)."""
    return type(error).__name__, str(error.args[0]) if isinstance(error, PenstockError) and len(error.args) == 1 else str(error)
