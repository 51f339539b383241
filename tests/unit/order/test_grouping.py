"""Grouping by counting against a stable sort."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.order import grouping


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 30))
def test_the_order_of_a_stable_sort(seed, num_keys, block):
    random = np.random.default_rng(seed)
    values = random.permutation(int(random.integers(0, 100))).astype(random.choice([np.int32, np.int64]))
    keys = random.integers(0, num_keys, values.size)
    before, grouping.BLOCK = grouping.BLOCK, block
    try:
        grouped, places = grouping.group_by(values, lambda some: keys[some], num_keys), grouping.invert(values)
    finally:
        grouping.BLOCK = before
    assert grouped.tolist() == values[np.argsort(keys[values], kind="stable")].tolist()
    assert values[places].tolist() == list(range(values.size))
    assert grouped.dtype == places.dtype == values.dtype
