"""What a training run came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.train.observer import EpochRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run came to.

    Attributes:
        metric: its name. val, test: at the best epoch by val (the last epoch where there is no val); None without such nodes.
        best_epoch, epochs: from 0, and how many were trained.
        seeds_per_s: trained, evaluation left out.
        peak_memory_bytes: of the process.
        weights_digest: of the final weights.
        history: one record per epoch.
        description: what was trained on what.
        timeline: what overlapped with what in the middle of the last epoch, see `penstock.feed.timeline`; None where nothing was trained.
    """

    metric: str
    val: float | None
    test: float | None
    best_epoch: int
    epochs: int
    seeds_per_s: float
    peak_memory_bytes: int
    weights_digest: str
    history: list[EpochRecord]
    description: dict[str, Any]
    timeline: dict[str, Any] | None = None
