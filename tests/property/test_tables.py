"""Tables made of tables: chunk boundaries never show, and reading again gives the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.records import CSC, EDGE
from penstock.sources.array_file import open_npy
from penstock.sources.array_table import ArrayFileTable, SparseRowsTable, array_rows
from penstock.sources.generate import generate
from penstock.sources.source import ArrayTable, Chunk, Column, Table
from penstock.sources.tables import ComputedTable, ConcatenatedTable, JoinedTable
from tests.tables import assert_same_columns, check_table, read_all

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(1, 100)


class Ragged(Table):
    """A table that delivers chunks of random sizes, as a CSV file does."""

    def __init__(self, columns, seed):
        self._table, self._seed, self.name = ArrayTable(columns, "ragged"), seed, "ragged"
        self.columns, self.num_rows = self._table.columns, None

    def chunks(self, max_rows, names=None):
        random, first, total = np.random.default_rng(self._seed), 0, self._table.num_rows
        while first < total:
            count = int(min(random.integers(1, max_rows + 1), total - first))
            (chunk,) = (Chunk(first, {k: v[first : first + count] for k, v in self._table._arrays.items() if names is None or k in names}),)
            yield chunk
            first += count


@given(SEEDS, st.lists(st.integers(0, 40), min_size=1, max_size=5), SIZES)
def test_parts_one_after_the_other(seed, sizes, max_rows):
    random = np.random.default_rng(seed)
    arrays = [{"a": random.integers(0, 9, n), "x": random.random((n, 2))} for n in sizes]
    table = ConcatenatedTable([Ragged(columns, seed + i) for i, columns in enumerate(arrays)], "parts")
    expected = {name: np.concatenate([columns[name] for columns in arrays]) for name in ("a", "x")}
    assert_same_columns(read_all(table, max_rows), expected)
    assert_same_columns(read_all(table, max_rows, ("x",)), {"x": expected["x"]})
    if sum(sizes):
        row = int(random.integers(0, sum(sizes)))
        part = np.searchsorted(np.cumsum(sizes), row, side="right")
        assert table.where(row) == f"ragged, row {row - sum(sizes[:part])}"


@given(SEEDS, st.integers(0, 80), SIZES)
def test_columns_side_by_side(seed, num_rows, max_rows):
    random = np.random.default_rng(seed)
    left, right = {"a": random.integers(0, 9, num_rows)}, {"x": random.random((num_rows, 3)), "y": random.integers(0, 9, num_rows)}
    table = JoinedTable([Ragged(left, seed), ArrayTable(right, "right")], "both")
    assert table.num_rows == num_rows
    assert_same_columns(read_all(table, max_rows), left | right)
    assert_same_columns(read_all(table, max_rows, ("a", "y")), {"a": left["a"], "y": right["y"]})


@given(SEEDS, st.integers(0, 50), st.integers(0, 50), SIZES)
def test_lengths_that_differ_are_refused(seed, one, other, max_rows):
    left, right = {"a": np.zeros(one)}, {"b": np.zeros(other)}
    if one == other:
        return
    with pytest.raises(InputError, match=r"have? .* rows? |ends after"):
        read_all(JoinedTable([Ragged(left, seed), Ragged(right, seed)], "both"), max_rows)
    with pytest.raises(InputError, match=r"has .* rows and .* has"):
        JoinedTable([ArrayTable(left, "left"), ArrayTable(right, "right")], "both")


@given(SEEDS, st.integers(0, 60), st.integers(0, 9), SIZES, st.booleans())
def test_sparse_rows(seed, num_rows, num_columns, max_rows, with_data):
    random = np.random.default_rng(seed)
    dense = (random.random((num_rows, num_columns)) < 0.3).astype(np.float32)
    if with_data:
        dense *= random.standard_normal(dense.shape).astype(np.float32)
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=num_rows))]).astype(np.int64)
    table = SparseRowsTable("x", indptr, columns, dense[rows, columns] if with_data else None, num_columns, "m")
    assert_same_columns(read_all(table, max_rows), {"x": dense})


@given(SEEDS, st.integers(0, 50), st.integers(1, 5), SIZES, st.sampled_from("CF"), st.sampled_from(["<f4", ">f4", "<i2", "|b1", "<f8"]))
def test_arrays_on_disk(tmp_path_factory, seed, num_rows, num_columns, max_rows, order, dtype):
    array = np.asarray(np.random.default_rng(seed).integers(-99, 99, (num_rows, num_columns)).astype(dtype), order=order)
    path = tmp_path_factory.mktemp("npy") / "x.npy"
    np.save(path, array)
    made = read_all(ArrayFileTable({name: array_rows(open_npy(path)) for name in ("x", "z")}, "x"), max_rows)
    assert {each.dtype for each in made.values()} == {array.dtype.newbyteorder("=")}
    np.testing.assert_array_equal(made["x"], array)
    np.testing.assert_array_equal(made["z"], array[:, 0] if num_columns == 1 else array)


def small_base():
    random = np.random.default_rng(0)
    counts = random.integers(0, 6, 40)
    return CSC(np.concatenate([[0], np.cumsum(counts)]), random.integers(0, 40, counts.sum()).astype(np.int32))


GENERATED = {
    "rmat": {"num_nodes": 1000, "num_edges": 3000, "feature_dim": 5, "num_classes": 3, "train": 0.5},
    "zipf": {"num_nodes": 1000, "num_edges": 3000, "feature_dim": 4, "num_classes": 3, "test": 1.0},
    "communities": {"num_nodes": 1000, "num_edges": 3000, "feature_dim": 7, "num_communities": 50},
    "kronecker": {"base": small_base(), "num_copies": 3, "x": np.random.default_rng(0).random((40, 3)), "feature_noise": 0.5},
}


@pytest.mark.parametrize("kind", GENERATED)
def test_generated_tables(kind):
    source, again = generate(kind, **GENERATED[kind]), generate(kind, **GENERATED[kind])
    for table, other in ((source.nodes["node"].table, again.nodes["node"].table), (_edges(source), _edges(again))):
        assert_same_columns(check_table(table, (1, 10, 999)), read_all(other))
    other = generate(kind, **GENERATED[kind], seed=1)
    assert not np.array_equal(read_all(_edges(other))["src"][:100], read_all(_edges(source))["src"][:100])


@pytest.mark.parametrize("kind", ["rmat", "zipf", "communities"])
@given(st.integers(0, 2999), st.integers(0, 300))
def test_any_range_of_rows_alone(kind, first, count):
    table = _edges(generate(kind, **GENERATED[kind]))
    assert isinstance(table, ComputedTable)
    whole, count = read_all(table), min(count, 3000 - first)
    alone = table.read(first, count)
    assert alone.first_row == first
    for name, values in alone.columns.items():
        np.testing.assert_array_equal(values, whole[name][first : first + count])


def _edges(source):
    (edges,) = source.edges.values()
    return edges.table


def test_a_column_that_parts_do_not_share():
    with pytest.raises(InputError, match="parts of one table must agree"):
        ConcatenatedTable([ArrayTable({"a": np.zeros(1)}, "p"), ArrayTable({"a": np.zeros(1, int)}, "q")], "parts")
    with pytest.raises(InputError, match="q has b where p has a; parts of one table must agree"):
        ConcatenatedTable([ArrayTable({"a": np.zeros(1)}, "p"), ArrayTable({"b": np.zeros(1)}, "q")], "parts")


def test_row_bytes():
    assert Column(name="x", dtype=np.dtype(np.float16), row_shape=(3, 2)).row_bytes == 12
    assert Column(name="id", dtype=np.dtype(object)).row_bytes == 8


def test_expected_rows():
    known, unknown = ArrayTable({"a": np.zeros(4)}, "known"), Ragged({"a": np.zeros(4)}, 0)
    guessing = generate("kronecker", base=small_base(), num_copies=4).edges[EDGE].table
    about = round(8.8 * small_base().num_edges)
    assert abs(guessing.expected_rows - about) <= 1
    assert [table.expected_rows for table in (known, unknown)] == [4, None]
    assert ConcatenatedTable([known, known], "both").expected_rows == 8
    assert ConcatenatedTable([known, unknown], "both").expected_rows is None
    assert JoinedTable([unknown, guessing], "both").expected_rows == guessing.expected_rows
