"""Dates and times: one unit within a field, whatever the parts are written in; known across types."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables import read_all

import penstock
from penstock.cli import run
from penstock.errors import InputError
from penstock.sources import open_source
from penstock.sources.columns import Request
from penstock.sources.parquet_table import ParquetTable

MOMENTS = [datetime.datetime(2024, 5, 1, 10, 36), datetime.datetime(1969, 12, 31)]
EPOCH = datetime.datetime(1970, 1, 1)


def write_parquet(path, times):
    pq.write_table(pa.table({"src": pa.array(range(len(times))), "dst": pa.array(range(len(times))), "t": times}), path)


def read_times(source, name="time", **options):
    edges = open_source(source, edge_fields={name: "t"}, **options).edges["node", "to", "node"].table
    return read_all(edges)[name], edges.columns[name]


@pytest.mark.parametrize("units", [("us", "ns", "ms"), ("ns", "us"), ("ms", "us"), ("ms", "ms")])  # Parquet has no seconds
def test_parts_in_several_units_end_in_the_finest(tmp_path, units):
    for i, unit in enumerate(units):
        write_parquet(tmp_path / f"{i}.parquet", pa.array(MOMENTS, pa.timestamp(unit)))
    times, column = read_times(tmp_path)
    step = max({"ms": 10**3, "us": 10**6, "ns": 10**9}[unit] for unit in units)
    expected = [int((moment - EPOCH).total_seconds()) * step for moment in MOMENTS]
    assert times.tolist() == expected * len(units)
    assert times.dtype == np.int64
    assert str(column.unit).endswith("seconds since 1970-01-01")


def test_dates_zones_and_parts_without_rows(tmp_path):
    write_parquet(tmp_path / "0.parquet", pa.array([datetime.date(1970, 1, 3)], pa.date32()))
    write_parquet(tmp_path / "1.parquet", pa.array([], pa.timestamp("ns")))  # no rows: its unit does not count
    write_parquet(tmp_path / "2.parquet", pa.array([MOMENTS[1]], pa.timestamp("s", "Europe/Paris")))
    write_parquet(tmp_path / "3.parquet", pa.array([datetime.date(1970, 1, 2)], pa.date64()))
    times, column = read_times(tmp_path)
    assert times.tolist() == [2 * 86_400_000, -86_400_000, 86_400_000]
    assert str(column.unit) == "milliseconds since 1970-01-01"


def test_lists_and_times_of_day(tmp_path):
    write_parquet(tmp_path / "0.parquet", pa.array([[datetime.time(0, 1), datetime.time(0, 2)]], pa.list_(pa.time32("s"))))
    write_parquet(tmp_path / "1.parquet", pa.array([[datetime.time(0, 3), datetime.time(0, 4)]], pa.list_(pa.time32("ms"))))
    values, column = read_times(tmp_path, "open")
    assert values.tolist() == [[60_000, 120_000], [180_000, 240_000]]
    assert str(column.unit) == "milliseconds since midnight"


def test_csv_parts_of_several_precisions(tmp_path):
    for i, text in enumerate(["2024-05-01 10:36", "2024-05-01 10:36:00.5", "2024-05-01", "2024-05-01T10:36:00Z"]):
        (tmp_path / f"{i}.csv").write_text(f"src,dst,t\n0,1,{text}\n")
    times, column = read_times(tmp_path)
    day, moment = 1_714_521_600 * 10**9, 1_714_559_760 * 10**9
    assert times.tolist() == [moment, moment + 5 * 10**8, day, moment]
    assert str(column.unit) == "nanoseconds since 1970-01-01"


def test_columns_of_one_field_are_compared_only_where_they_are_times(tmp_path):
    columns = {"a": pa.array([MOMENTS[0]], pa.timestamp("ms")), "b": pa.array([MOMENTS[0]], pa.timestamp("us")), "c": [7]}
    pq.write_table(pa.table(columns), tmp_path / "e.parquet")
    moment = 1_714_559_760_000
    made = ParquetTable(tmp_path / "e.parquet", [Request(name="time", columns=["a", "b"]), Request(name="z", columns=["a", "b", "c"])])
    assert {name: values.tolist() for name, values in read_all(made).items()} == {
        "time": [[moment * 1000] * 2],
        "z": [[moment, moment * 1000, 7]],
    }
    assert (str(made.columns["time"].unit), made.columns["z"].unit) == ("microseconds since 1970-01-01", None)
    pq.write_table(pa.table(columns | {"a": pa.array([MOMENTS[0]], pa.timestamp("us"))}), tmp_path / "f.parquet")
    both = open_source([tmp_path / "e.parquet", tmp_path / "f.parquet"], src="c", dst="c", edge_fields={"z": ["a", "b", "c"]})
    assert read_all(both.edges["node", "to", "node"].table)["z"].tolist() == [[moment * 1000, moment * 1000, 7]] * 2


def test_what_does_not_fit_the_unit(tmp_path):
    far = pa.array([MOMENTS[0], datetime.datetime(2400, 1, 1)], pa.timestamp("us"))
    write_parquet(tmp_path / "0.parquet", far)
    assert str(read_times(tmp_path)[1].unit) == "microseconds since 1970-01-01"
    write_parquet(tmp_path / "1.parquet", pa.array(MOMENTS, pa.timestamp("ns")))
    with pytest.raises(InputError, match=r"0\.parquet, row 1: column 't' holds 2400-01-01 00:00:00, which is too far .* for nanoseconds"):
        read_times(tmp_path)


@pytest.mark.parametrize("other", [pa.array([5, 6]), pa.array([datetime.time(1)] * 2, pa.time64("us"))])
def test_parts_that_cannot_be_told_in_one_unit(tmp_path, other):
    write_parquet(tmp_path / "0.parquet", pa.array(MOMENTS, pa.timestamp("us")))
    write_parquet(tmp_path / "1.parquet", other)
    with pytest.raises(
        InputError, match=r"1\.parquet: column 'time' holds (numbers|microseconds since midnight) here and microseconds since"
    ):
        read_times(tmp_path)


def test_the_unit_is_kept_and_shown(tmp_path, capsys):
    write_parquet(tmp_path / "e.parquet", pa.array([MOMENTS[0], EPOCH], pa.timestamp("ms")))
    store = penstock.ingest(tmp_path / "e.parquet", tmp_path / "store", edge_fields={"time": "t", "seen": "t", "number": "src"})
    fields = store.manifest.edges["node", "to", "node"].fields
    assert fields["time"].properties == {"unit": "milliseconds since 1970-01-01", "is_ascending": False}
    assert fields["seen"].properties == {"unit": "milliseconds since 1970-01-01"}
    assert fields["number"].properties == {}
    assert run(["info", str(tmp_path / "store")]) == 0
    assert "time int64 (milliseconds since 1970-01-01), seen" in capsys.readouterr().out


def test_types_whose_times_are_in_several_units(tmp_path, caplog):
    write_parquet(tmp_path / "a.parquet", pa.array(MOMENTS[:1], pa.timestamp("ms")))
    (tmp_path / "b.csv").write_text("src,dst,t\n0,0,2024-05-01 10:36\n")
    (tmp_path / "c.csv").write_text("src,dst,t\n0,0,17\n")
    files = {"a": "a.parquet", "b": "b.csv", "c": "c.csv"}
    edges = {f"u__{name}__u": {"files": file, "fields": {"time": "t"}} for name, file in files.items()}
    (tmp_path / "g.json").write_text(json.dumps({"edges": edges}))
    penstock.ingest(tmp_path / "g.json", tmp_path / "store")
    (record,) = caplog.records
    assert record.getMessage() == (
        "times are in several units and cannot be compared: milliseconds since 1970-01-01 of edges u-a-u, "
        "seconds since 1970-01-01 of edges u-b-u. Write them in one"
    )
    caplog.clear()
    (tmp_path / "g.json").write_text(json.dumps({"edges": {name: edges[name] for name in ("u__b__u", "u__c__u")}}))
    penstock.ingest(tmp_path / "g.json", tmp_path / "other")
    assert not caplog.records
