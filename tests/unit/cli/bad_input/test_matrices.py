"""What is no graph in a Matrix Market file."""

import pytest

import penstock
from penstock.errors import InputError, UsageError
from penstock.sources import open_source
from tests.refusals import refused

BANNER = "%%MatrixMarket matrix coordinate"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n", "line 1: '1 2' is not the beginning of a graph: %%MatrixMarket matrix coordinate ..."),
        ("%%MatrixMarket matrix array real general\n2 2\n", "line 1: '%%MatrixMarket matrix array real general' is not the beginning"),
        (f"{BANNER} complex general\n", "line 1: a matrix that is complex and general is no graph; known are real, integer and pattern"),
        (f"{BANNER} real skew-symmetric\n", "line 1: a matrix that is real and skew-symmetric is no graph"),
        (f"{BANNER} real general\n% nothing\n", "line 2: the numbers of rows, columns and entries are expected, got '% nothing'"),
        (f"{BANNER} real general\n2 2\n", "line 2: the numbers of rows, columns and entries are expected, got '2 2'"),
        (f"{BANNER} pattern general\n2 3 1\n1 1\n", "2 x 3 entries are no edges between nodes of one type"),
        (f"{BANNER} pattern general\n2 2 3\n1 1\n2 2\n", "announces 3 entries and has 2"),
        (f"{BANNER} pattern general\n2 2 1\n1 1\n2 2\n", "announces 1 entries and has more"),
        (f"{BANNER} pattern general\n2 2 2\n1 1\n\n2 0\n", "line 5: column 0, and the matrix has 1 to 2"),
        (f"{BANNER} pattern general\n2 2 1\n3 1\n", "line 3: row 3, and the matrix has 1 to 2"),
    ],
)
def test_what_is_no_matrix(text, message, tmp_path):
    (tmp_path / "a.mtx").write_text(text)
    found = refused(InputError, penstock.ingest, tmp_path / "a.mtx", tmp_path / "store")
    assert message in found
    assert "a.mtx" in found


def test_matrices_that_are_no_tables(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.mtx").write_text(f"{BANNER} pattern symmetric\n2 2 1\n2 1\n")
    assert "one of 2 files" in refused(UsageError, open_source, tmp_path / "*.mtx")
    assert "leave ids='string' out" in refused(UsageError, open_source, tmp_path / "a.mtx", ids="string")
    assert "2 x 2 entries are symmetric" in refused(InputError, open_source, {"edges": {"a__to__a": str(tmp_path / "a.mtx")}})
    (tmp_path / "nodes.csv").write_text("id,f\n7,1.5\n8,2.5\n")
    nodes = dict(nodes=tmp_path / "nodes.csv", node_fields={"x": "f"})
    assert "the nodes of 'node' by its rows" in refused(UsageError, open_source, tmp_path / "a.mtx", **nodes)
