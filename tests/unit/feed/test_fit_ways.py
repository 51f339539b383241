"""Ways to run within a budget: what misses least of the first group that fits; the last refusal where nothing does."""

import pytest

from penstock.errors import BudgetError
from penstock.feed import NeighborLoader
from penstock.feed.fit.ways import ALONE, Way, choose_way, ways_to_run
from penstock.plan import Plan, make_plan
from penstock.plan.memory import Ahead, Needs

MIB = 1 << 20


class Search:
    """Misses fall by one for each MiB of rows; kept lists spare some more. Notes how it was left."""

    def __init__(self, spared=0.0):
        self.spared, self.with_lists = spared, None

    def use_lists(self, with_lists):
        self.with_lists = with_lists

    def ways(self, num_threads):
        return [Ahead(2, "samples", 0)]

    def misses(self, way, cache_bytes):
        return 1000.0 - cache_bytes / MIB - self.with_lists * self.spared


def needs(way):
    return Needs(
        process=0, batches=(way.in_flight + 1) * 50 * MIB, sampling=way.num_threads * 10 * MIB, tables=way.with_lists * 40 * MIB,
        pointers=way.with_pointers * 30 * MIB,
    )  # fmt: skip


GINEX = make_plan("ginex", host_memory="1GiB")


def test_what_there_is_to_choose_from():
    full, single, last = ways_to_run(4, 2, GINEX)
    assert full == [Way(4, 2, True, True), Way(4, 2, False, True), Way(4, 1, True, True), Way(4, 1, False, True)]
    assert single == [Way(1, 1, True, True), Way(1, 1, False, True)]
    assert last == [Way(1, 1, False, False)]
    assert ways_to_run(4, 1, GINEX)[0] == full[2:]
    for plan in (make_plan("gnnlab", features="disk"), make_plan("ginex", features="memory"), Plan(policy="belady", cache="5%")):
        assert {way.in_flight for way in ways_to_run(4, 3, plan)[0]} == {3}  # not ahead, or not from a disk


@pytest.mark.parametrize(("budget", "in_flight"), [(1000, 1), (400, 2)])
def test_one_batch_at_a_time_where_rows_gain_more_than_it_costs(budget, in_flight):
    search = Search()
    memory, way = choose_way(budget * MIB, ways_to_run(2, 2, GINEX), needs, search)
    assert way == Way(2, in_flight, False, True)
    assert memory.needs == needs(way)
    left = {batches: 1000 - (budget * 0.95 - 32 - needs(Way(2, batches, False, True)).total / MIB) for batches in (1, 2)}
    assert (ALONE * left[1] < left[2]) == (in_flight == 1)


@pytest.mark.parametrize(("spared", "kept"), [(0, False), (39, False), (41, True)])
def test_lists_are_kept_where_they_spare_more_than_their_table(spared, kept):
    search = Search(spared)
    _, way = choose_way(600 * MIB, ways_to_run(2, 1, GINEX), needs, search)
    assert way.with_lists is kept
    assert search.with_lists is kept  # what is divided later is what was chosen


def test_what_is_given_up_one_after_the_other():
    groups, budgets = ways_to_run(4, 2, GINEX), {}
    for budget in range(100, 400):
        try:
            budgets[budget] = choose_way(budget * MIB, groups, needs, Search())[1]
        except BudgetError as error:
            smallest = error
    assert list(dict.fromkeys(budgets.values())) == [
        Way(1, 1, False, False), Way(1, 1, False, True), Way(4, 1, False, True), Way(4, 2, False, True),
    ]  # fmt: skip
    assert "149.5 MiB at least" in str(smallest)
    assert min(budgets) == 150


def test_threads_under_way():
    from penstock.feed.options import read_options

    for prefetch, ahead, plain in ((None, 2, 4), (1, 1, 3), (3, 3, 9)):
        options = read_options(NeighborLoader, num_workers=3, prefetch_factor=prefetch)
        assert options.under_way(is_read_ahead=True) == ahead
        assert options.under_way(is_read_ahead=False) == plain
