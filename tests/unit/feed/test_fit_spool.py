"""What rows cost through a spool: by the plans of reads of random rows, by counts of later batches, by what a spool really takes."""

import numpy as np
import pytest

from penstock.feed.fit.spool import MOST_BYTES, SpooledRows, distinct_rows, spool_bytes
from penstock.gather import SpooledTier
from penstock.store.tiers.disk_plan import plan_reads
from penstock.store.tiers.host import HostTier


def rows_of(**changes):
    return SpooledRows(**{"num_rows": 200_000, "row_bytes": 1024, "gap_bytes": 14336, "half_bytes": 1 << 40, **changes})


@pytest.mark.parametrize("row_bytes", [256, 1024, 3072])
@pytest.mark.parametrize("share", [0.001, 0.03, 0.1, 0.3, 0.9, 1.0])
def test_a_read_in_order_costs_what_its_plan_says(row_bytes, share):
    spooled = rows_of(row_bytes=row_bytes)
    wanted = np.random.default_rng(0).choice(spooled.num_rows, int(share * spooled.num_rows), replace=False)
    plan = plan_reads(np.sort(wanted), row_bytes, 0, block_bytes=512, gap_bytes=spooled.gap_bytes, max_bytes=MOST_BYTES)
    assert spooled.in_order(wanted.size) == pytest.approx(plan.starts.size + plan.num_bytes / spooled.gap_bytes, rel=0.12)


def test_nothing_is_wanted():
    assert rows_of().in_order(0) == rows_of().requests(8, 0.0, 0.0) == distinct_rows(np.zeros(9, np.int64), 2.0) == 0.0


def test_rows_without_bytes_cost_nothing():
    assert rows_of(row_bytes=0).requests(8, 500.0, 900.0) == 0.0


@pytest.mark.parametrize("times", [0.25, 0.5, 1.0, 1.5, 2.0])
def test_distinct_rows_of_fewer_and_of_more_batches(times):
    random = np.random.default_rng(1)
    chances = random.pareto(1.5, 100_000)
    draws = random.choice(chances.size, 400_000, p=chances / chances.sum())
    seen = np.bincount(draws[:200_000], minlength=chances.size)
    assert distinct_rows(seen, times) == pytest.approx(np.unique(draws[: int(times * 200_000)]).size, rel=0.02)
    assert distinct_rows(seen, 1.0) == np.count_nonzero(seen)


@pytest.mark.parametrize("num_batches", [5, 6, 31, 32])
def test_rows_that_were_seen_do_not_go_away(num_batches):
    visits = np.concatenate([np.full(2000, num_batches), np.ones(300, np.int64)])  # the sum's terms take turns in sign
    assert distinct_rows(visits, 1.0) == 2300
    assert 2300 <= distinct_rows(visits, 2.0) <= 4600


def test_larger_groups_cost_less_up_to_what_the_spool_holds():
    def cost(group, **changes):
        return rows_of(**changes).requests(group, 1000, 200_000 * (1 - (1 - 1000 / 200_000) ** group))

    costs = [cost(group) for group in (1, 4, 16, 64)]
    assert costs == sorted(costs, reverse=True)
    alone = 1000 * (1 + 1024 / 14336)
    assert costs[-1] < 0.6 * alone
    assert cost(1) > alone  # written and read again for nothing
    assert cost(64, half_bytes=0) == alone
    half = cost(64, half_bytes=32 * 1000 * 1024)
    assert costs[-1] < half < alone


@pytest.mark.parametrize(("row_bytes", "group"), [((3072,), 64), ((4, 516), 64), ((8,), 64), ((4100, 12), 4)])
def test_a_spool_takes_no_more_than_is_counted(row_bytes, group, tmp_path):
    arrays = [np.zeros((100, width), np.uint8) for width in row_bytes]
    tier = SpooledTier(HostTier(arrays), tmp_path, 1 << 26, group)
    counted = spool_bytes(row_bytes, group, 2, 96)
    assert tier.resident_bytes + tier.kept.most_bytes(2) <= counted
    assert spool_bytes(row_bytes, group, 2, 0) <= 1.3 * (tier.resident_bytes + tier.kept.most_bytes(3))
