"""A budget of memory: the parts fit, the way that misses least is taken, what is too small is refused with the sum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BudgetError
from penstock.plan.memory import RESERVE_BYTES, Ahead, Needs, plan_memory

MIB = 1 << 20
SIZES = st.integers(0, 1 << 32)
WAYS = st.lists(st.builds(Ahead, st.integers(1, 100), st.sampled_from(["samples", "ids"]), SIZES), min_size=1)


@given(total=st.integers(1, 1 << 36), process=SIZES, step=SIZES, batches=SIZES, ways=WAYS)
def test_the_parts_fit_or_it_is_refused(total, process, step, batches, ways):
    needs = Needs(process=process, step=step, batches=batches)
    try:
        plan = plan_memory(total, needs, ways, lambda way, cache_bytes: -cache_bytes)
    except BudgetError:
        assert 0.95 * total - RESERVE_BYTES - 1 <= needs.total + min(way.num_bytes for way in ways)
        return
    assert plan.ahead in ways
    assert plan.cache_bytes >= 0
    assert needs.total + plan.reserve_bytes + plan.ahead.num_bytes + plan.cache_bytes == total


def test_the_window_that_misses_least():
    needs = Needs(process=100 * MIB)

    def misses(way, cache_bytes):
        return 1000 / way.window - cache_bytes / MIB

    ways = [Ahead(window, "samples", window * 10 * MIB) for window in (1, 2, 4, 8, 16, 200)]
    plan = plan_memory(1000 * MIB, needs, ways, misses)
    assert plan.ahead == min(ways[:-1], key=lambda way: misses(way, 818 * MIB - way.num_bytes)) == ways[3]
    assert str(plan) == (
        "1000.0 MiB = 100.0 MiB process + 82.0 MiB reserve + 80.0 MiB for 8 batches held ahead + 738.0 MiB left for caches"
    )


def test_the_smaller_way_where_none_misses_less():
    ways = [Ahead(4, "samples", 40), Ahead(4, "ids", 20), Ahead(8, "samples", 80)]
    plan = plan_memory(1000 * MIB, Needs(process=0), ways, lambda way, cache_bytes: 1.0)
    assert plan.ahead == ways[1]
    assert "20 B for 4 batches held ahead, ids only" in str(plan)


def test_the_refusal_names_the_smallest_that_would_do():
    needs, ways = (
        Needs(process=400 * MIB, step=200 * MIB, batches=100 * MIB),
        [Ahead(2, "samples", 40 * MIB), Ahead(4, "samples", 80 * MIB)],
    )
    with pytest.raises(BudgetError) as refused:
        plan_memory(512 * MIB, needs, ways, lambda way, cache_bytes: 0.0)
    assert str(refused.value) == (
        "host_memory of 512.0 MiB does not hold one batch: 400.0 MiB process + 200.0 MiB step + 100.0 MiB batches + 40.0 MiB for 2 batches"
        " held ahead + 32.0 MiB and 5 % reserve = 812.7 MiB at least. Give more, or make batches, fanouts or num_workers smaller"
    )
    assert plan_memory(int(812.7 * MIB), needs, ways, lambda way, cache_bytes: 0.0).ahead == ways[0]
