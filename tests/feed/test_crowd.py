"""Of threads that make batches, as many work at once as help."""

import random
import threading
import time

import pytest

import penstock
from penstock.feed import crowd
from penstock.feed.crowd import Crowd
from penstock.threads import Threads
from tests.feed.inputs import check_homogeneous, homogeneous_data


@pytest.fixture
def taken(monkeypatch):
    """What each batch takes of a processor, in the clock of the thread that makes it; eight of these are there."""
    clock = threading.local()
    monkeypatch.setattr(crowd, "usable_cores", lambda: 8)
    monkeypatch.setattr(crowd.time, "thread_time", lambda: getattr(clock, "now", 0.0))

    def take(seconds):
        clock.now = getattr(clock, "now", 0.0) + seconds

    return take


@pytest.mark.parametrize(("seconds", "most"), [(0.0002, 1), (0.0006, 3), (0.1, 6)])
def test_as_many_as_there_is_work_beside_python(taken, seconds, most):
    """0.00019 s of Python for a batch of one edge type; six threads ask."""
    threads, of_six, inside, seen = Threads(6, "crowd"), Crowd(6, 1), [], []

    def make(number):
        with of_six.of(number):
            inside.append(number)
            seen.append(len(inside))
            time.sleep(0.001)
            taken(seconds)
            inside.remove(number)

    for each in [threads.submit(lambda number=number: make(number)) for number in range(120)]:
        each.result(60)
    assert of_six.most == most
    assert max(seen[60:]) <= most


def test_all_are_over_in_any_case(taken):
    """Some fail and some are never made, in any order; the others come."""
    threads, of_four, made = Threads(4, "crowd"), Crowd(4, 1), []

    def make(number, kind):
        if kind == "skipped":
            return of_four.skip(number)
        with of_four.of(number):
            taken(0.0001)
            if kind == "failed":
                raise ValueError(number)
            return made.append(number)

    kinds = [random.choice(["made", "failed", "skipped"]) for _ in range(200)]
    pending = [threads.submit(lambda number=number, kind=kind: make(number, kind)) for number, kind in enumerate(kinds)]
    for each, kind in zip(pending, kinds, strict=True):
        if kind == "failed":
            with pytest.raises(ValueError, match=r"\d"):
                each.result(60)
        else:
            each.result(60)
    assert sorted(made) == [number for number, kind in enumerate(kinds) if kind == "made"]


@pytest.mark.parametrize("is_alone", [True, False])
def test_loaders(monkeypatch, is_alone):
    """Batches are the same; functions of the user's, which may wait for anything, are not held back."""
    entered, data = [], homogeneous_data()
    monkeypatch.setattr(Crowd, "of", lambda self, number, of=Crowd.of: entered.append(number) or of(self, number))
    more = {} if is_alone else {"transform": lambda batch: batch, "filter_per_worker": True}
    loader = penstock.NeighborLoader(data, [4, 4], batch_size=7, num_workers=3, seed=0, **more)
    digests = [penstock.digest(batch) for batch in loader]
    assert digests == [penstock.digest(loader(epoch=0, batch=number)) for number in range(len(loader))]
    assert sorted(entered) == (list(range(len(loader))) if is_alone else [])
    check_homogeneous(next(iter(loader)), data)
