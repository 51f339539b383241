"""CSV files as tables."""

import bz2
import gzip
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import assert_same_columns, check_table, read_all

from penstock.errors import InputError, MissingFieldError, UsageError
from penstock.records import EDGE
from penstock.sources import csv_layout, csv_table, open_source
from penstock.sources.columns import Request, resolve
from penstock.sources.csv_table import CsvTable

ENDS = [Request(name="src", columns="src", kind="id", is_default=True), Request(name="dst", columns="dst", kind="id", is_default=True)]


def write(path, text):
    opened = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)(path, "wt")
    with opened as file:
        file.write(text)
    return path


def table(tmp_path, text, *more, name="e.csv", ends=ENDS, **options):
    return CsvTable(write(tmp_path / name, text), [*ends, *more], **options)


def pairs(columns):
    return list(zip(columns["src"].tolist(), columns["dst"].tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.csv", "src,dst\n0,1\n1,2\n7,3\n"),
        ("e.csv", "0,1\n1,2\n7,3"),
        ("e.csv", "dst,src\r\n1,0\r\n2,1\r\n3,7\r\n"),
        ("e.csv", "\ufeffsrc,dst\n0,1\n1,2\n7,3\n"),
        ("e.csv.gz", "src;dst\n0;1\n1;2\n7;3\n"),
        ("e.tsv.bz2", "0\t1\n\n1\t2\n7\t3\n\n"),
        ("e.txt", "# Nodes: 8\n# FromNodeId ToNodeId\n0 1\n1 2\n7 3\n"),
        ("e.edges", "% sym unweighted\n0|1\n1|2\n7|3\n"),
        ("e.csv", '"src","dst"\n"0","1"\n"1","2"\n"7","3"\n'),
    ],
)
def test_ways_of_writing_edges(tmp_path, name, text):
    assert pairs(check_table(table(tmp_path, text, name=name))) == [(0, 1), (1, 2), (7, 3)]


def test_strings_and_long_integers_as_ids(tmp_path):
    columns = check_table(table(tmp_path, "src,dst\nann,bob\n007,Zoë\n"))
    assert pairs(columns) == [("ann", "bob"), ("007", "Zoë")]
    columns = read_all(table(tmp_path, "src,dst\n-9223372036854775808,9223372036854775807\n"))
    assert pairs(columns) == [(-(2**63), 2**63 - 1)]
    as_string = [Request(name="src", columns="0", kind="id", as_string=True)]
    assert read_all(table(tmp_path, "007,1\n", ends=as_string))["src"].tolist() == ["007"]
    assert read_all(table(tmp_path, "src,dst\n2020-01-01,2020-01-02\n"))["src"].tolist() == ["2020-01-01"]


def test_fields(tmp_path):
    text = "src,dst,w,t,f0,f1,f2\n0,1,2,100,.5,1e3,-1\n2,3,0.25,200,nan,0,7\n"
    more = [
        Request(name="weight", columns="w"),
        Request(name="time", columns="t"),
        Request(name="x", columns="f*"),
        Request(name="part", columns=["f2", "f0"]),
        Request(name="tail", columns="f1:"),
        Request(name="flag", columns="3", dtype=np.dtype(np.int16)),
    ]
    columns = check_table(table(tmp_path, text, *more))
    assert_same_columns(
        columns,
        {
            "src": np.array([0, 2]),
            "dst": np.array([1, 3]),
            "weight": np.array([2, 0.25]),
            "time": np.array([100, 200]),
            "x": np.array([[0.5, 1000, -1], [np.nan, 0, 7]], np.float32),
            "part": np.array([[-1, 0.5], [7, np.nan]], np.float32),
            "tail": np.array([[1000, -1], [0, 7]], np.float32),
            "flag": np.array([100, 200], np.int16),
        },
    )


def test_times_of_day_become_integers(tmp_path):
    text = "src,dst,a,b\n0,1,2020-01-02,1970-01-01 00:01:00\n"
    columns = read_all(table(tmp_path, text, Request(name="day", columns="a"), Request(name="time", columns="b")))
    assert (columns["day"].tolist(), columns["time"].tolist()) == ([18263], [60])


@pytest.mark.parametrize(
    ("good", "bad", "kind"),
    [
        ("2024-05-01 10:36", "oops", r"timestamp\[s\]"),
        ("2024-05-01 10:36", "2024-05-01 10:36:00.5", r"timestamp\[s\]"),
        ("2024-05-01", "2024-05-01 10:36", r"date32\[day\]"),
        ("10:36", "25:00", r"time32\[s\]"),
        ("true", "2", "bool"),
    ],
)
@pytest.mark.parametrize("bad_row", [700, 1234, 1999])
def test_a_cell_that_only_arrow_can_judge_is_named_with_its_line(tmp_path, monkeypatch, good, bad, kind, bad_row):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 5000)
    rows = [f"0,1,{good}\n" + "\n" * (i % 100 == 0) for i in range(2000)]
    rows[bad_row] = f'0,1,"{bad}"\n'
    made = table(tmp_path, "src,dst,a\n" + "".join(rows), Request(name="when", columns="a"))
    line = "".join(rows[:bad_row]).count("\n") + 2
    with pytest.raises(InputError, match=rf"e.csv, line {line}: column 'a' holds '{bad}', which is not of type {kind} as those"):
        read_all(made)


def test_header_without_rows(tmp_path):
    columns = check_table(table(tmp_path, "src,dst,w\n", Request(name="weight", columns="w")))
    assert all(len(values) == 0 for values in columns.values())


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", InputError, "e.csv: empty, it has no rows"),
        ("\n\n# nothing\n", InputError, "e.csv: empty, it has no rows"),
        ("a,b\nc,d\n", UsageError, r"cannot tell whether the first line \('a,b'\) is a header. Say header=True"),
        ("src,to\n0,1\n", MissingFieldError, "e.csv: no column 'dst' for 'dst'; the columns are src, to"),
        ("src,dst,src\n0,1,2\n", InputError, "column 'src', wanted for 'src', is there more than once"),
        ("src,dst\n0,1\n\n2\n3,4\n", InputError, r"e.csv, line 4: 1 fields where 2 are expected \('2'\)"),
        ("src,dst\n0,1\n2,3,4\n", InputError, r"e.csv, line 3: 3 fields where 2 are expected"),
        ("# c\nsrc,dst\n\n0,1\n2,\n", InputError, "e.csv, line 5: column 'dst' is empty"),
        ("src,dst\n0.5,1\n", InputError, "column 'src', wanted for 'src', holds double; ids are 64-bit integers or strings"),
        ("0\n1\n", MissingFieldError, "no column '1' for 'dst'; the columns are 0"),
    ],
)
def test_bad_files(tmp_path, text, error, message):
    with pytest.raises(error, match=message) as caught:
        read_all(table(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "request_", "message"),
    [
        (["1", "x"], Request(name="weight", columns="w"), "line 3: column 'w' holds 'x', which is not of type double"),
        (
            ["1", "2.5"],
            Request(name="y", columns="w", dtype=np.dtype(np.int64)),
            "line 3: column 'w' holds '2.5', which is not of type int64",
        ),
        (
            ["1", "300"],
            Request(name="y", columns="w", dtype=np.dtype(np.uint8)),
            "line 3: column 'w' holds '300', which is not of type uint8",
        ),
        (["a", "b"], Request(name="z", columns="w"), "column 'w', wanted for 'z', holds string; fields are numbers; number the words"),
        (["1", ""], Request(name="age", columns="w"), "line 3: column 'w' is empty; 'age' needs a value in every row$"),
    ],
)
def test_bad_cells(tmp_path, cells, request_, message):
    text = "src,dst,w\n" + "".join(f"{i},{i},{cell}\n" for i, cell in enumerate(cells))
    with pytest.raises(InputError, match=message):
        read_all(table(tmp_path, text, request_))


def test_a_number_that_is_missing_is_no_label(tmp_path):
    found = read_all(table(tmp_path, "src,dst,w\n0,1,2\n1,2,\n2,0,0\n", Request(name="y", columns="w")))
    assert found["y"].tolist() == [2, -1, 0]
    found = read_all(table(tmp_path, "src,dst,w\n0,1,2.0\n1,2,\n2,0,0.0\n", Request(name="y", columns="w")))
    np.testing.assert_array_equal(found["y"], [2, np.nan, 0])


def test_fault_far_behind_the_first_block(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 1000)
    good = "".join(f"{i},{i + 1}\n" if i % 10 else f"{i},{i + 1}\n\n" for i in range(3000))
    for bad, message in (
        ("5,x\n", "column 'dst' holds 'x', which is not of type int64"),
        ("5\n", "1 fields where 2"),
        ("5,\n", "is empty"),
    ):
        with pytest.raises(InputError, match=f"line 3302: .*{message}"):
            read_all(table(tmp_path, "src,dst\n" + good + bad + "1,2\n"))


def test_damaged_compression(tmp_path):
    path = write(tmp_path / "e.csv.gz", "src,dst\n" + "0,1\n" * 100_000)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InputError, match=r"e.csv.gz"):
        read_all(CsvTable(path, ENDS))


def test_a_damaged_end_is_said_by_whoever_comes_to_it_first(tmp_path):
    """The guess of the number of rows reads on where the first block of the table is fine."""
    lines = "src,dst\n" + "".join(f"{i},{i * i}\n" for i in range(150_000))
    path = write(tmp_path / "e.csv.gz", lines)
    path.write_bytes(path.read_bytes()[:-50])
    made = CsvTable(path, ENDS)
    with pytest.raises(InputError, match=r"e.csv.gz: cannot be read \(Truncated"):
        _ = made.expected_rows
    path = tmp_path / "e.csv.bz2"
    path.write_bytes(bz2.compress(b"src,dst\n0,1\n") + bz2.compress(b"") + bz2.compress(b"1,2\n"))  # at which Arrow gives up
    with pytest.raises(InputError, match=r"e.csv.bz2: cannot be read \("):
        read_all(CsvTable(path, ENDS))


def test_a_line_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 100)
    text = "src,dst\nann,bob\n" + "b" * 500 + ",eve\n"
    assert pairs(read_all(table(tmp_path, text))) == [("ann", "bob"), ("b" * 500, "eve")]
    monkeypatch.setattr(csv_table, "MAX_LINE_BYTES", 300)
    with pytest.raises(InputError, match=r"e\.csv: has a line of more than 300 bytes"):
        read_all(table(tmp_path, text))


def test_a_first_line_without_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_layout, "MAX_LINE_BYTES", 300)
    with pytest.raises(InputError, match=r"e\.csv: has a line of more than 300 bytes"):
        table(tmp_path, "src,dst," + "a" * 1000)


def test_a_cell_longer_than_the_csv_module_takes(tmp_path):
    long = "a" * 200_000
    assert pairs(read_all(table(tmp_path, f"src,dst,{long}\n0,1,2\n"))) == [(0, 1)]
    with pytest.raises(InputError, match="line 3: 2 fields where 3 are expected"):
        read_all(table(tmp_path, f"src,dst,x\n0,1,2\n0,{long}\n"))


def test_a_number_of_more_digits_than_python_reads(tmp_path):
    with pytest.raises(InputError, match=r"line 3: column 'dst' holds '9{60}', which is not of type int64"):
        read_all(table(tmp_path, f"src,dst\n0,1\n0,{'9' * 5000}\n", ends=[replace(end, dtype=np.dtype(np.int64)) for end in ENDS]))


def test_a_hundred_thousand_columns():
    names = [f"f{i}" for i in range(100_000)]
    assert resolve(Request(name="x", columns="f0:"), names, "e.csv") == tuple(names)


def test_columns_with_commas():
    def columns(text, *names):
        return resolve(Request(name="x", columns=text), names, "e.csv")

    assert columns("b, f*,0", "a", "b", "f0", "f1") == ("b", "f0", "f1", "a")
    assert columns("a,b", "a", "b", "a,b") == ("a,b",)  # a name goes first


def test_row_numbers_become_line_numbers(tmp_path):
    made = table(tmp_path, "# c\n\nsrc,dst\n0,1\n\n2,3\n4,5\n")
    assert [made.where(row) for row in range(3)] == [f"{tmp_path}/e.csv, line {line}" for line in (4, 6, 7)]


ROWS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40), st.floats(-1e6, 1e6, width=32)), max_size=60)


@given(ROWS, st.integers(1, 100), st.integers(40, 400))
def test_what_is_written_is_read(tmp_path_factory, rows, max_rows, block_bytes):
    path = tmp_path_factory.mktemp("csv") / "e.csv"
    path.write_text("src,dst,w\n" + "".join(f"{a},{b},{w!r}\n" for a, b, w in rows))
    made = CsvTable(path, [*ENDS, Request(name="weight", columns="w")])
    before, csv_table._BLOCK_BYTES = csv_table._BLOCK_BYTES, block_bytes
    try:
        columns = read_all(made, max_rows)
    finally:
        csv_table._BLOCK_BYTES = before
    assert list(zip(*(column.tolist() for column in columns.values()), strict=True)) == rows


@pytest.mark.parametrize("name", ["e.csv", "e.csv.gz", "e.csv.bz2"])
def test_rows_are_guessed_well(tmp_path, name, monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 20_000 if name == "e.csv" else 100_000)
    rows = np.random.default_rng(0).integers(0, 10**6, (200_000, 2))
    made = table(tmp_path, "src,dst\n" + "".join(f"{a},{b}\n" for a, b in rows), name=name)
    assert made.num_rows is None
    assert made.expected_rows == pytest.approx(200_000, rel=0.05 if name == "e.csv" else 0.5)
    assert table(tmp_path, "src,dst\n").expected_rows <= 1


def test_carriage_returns_alone(tmp_path):
    path = tmp_path / "e.csv"
    path.write_bytes(b"src,dst\r0,1\r1,2\r")
    with pytest.raises(InputError, match="its lines end in a carriage return alone"):
        read_all(CsvTable(path, ENDS))


def test_bytes_that_are_not_utf8(tmp_path, monkeypatch):
    path, fault = tmp_path / "e.csv", "line 3: not UTF-8 text; write the file as UTF-8"
    path.write_bytes("src,dst,w\nann,bob,1\nZoë,eve,2\n".encode("latin-1"))
    for ends in (ENDS, [Request(name="src", columns="src", kind="id", as_string=True)]):
        with pytest.raises(InputError, match=fault):
            read_all(CsvTable(path, ends))
    assert read_all(CsvTable(path, [Request(name="weight", columns="w")]))["weight"].tolist() == [1, 2]
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 20)
    with pytest.raises(InputError, match=fault):
        read_all(CsvTable(path, ENDS))


def test_a_guess_that_was_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 20)
    fields = Request(name="age", columns="w")
    with pytest.raises(
        InputError, match=r"line 4: column 'w' holds '0.5', .* int64 as those in the first MiB: write the first one like 1.0"
    ):
        read_all(table(tmp_path, "src,dst,w\n0,1,1\n1,2,2\n2,3,0.5\n", fields))
    with pytest.raises(InputError, match=r"line 4: column 'dst' holds 'x', .* int64 as those before: say ids='string' if ids are text"):
        read_all(table(tmp_path, "src,dst,w\n0,1,1\n1,2,2\n2,x,3\n", fields))


def test_times_that_are_no_integers(tmp_path):
    with pytest.raises(InputError, match=r"e.csv: column 't', wanted for 'time', holds double; times are integers: round them first"):
        table(tmp_path, "src,dst,t\n0,1,0.5\n", Request(name="time", columns="t"))


@pytest.mark.parametrize("name", ["E.CSV", "e.csv.GZ", "e.TSV"])
def test_endings_in_capital_letters(tmp_path, name):
    text = b"src,dst\n0,1\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("GZ") else text)
    assert pairs(read_all(open_source(tmp_path / name).edges[EDGE].table)) == [(0, 1)]
