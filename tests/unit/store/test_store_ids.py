"""The user's ids: sorted in little memory, found again, and refused where they are wrong."""

from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stores import ChunkedTable, build, homogeneous

from penstock.errors import InputError, MissingFieldError, NodeIdError
from penstock.records import NODE
from penstock.sources.source import EdgeTable, NodeTable, Source
from penstock.store import ids as ids_module
from penstock.store.files import Scratch
from penstock.store.ids import SeenIds, Strings, as_arrow, from_arrow, hash_ids, read_ids
from penstock.store.ingestion import idtable
from penstock.store.ingestion.idsort import FAN_IN, DistinctIds, Integers, Texts


@given(st.lists(st.lists(st.integers(-50, 50), max_size=40), max_size=60), st.sampled_from([8, 64, 100_000]))
def test_distinct_integers(tmp_path_factory, batches, max_bytes):
    distinct = DistinctIds(Integers(), Scratch(tmp_path_factory.getbasetemp()), max_bytes)
    for batch in batches:
        distinct.add(np.array(batch, np.int64))
    found = np.concatenate([np.empty(0, np.int64), *distinct.finish()])
    np.testing.assert_array_equal(found, np.unique(np.array(list(chain.from_iterable(batches)), np.int64)))


@given(st.lists(st.lists(st.text("ab\u00e9", max_size=4), max_size=20), max_size=60), st.sampled_from([8, 64, 100_000]))
def test_distinct_strings(tmp_path_factory, batches, max_bytes):
    distinct = DistinctIds(Texts(), Scratch(tmp_path_factory.getbasetemp()), max_bytes)
    for batch in batches:
        distinct.add(pa.array(batch, type=pa.large_string()))
    found = [text for batch in distinct.finish() for text in batch.to_pylist()]
    assert found == sorted(set(list(chain.from_iterable(batches))), key=str.encode)


def test_many_runs_are_merged_level_by_level(tmp_path):
    random = np.random.default_rng(0)
    ids = random.integers(0, 10**6, 200_000)
    distinct = DistinctIds(Integers(), Scratch(tmp_path), 2000)
    for batch in np.array_split(ids, 1000):
        distinct.add(batch)
    assert all(len(level) < FAN_IN for level in distinct._levels)
    assert len(distinct._levels) > 2
    np.testing.assert_array_equal(np.concatenate(list(distinct.finish())), np.unique(ids))


@pytest.mark.parametrize("max_bytes", [1, 20_000, 1 << 20])
def test_seen_ids_let_every_id_through_at_least_once(max_bytes):
    random, seen, through = np.random.default_rng(0), SeenIds(max_bytes), []
    for _ in range(30):
        batch = random.integers(0, 2000, 500)
        fresh = seen.fresh(batch)
        assert np.unique(batch[fresh]).size == fresh.sum()
        through.append(batch[fresh])
    through = np.concatenate(through)
    assert set(through) == set(range(2000))
    if max_bytes == 1 << 20:
        assert through.size == 2000


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_every_arrow_kind_of_string(kind):
    texts = ["b", "", "a much longer string than twelve bytes", "\u4e16"] * 5
    array = pa.array(texts, type=pa.string()).cast(kind)
    for piece, expected in ((array, texts), (array.slice(3, 9), texts[3:12]), (pa.chunked_array([array, array]), texts * 2)):
        batch = from_arrow(as_arrow(piece))
        assert [batch[i] for i in range(len(batch))] == expected
        np.testing.assert_array_equal(hash_ids(batch, 5), hash_ids(from_arrow(pa.array(expected, type=pa.large_string())), 5))
    assert len(from_arrow(as_arrow(pa.array([], type=pa.string())))) == 0


def table_of(values):
    return ChunkedTable({"id": values}, "nodes.csv")


def test_ids_that_cannot_be():
    table = table_of(np.zeros(1))
    with pytest.raises(InputError, match=r"nodes.csv, line 6: 'id' has no value: every node needs an id"):
        read_ids(table, pa.array(["a", None]), 3, "id")
    with pytest.raises(InputError, match="line 6: 'id' is 18446744073709551615: ids are signed 64-bit integers, or strings"):
        read_ids(table, np.array([1, 2**64 - 1], np.uint64), 3, "id")
    with pytest.raises(InputError, match="'id' is float64: ids are integers or strings"):
        read_ids(table, np.array([1.5]), 3, "id")
    assert read_ids(table, np.array([1, 2], np.uint8), 0, "id").dtype == np.int64
    assert isinstance(read_ids(table, np.array(["a", "b"]), 0, "id"), Strings)
    assert isinstance(read_ids(table, np.array(["a", "b"], dtype=object), 0, "id"), Strings)


@pytest.mark.parametrize(("known", "stranger"), [(np.array([5, -7, 10**18]), 6), (pa.array(["x", "y", "z"]), "'w'")])
def test_unknown_endpoint(tmp_path, known, stranger):
    ends = np.array([5, 6, -7]) if isinstance(known, np.ndarray) else pa.array(["x", "w", "y"])
    fine = known[:1].repeat(3) if isinstance(known, np.ndarray) else pa.array(["x"] * 3)
    source = homogeneous({"src": fine, "dst": ends}, node_columns={"id": known}, mapped=True)
    with pytest.raises(InputError, match=rf"edges.csv, line 3: 'dst' is {stranger}, which no node of type 'node' has as its id"):
        build(source, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("known", [np.array([5, 9, 7, 9, 5, 9]), pa.array(["five", "nine", "seven", "nine", "five", "nine"])])
def test_duplicate_id(tmp_path, known):
    name = "9" if isinstance(known, np.ndarray) else "'nine'"
    ends = known[:2]
    source = homogeneous({"src": ends, "dst": ends}, node_columns={"id": known}, mapped=True)
    with pytest.raises(InputError, match=rf"nodes.csv, line 5: the id {name} was there before \(nodes.csv, line 3\)"):
        build(source, tmp_path / "store")


def test_ids_of_two_kinds(tmp_path):
    source = homogeneous({"src": np.array([1]), "dst": pa.array(["a"])}, mapped=True)
    with pytest.raises(InputError, match=r"the ids of 'node' are integers in .* and strings elsewhere: use one kind"):
        build(source, tmp_path / "store")
    source = homogeneous({"src": np.array([1]), "dst": np.array([1])}, node_columns={"id": pa.array(["1"])}, mapped=True)
    with pytest.raises(InputError, match="the ids of 'node' are strings in its table and integers in edges node-to->node: use one kind"):
        build(source, tmp_path / "store")


def test_strings_without_mapping(tmp_path):
    source = homogeneous({"src": pa.array(["a"]), "dst": pa.array(["b"])})
    with pytest.raises(InputError, match="'src' holds strings: ask for the ids of its node type to be mapped"):
        build(source, tmp_path / "store")


def test_id_column_of_an_unmapped_type(tmp_path):
    ends = {"src": np.array([0]), "dst": np.array([1])}
    build(homogeneous(ends, node_columns={"id": np.arange(30), "x": np.zeros(30)}), tmp_path / "store")
    for ids, offender in ((np.r_[0:8, 9, 8], "9: the id is 9|line 10: the id is 9"), (pa.array(["a"] * 10), "line 2: the id is a")):
        with pytest.raises(InputError, match=offender):
            build(homogeneous(ends, node_columns={"id": ids}), tmp_path / "other")


def test_mapped_type_with_fields_but_no_ids(tmp_path):
    source = homogeneous({"src": np.array([0]), "dst": np.array([1])}, node_columns={"x": np.zeros(3)}, mapped=True)
    with pytest.raises(InputError, match="its table has no column 'id'"):
        build(source, tmp_path / "store")


def test_colliding_hashes_take_another_seed(tmp_path, monkeypatch):
    """Strings whose hashes agree under the first seeds are told apart under a later one."""
    true_hash = ids_module.hash_ids

    def weak_hash(batch, seed):
        hashes = true_hash(batch, seed)
        return hashes & np.uint64(7 << 61) if seed in (0, 1) else hashes

    monkeypatch.setattr(idtable, "hash_ids", weak_hash)
    names = pa.array([f"n{i}" for i in range(100)])
    store, _ = build(homogeneous({"src": names, "dst": names}, mapped=True), tmp_path / "store")
    monkeypatch.undo()
    assert store.manifest.nodes[NODE].ids.seed == 2
    np.testing.assert_array_equal(store.original_ids(store.find(names)), names.to_pylist())


def test_ids_of_several_types(tmp_path):
    """Two mapped types, one with a table, and one that is not mapped; edges between all of them."""
    kinds = [("user", "buys", "item"), ("user", "knows", "user"), ("item", "in", "shop")]
    users, items = pa.array(["eve", "bob", "amy"]), np.array([900, -5, 30])
    source = Source(
        nodes={
            "user": NodeTable(node_type="user"),
            "item": NodeTable(node_type="item", table=ChunkedTable({"id": items, "y": np.array([2, 1, 0])}, "items.csv")),
            "shop": NodeTable(node_type="shop", num_nodes=4),
        },
        edges={
            kinds[0]: EdgeTable(edge_type=kinds[0], table=ChunkedTable({"src": users, "dst": items, "weight": np.array([1.0, 2, 3])})),
            kinds[1]: EdgeTable(edge_type=kinds[1], table=ChunkedTable({"src": users.take([0, 0]), "dst": users.take([1, 2])})),
            kinds[2]: EdgeTable(edge_type=kinds[2], table=ChunkedTable({"src": items[[2, 0]], "dst": np.array([3, 0])})),
        },
        is_homogeneous=False,
        mapped=frozenset(["user", "item"]),
    )
    store, _ = build(source, tmp_path / "store")
    assert dict(store.num_nodes) == {"user": 3, "item": 3, "shop": 4}
    assert store.original_ids([0, 1, 2], "user") == ["amy", "bob", "eve"]
    assert store.original_ids([0, 1, 2], "item").tolist() == [900, -5, 30]
    assert store.csc(kinds[0]).indices.tolist() == [2, 1, 0]
    assert store.edge_field("weight", kinds[0]).tolist() == [1, 2, 3]
    assert store.csc(kinds[1]).indptr.tolist() == [0, 1, 2, 2]
    assert store.csc(kinds[2]).indices.tolist() == [0, 2]
    assert store.find([30, 31], "item").tolist() == [2, -1]
    assert [store.has_original_ids(name) for name in store.node_types] == [True, True, False]


@pytest.fixture
def mapped_store(tmp_path):
    names = pa.array(["a", "b", "c"])
    return build(homogeneous({"src": names, "dst": names}, mapped=True), tmp_path / "store")[0]


def test_looking_up_with_the_wrong_things(mapped_store, tmp_path):
    with pytest.raises(NodeIdError, match=r"1 of 2 node ids lie outside \[0, 3\); first is ids\[1\] = 3"):
        mapped_store.original_ids([0, 3])
    with pytest.raises(InputError, match="node ids must be integers, got float64"):
        mapped_store.original_ids([0.5])
    with pytest.raises(InputError, match="are strings: look for strings"):
        mapped_store.find([1, 2])
    assert mapped_store.find([]).tolist() == []
    assert mapped_store.original_ids([]) == []
    assert mapped_store.find(pa.array(["c", "d"]), NODE).tolist() == [2, -1]
    numbers = build(homogeneous({"src": np.array([7]), "dst": np.array([7])}, mapped=True), tmp_path / "numbers")[0]
    with pytest.raises(InputError, match="are integers: look for a vector of them"):
        numbers.find(["7"])
    plain = build(homogeneous({"src": np.array([0]), "dst": np.array([1])}), tmp_path / "plain")[0]
    with pytest.raises(MissingFieldError, match="has no ids but 0 to 1; use those"):
        plain.find([0])
