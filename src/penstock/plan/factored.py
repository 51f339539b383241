"""How many processes sample and how many train, and when one that waits does the other's work.

In: measured seconds per batch. Out: numbers and decisions. Source: GNNLab (EuroSys'22) 5.2 and 5.3; the rule for the way back, a trainer
that samples, is the same comparison mirrored, and ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.errors import UsageError


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds that one process takes for one batch: to sample it, to bring its rows, to train on it."""

    sample_s: float
    extract_s: float
    train_s: float

    @property
    def trainer_s(self) -> float:
        """Seconds that a trainer takes for a batch: it gathers one while it trains on the one before, so the longer of the two."""
        return max(self.extract_s, self.train_s)


def plan_samplers(num_processes: int, times: Times) -> int:
    """How many of so many processes sample, so that neither side waits: N_s = ceil(N / (T_t / T_s + 1)), the others train.

    Args:
        num_processes: samplers and trainers together, at least 2.
        times: measured.
    """
    if num_processes < 2:
        raise UsageError(f"num_processes must be at least 2, a sampler and a trainer; got {num_processes}")
    check_times(times)
    share = times.sample_s / (times.sample_s + times.trainer_s)
    return min(num_processes - 1, max(1, math.ceil(num_processes * share - 1e-9)))


def plan_samplers_beside(num_trainers: int, times: Times, most: int) -> int:
    """How many samplers keep so many trainers busy: the least S with S / T_s >= T / T_t; at most `most`, at least 1."""
    check_times(times)
    return max(1, min(most, math.ceil(num_trainers * times.sample_s / times.trainer_s - 1e-9)))


def check_times(times: Times) -> None:
    """Raise UsageError unless all seconds are positive."""
    if not (times.sample_s > 0 and times.trainer_s > 0):
        raise UsageError(f"samplers and trainers are balanced by measured seconds, which must be above 0; got {times}")


def standby_profit(num_queued: int, trainer_s: float, num_trainers: int, standby_s: float) -> float:
    """Seconds won if a sampler that has nothing to sample takes one of the batches that wait: M_r T_t / N_t - T_t'.

    Args:
        num_queued: batches that wait to be trained on.
        trainer_s: of a trainer, per batch.
        num_trainers: who would have to work them off; 0: the profit is without bounds.
        standby_s: of the sampler, to train on one (it has less memory to keep rows in).
    """
    if num_queued == 0:
        return -math.inf
    return math.inf if num_trainers == 0 else num_queued * trainer_s / num_trainers - standby_s


def sampling_profit(num_waiting: int, sample_s: float, num_samplers: int, own_s: float) -> float:
    """Seconds won if a trainer that waits for a batch samples one itself; `num_waiting` trainers wait, this one among them."""
    if num_waiting == 0:
        return -math.inf
    return math.inf if num_samplers == 0 else num_waiting * sample_s / num_samplers - own_s
