"""The record of an epoch, and of all epochs of a run."""

from types import SimpleNamespace

import pytest

from penstock.train.history import Best, History
from penstock.train.run import _Run


class Busy:
    """A loader whose threads count one batch more between any two looks at it."""

    def __init__(self):
        self.looks = 0

    def stats(self):
        self.looks += 1
        counts = dict(gathered_bytes=self.looks, num_nodes=10 * self.looks, num_edges=0, wait_s=0.0, stage_s={"sample": 2.0 * self.looks})
        return SimpleNamespace(as_dict=lambda: {**counts, "tiers": {"node": {"hits": self.looks}}, "lists": {}})


def test_what_is_counted_between_two_looks_is_not_lost():
    """At a checkpoint within an epoch one look ends what was counted and begins what will be."""
    run = SimpleNamespace(loader=Busy(), history=History())
    before = run.loader.stats().as_dict()
    for _ in range(3):
        before = _Run._count_feed(run, before)  # type: ignore[arg-type]
    record = run.history.record
    assert (run.loader.looks, record.gathered_bytes, record.num_nodes) == (4, 3, 30)
    assert (record.stage_s, record.tiers) == ({"sample": 6.0}, {"node": {"hits": 3}})


def after(*scores):
    """The history of a run whose epochs had these scores on val; None: not evaluated."""
    history = History()
    for score in scores:
        history.record.val = score
        if score is not None and history.is_improved(is_larger_better=True):
            history.best = Best(history.record.epoch, score)
        history.end_epoch()
    return history


@pytest.mark.parametrize(
    ("scores", "patience", "is_over"),
    [
        ((), 1, False),
        ((0.5, 0.4), 1, True),
        ((0.5, 0.4), 2, False),
        ((0.5, None, 0.5), 2, False),
        ((0.5, 0.4, 0.6), 2, False),
        ((0.5, None, 0.4, 0.3), 2, True),
        ((0.5, 0.4, 0.3), 0, False),
        ((None, None), 1, False),
        ((0.5,) * 9, 0, True),
    ],
)
def test_when_a_run_is_over(scores, patience, is_over):
    assert after(*scores).is_over(9, patience) == is_over


def test_a_run_beyond_its_end_says_how_many_epochs_it_has():
    assert after(0.1, 0.2, 0.3).position(2) == "the end, after 3 epochs"


def test_a_history_is_what_its_state_says():
    history = after(0.5, None, 0.75, 0.75)
    history.record.num_batches = 3
    assert (history.best.epoch, history.position(9), history.position(4)) == (2, "epoch 5, batch 3", "the end, after 4 epochs")
    assert History.from_state(history.as_state()) == history
    with pytest.raises(ValueError, match="do not follow"):
        History.from_state(history.as_state() | {"history": []})
