"""The generators' kernels against their references, byte for byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import rng
from penstock.kernels.kronecker import cpu as kronecker_cpu
from penstock.kernels.kronecker import reference as kronecker_reference
from penstock.kernels.noise_rows import cpu as noise_cpu
from penstock.kernels.noise_rows import reference as noise_reference
from penstock.kernels.random_words import cpu as words_cpu
from penstock.kernels.random_words import reference as words_reference
from penstock.kernels.rmat import cpu as rmat_cpu
from penstock.kernels.rmat import reference as rmat_reference
from penstock.kernels.shuffle_ids import cpu as shuffle_cpu
from penstock.kernels.shuffle_ids import reference as shuffle_reference
from tests.graphs import assert_same_bytes, poisoned

SEEDS = st.integers(0, 2**32 - 1)


def key_of(seed):
    return rng.derive_key(seed, 0, rng.GENERATE)


@given(SEEDS, st.integers(0, 2**62), st.integers(0, 200), st.integers(0, 2**32 - 1), st.integers(0, 9))
def test_random_words(seed, first, count, stream, block):
    out = poisoned(4 * count, np.uint64).reshape(4, count)
    words_cpu.random_words(key_of(seed), first, count, stream, block, *out)
    assert_same_bytes(out, words_reference.random_words(key_of(seed), first, count, stream, block))
    if block == 0:
        assert_same_bytes(out, np.ascontiguousarray(rng.random_words(key_of(seed), first, count, stream).T))


@given(SEEDS, st.one_of(st.integers(1, 300), st.integers(1, 2**40), st.sampled_from([2**i + d for i in range(1, 40) for d in (-1, 0, 1)])))
def test_shuffle_ids(seed, num_ids):
    ids = np.unique(np.random.default_rng(seed).integers(0, num_ids, 100))
    keys = rng.random_words(key_of(seed), 0, 4)[:, 0].copy()
    half = shuffle_reference.half_bits(num_ids)
    out = ids.copy()
    shuffle_cpu.shuffle_ids(out, num_ids, half, keys)
    assert_same_bytes(out, np.array([shuffle_reference.shuffle_id(int(i), num_ids, keys) for i in ids], dtype=np.int64))
    assert np.unique(out).size == ids.size
    assert out.min() >= 0
    assert out.max() < num_ids
    back = [shuffle_reference.unshuffle_id(int(i), num_ids, keys) for i in out[:20]]
    shuffle_cpu.unshuffle_ids(out, num_ids, half, keys)
    assert_same_bytes(out, ids)
    assert back == ids[:20].tolist()


@given(
    SEEDS,
    st.one_of(st.integers(1, 70), st.integers(1, 2**40)),
    st.sampled_from([(0.57, 0.19, 0.19, 0.05), (0.25, 0.25, 0.25, 0.25), (1.0, 0.0, 0.0, 0.0), (0.4, 0.0, 0.3, 0.3)]),
    st.integers(0, 2**40),
)
def test_rmat(seed, num_nodes, quadrants, first):
    key, table, count = key_of(seed), rmat_reference.alias_table(quadrants), 50
    num_levels = (num_nodes - 1).bit_length()
    num_groups = -(-num_levels // 4)
    words = [words_reference.random_words(key, first, count, 3, block) for block in range(-(-num_groups // 4))]
    flat = np.concatenate([np.empty((0, count), np.uint64), *words]).ravel()
    out = poisoned(count), poisoned(count)
    rmat_cpu.rmat_edges(flat, first, key, 3, table, num_levels, num_nodes, *out)
    edges = [rmat_reference.rmat_edge(i, key, 3, table, num_levels, num_nodes) for i in range(first, first + count)]
    assert_same_bytes(np.stack(out, axis=1), np.array(edges, dtype=np.int64))


def test_alias_table_holds_the_probabilities():
    quadrants = np.array([0.57, 0.19, 0.19, 0.05])
    table = rmat_reference.alias_table(quadrants)
    parts = np.zeros(256, dtype=np.int64)
    np.add.at(parts, (table & 0xFF).astype(int), (table >> 16).astype(np.int64))
    np.add.at(parts, (table >> 8 & 0xFF).astype(int), (1 << 24) - (table >> 16).astype(np.int64))
    expected = [
        np.prod([quadrants[2 * (outcome >> (4 + level) & 1) + (outcome >> level & 1)] for level in range(4)]) for outcome in range(256)
    ]
    np.testing.assert_allclose(parts / 2**32, expected, atol=2**-23)


@given(SEEDS, st.integers(0, 2**40), st.integers(0, 12), st.integers(1, 70), st.floats(0, 4, width=32))
def test_noise_rows(seed, first, num_rows, num_columns, scale):
    random = np.random.default_rng(seed)
    centers = random.standard_normal((5, num_columns)).astype(np.float32)
    classes = random.integers(0, 5, num_rows)
    expected = noise_reference.noise_rows(key_of(seed), first, 2, scale, centers, classes)
    out, words = poisoned(num_rows * num_columns, np.float32), poisoned(-(-num_columns // 4) * 4, np.uint32)
    noise_cpu.noise_rows(key_of(seed), first, 2, np.float32(scale), centers.ravel(), classes, num_columns, words, out)
    assert_same_bytes(out.reshape(num_rows, num_columns), expected)


@pytest.mark.parametrize("tile", [1, 7, 64])
@given(seed=SEEDS, num_copies=st.integers(1, 6), num_nodes=st.sampled_from([1, 3, 50, 2**33]))
def test_kronecker(tile, seed, num_copies, num_nodes):
    random = np.random.default_rng(seed)
    sources, destinations = random.integers(0, num_nodes, (2, 40))
    thresholds = random.integers(0, 2**32, (num_copies, num_copies)).astype(np.uint64)
    thresholds = np.maximum(thresholds, thresholds.T)
    np.fill_diagonal(thresholds, kronecker_reference.CERTAIN)
    expected = kronecker_reference.kronecker_edges(sources, destinations, num_nodes, thresholds, key_of(seed))
    num_places = num_copies**2
    words = poisoned(-(-num_places // 4) * 4 * tile, np.uint32)
    out = poisoned(40 * num_places + 1), poisoned(40 * num_places + 1)
    made = kronecker_cpu.kronecker_edges(sources, destinations, num_nodes, num_copies, thresholds.ravel(), key_of(seed), tile, words, *out)
    for ours, theirs in zip(out, expected, strict=True):
        assert_same_bytes(ours[:made], theirs)
