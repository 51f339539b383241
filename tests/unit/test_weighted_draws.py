"""Proof that draws by weight have the probabilities of their weights: chi-square tests, exact enumeration, extreme weights.

`tests/unit/test_p_values.py` runs CASES.
"""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from penstock import rng
from penstock.kernels.sample_weighted import cpu
from penstock.records import CSC, EDGE
from penstock.sample import NeighborSampler
from penstock.sample.weights import Weights, weigh, with_weights
from tests.graphs import star
from tests.unit.p_values import SMALLEST_P, positions_of_hub

NUM_BANDS = 32


def sums_of(weights):
    """One list with its running sums."""
    return weigh(EDGE, CSC(np.array([0, len(weights)]), np.zeros(len(weights), np.int32)), Weights(np.asarray(weights, dtype=np.float64)))


def draw(csc, fanout, count, *, replace, seed=0):
    """Slots that `count` independent copies of one node draw: int64[count, fanout]; -1 where nothing was left."""
    key, nodes, copies = rng.derive_key(seed, 0, rng.SAMPLE), np.zeros(count, np.int64), np.arange(count)
    sizes, width = cpu.scratch_sizes(fanout), fanout if fanout > 0 else csc.num_edges
    scratch = np.empty(sizes[0], np.int64), np.empty(sizes[1], np.uint32)
    row_ptr, slots = np.zeros(count + 1, np.int64), np.empty(count * width, np.int64)
    taken = cpu.sample_neighbors(
        csc.indptr, None, csc.sums, csc.guide, 1, nodes, fanout, replace, key, 0, 0, 0, copies, *scratch, row_ptr, slots, slots
    )  # fmt: skip
    found = np.full((count, width), -1)
    counts = np.diff(row_ptr)
    found[np.repeat(np.arange(count), counts), np.arange(taken) - np.repeat(row_ptr[:-1], counts)] = slots[:taken]
    return found


def make_weights(kind, degree, seed):
    """Weights of a list, some of them 0."""
    random = np.random.default_rng(seed)
    weights = {
        "equal": lambda: np.ones(degree),
        "uniform": lambda: random.random(degree),
        "power law": lambda: random.pareto(1.0, degree),
        "very skewed": lambda: random.pareto(0.4, degree),
        "small integers": lambda: random.integers(0, 4, degree),
    }[kind]()
    return np.where(np.arange(degree) % 7 == 3, 0, weights)


def bands_of(weights):
    """Band of each slot: at most NUM_BANDS, about equally heavy, in the order of the list."""
    middle = np.cumsum(weights) - weights / 2
    return np.unique((middle / weights.sum() * NUM_BANDS).astype(np.int64), return_inverse=True)[1]


def p_in_bins(counts, expected):
    """Chi-square over bins that are expected ten times or more, the others put together with the rarest of those."""
    often = expected >= 10
    place = np.cumsum(often) - 1
    rare = place[np.argmin(np.where(often, expected, np.inf))]
    place = np.where(often, place, rare)
    counts, expected = np.bincount(place, counts), np.bincount(place, expected)
    return stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue


def p_of_draws(weights, fanout, seed, *, replace):
    """Bands of single draws, with replacement of all, without of the first."""
    weights = np.asarray(weights, dtype=np.float64)
    slots, bands = draw(sums_of(weights), fanout, max(8000, 200_000 // fanout), replace=replace, seed=seed), bands_of(weights)
    slots = slots if replace else slots[:, 0]
    expected = np.bincount(bands, weights) / weights.sum() * slots.size
    heavy = expected > 0
    counts = np.bincount(bands[slots.reshape(-1)], minlength=heavy.size)
    assert not counts[~heavy].any()
    return p_in_bins(counts[heavy], expected[heavy])


def p_of_second_draw(weights, fanout, seed):
    """Without replacement, bands of the first and second, against their exact probabilities."""
    weights = np.asarray(weights, dtype=np.float64)
    shares, bands, count = weights / weights.sum(), bands_of(weights), 40_000 if fanout < 10 else 10_000
    bands = bands // 4 if bands.max() > 7 else bands
    num_bands = int(bands.max()) + 1
    first, second, *_ = draw(sums_of(weights), fanout, count, replace=False, seed=seed).T
    odds = shares / (1 - shares)
    expected = np.outer(np.bincount(bands, odds), np.bincount(bands, shares)) - np.diag(np.bincount(bands, odds * shares))
    counts = np.bincount(bands[first] * num_bands + bands[second], minlength=num_bands**2)
    return p_in_bins(counts, expected.reshape(-1) * count)


def p_of_sequences(weights, fanout, seed):
    """Without replacement, every sequence of draws from a small list against its exact probability."""
    probability = {}
    for sequence in permutations(np.flatnonzero(weights).tolist(), fanout):
        left, product = sum(weights), 1.0
        for slot in sequence:
            product *= weights[slot] / left
            left -= weights[slot]
        probability[sequence] = product
    assert sum(probability.values()) == pytest.approx(1)
    count = 60 * len(probability) + 60_000
    slots = draw(sums_of(weights), fanout, count, replace=False, seed=seed)
    number = {sequence: i for i, sequence in enumerate(probability)}
    counts = np.bincount([number[tuple(row)] for row in slots.tolist()], minlength=len(number))
    return p_in_bins(counts, np.array(list(probability.values())) * count)


KINDS = ["equal", "uniform", "power law", "very skewed", "small integers"]
DEGREES = [10, 64, 1000, 20_000, 300_007]
SMALL = [(1, 2), (1, 1, 1), (5, 1, 0, 3), (1, 2, 3, 4), (100, 1, 1, 1), (0.25, 8, 1, 1, 3), (1, 1e-3, 5, 0, 2, 7)]
CASES = (
    [
        (f"{kind}, degree {d}, {k} with replacement", lambda s, a=kind, d=d, k=k: p_of_draws(make_weights(a, d, d), k, s, replace=True))
        for kind in KINDS
        for d in DEGREES
        for k in (1, 15)
    ]
    + [
        (f"{kind}, degree {d}, first of {k}", lambda s, a=kind, d=d, k=k: p_of_draws(make_weights(a, d, d), k, s, replace=False))
        for kind in KINDS
        for d in DEGREES
        for k in (5, 70)
        if k < d
    ]
    + [
        (f"{kind}, degree {d}, second of {k}", lambda s, a=kind, d=d, k=k: p_of_second_draw(make_weights(a, d, d), k, s))
        for kind in KINDS
        for d in DEGREES
        for k in (2, 70)
        if k < d
    ]
    + [
        (f"sequences of {k} of {weights}", lambda s, w=weights, k=k: p_of_sequences(w, k, s))
        for weights in SMALL
        for k in range(1, min(len(weights), np.count_nonzero(weights) + 1))
    ]
)


def wrong():
    """Two ways of doing it wrong: renormalised weights that forget what was taken, and the k smallest exponentials of the wrong rate."""
    weights, count = np.array([5.0, 1, 3, 1]), 60_000
    random, expected = np.random.default_rng(0), {}
    for first, second in permutations(range(4), 2):
        expected[first, second] = weights[first] / 10 * weights[second] / (10 - weights[first]) * count
    rejected_once = random.choice(4, (count, 2), p=weights / 10)
    again = rejected_once[:, 0] == rejected_once[:, 1]
    rejected_once[again, 1] = (rejected_once[again, 0] + random.integers(1, 4, again.sum())) % 4
    uniform_keys = np.argsort(random.random((count, 4)) / weights, axis=1)[:, :2]
    for drawn in (rejected_once, uniform_keys):
        counts = [np.count_nonzero((drawn == pair).all(axis=1)) for pair in expected]
        yield stats.chisquare(counts, list(expected.values())).pvalue


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [2, 70])
def test_extreme_weights(fanout, replace):
    """Quotients beyond the range of the integers: the heavy edge always comes first; among the light ones nothing is preferred."""
    count, degree = 20_000, 3 if fanout == 2 else 100
    light = [1e-30] * degree
    heavy = [*light[:1], 1e30, *light[2:]]
    slots = draw(sums_of(heavy), fanout, count, replace=replace)
    if replace:
        assert (slots == 1).all()
        return
    assert (slots[:, 0] == 1).all()
    assert (np.diff(np.sort(slots, axis=1), axis=1) > 0).all()
    counts = np.delete(np.bincount(slots[:, 1], minlength=degree), 1)
    assert stats.chisquare(counts).pvalue > SMALLEST_P


def test_zeros():
    for fanout in (1, 2, 70):
        for replace in (False, True):
            assert (draw(sums_of([0.0] * 100), fanout, 5, replace=replace) == -1).all()
            one = draw(sums_of([0.0] * 50 + [1e-300] + [0.0] * 49), fanout, 5, replace=replace)
            assert (one[:, 0] == 50).all()
            assert (one[:, 1:] == (50 if replace else -1)).all()
    few = draw(sums_of([1, 0, 2, 0, 0, 4]), 5, 100, replace=False)
    assert {tuple(sorted(row)) for row in few.tolist()} == {(-1, -1, 0, 2, 5)}, "all of positive weight, and nothing else"
    assert len({tuple(row) for row in few.tolist()}) > 1, "in the order drawn"
    for fanout in (-1, 6, 9):
        assert draw(sums_of([1, 0, 2, 0, 0, 4]), fanout, 3, replace=False)[:, :3].tolist() == [[0, 2, 5]] * 3, "ascending where all fit"
    assert draw(sums_of([1, 0, 2]), -1, 1, replace=True)[:, :2].tolist() == [[0, 2]]


def test_a_hub_through_the_sampler():
    """By weight through the public sampler, over batches and epochs; a hub whose weights rise along its list."""
    degree = 10_007
    weights = np.arange(degree, dtype=np.float32)
    sampler = NeighborSampler(with_weights(star(degree), {EDGE: Weights(weights)}), [5], replace=True, seed=4)
    bands = bands_of(weights.astype(np.float64))
    counts = np.bincount(bands[positions_of_hub(sampler, 4, 500)], minlength=NUM_BANDS)
    assert stats.chisquare(counts, np.bincount(bands, weights) / weights.sum(dtype=np.float64) * 10_000).pvalue > SMALLEST_P
