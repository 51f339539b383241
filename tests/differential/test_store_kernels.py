"""The kernels of the store's builder against their references, on fresh random input, into poisoned output, byte for byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.duplicates import cpu as duplicates_cpu
from penstock.kernels.duplicates import reference as duplicates_reference
from penstock.kernels.id_hash import cpu as hash_cpu
from penstock.kernels.id_hash import reference as hash_reference
from penstock.kernels.id_table import cpu as table_cpu
from penstock.kernels.id_table import reference as table_reference
from penstock.kernels.placement import cpu as placement_cpu
from penstock.kernels.placement import reference as placement_reference
from penstock.kernels.seen_ids import cpu as seen_cpu
from penstock.kernels.seen_ids import reference as seen_reference
from penstock.kernels.string_words import cpu as words_cpu
from penstock.kernels.string_words import reference as words_reference
from tests.graphs import assert_same_bytes, poisoned

SEEDS = st.integers(0, 2**32 - 1)
KEY_DTYPES = st.sampled_from([np.int64, np.uint32])


@given(SEEDS, KEY_DTYPES, st.integers(0, 5))
def test_count_keys(seed, dtype, shift):
    random = np.random.default_rng(seed)
    keys = random.integers(0, 200, int(random.integers(0, 500))).astype(dtype)
    counts = random.integers(0, 9, (200 >> shift) + 1)
    expected = placement_reference.count_keys(keys, shift, counts)
    placement_cpu.count_keys(keys, shift, counts)
    assert_same_bytes(counts, expected)


@given(SEEDS, st.sampled_from(["u1", "u2", "u4"]))
def test_count_up_to(seed, dtype):
    random = np.random.default_rng(seed)
    keys, most = random.integers(0, 5, int(random.integers(0, 600))), int(np.iinfo(dtype).max)
    counts = random.integers(max(0, most - 300), most, 5, endpoint=True).astype(dtype)
    expected = placement_reference.count_up_to(keys, most, counts)
    placement_cpu.count_up_to(keys, most, counts)
    assert_same_bytes(counts, expected)


@given(SEEDS, KEY_DTYPES, st.integers(0, 3))
def test_assign_buckets(seed, dtype, shift):
    random = np.random.default_rng(seed)
    bounds = np.unique(np.r_[0, random.integers(1, 200, 8), 200])
    keys = random.integers(0, 200, 400).astype(dtype)
    guess = np.searchsorted(bounds[1:], np.arange(200 // (1 << shift) + 1) << shift, side="right").astype(np.uint32)
    counts = np.zeros(bounds.size - 1, np.int64)
    expected = placement_reference.assign_buckets(keys, bounds, guess, shift, counts)
    out = poisoned(keys.size, np.uint32), poisoned(keys.size, np.uint32)
    placement_cpu.assign_buckets(keys, bounds, guess, shift, counts, *out)
    for mine, theirs in zip((*out, counts), expected, strict=True):
        assert_same_bytes(mine, theirs)


@given(SEEDS, KEY_DTYPES)
def test_take_positions(seed, dtype):
    random = np.random.default_rng(seed)
    keys = random.integers(0, 50, int(random.integers(0, 500))).astype(dtype)
    cursor = random.integers(0, 1000, 50)
    positions, moved = placement_reference.take_positions(keys, cursor)
    out = poisoned(keys.size)
    placement_cpu.take_positions(keys, cursor, out)
    assert_same_bytes(out, positions)
    assert_same_bytes(cursor, moved)


ROWS = st.sampled_from(
    [(np.int32, ()), (np.int64, ()), (np.float16, ()), (np.uint8, ()), (np.float32, (3,)), (np.uint16, (2, 2)), (np.int8, (0,))]
)


@given(SEEDS, ROWS)
def test_scatter_and_compact_rows(seed, row):
    random = np.random.default_rng(seed)
    dtype, shape = row
    size = int(random.integers(0, 300))
    rows = random.integers(0, 100, (size, *shape)).astype(dtype)
    out = poisoned((size + 10, *shape), dtype)
    positions = random.permutation(size + 10)[:size]
    expected = placement_reference.scatter_rows(rows, positions, out)
    placement_cpu.scatter_rows(rows, positions, out)
    assert_same_bytes(out, expected)
    keep = random.integers(0, 2, size).astype(np.uint8)
    expected = placement_reference.compact_rows(rows, keep)
    assert_same_bytes(np.ascontiguousarray(placement_cpu.compact_rows(rows, keep)), expected)


@given(SEEDS, st.sampled_from([np.int32, np.int64]))
def test_mark_first(seed, dtype):
    random = np.random.default_rng(seed)
    ends = np.cumsum(random.integers(0, 40, 30))
    indices = random.integers(0, int(random.choice([3, 64, 1000])), ends[-1]).astype(dtype)
    keep, new_ends = duplicates_reference.mark_first(ends, indices)
    bitmap, out = np.zeros(16, np.uint64), poisoned(indices.size, np.uint8)
    duplicates_cpu.mark_first(ends, indices, bitmap, out)
    assert_same_bytes(out, keep)
    assert_same_bytes(ends, new_ends)
    assert not bitmap.any()
    whole, pieces = duplicates_reference.mark_first(np.array([indices.size]), indices)[0], poisoned(indices.size, np.uint8)
    middle = indices.size // 2
    count = duplicates_cpu.mark_list(indices[:middle], bitmap, pieces[:middle])
    count += duplicates_cpu.mark_list(indices[middle:], bitmap, pieces[middle:])
    assert_same_bytes(pieces, whole)
    assert count == whole.sum()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50), st.integers(0, 2**63 - 1))
def test_hash_integers(values, seed):
    ids = np.array(values, dtype=np.int64)
    out = poisoned(ids.size, np.uint64)
    hash_cpu.hash_integers(ids, seed, out)
    assert_same_bytes(out, hash_reference.hash_integers(ids, seed))


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 2**63 - 1), st.sampled_from([np.int32, np.int64]))
def test_hash_strings(texts, seed, dtype):
    offsets = np.cumsum([0, *map(len, texts)]).astype(dtype)
    data = np.frombuffer(b"".join(texts), np.uint8)
    out = poisoned(len(texts), np.uint64)
    hash_cpu.hash_strings(offsets, data, seed, out)
    assert_same_bytes(out, hash_reference.hash_strings(offsets, data, seed))


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=30), st.integers(0, 40), st.sampled_from([np.int32, np.int64]), SEEDS)
def test_string_words(texts, skip, dtype, seed):
    offsets = np.cumsum([0, *map(len, texts)]).astype(dtype)
    data = np.frombuffer(b"".join(texts), np.uint8)
    rows = np.random.default_rng(seed).integers(0, len(texts), 50)
    out = poisoned(rows.size, np.uint64)
    words_cpu.string_words(offsets, data, rows, skip, out)
    assert_same_bytes(out, words_reference.string_words(offsets, data, rows, skip))


def test_hashes_of_integers_are_a_bijection_and_change_with_the_seed():
    ids = np.arange(-50_000, 50_000)
    one, other = poisoned(ids.size, np.uint64), poisoned(ids.size, np.uint64)
    hash_cpu.hash_integers(ids, 0, one)
    hash_cpu.hash_integers(ids, 1, other)
    assert np.unique(one).size == ids.size
    assert (one != other).all()


def make_table(random, num_ids, num_cells, *, repeats=0):
    hashes = random.integers(0, 2**64, num_ids, dtype=np.uint64)
    if repeats:
        hashes[random.integers(0, num_ids, repeats)] = hashes[random.integers(0, num_ids, repeats)]
    shift = 65 - num_cells.bit_length()
    cells = (hashes >> np.uint64(shift)).astype(np.int64)
    order = random.permutation(num_ids)
    order = order[np.argsort(cells[order], kind="stable")]
    return shift, np.cumsum(np.bincount(cells, minlength=num_cells)), hashes[order], order.astype(np.int32)


@given(SEEDS, st.sampled_from([0, 1, 5, 7, 8, 9, 300]), st.sampled_from([2, 64]))
def test_look_up(seed, num_ids, num_cells):
    random = np.random.default_rng(seed)
    shift, ends, hashes, rows = make_table(random, num_ids, num_cells)
    queries = np.concatenate([hashes, random.integers(0, 2**64, 50, dtype=np.uint64)])
    first, last = sorted(map(int, random.integers(0, num_cells + 1, 2)))
    for low, high in ((0, num_cells), (first, last)):
        start, end = (int(ends[low - 1]) if low else 0), (int(ends[high - 1]) if high else 0)
        part = np.ascontiguousarray(ends[low:high] - start), hashes[start:end].copy(), rows[start:end].copy()
        before = np.full(queries.size, -1, np.int32)
        expected = table_reference.look_up(queries, shift, low, *part, before)
        table_cpu.look_up(queries, shift, low, *part, poisoned(queries.size), before)
        assert_same_bytes(before, expected)


@given(SEEDS, st.integers(0, 4))
def test_first_repeat(seed, repeats):
    _, ends, hashes, rows = make_table(np.random.default_rng(seed), 200, 64, repeats=repeats)
    assert table_cpu.first_repeat(ends, hashes, rows) == table_reference.first_repeat(ends, hashes, rows)


@given(SEEDS)
def test_add_new(seed):
    random = np.random.default_rng(seed)
    table, seen = np.zeros(2 * 512, np.uint64), set()
    for _ in range(3):
        first, second = random.integers(0, 12, (2, 100)).astype(np.uint64)
        fresh, seen = seen_reference.add_new(first, second, seen)
        out = poisoned(first.size, np.uint8)
        assert seen_cpu.add_new(first, second, table, out) == fresh.sum()
        assert_same_bytes(out, fresh)


@pytest.mark.parametrize("size", [0, 1])
def test_kernels_take_empty_arrays(size):
    empty = np.empty(0, np.int64)
    placement_cpu.count_keys(empty, 0, np.zeros(size, np.int64))
    placement_cpu.take_positions(empty, np.zeros(size, np.int64), empty)
    assert duplicates_cpu.mark_first(empty, np.empty(0, np.int32), np.zeros(size, np.uint64), np.empty(0, np.uint8)) is None
