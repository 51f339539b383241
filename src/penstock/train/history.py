"""What a run has trained so far: the epochs that are over, the one under way, and the weights that were best by val.

In: records of epochs, scores. Out: plain values for a checkpoint, and the answers whether the run is over and which weights count.
Invariant: epochs follow each other from 0; the one under way is the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from torch import Tensor

from penstock.train.observer import EpochRecord


@dataclass(slots=True)
class Best:
    """The best epoch.

    Attributes:
        epoch: its number, from 0; -1: no epoch was evaluated yet.
        val, test: its scores; None without such nodes.
        model: its weights; empty before the first evaluation.
    """

    epoch: int = -1
    val: float | None = None
    test: float | None = None
    model: dict[str, Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class History:
    """What a run has trained so far.

    Attributes:
        epochs: records of the epochs that are over.
        record: of the epoch under way.
        best: the best epoch by val, or, without val nodes, the last that was evaluated.
    """

    epochs: list[EpochRecord] = field(default_factory=list)
    record: EpochRecord = field(default_factory=lambda: EpochRecord(0))
    best: Best = field(default_factory=Best)

    def end_epoch(self) -> None:
        """The epoch under way is over: the next begins."""
        self.epochs.append(self.record)
        self.record = EpochRecord(self.record.epoch + 1)

    def is_improved(self, *, is_larger_better: bool) -> bool:
        """Whether the epoch under way, which has been evaluated, is the best so far."""
        val, before = self.record.val, self.best.val
        return before is None or (val is not None and (val > before if is_larger_better else val < before))

    def is_over(self, num_epochs: int, patience: int) -> bool:
        """Whether all epochs are trained, or `patience` evaluations came after the best one; 0: any number may."""
        if self.record.epoch >= num_epochs:
            return True
        if not patience or self.best.epoch < 0:
            return False
        return sum(record.val is not None and record.epoch > self.best.epoch for record in self.epochs) >= patience

    def position(self, num_epochs: int) -> str:
        """Where the run is, in words."""
        if self.record.epoch >= num_epochs:
            return f"the end, after {self.record.epoch} epoch{'s' * (self.record.epoch != 1)}"
        return f"epoch {self.record.epoch + 1}, batch {self.record.num_batches}"

    def as_state(self) -> dict[str, Any]:
        """Return plain values and tensors, for a checkpoint."""
        best = self.best
        return {
            "record": self.record.as_dict(),
            "history": [record.as_dict() for record in self.epochs],
            "best": {"epoch": best.epoch, "val": best.val, "test": best.test, "model": best.model},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Read what `as_state` returned; ValueError, TypeError or KeyError for anything else."""
        epochs = [EpochRecord.from_dict(values) for values in state["history"]]
        record, best = EpochRecord.from_dict(state["record"]), state["best"]
        if [each.epoch for each in (*epochs, record)] != list(range(len(epochs) + 1)):
            raise ValueError("its epochs do not follow each other")
        return cls(epochs, record, Best(int(best["epoch"]), _score(best["val"]), _score(best["test"]), dict(best["model"])))


def _score(value: Any) -> float | None:
    return None if value is None else float(value)
