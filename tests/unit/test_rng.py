"""Philox against the published vectors, keys and bounded draws."""

import numpy as np
import pytest

from penstock import rng
from penstock.errors import UsageError

# Random123 1.14, kat_vectors, philox4x32 10: counter, key, result.
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [np.uint64(int(word, 16)) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_published_vectors(counter, key, expected):
    assert list(rng.philox(*words(counter), *words(key))) == words(expected)


def test_arrays_and_scalars_agree():
    counters = np.random.default_rng(0).integers(0, 1 << 32, (50, 4), dtype=np.uint64)
    columns = rng.philox(*counters.T, np.uint64(7), np.uint64(9))
    for i, row in enumerate(counters):
        assert [int(column[i]) for column in columns] == [int(word) for word in rng.philox(*row, np.uint64(7), np.uint64(9))]


def test_keys_of_neighbouring_seeds_epochs_and_domains_differ():
    keys = {tuple(rng.derive_key(seed, epoch, domain)) for seed in range(8) for epoch in range(8) for domain in range(4)}
    assert len(keys) == 256
    assert tuple(rng.derive_key(1, 2, 0)) != tuple(rng.derive_key(2, 1, 0))
    assert tuple(rng.derive_key(1 << 40, 0, 0)) != tuple(rng.derive_key(1 << 41, 0, 0))


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_seed_out_of_range(seed):
    with pytest.raises(UsageError, match="seed must lie in"):
        rng.derive_key(seed, 0, 0)


def test_bounded_draws_are_exact():
    random = np.random.default_rng(1)
    for bound in [1, 2, 3, 4095, 4096, 65_537, (1 << 32) - 1, 1 << 32]:
        for high, low in random.integers(0, 1 << 32, (20, 2), dtype=np.uint64):
            assert int(rng.below_narrow(high, np.uint64(bound))) == int(high) * bound >> 32
            assert int(rng.below_wide(high, low, np.uint64(bound))) == (int(high) << 32 | int(low)) * bound >> 64


def test_draws_below_a_sum_are_exact():
    random = np.random.default_rng(1)
    for bound in [1, 3, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, (1 << 53) - 111, (1 << 62) - 1, 1 << 62]:
        drawn = [*random.integers(0, 1 << 32, (40, 3), dtype=np.uint64), np.full(3, (1 << 32) - 1, np.uint64), np.zeros(3, np.uint64)]
        for w0, w1, w2 in drawn:
            assert int(rng.below_sum(w0, w1, w2, np.uint64(bound))) == (int(w0) << 64 | int(w1) << 32 | int(w2)) * bound >> 96


def test_bias_of_bounded_draws():
    """Relative bias of the likeliest value: ceil(2**bits / n) / (2**bits / n) - 1 <= n / 2**bits."""
    for bound in (rng.WIDE_BOUND - 1, 3000):
        assert -(-(1 << 32) // bound) * bound / (1 << 32) - 1 <= 2.0**-20
    for bound in (rng.WIDE_BOUND, (1 << 32) - 1):
        assert -(-(1 << 64) // bound) * bound / (1 << 64) - 1 <= 2.0**-31


def test_counters_do_not_collide():
    fields = [(5, 0, 0, 0, 0), (5 + (1 << 32), 0, 0, 0, 0), (5, 1, 0, 0, 0), (5, 0, 1, 0, 0), (5, 0, 0, 1, 0), (5, 0, 0, 0, 1)]
    fields += [(5, 0, 0, 0, 1 << 12), (5, 4095, 15, 0, (1 << 20) - 1), (5, 4095, 15, (1 << 32) - 1, 0), ((1 << 40) - 1, 0, 0, 0, 0)]
    counters = {tuple(int(word) for word in rng.sample_counter(*field)) for field in fields}
    assert len(counters) == len(fields)
    assert all(0 <= word < 1 << 32 for counter in counters for word in counter)


def test_fractions_are_no_seeds():
    for seed, epoch in ((1.5, 0), (1, 2.5)):
        with pytest.raises(TypeError):
            rng.derive_key(seed, epoch, rng.SAMPLE)
    assert rng.derive_key(np.int64(1), np.uint8(2), rng.SAMPLE).tolist() == rng.derive_key(1, 2, rng.SAMPLE).tolist()
