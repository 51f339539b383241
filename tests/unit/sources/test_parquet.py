"""Parquet files as tables."""

import datetime
import decimal
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables import assert_same_columns, check_table, read_all

from penstock.errors import InputError, MissingFieldError
from penstock.sources.columns import Request
from penstock.sources.parquet_table import ParquetTable
from penstock.sources.tables import ConcatenatedTable, JoinedTable

ENDS = [Request(name="src", columns="src", kind="id"), Request(name="dst", columns="dst", kind="id")]


def table(tmp_path, columns, *more, **options):
    pq.write_table(pa.table({"src": [0, 1, 2], "dst": [3, 4, 5]} | columns), tmp_path / "e.parquet", **options)
    return ParquetTable(tmp_path / "e.parquet", [*ENDS, *more])


def test_many_columns_say_what_reading_them_takes(tmp_path):
    columns = {f"f{i}": np.random.default_rng(i).random(3000) for i in range(100)}
    pq.write_table(pa.table(columns), tmp_path / "wide.parquet")
    few, many = (ParquetTable(tmp_path / "wide.parquet", [Request(name="x", columns=f"f0:f{last}")]) for last in (7, 99))
    assert few.reader_bytes == 0
    assert 100 * 16_000 < many.reader_bytes < 100 * 1_000_000
    assert read_all(many)["x"].shape == (3000, 100)
    assert ConcatenatedTable([many, many], "both").reader_bytes == many.reader_bytes
    ends = ParquetTable(tmp_path / "wide.parquet", [Request(name="w", columns="f0")])
    assert JoinedTable([many, ends], "both").reader_bytes == many.reader_bytes


def test_long_texts_come_in_smaller_chunks(tmp_path):
    ids = pa.array([f"{i:0400d}" for i in range(20_000)])
    pq.write_table(pa.table({"src": ids, "dst": ids}), tmp_path / "e.parquet")
    requests = [Request(name=name, columns=name, kind="id", as_string=True) for name in ("src", "dst")]
    sizes = [chunk.num_rows for chunk in ParquetTable(tmp_path / "e.parquet", requests).chunks(15_000)]
    assert max(sizes) < 2000
    assert sum(sizes) == 20_000
    words = pa.array([f"{i:08d}" for i in range(20_000)]).dictionary_encode()  # the dictionary comes with every batch
    pq.write_table(pa.table({"src": words, "dst": words}), tmp_path / "e.parquet")
    assert [chunk.num_rows for chunk in ParquetTable(tmp_path / "e.parquet", requests).chunks(15_000)] == [15_000, 5_000]


def test_kinds_of_columns(tmp_path):
    columns = {
        "src": pa.array([5, 6, 2**63 - 1], pa.uint64()),
        "dst": pa.array([1, 2, 3], pa.int8()),
        "w": pa.array([1, 2, 3], pa.int32()),
        "t": pa.array([datetime.datetime(1970, 1, 1, 0, 0, i) for i in range(3)], pa.timestamp("ms")),
        "d": pa.array([datetime.date(1970, 1, 2)] * 3),
        "b": [True, False, True],
        "fixed": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
        "list": pa.array([[1.0], [2.0], [3.0]], pa.list_(pa.float64())),
        "h": pa.array(np.array([1, 2, 3], np.float16)),
    }
    more = [Request(name=name, columns=name) for name in ("w", "t", "d", "b", "fixed", "list", "h")]
    made = check_table(table(tmp_path, columns, *more, Request(name="x", columns=["w", "h"])))
    assert_same_columns(
        made,
        {
            "src": np.array([5, 6, 2**63 - 1]),
            "dst": np.array([1, 2, 3]),
            "w": np.array([1, 2, 3], np.int32),
            "t": np.array([0, 1000, 2000]),
            "d": np.array([1, 1, 1]),
            "b": np.array([True, False, True]),
            "fixed": np.array([[1, 2], [3, 4], [5, 6]], np.float32),
            "list": np.array([[1.0], [2], [3]]),
            "h": np.array([1, 2, 3], np.float16),
            "x": np.array([[1, 1], [2, 2], [3, 3]], np.float64),
        },
    )


@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.decimal256(40, 2)])
def test_decimals_are_floats(tmp_path, kind):
    values = pa.array(["0.10", None, "-1234567.25"]).cast(kind)
    lists = pa.array([[decimal.Decimal("0.10")], [decimal.Decimal("2.25")], [None]], pa.list_(kind))
    made = read_all(table(tmp_path, {"a": values, "v": lists}, Request(name="a", columns="a"), Request(name="v", columns="v")))
    np.testing.assert_array_equal(made["a"], np.array([0.1, np.nan, -1234567.25]))
    np.testing.assert_array_equal(made["v"], np.array([[0.1], [2.25], [np.nan]]))


def test_classes_that_are_floats_as_some_are_missing(tmp_path):
    """So pandas writes them."""
    made = read_all(table(tmp_path, {"y": pa.array([2.0, None, 0.0])}, Request(name="y", columns="y", dtype=np.dtype("int64"))))
    np.testing.assert_array_equal(made["y"], np.array([2, -1, 0]))
    with pytest.raises(InputError, match=r"holds 0\.5"):
        read_all(table(tmp_path, {"y": pa.array([2.0, None, 0.5])}, Request(name="y", columns="y", dtype=np.dtype("int64"))))


@pytest.mark.parametrize("dtype", ["int32", "uint64", "float32"])
def test_a_label_beyond_int64_beside_an_empty_one(tmp_path, dtype):
    request = Request(name="y", columns="y", dtype=np.dtype(dtype))
    with pytest.raises(InputError, match="row 1: column 'y' holds 9223372036854775809, which 'y' cannot hold"):
        read_all(table(tmp_path, {"y": pa.array([None, 2**63 + 1, 1], pa.uint64())}, request))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()])
def test_strings(tmp_path, kind):
    words = ["b", "a", "b"]
    try:
        made = table(tmp_path, {"src": pa.array(words, pa.string()).cast(kind)})
    except pa.ArrowNotImplementedError:
        pytest.skip(f"pyarrow {pa.__version__} writes no {kind} into Parquet")  # from 21 on it does
    assert check_table(made)["src"].tolist() == words


def test_integers_taken_as_strings(tmp_path):
    pq.write_table(pa.table({"src": [1, 10, 2]}), tmp_path / "e.parquet")
    made = ParquetTable(tmp_path / "e.parquet", [Request(name="src", columns="src", kind="id", as_string=True)])
    assert check_table(made)["src"].tolist() == ["1", "10", "2"]


@pytest.mark.parametrize("row_group_size", [1, 7, 1000])
def test_row_groups_do_not_show(tmp_path, row_group_size):
    rng = np.random.default_rng(0)
    columns = {"src": rng.integers(0, 2**62, 100), "dst": rng.integers(0, 5, 100), "v": list(rng.standard_normal((100, 3)))}
    made = check_table(table(tmp_path, columns, Request(name="x", columns="v"), row_group_size=row_group_size))
    for name in ("src", "dst"):
        np.testing.assert_array_equal(made[name], columns[name])
    np.testing.assert_array_equal(made["x"], np.stack(columns["v"]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"src": [1, None, 3]}, "e.parquet, row 1: column 'src' is empty"),
        ({"src": [1.0, 2.0, 3.0]}, "column 'src', wanted for 'src', holds double; ids are"),
        ({"src": pa.array([1, 2**63, 3], pa.uint64())}, "row 1: column 'src' holds 9223372036854775808, which 'src' cannot hold as int64"),
        ({"x": ["a", "b", "c"]}, "column 'x', wanted for 'x', holds string; fields are numbers"),
        ({"x": [[1, 2], [3], [4, 5]]}, "row 1: list 'x' has 1 entries, the first row has 2"),
        ({"x": [[1, 2], [3, None], [4, 5]]}, "row 1: list 'x' has an empty entry"),
        ({"x": [[1, 2], None, [4, 5]]}, "row 1: column 'x' is empty"),
        ({"x": [None, [1, 2], [4, 5]]}, "row 0: column 'x' is empty"),
        ({"y": pa.array([None, 2**63 + 1, 1], pa.uint64())}, "row 1: column 'y' holds 9223372036854775809, which 'y' cannot hold"),
        ({"x": [{"a": 1}] * 3}, "holds struct"),
    ],
)
def test_bad_values(tmp_path, columns, message):
    more = [Request(name=name, columns=name) for name in ("x", "y") if name in columns]
    with pytest.raises(InputError, match=message) as caught:
        read_all(table(tmp_path, columns, *more), 2)
    assert "\n" not in str(caught.value)


def test_missing_column(tmp_path):
    with pytest.raises(MissingFieldError, match="no column 'w' for 'weight'; the columns are src, dst"):
        table(tmp_path, {}, Request(name="weight", columns="w"))


def test_not_a_parquet_file(tmp_path):
    (tmp_path / "e.parquet").write_bytes(b"src,dst\n0,1\n")
    with pytest.raises(InputError, match="not a Parquet file that can be read"):
        ParquetTable(tmp_path / "e.parquet", ENDS)


def test_one_column_of_any_name(tmp_path):
    """Is a list of ids, and not both ends of edges."""
    pq.write_table(pa.table({"names": [3, 5]}), tmp_path / "n.parquet")
    ids = Request(name="id", columns="id", kind="id", is_default=True)
    assert read_all(ParquetTable(tmp_path / "n.parquet", [ids]))["id"].tolist() == [3, 5]
    with pytest.raises(MissingFieldError, match="no column 'src' for 'src'"):
        ParquetTable(tmp_path / "n.parquet", [replace(each, is_default=True) for each in ENDS])


def test_damaged_lists(tmp_path):
    pq.write_table(pa.table({"id": range(1000), "x": [[1.0, 2.0]] * 1000}), tmp_path / "n.parquet")
    whole = (tmp_path / "n.parquet").read_bytes()
    requests, end = [Request(name="id", columns="id", kind="id"), Request(name="x", columns="x")], len(whole) - 8
    end -= int.from_bytes(whole[-8:-4], "little")
    for first in range(4, end, 40):
        (tmp_path / "n.parquet").write_bytes(whole[:first] + b"\xff" * 8 + whole[first + 8 :])
        with suppress(InputError):
            read_all(ParquetTable(tmp_path / "n.parquet", requests))


def test_damaged_page(tmp_path):
    made = table(tmp_path, {"src": np.arange(30_000), "dst": np.arange(30_000)}, use_dictionary=False)
    data = bytearray((tmp_path / "e.parquet").read_bytes())
    data[4:200] = b"\xff" * 196
    (tmp_path / "e.parquet").write_bytes(data)
    with pytest.raises(InputError, match="damaged Parquet file"):
        read_all(made)
