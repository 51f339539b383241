"""The steps of an epoch, and their outcomes.

In: the batches of this process. Out: losses and scores, counted in the record of the epoch. Invariant: every outcome is looked at once, in
the order of the steps; on a device some steps later, so that the processor does not wait for it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from penstock.errors import DivergedError, argument
from penstock.train.learner import Learner, Outcome
from penstock.train.observer import EpochRecord


class Steps:
    """Takes steps, and counts their outcomes.

    Args:
        learner: takes them.
        record: of the epoch.
    """

    def __init__(self, learner: Learner, record: EpochRecord) -> None:
        self._learner = learner
        self._record = record
        self._under_way: deque[Outcome] = deque()

    def take(self, batch: Any, wishes: int) -> int:
        """Take a step on a batch; None: other processes have one. Returns the wishes of the earlier steps that are over, the same ones in
        all processes.

        Raises:
            DivergedError: the loss of an earlier step is NaN or infinite.
        """
        self._under_way.append(self._learner.step(self._record.num_batches, batch, wishes))
        asked = 0
        while len(self._under_way) > self._learner.steps_ahead:
            asked |= self._look_at(self._under_way.popleft())
        return asked

    def catch_up(self) -> None:
        """Look at the outcome of all steps taken, before a checkpoint: nothing is saved of an epoch that diverged."""
        while self._under_way:
            self._look_at(self._under_way.popleft())

    def _look_at(self, outcome: Outcome) -> int:
        num_seeds, value, wishes = outcome.wait()
        if not math.isfinite(value):
            raise DivergedError(
                f"the loss is {value} at epoch {self._record.epoch + 1}, batch {outcome.batch}: lower "
                f"{argument('lr')} ({self._learner.lr:g}), or look for extreme features; the last checkpoint is kept"
            )
        num_own = len(outcome.labels)
        score = self._learner.data.task.score(outcome.logits.numpy(), outcome.labels.numpy()) if num_own else math.nan
        self._record.count_step(value, num_seeds, score, num_own)
        return wishes
