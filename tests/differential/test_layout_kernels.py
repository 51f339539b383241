"""The kernels of packed layouts against their references, byte for byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.build_csc import reference as build
from penstock.kernels.companions import cpu as companions_cpu
from penstock.kernels.companions import reference as companions_reference
from penstock.kernels.count_pages import cpu as pages_cpu
from penstock.kernels.count_pages import reference as pages_reference
from tests.graphs import assert_same_bytes

SEEDS = st.integers(0, 2**32 - 1)


@given(
    SEEDS, st.sampled_from([np.int32, np.int64]), st.sampled_from([1, 24, 256, 512, 1000, 3072, 4096, 9000]), st.sampled_from([512, 4096])
)
def test_count_pages(seed, dtype, row_bytes, page_bytes):
    random = np.random.default_rng(seed)
    num_rows, offset = int(random.integers(1, 200)), int(random.choice([0, 128, 4096]))
    rows = random.permutation(num_rows).astype(dtype)
    marks = np.zeros(-(-(offset + num_rows * row_bytes) // page_bytes), np.int32)
    for number in range(4):
        ids = random.integers(0, num_rows, int(random.integers(0, 2 * num_rows)))  # also more than once
        counts = np.full(2, 0x5A5A, np.int64)
        pages_cpu.count_pages(ids, rows, row_bytes, offset, page_bytes, 2 * number + 1, marks, counts)
        assert_same_bytes(counts, pages_reference.count_pages(ids, rows, row_bytes, offset, page_bytes))


@pytest.mark.parametrize(("row_bytes", "expected"), [(512, [2, 1]), (3072, [5, 2]), (4096, [4, 3]), (5000, [8, 2])])
def test_pages_of_rows_0_2_3_and_9(row_bytes, expected):
    assert pages_reference.count_pages(np.array([0, 2, 3, 9]), np.arange(10), row_bytes, 4096, 4096).tolist() == expected


@given(SEEDS, st.sampled_from([np.int32, np.int64]))
def test_companions(seed, dtype):
    random = np.random.default_rng(seed)
    num_src = int(random.integers(1, 30))
    best, companions = np.zeros(num_src, np.float32), np.full(num_src, -1, np.int64)
    expected = best, companions
    for edge_type in range(2):
        num_dst, num_edges = int(random.integers(1, 30)), int(random.integers(0, 90))
        src, dst = random.integers(0, num_src, num_edges), random.integers(0, num_dst, num_edges)
        indptr, indices, _ = build.build_csc(src, dst, num_dst)
        indices, scores = indices.astype(dtype), random.integers(1, 6, num_dst).astype(np.float32) / 4
        assert companions_cpu.choose_companions(indptr, indices, scores, 100 * edge_type, best, companions) == -1
        expected = companions_reference.choose_companions(indptr, indices, scores, 100 * edge_type, *expected)
        assert_same_bytes(best, expected[0])
        assert_same_bytes(companions, expected[1])


@pytest.mark.parametrize("bad", [-1, 5])
def test_sources_outside_are_found(bad):
    best, companions = np.zeros(5, np.float32), np.full(5, -1, np.int64)
    indptr, indices, scores = np.array([0, 2, 3]), np.array([1, 2, bad]), np.ones(2, np.float32)
    assert companions_cpu.choose_companions(indptr, indices, scores, 0, best, companions) == 2
