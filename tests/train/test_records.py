"""The record of an epoch."""

from types import SimpleNamespace

from penstock.train.observer import EpochRecord
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
    run = SimpleNamespace(loader=Busy(), record=EpochRecord(0))
    before = run.loader.stats().as_dict()
    for _ in range(3):
        before = _Run._count_feed(run, before)  # type: ignore[arg-type]
    record = run.record
    assert (run.loader.looks, record.gathered_bytes, record.num_nodes) == (4, 3, 30)
    assert (record.stage_s, record.tiers) == ({"sample": 6.0}, {"node": {"hits": 3}})
