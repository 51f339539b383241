"""What keeping a list saves is judged by other batches than those that it was ranked by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.visited import FEW, OTHER_BYTES, VisitedLists, reliable
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


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_is_for_those_that_were_not_visited(seed):
    random = np.random.default_rng(seed)
    graphs, visits, lengths = {}, {}, {}
    for name, num_dst in (("a", 500), ("b", 0), ("c", 700)):
        edge_type = ("x", "to", name)
        lengths[edge_type] = random.integers(0, 4, num_dst)
        indptr = np.concatenate([[0], np.cumsum(lengths[edge_type])])
        graphs[edge_type] = CSC(indptr, np.zeros(int(indptr[-1]), np.int32), None)
        visits[edge_type] = (random.random(num_dst) < 0.3).astype(np.uint8)
    lists = VisitedLists(visits, graphs)
    whole = sum(4 * int(each.sum()) for each in lengths.values()) + OTHER_BYTES * 1200
    for num_bytes in (lists.num_bytes - 1, lists.num_bytes, lists.num_bytes + 1000, lists.num_bytes + 9000, whole):
        kept, taken = lists.keep(num_bytes), 0
        for edge_type, nodes in kept.items():
            assert np.unique(nodes).size == nodes.size
            assert (lengths[edge_type][nodes] > 0).all()
            is_other = visits[edge_type][nodes] == 0
            assert not is_other.any() or is_other[int(np.argmax(is_other)) :].all()  # visited ones first
            taken += 4 * int(lengths[edge_type][nodes].sum()) + OTHER_BYTES * int(is_other.sum())
        assert taken <= num_bytes
        assert num_bytes - taken < 4 * 3 + OTHER_BYTES or num_bytes == whole
    assert {e: np.sort(nodes).tolist() for e, nodes in kept.items()} == {e: np.flatnonzero(each).tolist() for e, each in lengths.items()}


def test_more_types_of_edges_than_a_byte_counts():
    csc = CSC(np.array([0, 1, 3]), np.zeros(3, np.int32), None)
    graphs = {("x", str(number), "y"): csc for number in range(300)}
    visits = {e: np.zeros(2, np.uint8) for e in graphs}
    visits["x", "44", "y"][1], visits["x", "299", "y"][0] = 1, 9
    kept = VisitedLists(visits, graphs).keep(4 + 8)
    assert {e[1]: nodes.tolist() for e, nodes in kept.items() if nodes.size} == {"44": [1], "299": [0]}


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
        kept = kept[seen[kept] > 0]  # what is left for others is nobody's forecast
        missed = int(later.sum(dtype=np.int64) - later[kept].sum(dtype=np.int64))
        told = int(seen.sum(dtype=np.int64) - seen[kept].sum(dtype=np.int64))
        assert lists.misses(num_bytes) == pytest.approx(missed, rel=0.15)
        assert told < 0.9 * missed  # what the counts themselves say: nothing at all is missed of a half
