"""What a training run reports while it runs, and its result. The report and the terminal observe; a library user may ignore it all."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from penstock.feed.stats import share_of_caches


@dataclass(slots=True)
class EpochRecord:
    """One epoch, as kept in the history.

    Attributes:
        epoch: number, from 0.
        loss: mean over the seeds, while training (dropout on, sampled neighbourhoods).
        train_score: the metric while training, as a mean over `num_scored` seeds: those of this process, in batches that have a score (auc
            has none over one class); None without such seeds.
        val, test: the metric, over full neighbourhoods or sampled ones (`evaluation`); None in epochs without an evaluation.
        num_seeds: seeds of all processes.
        num_batches: steps; in each, every process has a batch. All that follows is of this process.
        train_s, eval_s: seconds.
        num_verified: batches that were made again and compared, see `Loader.verify`.
        step_s, wait_s: seconds of the model step, and of waiting for batches; the rest of train_s is bookkeeping.
        stage_s: seconds of the feeding stages, summed over the sampling threads.
        gathered_bytes, num_nodes, num_edges: of the batches.
        tiers: name of a tier -> its counts: num_reads, num_rows, num_bytes, seconds; empty without a plan.
        lists: the same for neighbour lists, with num_lists and num_edges in place of num_rows; empty where they come from plain arrays.
    """

    epoch: int
    loss: float = 0.0
    train_score: float | None = None
    val: float | None = None
    test: float | None = None
    num_seeds: int = 0
    num_scored: int = 0
    num_batches: int = 0
    num_verified: int = 0
    train_s: float = 0.0
    eval_s: float = 0.0
    step_s: float = 0.0
    wait_s: float = 0.0
    stage_s: dict[str, float] = field(default_factory=dict)
    gathered_bytes: int = 0
    num_nodes: int = 0
    num_edges: int = 0
    tiers: dict[str, dict[str, float]] = field(default_factory=dict)
    lists: dict[str, dict[str, float]] = field(default_factory=dict)

    def count_step(self, loss: float, num_seeds: int, score: float, num_scored: int) -> None:
        """Count one more step: the mean loss over its seeds, and the score over those of this process, nan where there is none."""
        self.loss += (loss - self.loss) * num_seeds / (self.num_seeds + num_seeds)
        self.num_seeds += num_seeds
        if not math.isnan(score):
            self.num_scored += num_scored
            before = self.train_score or 0.0
            self.train_score = before + (score - before) * num_scored / self.num_scored

    def count_feed(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Count what a loader did between two looks at its `stats`, as plain values."""
        for name in ("gathered_bytes", "num_nodes", "num_edges", "wait_s"):
            setattr(self, name, getattr(self, name) + after[name] - before[name])
        for stage, seconds in after["stage_s"].items():
            self.stage_s[stage] = self.stage_s.get(stage, 0.0) + seconds - before["stage_s"].get(stage, 0.0)
        for kind, known in (("tiers", self.tiers), ("lists", self.lists)):
            for tier, counts in after[kind].items():
                sums, earlier = known.setdefault(tier, dict.fromkeys(counts, 0)), before[kind].get(tier, {})
                for name, value in counts.items():
                    sums[name] = sums.get(name, 0) + value - earlier.get(name, 0)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `as_dict` wrote; ValueError for values of another kind."""
        values = {"num_scored": values["num_seeds"], **values}  # older checkpoints lack it
        record = cls(**{each.name: values[each.name] for each in fields(cls) if each.name in values})
        for each in fields(cls):
            value, kind = getattr(record, each.name), str(each.type)
            if isinstance(value, dict) != kind.startswith("dict") or (value is None and "None" not in kind) or not _is_plain(value):
                raise ValueError(f"{each.name} of an epoch is {value!r:.60}")
        return record

    @property
    def seeds_per_s(self) -> float:
        """Seeds trained per second, evaluation left out."""
        return self.num_seeds / self.train_s if self.train_s else 0.0

    @property
    def hit_rate(self) -> float | None:
        """Share of the rows that came from a cache; None without one."""
        return share_of_caches(self.tiers, "num_rows")

    @property
    def list_hit_rate(self) -> float | None:
        """Share of the neighbour lists that came from a cache; None without one."""
        return share_of_caches(self.lists, "num_lists")


def _is_plain(value: Any) -> bool:
    """Whether a value is None, a finite number, or a dict of finite numbers."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and each is not None and _is_plain(each) for name, each in value.items())
    return value is None or (isinstance(value, (int, float)) and math.isfinite(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a run.

    Attributes:
        metric: name of the metric.
        val, test: the metric at the best epoch by val (the last epoch, without val nodes); None without such nodes.
        best_epoch: from 0; None without an evaluation.
        epochs: number of epochs trained.
        seeds_per_s: seeds trained per second, evaluation left out.
        peak_memory_bytes: of the process.
        weights_digest: digest of the final weights.
        history: one record per epoch.
        description: what was trained on what, as plain values.
        timeline: which work overlapped in the middle of the last epoch, see `penstock.feed.timeline`; None where nothing was trained.
    """

    metric: str
    val: float | None
    test: float | None
    best_epoch: int | None
    epochs: int
    seeds_per_s: float
    peak_memory_bytes: int
    weights_digest: str
    history: list[EpochRecord] = field(repr=False)
    description: dict[str, Any] = field(repr=False)
    timeline: dict[str, Any] | None = field(default=None, repr=False)


class Observer:
    """Called as a run proceeds; every method does nothing by default. It is a context manager, for observers that hold a terminal."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """The run has ended, successfully or not."""

    def note(self, message: str) -> None:
        """A message for the user, one line."""

    def opened(self, description: dict[str, Any]) -> None:
        """The store has been opened; `description` says what it has. The time from here to `started` may be as long as an epoch's."""

    def started(self, description: dict[str, Any], num_epochs: int) -> None:
        """Training begins; `description` says what is trained on what."""

    def batch_done(self, record: EpochRecord, batches_per_epoch: int) -> None:
        """One more batch has been trained; the record is of the epoch so far."""

    def evaluating(self, done: int, total: int) -> None:
        """Rows computed so far in an evaluation."""

    def epoch_done(self, record: EpochRecord, is_best: bool) -> None:
        """An epoch is over."""
