"""What keeping a list saves is judged by other batches than those that it was ranked by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.visited import FEW, VisitedLists, reliable
from penstock.records import CSC, EDGE


@given(st.lists(st.integers(0, 255), max_size=400))
def test_never_more_than_was_counted_and_never_less_for_more(counts):
    worth = reliable(np.array(counts, np.uint8))
    assert worth.shape == (256,)
    assert (worth <= np.arange(256)).all()
    assert (np.diff(worth) >= 0).all()


def test_turings_estimate_by_hand():
    counts = np.repeat(np.array([1, 2, 3, 9], np.uint8), [10 * FEW, FEW, 5, 2])
    worth = reliable(counts)
    assert worth[1] == pytest.approx(2 * FEW / (10 * FEW))
    assert worth[2] == pytest.approx(3 * 5 / FEW)
    assert worth[3] == 3  # five of them say nothing
    assert worth[9] == 9


@pytest.mark.parametrize("seed", range(5))
def test_foretells_the_next_batches(seed):
    random = np.random.default_rng(seed)
    rate = 0.3 * random.pareto(1.2, 40_000)
    sizes = random.integers(1, 50, rate.size)
    csc = CSC(np.concatenate([[0], np.cumsum(sizes)]), np.zeros(int(sizes.sum()), np.int32), None)
    seen, later = (np.minimum(random.poisson(np.minimum(rate, 60)), 255).astype(np.uint8) for _ in range(2))
    lists = VisitedLists({EDGE: seen}, {EDGE: csc})
    for share in (0.05, 0.2, 0.5):
        num_bytes = int(share * csc.indices.nbytes)
        kept = lists.keep(num_bytes)[EDGE]
        missed = int(later.sum(dtype=np.int64) - later[kept].sum(dtype=np.int64))
        told = int(seen.sum(dtype=np.int64) - seen[kept].sum(dtype=np.int64))
        assert lists.misses(num_bytes) == pytest.approx(missed, rel=0.15)
        assert told < 0.9 * missed  # what the counts themselves say: nothing at all is missed of a half
