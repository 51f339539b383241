"""What an open store offers."""

import pickle
import time

import numpy as np
import psutil
import pytest
from tests.stores import ChunkedTable, build, homogeneous

from penstock.errors import MissingFieldError, UsageError
from penstock.records import EDGE, NODE
from penstock.sources.source import ArrayTable, EdgeTable, NodeTable, Source
from penstock.store import Store, check
from penstock.store import open as open_store

WRITES = ("author", "writes", "paper")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Homogeneous, with everything."""
    rng = np.random.default_rng(0)
    source = homogeneous(
        {"src": rng.integers(0, 100, 500), "dst": rng.integers(0, 100, 500), "weight": rng.random(500)},
        node_columns={"x": rng.random((100, 3)), "y": rng.integers(0, 4, 100)},
        splits={"0": {"train": np.array([5, 1, 3]), "val": np.array([7])}, "1": {"train": np.array([2])}},
    )
    return build(source, tmp_path_factory.mktemp("opened") / "store")[0]


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """Two node types, one edge type, one split."""
    source = Source(
        nodes={
            "author": NodeTable(node_type="author", num_nodes=3),
            "paper": NodeTable(node_type="paper", table=ChunkedTable({"y": np.zeros(5, np.int64)}), num_classes=9),
        },
        edges={WRITES: EdgeTable(edge_type=WRITES, table=ChunkedTable({"src": np.array([2, 0]), "dst": np.array([4, 4])}))},
        is_homogeneous=False,
        splits={"paper": {"default": {"train": np.arange(5)}}},
    )
    return build(source, tmp_path_factory.mktemp("typed") / "store")[0]


def test_edges_with_their_ends(store, typed):
    """In the order of their fields."""
    csc = store.csc()
    for node in (0, 50, 99):
        of_node = slice(csc.indptr[node], csc.indptr[node + 1])
        assert np.array_equal(store.edge_index()[0, of_node], csc.indices[of_node])
        assert (store.edge_index()[1, of_node] == node).all()
    assert store.edge_index().dtype == np.int64
    assert sorted(typed.edge_index(WRITES).T.tolist()) == [[0, 4], [2, 4]]


def test_counts_types_and_repr(store, typed):
    assert (store.node_types, store.edge_types, store.is_homogeneous) == ([NODE], [EDGE], True)
    assert (dict(store.num_nodes), dict(store.num_edges)) == ({NODE: 100}, {EDGE: 500})
    assert repr(store) == f"Store('{store.path}', nodes={{node: 100}}, edges={{node-to->node: 500}})"
    assert (typed.node_types, typed.edge_types, typed.is_homogeneous) == (["author", "paper"], [WRITES], False)
    with pytest.raises(TypeError):
        store.num_nodes[NODE] = 3


def test_graph_is_mapped_and_read_only(store):
    graph = store.graph()
    csc = graph.adjacency[EDGE]
    assert graph.num_nodes == {NODE: 100}
    assert (csc.indptr.dtype, csc.indices.dtype, csc.edge_ids.dtype) == (np.int64, np.int32, np.int32)
    assert csc.indptr is store.csc().indptr
    for array in (csc.indptr, csc.indices, csc.edge_ids, store.node_field("x")):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_fields(store, typed):
    assert store.node_field("x", NODE).shape == (100, 3)
    assert store.node_fields()["y"].properties == {"num_classes": 4}
    assert typed.node_fields("paper")["y"].properties == {"num_classes": 9}
    assert list(store.edge_fields()) == ["weight"]
    assert store.edge_field("weight", EDGE).dtype == np.float32
    assert store.node_field("x") is store.node_field("x", NODE)
    assert store.edge_field("weight") is store.edge_field("weight", list(EDGE))
    with pytest.raises(MissingFieldError, match="node type 'node' has no field 'z'; it has 'x', 'y'"):
        store.node_field("z")
    with pytest.raises(MissingFieldError, match=r"edge type .* has no field 'time'; it has 'weight'"):
        store.edge_field("time")
    with pytest.raises(MissingFieldError, match="has no node type 'venue'; it has 'author', 'paper'"):
        typed.node_fields("venue")
    with pytest.raises(MissingFieldError, match="has several node types, say which: 'author', 'paper'"):
        typed.node_fields()
    with pytest.raises(MissingFieldError, match="has no edge type"):
        typed.edge_fields(("paper", "writes", "author"))


def test_splits(store, typed):
    assert store.split_names() == ["0", "1"]
    assert store.split("train", "0").tolist() == [1, 3, 5]
    assert store.split("train", "1", NODE).tolist() == [2]
    with pytest.raises(UsageError, match="has several splits, choose one by split: '0', '1'"):
        store.split("train")
    with pytest.raises(MissingFieldError, match="split '1' has no part 'test'; it has 'train'"):
        store.split("test", "1")
    with pytest.raises(MissingFieldError, match="has no split '7'"):
        store.split("train", "7")
    assert typed.split("train").tolist() == [0, 1, 2, 3, 4]
    assert typed.split_names("author") == []
    with pytest.raises(MissingFieldError, match="node type 'author' has no split into train, val and test"):
        typed.split("train", node_type="author")


def test_pickle_and_reopen(store):
    again = pickle.loads(pickle.dumps(store))
    assert again.digest == store.digest == open_store(store.path).digest == Store.open(str(store.path)).digest


def test_a_store_is_taken_where_its_path_is(store):
    assert Store(store).path == store.path
    assert check(store, deep=True).is_ok
    with pytest.raises(TypeError):
        check(store, True)  # of what, nobody could read


def test_digest_tells_contents_apart(tmp_path):
    def digest(name, dst):
        return build(homogeneous({"src": np.array([0, 1]), "dst": np.array(dst)}, 3), tmp_path / name)[0].digest

    assert digest("a", [1, 2]) == digest("b", [1, 2]) != digest("c", [2, 1])


def test_digest_tells_apart_what_no_array_says(tmp_path):
    def digest(name, num_tags=40):
        nodes = {
            "tag": NodeTable(node_type="tag", num_nodes=num_tags),
            "pet": NodeTable(node_type="pet", table=ArrayTable({"x": np.zeros((2, 3), np.float32)}, "pets")),
        }
        edges = EdgeTable(edge_type=("tag", "of", "pet"), table=ArrayTable({"src": np.array([0, 1]), "dst": np.array([0, 1])}, "edges"))
        return build(Source(nodes=nodes, edges={("tag", "of", "pet"): edges}, is_homogeneous=False), tmp_path / name)[0].digest

    assert digest("a") == digest("b") != digest("c", num_tags=400)


def test_opening_is_fast_and_files_are_given_back(store):
    before = psutil.Process().num_fds()
    opened, seconds = [], []
    for _ in range(20):
        start = time.perf_counter()
        opened.append(Store(store.path))
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.02  # the quickest: other processes may want the processor
    assert psutil.Process().num_fds() == before + 20
    for one in opened:
        one.graph()
    del opened, one
    assert psutil.Process().num_fds() <= before
