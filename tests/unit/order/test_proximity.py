"""The proximity-aware order: nearer than random, as mixed as random, new shifts in every epoch, typed graphs, clear refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graphs import homogeneous_graph, typed_graph
from tests.train.stores import make_store

from penstock.errors import UsageError
from penstock.kernels.build_csc import reference as build
from penstock.order import ProximityOrder, RandomOrder, proximity_order
from penstock.order.communities import label_communities, put_together
from penstock.order.proximity import cut_evenly
from penstock.order.shuffling_error import MEASURED_BATCHES, read_classes, shuffling_error
from penstock.order.traversal import traverse_seeds
from penstock.order.view import view_undirected
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.workspace import Workspace
from penstock.store import open as open_store


def planted(num_communities=60, size=50, degree=6, *, seed=0, is_symmetric=True):
    """Communities of nodes with scattered ids, one edge in a hundred between them; labels say the community modulo 6."""
    random, num_nodes = np.random.default_rng(seed), num_communities * size
    community = random.permutation(num_nodes) % num_communities
    members = np.argsort(community, kind="stable").reshape(num_communities, size)
    src = np.repeat(np.arange(num_nodes), degree)
    dst = members[community[src], random.integers(0, size, src.size)]
    dst = np.where(random.random(src.size) < 0.01, random.integers(0, num_nodes, src.size), dst)
    if is_symmetric:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    indptr, indices, _ = build.build_csc(src, dst, num_nodes)
    return Graph({NODE: num_nodes}, {EDGE: CSC(indptr, indices.astype(np.int32))}, True), community % 6


def distinct_per_window(graph, seeds, order, batch_size=50, window=4):
    """Mean number of distinct input nodes of `window` consecutive batches."""
    sampler, workspace, counts, nodes = NeighborSampler(graph, [5, 3], seed=0), Workspace(graph, disjoint=False), [], []
    for index in range(order.num_batches(batch_size, True)):
        batch = {NODE: seeds[order.batch(0, index, batch_size)]}
        nodes.append(sampler.sample(batch, epoch=0, batch=index, workspace=workspace).nodes[NODE])
        if len(nodes) == window:
            counts.append(np.unique(np.concatenate(nodes)).size)
            nodes.clear()
    return np.mean(counts)


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_windows_of_batches_share_nodes(is_symmetric):
    graph, _ = planted(is_symmetric=is_symmetric)
    seeds = np.random.default_rng(1).permutation(3000)[:1500]
    by_chance = distinct_per_window(graph, seeds, RandomOrder(1500, 0))
    near = [distinct_per_window(graph, seeds, proximity_order(graph, seeds, seed=0, batch_size=50, num_sequences=k)) for k in (1, 5, 50)]
    assert near[0] < 0.6 * by_chance
    assert near[1] < 0.75 * by_chance
    assert near[2] < 0.95 * by_chance
    together = proximity_order(graph, seeds, seed=0, batch_size=50, num_sequences=5, by_community=True)
    assert distinct_per_window(graph, seeds, together) < 0.9 * near[1]


def test_labels_decide_the_number_of_sequences():
    graph, labels = planted()
    seeds = np.arange(0, 3000, 2)
    order = proximity_order(graph, seeds, labels, seed=0, batch_size=50)
    few = proximity_order(graph, seeds, labels, seed=0, batch_size=50, num_sequences=2)
    classes = read_classes(labels[seeds])
    by_chance = shuffling_error(RandomOrder(1500, 0), classes, 50)
    assert shuffling_error(order, classes, 50) <= by_chance + np.sqrt(50) / 1500
    assert shuffling_error(few, classes, 50) > 1.5 * by_chance
    assert 2 < order.num_sequences <= 50
    assert proximity_order(graph, seeds, np.zeros(3000, int), seed=0, batch_size=50).num_sequences == 1
    more_workers = proximity_order(graph, seeds, labels, seed=0, batch_size=50, num_workers=10**6)
    assert more_workers.num_sequences == 1, "the bound is then above any error"
    for missing in (None, np.full(3000, -1), np.full(3000, np.nan)):
        assert proximity_order(graph, seeds, missing, seed=0, batch_size=50).num_sequences == 50


def test_shuffling_error_of_known_orders():
    classes = np.repeat([0, 1], 100)
    assert shuffling_error(ProximityOrder(np.arange(200), cut_evenly(200, 2), 0), classes, 10) == 0
    sorted_order = ProximityOrder(np.arange(200), cut_evenly(200, 1), 0)
    sorted_order._shifts = (0, np.zeros(1, np.int64))
    assert shuffling_error(sorted_order, classes, 200) == 0
    assert 0.4 < shuffling_error(sorted_order, classes, 10) <= 0.5
    two_columns = np.stack([classes == 0, classes == 1], axis=1)
    assert shuffling_error(sorted_order, read_classes(two_columns), 10) == shuffling_error(sorted_order, classes, 10)
    assert shuffling_error(RandomOrder(5, 0), np.array([0, 1, 2, 0, 1]), 50) == pytest.approx(0)
    assert MEASURED_BATCHES >= 100


def test_classes_of_labels():
    assert read_classes(np.array([5, -1, 9, 5])).tolist() == [0, -1, 1, 0]
    assert read_classes(np.array([[5], [9]])).tolist() == [0, 1]
    assert read_classes(np.array([1.0, np.nan, 0.0])).tolist() == [1, -1, 0]
    bins = read_classes(np.linspace(0, 1, 160) ** 2)
    assert np.bincount(bins).tolist() == [10] * 16
    assert read_classes(np.full((3, 2), np.nan)) is None


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 2**32))
def test_shifts_differ_between_epochs_and_keep_neighbours(num_seeds, num_sequences, seed):
    num_sequences = min(num_sequences, num_seeds)
    offsets = cut_evenly(num_seeds, num_sequences)
    order = ProximityOrder(np.arange(num_seeds), offsets, seed)
    for epoch in (0, 1):
        whole = order.batch(epoch, 0, num_seeds)
        for k in range(num_sequences):
            taken, length = whole[k::num_sequences], offsets[k + 1] - offsets[k]
            assert (np.roll(taken, order.shifts(epoch)[k]) == np.arange(offsets[k], offsets[k] + length)).all()
    if num_seeds // num_sequences >= 2 and num_sequences > 40:
        assert (order.shifts(0) != order.shifts(1)).any()


def test_shifts_are_uniform():
    order = ProximityOrder(np.arange(800), cut_evenly(800, 100), 3)
    counts = np.bincount(np.concatenate([order.shifts(epoch) for epoch in range(80)]), minlength=8)
    assert counts.size == 8
    assert abs(counts - 1000).max() < 150


@pytest.mark.parametrize("seed_type", ["author", "paper", "venue"])
def test_typed_graphs(seed_type):
    graph = typed_graph(np.random.default_rng(0))
    seeds = np.random.default_rng(1).permutation(graph.num_nodes[seed_type])
    order = proximity_order(graph, (seed_type, seeds), seed=0, batch_size=16)
    fed = np.concatenate([order.batch(0, index, 16) for index in range(order.num_batches(16, False))])
    assert sorted(fed.tolist()) == list(range(seeds.size))


def test_typed_neighbours_stay_together():
    """Papers of one author, each connected with nothing else: reached one after another, by edges of both directions."""
    author_of = np.random.default_rng(0).permutation(400) // 20
    indptr, indices, _ = build.build_csc(author_of, np.arange(400), 400)
    graph = Graph({"paper": 400, "author": 20}, {("author", "writes", "paper"): CSC(indptr, indices)}, False)
    positions = traverse_seeds(view_undirected(graph), "paper", np.arange(400), 7)
    assert (author_of[positions].reshape(20, 20) == author_of[positions][::20, None]).all()
    assert positions[0] == 7


def test_repeated_seeds_and_graphs_without_edges():
    random = np.random.default_rng(0)
    seeds = random.integers(0, 100, 300)
    for graph in (homogeneous_graph(random, 100, 300), homogeneous_graph(random, 100, 0), Graph({NODE: 100}, {}, True)):
        positions = traverse_seeds(view_undirected(graph), NODE, seeds, 3)
        assert sorted(positions.tolist()) == list(range(300))
        changes = 1 + int((np.diff(seeds[positions]) != 0).sum())
        assert changes == np.unique(seeds).size, "equal seeds follow each other"


def test_communities_are_found_and_kept_together():
    graph, _ = planted()
    view = view_undirected(graph)
    assert view.out_nodes.size == 0, "every edge has its reverse"
    labels = label_communities(view)
    members = np.unique(labels, return_counts=True)[1]
    assert 55 < members.size < 130
    assert members.max() <= 256
    positions = put_together(np.random.default_rng(0).permutation(3000), labels)
    assert sorted(positions.tolist()) == list(range(3000))
    assert 1 + (np.diff(labels[positions]) != 0).sum() == members.size
    assert put_together(np.array([3, 0, 2, 1]), np.array([7, 7, 9, 9])).tolist() == [3, 2, 0, 1]


def test_a_store_in_one_call(tmp_path):
    path = make_store(tmp_path / "store").path
    store = open_store(path)
    order, seeds = proximity_order(store, "train", seed=1, batch_size=20), store.split("train")
    again = proximity_order(store.graph(), (NODE, seeds), store.node_field("y", NODE), seed=1, batch_size=20)
    assert order.name == again.name
    assert order.num_seeds == seeds.size


def test_the_seed_decides_the_root():
    graph, _ = planted()
    names = {proximity_order(graph, np.arange(3000), seed=seed, batch_size=50).sequences.tobytes() for seed in (0, 1, 2, 2)}
    assert len(names) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": np.array([], int)}, "seeds is empty"),
        ({"seeds": np.array([0, 500])}, r"1 of 2 seeds lie outside \[0, 500\); first is seeds\[1\] = 500"),
        ({"seeds": np.array([0.5])}, "vector of node ids, got float64"),
        ({"seeds": ("papers", [1])}, "'papers' is not a node type"),
        ({"seeds": "train"}, "names a part of a store"),
        ({"labels": np.zeros(3)}, "a row per node of 'node': 500, got 3"),
        ({"num_sequences": 0}, r"\[1, number of seeds = 10\], got 0"),
        ({"num_sequences": 11}, "got 11"),
    ],
)
def test_refusals(arguments, message):
    graph = homogeneous_graph(np.random.default_rng(0))
    with pytest.raises(UsageError, match=message):
        proximity_order(graph, **{"seeds": np.arange(10), "seed": 0, "batch_size": 4, **arguments})


def test_sequences_that_are_none():
    with pytest.raises(UsageError, match="every position"):
        ProximityOrder(np.array([0, 0, 1]), cut_evenly(3, 1), 0)
    with pytest.raises(UsageError, match="cut_evenly"):
        ProximityOrder(np.arange(3), np.array([0, 1, 3]), 0)
    with pytest.raises(UsageError, match="must name a node type"):
        proximity_order(typed_graph(np.random.default_rng(0)), np.arange(3), seed=0, batch_size=4)
