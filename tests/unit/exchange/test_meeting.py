"""Processes that meet at a store find each other, whatever earlier attempts left in it."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from penstock.exchange.meeting import meet

SOON = timedelta(seconds=20)


def attempt(store, ranks, num_ranks, told, timeout=SOON):
    """What each of `ranks` gets; they come in any order."""

    def come(rank):
        time.sleep(random.random() / 20)
        return meet(store, rank, num_ranks, told(rank), timeout)

    with ThreadPoolExecutor(num_ranks) as pool:
        return list(pool.map(come, ranks))


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_one_attempt_after_another(num_ranks):
    """Each time all say the same name, which is new, and are told what the others say now."""
    store, names = dist.HashStore(), set()
    store.set_timeout(SOON)
    for number in range(4):
        found = attempt(store, range(num_ranks), num_ranks, lambda rank, number=number: f"{number}-{rank}")
        assert found == [(found[0][0], [f"{number}-{rank}" for rank in range(num_ranks)])] * num_ranks
        names.add(found[0][0])
    assert len(names) == 4


def test_after_an_attempt_to_which_not_all_came():
    """What those left that came is not taken for the processes of this attempt, not even if they were answered."""
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=0.3))
    for ranks in ([1], [2, 1], [0], [0, 2], [2]):
        with pytest.raises((RuntimeError, dist.DistError)):
            attempt(store, ranks, 3, "old-{}".format, timedelta(seconds=0.3))
    store.set_timeout(SOON)
    for name, told in attempt(store, [2, 0, 1], 3, "new-{}".format):
        assert name
        assert told == ["new-0", "new-1", "new-2"]


def test_who_does_not_come_is_named():
    store = dist.HashStore()
    with pytest.raises(RuntimeError, match="process 1 has not come"):
        meet(store, 0, 3, "", timedelta(seconds=0.1))
