"""A budget of memory: the parts fit, the window that misses least is taken, what is too small is refused with the sum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BudgetError
from penstock.plan.memory import Needs, plan_memory

MIB = 1 << 20
SIZES = st.integers(0, 1 << 32)


@given(
    total=st.integers(1, 1 << 36), process=SIZES, step=SIZES, batches=SIZES, held=SIZES, windows=st.sets(st.integers(1, 100), min_size=1)
)
def test_the_parts_fit_or_it_is_refused(total, process, step, batches, held, windows):
    needs = Needs(process=process, step=step, batches=batches)
    try:
        plan = plan_memory(total, needs, held_bytes=held, windows=windows)
    except BudgetError:
        assert 0.95 * total - 1 <= needs.total + min(windows) * held
        return
    assert plan.window in windows
    assert plan.held_bytes == plan.window * held
    assert plan.cache_bytes >= 0
    assert needs.total + plan.reserve_bytes + plan.held_bytes + plan.cache_bytes == total


def test_the_window_that_misses_least():
    needs = Needs(process=100 * MIB)

    def misses(window, cache_bytes):
        return 1000 / window - cache_bytes / MIB

    plan = plan_memory(1000 * MIB, needs, held_bytes=10 * MIB, windows=(1, 2, 4, 8, 16, 200), misses=misses)
    best = min((1, 2, 4, 8, 16), key=lambda window: misses(window, 850 * MIB - window * 10 * MIB))
    assert plan.window == best == 8
    assert plan.describe() == (
        "1000.0 MiB = 100.0 MiB process + 50.0 MiB reserve + 80.0 MiB for 8 batches held ahead + 770.0 MiB for caches"
    )


def test_a_smaller_window_where_none_misses_less():
    plan = plan_memory(1000 * MIB, Needs(process=0), held_bytes=0, windows=(4, 2, 8), misses=lambda window, cache_bytes: 1.0)
    assert plan.window == 2


def test_the_refusal_names_the_smallest_that_would_do():
    needs = Needs(process=400 * MIB, step=200 * MIB, batches=100 * MIB)
    with pytest.raises(BudgetError) as refused:
        plan_memory(512 * MIB, needs, held_bytes=20 * MIB, windows=(2, 4))
    assert str(refused.value) == (
        "host_memory of 512.0 MiB does not hold one batch: 400.0 MiB process + 200.0 MiB step + 100.0 MiB batches + 40.0 MiB held ahead + 5"
        " % reserve = 778.9 MiB at least. Give more, or make batches, fanouts or num_workers smaller"
    )
    plan_memory(int(778.95 * MIB), needs, held_bytes=20 * MIB, windows=(2, 4))
