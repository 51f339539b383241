"""Decides how many processes sample and how many train, and when a waiting one does the other's work.

In: measured seconds per batch. Out: numbers and decisions. Source: GNNLab (EuroSys'22) 5.2 and 5.3. The rule for a trainer that samples is
ours: the same comparison, mirrored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.errors import UsageError


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that one process takes for one batch: to sample it, to gather its rows, to train on it."""

    sample_s: float
    extract_s: float
    train_s: float

    @property
    def trainer_s(self) -> float:
        """Seconds that a trainer takes for a batch: it gathers a batch while it trains on the one before: the longer of the two."""
        return max(self.extract_s, self.train_s)


def plan_samplers(num_processes: int, times: Times) -> int:
    """Return how many of N processes sample, so that neither side waits: N_s = ceil(N / (T_t / T_s + 1)). The others train.

    Args:
        num_processes: N, samplers and trainers together, at least 2.
        times: measured.
    Raises:
        UsageError: fewer than 2 processes, or times that are not positive.
    """
    if num_processes < 2:
        raise UsageError(f"num_processes must be at least 2, a sampler and a trainer; got {num_processes}")
    check_times(times)
    share = times.sample_s / (times.sample_s + times.trainer_s)
    return min(num_processes - 1, max(1, math.ceil(num_processes * share - 1e-9)))


def plan_samplers_beside(num_trainers: int, times: Times, most: int) -> int:
    """Return how many samplers keep T = `num_trainers` trainers busy: the least S with S / T_s >= T / T_t; from 1 to `most`.

    Raises:
        UsageError: times that are not positive.
    """
    check_times(times)
    return max(1, min(most, math.ceil(num_trainers * times.sample_s / times.trainer_s - 1e-9)))


def check_times(times: Times) -> None:
    """Raise UsageError unless the seconds of samplers and of trainers are positive."""
    if not (times.sample_s > 0 and times.trainer_s > 0):
        raise UsageError(f"samplers and trainers are balanced by measured seconds, which must be above 0; got {times}")


def standby_profit(num_queued: int, trainer_s: float, num_trainers: int, standby_s: float) -> float:
    """Seconds saved if a sampler without work trains on a waiting batch: M_r T_t / N_t - T_t'. -inf if no batch waits.

    Args:
        num_queued: M_r, number of batches that wait for a trainer.
        trainer_s: T_t, seconds of a trainer per batch.
        num_trainers: N_t, number of trainers; 0: returns inf.
        standby_s: T_t', seconds of the sampler to train on a batch (its caches are smaller).
    """
    if num_queued == 0:
        return -math.inf
    return math.inf if num_trainers == 0 else num_queued * trainer_s / num_trainers - standby_s


def sampling_profit(num_waiting: int, sample_s: float, num_samplers: int, own_s: float) -> float:
    """Seconds saved if a trainer that waits for a batch samples one itself. -inf if no trainer waits.

    Args:
        num_waiting: number of waiting trainers, including this one.
        sample_s: seconds of a sampler per batch.
        num_samplers: number of samplers; 0: returns inf.
        own_s: seconds of the trainer to sample a batch.
    """
    if num_waiting == 0:
        return -math.inf
    return math.inf if num_samplers == 0 else num_waiting * sample_s / num_samplers - own_s
