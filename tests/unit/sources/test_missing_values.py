"""Values that are not there: NaN in floating-point fields, no label, and refused in others."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.tables import read_all

import penstock
from penstock.errors import InputError
from penstock.sources.columns import Request
from penstock.sources.csv_table import CsvTable
from penstock.sources.parquet_table import ParquetTable


def write(folder, kind, **columns):
    path, table = folder / f"n.{kind}", pa.table(columns)
    pq.write_table(table, path) if kind == "parquet" else pyarrow.csv.write_csv(table, path)
    return path


def read(path, *requests):
    return read_all((ParquetTable if path.suffix == ".parquet" else CsvTable)(path, requests))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_floats_become_nan(tmp_path, kind):
    path = write(tmp_path, kind, a=[0.5, None, 2.0], b=[None, 1, 2])
    made = read(path, Request(name="x", columns=["a", "b"]), Request(name="a", columns="a"))
    np.testing.assert_array_equal(made["x"], [[0.5, np.nan], [np.nan, 1], [2, 2]])
    np.testing.assert_array_equal(made["a"], [0.5, np.nan, 2])


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("lists", [pa.list_, lambda of: pa.list_(of, 2)])
def test_entries_of_lists_become_nan(tmp_path, kind, lists):
    values = [[np.float16(0.5), None], [None, np.float16(2)]]
    made = read(write(tmp_path, "parquet", v=pa.array(values, lists(kind))), Request(name="x", columns="v"))["x"]
    assert pa.from_numpy_dtype(made.dtype) == kind
    np.testing.assert_array_equal(made, [[0.5, np.nan], [np.nan, 2]])


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1, None], pa.int64()), ([True, None], pa.bool_()), ([0, None], pa.timestamp("ms")), ([[1], [None]], pa.list_(pa.int8()))],
)
def test_others_are_refused(tmp_path, values, kind):
    with pytest.raises(InputError, match=r"n.parquet, row 1: (column 'a' is empty; 'a' needs a value|list 'a' has an empty entry)"):
        read(write(tmp_path, "parquet", a=pa.array(values, kind)), Request(name="a", columns="a"))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize(("values", "expected"), [([True, None, False], [1, -1, 0]), ([True, False, True], [1, 0, 1])])
def test_true_and_false_are_labels(tmp_path, kind, values, expected):
    made = read(write(tmp_path, kind, n=[0, 1, 2], y=pa.array(values)), Request(name="y", columns="y"))["y"]
    assert (made.tolist(), made.dtype) == (expected, np.int64)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.uint64()])
def test_labels_of_every_width_may_be_missing(tmp_path, kind):
    assert read(write(tmp_path, "parquet", y=pa.array([3, None], kind)), Request(name="y", columns="y"))["y"].tolist() == [3, -1]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_missing_features_are_taken_where_nan_is(tmp_path, kind):
    nodes = write(tmp_path, kind, id=[10, 11], a=[0.5, None], y=[None, True])
    (tmp_path / "e.csv").write_text("src,dst\n10,11\n")
    options = {"nodes": nodes, "node_fields": {"x": ["a"], "y": "y"}}
    with pytest.raises(
        InputError, match=r"n\..*(row 1|line 3): field 'x' is nan at \[0\]: .* missing values are refused; .*allow_nan=True"
    ):
        penstock.ingest(tmp_path / "e.csv", tmp_path / "store", **options)
    store = penstock.ingest(tmp_path / "e.csv", tmp_path / "store", **options, allow_nan=True)
    np.testing.assert_array_equal(np.load(store.path / "nodes/node/x.npy"), [[0.5], [np.nan]])
    assert np.load(store.path / "nodes/node/y.npy").tolist() == [-1, 1]
    assert store.node_fields()["y"].properties["num_classes"] == 2
