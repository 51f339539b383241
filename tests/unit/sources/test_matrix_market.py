"""Matrix Market files as graphs: what SciPy writes and reads."""

import gzip

import numpy as np
import pytest
import scipy.io
from scipy import sparse
from tests.tables import check_table, edges_of

import penstock
from penstock.errors import InputError
from penstock.sources import open_source


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def pairs(store):
    csc = store.csc()
    return sorted(zip(csc.indices.tolist(), np.repeat(np.arange(csc.num_dst), np.diff(csc.indptr)).tolist(), strict=True))


@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_what_scipy_writes(field, is_symmetric, tmp_path):
    """An entry in row i and column j is an edge i -> j, its value a weight; the last nodes have no edges."""
    dense = np.zeros((9, 9))
    dense[:7, :7] = np.random.default_rng(0).integers(0, 3, (7, 7))
    dense = dense + dense.T if is_symmetric else dense
    matrix = sparse.coo_matrix(dense)
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix, "of a test", field, symmetry="symmetric" if is_symmetric else "general")
    options = {} if field == "pattern" else {"edge_fields": {"weight": "value"}}
    store = penstock.ingest(tmp_path / "a.mtx", tmp_path / "store", **options)
    assert pairs(store) == sorted(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True))
    assert store.num_nodes == {"node": 9}
    if field != "pattern":
        csc = store.csc()
        expected = sparse.csc_matrix((store.edge_field("weight"), csc.indices, csc.indptr), (9, 9)).toarray()
        assert (expected == dense).all()


@pytest.mark.parametrize("name", ["a.mtx", "a.MTX", "a.mtx.gz"])
@pytest.mark.parametrize(
    "entries",
    ["1 2 0.5\n3 1 2\n3 3 -1e-3\n", "  1    2  0.5\n\n  3    1  2\n3\t3\t-1e-3 ", "1 2 0.5 \r\n3 1 2 \r\n3 3 -1e-3\r\n"],
    ids=["plain", "padded", "other line ends"],
)
def test_ways_of_writing_a_matrix(entries, name, tmp_path):
    path = write(tmp_path / name, f"%%matrixmarket MATRIX coordinate Real General\n% a comment\n%\n\n 4 4  3\n{entries}")
    source = open_source(path, edge_fields={"weight": "value", "from": "row"})
    (edges,) = source.edges.values()
    columns = check_table(edges.table)
    assert [columns[name].tolist() for name in ("src", "dst", "weight", "from")] == [[0, 2, 2], [1, 0, 2], [0.5, 2, -1e-3], [1, 3, 3]]
    assert edges.table.num_rows == 3
    assert source.nodes["node"].num_nodes == 4


def test_a_matrix_the_other_way_round(tmp_path):
    path = write(tmp_path / "a.mtx", "%%MatrixMarket matrix coordinate pattern general\n4 4 1\n1 4\n")
    assert edges_of(open_source(path, src="column", dst="row")).tolist() == [[3], [0]]


def test_nodes_beside_a_matrix(tmp_path):
    path = write(tmp_path / "a.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n")
    nodes = write(tmp_path / "nodes.csv", "id,f\n7,1.5\n8,2.5\n9,3.5\n")
    store = penstock.ingest(path, tmp_path / "store", nodes=nodes, node_fields={"x": "f"}, ids="number")
    assert store.node_field("x").tolist() == [[1.5], [2.5], [3.5]]
    assert pairs(store) == [(0, 1), (1, 0), (2, 2)]
    assert penstock.store.forecast(path).num_edges == 4  # at most


def test_a_matrix_between_two_types(tmp_path):
    write(tmp_path / "buys.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 5 2\n1 5\n2 1\n")
    source = open_source({"edges": {"user__buys__item": str(tmp_path / "buys.mtx")}})
    assert {name: nodes.num_nodes for name, nodes in source.nodes.items()} == {"user": 2, "item": 5}
    assert edges_of(source).tolist() == [[0, 1], [4, 0]]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("1 1 4", r"line 3: 3 fields where 2 are expected \('1 1 4'\)"),
        ("1 b", "line 3: column 'column' holds 'b', which is not of type int64"),
    ],
)
def test_entries_of_another_kind(entry, message, tmp_path):
    path = write(tmp_path / "a.mtx", f"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n{entry}\n")
    with pytest.raises(InputError, match=message):
        edges_of(open_source(path))
