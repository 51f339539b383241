"""Proof that samples are uniform and independent: chi-square tests, pairwise inclusion, exact enumeration.

`tests/unit/test_p_values.py` runs CASES.
"""

import numpy as np
import pytest
from scipy import stats

from penstock import rng
from penstock.kernels.sample_neighbors import cpu
from penstock.sample import NeighborSampler
from tests.graphs import star, typed_graph
from tests.unit.p_values import SMALLEST_P, p_of_slots, p_of_subsets, p_of_table, positions_of_hub, subsets_of

SCRATCH = np.empty(cpu.SCRATCH_OFFSETS, np.int64), np.empty(cpu.SCRATCH_WORDS, np.uint32)


def draw(degree, fanout, count, *, replace, seed=0, epoch=0, hop=0, edge_type=0, batches=1):
    """Slots drawn by one node of `degree`, int64[count, fanout]: `count` independent copies, or one in each of `count` batches."""
    indptr, indices = np.array([0, degree]), np.zeros(degree, np.int32)
    key = rng.derive_key(seed, epoch, rng.SAMPLE)
    bitmap = np.zeros((degree + 63) // 64, np.uint64)
    per_batch = count // batches
    slots = np.empty(count * fanout, np.int64)
    for batch in range(batches):
        nodes, copies = np.zeros(per_batch, np.int64), np.arange(per_batch)
        row_ptr = np.zeros(per_batch + 1, np.int64)
        out = slots[batch * per_batch * fanout :]
        neighbors = np.empty(per_batch * fanout, np.int32)
        cpu.sample_neighbors(
            indptr, indices, 1, nodes, fanout, replace, key, batch, hop, edge_type, copies, *SCRATCH, bitmap, row_ptr, out, neighbors
        )
    return slots.reshape(count, fanout)


def p_of_neighbors(degree, fanout, seed, *, replace):
    """Single neighbours, or bands of a long list."""
    slots = draw(degree, fanout, max(4000, 640_000 // fanout), replace=replace, seed=seed)
    return p_of_slots(slots, degree, fanout=1 if replace else fanout)


def p_of_draws(degree, fanout, seed):
    """Without replacement every subset of a small list is equally likely."""
    return p_of_subsets(draw(degree, fanout, 400 * len(subsets_of(degree, fanout)), replace=False, seed=seed), degree)


def p_of_pairs(degree, fanout, seed):
    """Without replacement two given neighbours come together as often as they should: the rarest count of all pairs.

    On long lists, of the pairs among 300 neighbours spread over the list.
    """
    count, watched = 40_000, np.linspace(0, degree - 1, min(degree, 300)).astype(np.int64)
    slots = draw(degree, fanout, count, replace=False, seed=seed)
    column = np.full(degree, watched.size)
    column[watched] = np.arange(watched.size)
    taken = np.zeros((count, watched.size + 1), np.float32)
    np.put_along_axis(taken, column[slots], 1, axis=1)
    together = (taken.T @ taken)[np.triu_indices(watched.size, 1)]
    share = fanout * (fanout - 1) / (degree * (degree - 1))
    tails = stats.binom.sf(together.max() - 1, count, share), stats.binom.cdf(together.min(), count, share)
    return min(1.0, 2 * min(tails) * together.size)


def p_between(seed, what):
    """Draws of the same node that differ in one part of the counter only are independent."""
    degree, count = 8, 6400
    one = draw(degree, 2, count, replace=True, seed=seed)
    if what == "draws":
        return p_of_table(one[:, 0], one[:, 1], degree)
    if what == "copies":
        return p_of_table(one[:-1, 0], one[1:, 0], degree)
    if what == "batches":
        many = draw(degree, 2, count, replace=True, seed=seed, batches=count)
        return p_of_table(many[:-1, 0], many[1:, 0], degree)
    other = {"hops": {"hop": 1}, "edge types": {"edge_type": 1}, "epochs": {"epoch": 1}, "seeds": {}}[what]
    two = draw(degree, 2, count, replace=True, seed=seed + (1 << 20 if what == "seeds" else 0), **other)
    return p_of_table(one[:, 0], two[:, 0], degree)


# Degrees: small, middle, just below and above the change to 64-bit draws, hubs; 32,768 divides 2**16, 60,000 and 10,007 do not.
DEGREES = [3, 10, 64, 1000, 4095, 4096, 10_007, 20_000, 32_768, 60_000, 1_000_003]
CASES = (
    [
        (f"neighbours, degree {d}, {k} with replacement", lambda s, d=d, k=k: p_of_neighbors(d, k, s, replace=True))
        for d in DEGREES
        for k in (5, 15)
    ]
    + [
        (f"neighbours, degree {d}, {k} without replacement", lambda s, d=d, k=k: p_of_neighbors(d, k, s, replace=False))
        for d in DEGREES
        for k in (2, 15, 100)
        if k < d
    ]
    + [(f"all {k}-subsets of {n}", lambda s, n=n, k=k: p_of_draws(n, k, s)) for n in (2, 3, 4, 5, 6) for k in range(1, n)]
    + [(f"pairs of {n}, {k} drawn", lambda s, n=n, k=k: p_of_pairs(n, k, s)) for n, k in ((20, 5), (40, 15), (90, 70), (4200, 100))]
    + [
        (f"independent {what}", lambda s, what=what: p_between(s, what))
        for what in ("draws", "copies", "batches", "hops", "edge types", "epochs", "seeds")
    ]
)


def wrong():
    """The bias that a modulo over 16 random bits has at degree 10,007, and a sampler that never takes the last neighbour."""
    random = np.random.default_rng(0)
    return p_of_slots(random.integers(0, 1 << 16, 640_000) % 10_007, 10_007), p_of_slots(random.integers(0, 63, 640_000), 64)


@pytest.mark.parametrize("degree", [10_007, 60_000])
def test_hub_through_the_sampler(degree):
    """The same through the public sampler, over batches and epochs."""
    assert p_of_slots(positions_of_hub(NeighborSampler(star(degree), [15], seed=4), 4, 2500), degree) > SMALLEST_P


def test_second_hop_is_uniform_given_the_first():
    """Nodes reached over two hops of a regular graph come up equally often per edge type."""
    graph = typed_graph(np.random.default_rng(3))
    sampler = NeighborSampler(graph, [3, 2], seed=5)
    workspace = sampler.workspace()
    edge_type = ("author", "writes", "paper")
    csc = graph.adjacency[edge_type]
    hub = int(np.argmax(np.diff(csc.indptr)))
    start, degree = int(csc.indptr[hub]), int(csc.indptr[hub + 1] - csc.indptr[hub])
    counts = np.zeros(degree)
    for batch in range(8000):
        edges = sampler.sample({"paper": np.array([hub])}, epoch=0, batch=batch, workspace=workspace).edges[edge_type]
        counts[edges.positions[edges.row_ptr[0] : edges.row_ptr[1]] - start] += 1
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum() * (degree - 1) / (degree - 3)
    assert stats.chi2.sf(statistic, degree - 1) > SMALLEST_P
