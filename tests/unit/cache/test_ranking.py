"""Ranking in blocks against one stable sort of all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cache import ranking

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i4", "i8", "f2", "f4", "f8"]


def numbers(random, size, dtype):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return random.random(size) < 0.5
    if kind == "f":
        values = random.choice([0.0, -0.0, 1.0, -1.5, 65504.0, 1e-7], size) * random.choice([1.0, random.random()], size)
        return values.astype(dtype)
    ends = np.iinfo(dtype)
    return random.choice(np.array([ends.min, ends.min + 1, 0, 1, 2, ends.max - 1, ends.max], dtype), size)


@given(st.integers(0, 2**32 - 1), st.sampled_from(DTYPES), st.integers(1, 40), st.integers(1, 50), st.integers(1, 3))
def test_the_order_of_a_stable_sort(seed, dtype, block, most, num_arrays):
    random = np.random.default_rng(seed)
    arrays = [numbers(random, int(random.integers(0, 60)), dtype) for _ in range(num_arrays)]
    whole = np.concatenate(arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "BLOCK", block)
        blocks = list(ranking.rank(arrays, most=most))
    expected = sorted(range(whole.size), key=lambda i: (-whole[i].item() if dtype != "?" else not whole[i], i))
    assert np.concatenate([np.empty(0, np.int64), *blocks]).tolist() == expected
    assert all(0 < ids.size <= max(most, block) for ids in blocks)


def test_nothing_to_rank():
    assert list(ranking.rank([])) == []
    assert list(ranking.rank([np.empty(0)])) == []
