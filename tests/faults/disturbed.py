"""Trainings to which something happens half-way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.train import Observer, TrainConfig, train


class AtBatch(Observer):
    """Does something once, after the third batch of the second epoch: in the middle of a window."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self.deed, self.is_done = deed, False

    def batch_done(self, record: Any, batches_per_epoch: int) -> None:
        if not self.is_done and record.epoch == 1 and record.num_batches == 3:
            self.is_done = True
            self.deed()


def run(store: Path, folder: Path, deed: Callable[[], object] = lambda: None, **settings: Any) -> Any:
    """Train, or go on from the checkpoint in the folder, and do the deed on the way."""
    config = TrainConfig(store=str(store), **settings)
    return train(config, folder, resume=(folder / "checkpoint.pt").exists(), observer=AtBatch(deed))
