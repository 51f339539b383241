"""What cannot be ingested, or made."""

import datetime
import gzip
import json
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock.cli import run
from penstock.errors import InputError, UsageError
from penstock.feed import NeighborLoader
from penstock.sources import csv_table
from penstock.store import Store, ingest
from penstock.store.ingestion import run as ingestion
from tests.refusals import TRAIN, assert_in_table, call, refused, said
from tests.train.stores import make_data


def test_a_source_that_is_not_there_or_nothing_we_know(tmp_path, capfd):
    assert "no such file" in said(capfd, "ingest", tmp_path / "edges.csv", tmp_path / "store")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    said(capfd, "ingest", tmp_path / "picture.png", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_kind_of_graph_without_what_it_needs(tmp_path, capfd):
    assert "'--num-nodes'" in said(capfd, "generate", "zipf", tmp_path / "store")
    assert "'--base'" in said(capfd, "generate", "kronecker", tmp_path / "store")


def test_a_generated_graph_that_is_too_large(tmp_path, capfd):
    def generate(*options):
        return said(capfd, "generate", *options, "store")

    assert "--num-nodes must be at most 2**40" in generate("zipf", "--num-nodes", 1 << 41)
    assert "--scale must be at most 40, got 1000000" in generate("rmat", "--scale", 1_000_000)  # no number of a million bits was made
    assert "--num-classes must be at most 2**32" in generate("rmat", "--scale", 4, "--num-classes", 1 << 33)


@pytest.mark.parametrize(
    ("columns", "fault"), [("a:zzz", "ends at 'zzz'"), ("q:b", "starts at 'q'"), ("b:9", "ends at '9'"), ("b:a", "backwards")]
)
def test_a_range_of_columns_with_a_wrong_end(columns, fault, tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst,a,b\n0,1,2,3\n")
    assert f"range '{columns}' for 'x' " in (line := said(capfd, "ingest", tmp_path / "edges.csv", "store", "--edge-field", f"x={columns}"))
    assert fault in line


def test_columns_with_commas(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst,a,b\n0,1,2,3\n")
    assert "no column 'c' for 'x'; the columns are src, dst, a, b" in said(capfd, "ingest", "edges.csv", "store", "--edge-field", "x=a,c")
    assert call(capfd, "ingest", "edges.csv", "store", "--edge-field", "x=a,b")[0] == 0
    assert Store.open("store").manifest.edges["node", "to", "node"].fields["x"].shape == (1, 2)


def test_a_column_of_lists_beside_others(tmp_path, capfd):
    pq.write_table(pa.table({"src": [0], "dst": [1], "price": [2.0], "emb": [[3.0, 4.0]]}), tmp_path / "edges.parquet")
    assert "column 'emb', wanted for 'x'" in said(capfd, "ingest", "edges.parquet", "store", "--edge-field", "x=price,emb")


def test_part_files_that_disagree(tmp_path, capfd):
    for i, lines in enumerate(["src,dst,w\n0,1,2\n", "1,2\n"]):
        (tmp_path / f"e-{i}.csv").write_text(lines)
    assert "has no header, and 2 columns" in said(capfd, "ingest", "e-*.csv", "store")
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    for i, names in enumerate([["f0", "f1", "f2"], ["f0", "f2", "f1"], ["f0", "f1", "f3"]]):
        pq.write_table(pa.table({name: [float(place)] for place, name in enumerate(names)}), tmp_path / f"n-{i}.parquet")
    ingestion = "ingest", "edges.csv", "store", "--overwrite", "--nodes"
    for nodes, columns in (("n-[01].parquet", "f*"), ("n-[02].parquet", "f*"), ("n-[01].parquet", "f0:"), ("n-[01].parquet", "f[12]")):
        assert "'x' has column 'f" in said(capfd, *ingestion, nodes, "--node-field", f"x={columns}")
    for nodes, columns in (("n-[01].parquet", "f2,f1"), ("n-[02].parquet", "0:"), ("n-[02].parquet", "f[01]")):
        assert call(capfd, *ingestion, nodes, "--node-field", f"x={columns}")[0] == 0


@pytest.mark.parametrize("option", ["--edge-field", "--node-field"])
def test_a_field_given_twice(option, tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst,a,b\n0,1,2,3\n")
    line = said(capfd, "ingest", "edges.csv", "store", option, "z=a", option, "y=a", option, "z=b")
    assert f"{option} is given twice for 'z', as a and as b" in line


def test_a_bad_cell_names_its_line(tmp_path, capfd, monkeypatch):
    (tmp_path / "edges.csv").write_text("src,dst,w\n0,1,0.5\n1,x,0.5\n")
    assert "line 3" in said(capfd, "ingest", tmp_path / "edges.csv", tmp_path / "store", "--edge-field", "weight=w", "--ids", "int")
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 20)
    (tmp_path / "edges.csv").write_text("src,dst,w\n0,1,1\n1,2,2\n2,3,0.5\n3,x,4\n")
    assert "write the first one like 1.0" in said(capfd, "ingest", "edges.csv", "store", "--edge-field", "age=w")
    assert "say --ids string" in said(capfd, "ingest", "edges.csv", "store")
    (tmp_path / "edges.csv").write_text("src,dst,t\n0,1,2024-05-01 10:36\n1,2,2024-05-01 10:36:00.5\n")
    line = said(capfd, "ingest", "edges.csv", "store", "--edge-field", "time=t")
    assert "line 3: column 't' holds '2024-05-01 10:36:00.5', which is not of type timestamp[s] as those in the first MiB" in line
    (tmp_path / "edges.csv").write_bytes("src,dst,w\nann,Zoë,0.5\n".encode("latin-1"))
    assert "line 2: not UTF-8" in said(capfd, "ingest", "edges.csv", "store")
    (tmp_path / "edges.csv").write_text("src,dst,w\n0,1,0.5\n")
    assert "'w', wanted for 'time'" in said(capfd, "ingest", "edges.csv", "store", "--edge-field", "time=w")


def test_times_in_several_units(tmp_path, capfd, caplog):
    def write(name, times):
        pq.write_table(pa.table({"src": [0], "dst": [1], "t": times}), tmp_path / name)

    def line():
        return said(capfd, "ingest", "*.parquet", "store", "--edge-field", "time=t")

    write("a.parquet", pa.array([datetime.datetime(2400, 1, 1)], pa.timestamp("us")))
    write("b.parquet", [17])
    assert "holds numbers here and microseconds since 1970-01-01 in" in line()
    write("b.parquet", pa.array([datetime.datetime(2024, 1, 1)], pa.timestamp("ns")))
    assert "a.parquet, row 0: column 't' holds 2400-01-01 00:00:00" in line()
    files = {f"u__{name}__u": {"files": f"{name}.parquet", "fields": {"time": "t"}} for name in "ab"}
    Path("g.json").write_text(json.dumps({"edges": files}))
    assert call(capfd, "ingest", "g.json", "store")[0] == 0
    (record,) = caplog.records
    assert_in_table(record.getMessage())


def test_ids_far_apart(tmp_path, capfd):
    (tmp_path / "e.csv").write_text("src,dst\n1000000000000,2\n0,30000000\n")
    assert "2 edges name nodes up to 1000000000000" in said(capfd, "ingest", tmp_path / "e.csv", tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert call(capfd, "ingest", tmp_path / "e.csv", tmp_path / "store", "--ids", "int")[0] == 0
    assert Store.open(tmp_path / "store").num_nodes["node"] == 4
    (tmp_path / "e.csv").write_text("src,dst\n0,30000000\n")
    assert call(capfd, "ingest", tmp_path / "e.csv", tmp_path / "other", "--num-nodes", 30_000_001)[0] == 0
    line = said(capfd, "ingest", tmp_path / "e.csv", tmp_path / "third", "--ids", "int", "--num-nodes", 5)
    assert "--num-nodes 5: ids of 'node' are mapped" in line


def test_dangling_edges(tmp_path, capfd):
    (tmp_path / "e.csv").write_text("src,dst\na,b\nb,z\n")
    (tmp_path / "n.csv").write_text("id\nb\na\n")
    assert "line 3: 'dst' is 'z', which no node" in said(capfd, "ingest", "e.csv", "store", "--nodes", "n.csv")
    assert call(capfd, "ingest", "e.csv", "store", "--nodes", "n.csv", "--dangling", "drop")[0] == 0
    (tmp_path / "e.csv").write_text("src,dst\n0,1\n1,7\n")
    assert "line 3: 'dst' is 7" in said(capfd, "ingest", "e.csv", "other", "--num-nodes", 2)
    assert call(capfd, "ingest", "e.csv", "other", "--num-nodes", 2, "--dangling", "drop")[0] == 0
    assert "got 'keep'" in refused(UsageError, ingest, "e.csv", "another", dangling="keep")


def test_more_nodes_than_the_disk_has_room_for(tmp_path, capfd):
    (tmp_path / "far.csv").write_text("src,dst\n0,1\n")
    assert "about 727.6 TiB for the store" in said(capfd, "ingest", "far.csv", "store", "--num-nodes", 10**14)
    assert not (tmp_path / "store").exists()


def test_unknown_options_of_a_source(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    for source in (make_data(), tmp_path / "edges.csv"):
        assert "did you mean 'overwrite'?" in refused(UsageError, ingest, source, tmp_path / "store", overwite=True)
    assert "did you mean 'num_nodes'?" in refused(UsageError, ingest, tmp_path / "edges.csv", tmp_path / "store", numnodes=2)
    assert "it has none" in refused(UsageError, ingest, make_data(), tmp_path / "store", nodes="nodes.csv")
    assert "its options are src" in refused(UsageError, ingest, tmp_path / "edges.csv", tmp_path / "store", colour="red")
    assert not (tmp_path / "store").exists()


def test_a_missing_id(tmp_path, capfd):
    (tmp_path / "e.csv").write_text("src,dst\na,b\nb,\nc,a\n")
    assert "line 3: 'dst' has no value" in said(capfd, "ingest", tmp_path / "e.csv", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_node_table_that_nothing_is_read_from(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "nodes.csv").write_text("name,age\n0,5\n1,6\n")
    said(capfd, "ingest", "edges.csv", "store", "--nodes", "nodes.csv")


def test_arrays_of_an_archive(tmp_path, capfd, caplog):
    def line(**arrays):
        np.savez("g.npz", **{"edge_index": np.array([[0, 1, 2, 0], [1, 2, 0, 1]]), "num_nodes": 3} | arrays)
        return said(capfd, "ingest", "g.npz", "store")

    assert "edge_weight and weight" in line(edge_weight=np.ones(4), weight=np.ones(4))
    assert "y and y_multi" in line(y=np.zeros(3, int), y_multi=np.eye(3))
    assert "'default'" in line(train_mask=np.ones(3, bool), train_idx=np.array([0]))
    assert "expected bool[3] or bool[3, 4]" in line(train_mask=np.ones((3, 2), bool), val_mask=np.ones((3, 4), bool))
    assert "[2] and dtype int64; expected one" in line(num_nodes=np.array([1, 2]))
    assert "holds -1" in line(num_nodes=-1)
    types = {"node_types": np.array(["u"]), "edge_types": np.array(["u__to__u"]), "edge_index__u__to__u": np.array([[0], [1]])}
    assert "'z' is no node type" in line(**types, num_nodes=np.array([2]), target_type="z")
    np.savez("g.npz", edge_index=np.array([[0], [1]]), num_nodes=2, names=np.array(["a", "b"]))
    assert call(capfd, "ingest", "g.npz", "store")[0] == 0
    (record,) = caplog.records
    assert_in_table(record.getMessage())


def test_a_description_too_deep_to_read(tmp_path, capfd):
    (tmp_path / "graph.json").write_text("[" * 100_000)
    assert "not a JSON file that can be read" in said(capfd, "ingest", "graph.json", "store")


def test_descriptions(tmp_path, capfd):
    (tmp_path / "e.csv").write_text("src,dst\n0,1\n")

    def line(**changes):
        Path("g.json").write_text(json.dumps({"edges": {"a__b__c": "e.csv"}} | changes))
        return said(capfd, "ingest", "g.json", "store")

    def of_nodes(**options):
        return line(nodes={"a": options})

    assert "g.json: 'edges'" in line(edges=["e.csv"])
    assert "got None" in line(nodes=None)
    assert "got 3" in line(nodes={"a": 3})
    assert "edges 'a__b__c': files" in line(edges={"a__b__c": {"files": []}})
    assert "got '5'" in of_nodes(num_nodes="5")
    assert "got 'f*'" in of_nodes(fields="f*")
    assert "got 3" in of_nodes(splits=3)
    assert "got ['x']" in of_nodes(dtypes=["x"])
    assert "id must be text" in of_nodes(id=3)
    assert "got 'yes'" in of_nodes(header="yes")
    assert "got '::'" in said(capfd, "ingest", "e.csv", "store", "--delimiter", "::")


def test_splits_of_something_else(tmp_path, capfd):
    (tmp_path / "e.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "split").mkdir()
    for array, fault in (
        (np.ones(3, bool), "[3] and dtype bool; expected bool[2]"),
        (np.zeros(1), "float64; expected a list of node numbers"),
    ):
        np.save(tmp_path / "split" / "train.npy", array)
        assert fault in said(capfd, "ingest", "e.csv", "store", "--num-nodes", 2, "--splits", "split")
    np.save(tmp_path / "split" / "train.npy", np.zeros(1, int))
    for name in ("val", "valid"):
        np.save(tmp_path / "split" / f"{name}.npy", np.ones(1, int))
    assert "would both be the val part" in said(capfd, "ingest", "e.csv", "store", "--num-nodes", 2, "--splits", "split")
    assert "would both be the train part" in refused(InputError, ingest, "e.csv", "store", splits={"train": "split/*.npy"})


def test_arrays_in_place_of_tables(tmp_path, capfd):
    np.save("e.npy", np.zeros((3, 3), int))
    assert "e.npy: has shape [3, 3]" in said(capfd, "ingest", "e.npy", "store")
    assert "'src' is to come from a column" in said(capfd, "ingest", "e.npy", "store", "--src", "a")
    for value, fault in (
        (Path(), "without running code"),
        ({"x": torch.zeros(2)}, "holds a dict"),
        (torch.zeros(4, 4)[:, ::2], "strides [4, 2]"),
    ):
        torch.save(value, "e.pt")
        assert fault in said(capfd, "ingest", "e.pt", "store")
    torch.save(torch.zeros(2), "e.pt", _use_new_zipfile_serialization=False)
    assert "before 1.6" in said(capfd, "ingest", "e.pt", "store")


def test_folders_of_graphbolt(tmp_path, capfd):
    """From a folder that is right, one change at a time."""
    np.savetxt(tmp_path / "e.csv", np.zeros((3, 2)), fmt="%d", delimiter=",")
    for name, array in {
        "f": np.zeros((2, 3)),
        "s": np.arange(2),
        "y": np.arange(2),
        "wide": np.zeros((2, 2)),
        "links": np.zeros((3, 2)),
    }.items():
        np.save(tmp_path / f"{name}.npy", array)
    right = """graph:
  nodes:
  - num: 2
  edges:
  - format: csv
    path: e.csv
feature_data:
- domain: node
  name: feat
  format: numpy
  path: f.npy
- domain: node
  name: more
  format: numpy
  path: wide.npy
tasks:
- name: a
  train_set:
  - data:
    - {"name": "seeds", "format": "numpy", "path": "s.npy"}
    - {"name": "labels", "format": "numpy", "path": "y.npy"}
- name: b
  train_set:
  - data:
    - {"name": "seeds", "format": "numpy", "path": "links.npy"}
"""

    def put(old, new):
        assert old in right
        (tmp_path / "metadata.yaml").write_text(right.replace(old, new, 1))

    def line(change=("", ""), options=()):
        put(*change)
        return said(capfd, "ingest", tmp_path, "store", *options)

    put("name: feat", "name: f")
    code, error = call(capfd, "ingest", tmp_path, "store")
    warnings = [each.removeprefix("warning: ") for each in error.splitlines() if each.startswith("warning: ")]
    assert (code, len(warnings)) == (0, 2)
    assert "left out: links of task 'b'" in warnings[0]
    assert "'node' has features f, more, and none is x" in warnings[1]
    for warning in warnings:
        assert_in_table(warning)
    (tmp_path / "metadata.yaml").write_bytes(b"\xff")
    assert "metadata.yaml: not a YAML file" in said(capfd, "ingest", tmp_path, "store")
    assert "metadata.yaml: not a YAML file that can be read (mapping values are not allowed here in" in line(("num: 2", "num: 2: 3"))
    assert "not a YAML file that can be read (while scanning" in line(("num: 2", "num: `2"))
    assert "metadata.yaml: graph: must be names" in line(("graph:", "graph: 3\nother:"))
    assert "graph: nodes must be a list" in line(("  - num: 2", "    num: 2"))
    assert "graph: edges must be a list, got None" in line(("  edges:", "  arcs:"))
    assert "graph: edges[0]: path must be text" in line(("    path: e.csv\n", ""))
    assert "graph: nodes[0]: num must be a whole number, 0 or more, got 'many'" in line(("num: 2", "num: many"))
    assert "format 'parquet' is not known; write csv or numpy" in line(("format: csv", "format: parquet"))
    assert "the format is numpy and e.csv does not end in .npy" in line(("format: csv", "format: numpy"))
    assert "edge type 'a:b'" in line(("format: csv", "format: csv\n    type: a:b"))
    assert "'user' is no type of the graph; they are node, node:to:node" in line(("name: feat", "type: user\n  name: feat"))
    assert "has seeds of 'user'" in line(("train_set:\n  - data", "train_set:\n  - type: user\n    data"))
    assert "f.npy has 2 rows for 3 nodes" in line(("num: 2", "num: 3"))
    assert "name it by --node-field" in line(("name: feat", "name: id"))
    assert "labels of task 'a' and a feature would both" in line(("name: feat", "name: y"))
    assert "--node-field names 'f', which is no feature of nodes; they are feat, more" in line(options=("--node-field", "x=f"))
    assert "no task 'c' has nodes as seeds; there are a" in line(options=("--split", "c"))
    assert "(a, b); choose one by --split" in line(("links.npy", "s.npy"))
    assert "expected one row for each of 2 seeds" in line(("y.npy", "links.npy"))
    labels = '{"name": "labels", "format": "numpy", "path": "wide.npy"}'
    again = f'train_set:\n  - data:\n    - {{"name": "seeds", "format": "numpy", "path": "s.npy"}}\n    - {labels}\n'
    assert "rows have shapes [[], [2]]" in line(("- name: b\n", "  " + again.replace("train", "test") + "- name: b\n"))
    (tmp_path / "metadata.yaml").unlink()
    (tmp_path / "preprocessed").mkdir()
    (tmp_path / "preprocessed" / "metadata.yaml").write_text("graph_topology:\n  path: preprocessed/g.pt\n")
    torch.save(torch.zeros(1), tmp_path / "preprocessed" / "g.pt")
    assert "not a graph of GraphBolt" in said(capfd, "ingest", tmp_path, "store")


def test_folders_with_broken_lists(tmp_path, capfd):
    ogb = tmp_path / "ogb"
    (ogb / "relations").mkdir(parents=True)
    for text in ("paper,author\n3\n", ""):
        (ogb / "num-node-dict.csv.gz").write_bytes(gzip.compress(text.encode()))
        assert "num-node-dict.csv.gz" in said(capfd, "ingest", ogb, "store")
    mag = tmp_path / "mag"
    (mag / "processed" / "a___b___c").mkdir(parents=True)
    np.save(mag / "processed" / "a___b___c" / "edge_index.npy", np.zeros((2, 1), int))
    for text in ("{paper", "[30]", "[" * 100_000):
        (mag / "num_nodes.json").write_text(text)
        assert "num_nodes.json" in said(capfd, "ingest", mag, "store")
    (mag / "num_nodes.json").write_text("{}")
    torch.save([3], mag / "split_dict.pt")
    assert "split_dict.pt: must give" in said(capfd, "ingest", mag, "store")
    (mag / "split_dict.pt").unlink()
    (mag / "processed" / "a___b___c___d").mkdir()
    assert "a___b___c___d" in said(capfd, "ingest", mag, "store")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 41), }", "truncated"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4611686018427387904), }", "truncated"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3, -4), }", "can be read"),
        ("{'descr': '|V0', 'fortran_order': False, 'shape': (3, 4), }", "can be read"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3" + ", 1" * 70 + "), }", "can be read"),
        ("(" * 3000, "can be read"),
        ("{[]: 1}", "can be read"),
    ],
)
def test_arrays_with_false_headers(save, header, message, tmp_path, capfd):
    save("plain.npz", edge_index=np.zeros((2, 4), int), num_nodes=np.array(3), x=np.zeros((3, 4)), y=np.zeros(3, int))
    text = header.encode() + b"\n"
    with zipfile.ZipFile("plain.npz") as plain, zipfile.ZipFile("false.npz", "w", plain.infolist()[0].compress_type) as false:
        for name in plain.namelist():
            data = plain.read(name)
            head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
            false.writestr(name, head + data[128:] if name == "x.npy" else data)
    assert re.search(message, line := said(capfd, "ingest", "false.npz", "store"))
    assert "false.npz:x" in line


def test_memory_that_does_not_suffice(tmp_path, capfd, monkeypatch):
    source, store = tmp_path / "edges.csv", tmp_path / "store"
    source.write_text("src,dst\n0,1\n")
    assert "at least. Declare more by --memory" in said(capfd, "ingest", source, store, "--memory", "1MiB")
    said(capfd, "ingest", source, store, "--memory", "plenty")
    monkeypatch.setattr(ingestion, "free_bytes", lambda: 95 << 20)
    assert "at least, and 95.0 MiB are free" in said(capfd, "ingest", source, store)
    monkeypatch.setattr(ingestion, "free_bytes", lambda: 96 << 20)  # where pages of libraries count as free too
    assert call(capfd, "ingest", source, store)[0] == 0


def test_empty_graph(tmp_path):
    refused(penstock.errors.InputError, ingest, Data(x=torch.zeros(0, 3), edge_index=torch.zeros(2, 0, dtype=torch.int64)), tmp_path / "s")


def test_features_of_another_length(tmp_path):
    data = make_data()
    data.x = data.x[:399]
    data.num_nodes = 400
    refused(penstock.errors.InputError, ingest, data, tmp_path / "store")
    data = make_data()
    data.y = data.y[:399]
    assert "Data.y has shape [399] for 400 nodes; expected [400]" in refused(penstock.errors.InputError, ingest, data, tmp_path / "store")
    del data.x
    assert "for 400 nodes; set num_nodes" in refused(penstock.errors.InputError, ingest, data, tmp_path / "store")
    for count in (5.0, -5):
        data = Data(num_nodes=count, edge_index=torch.tensor([[0], [1]]))
        assert f"num_nodes is {count}" in refused(penstock.errors.InputError, ingest, data, tmp_path / "store")
    for x in (torch.zeros(4, 2), torch.tensor(1.0)):
        refused(penstock.errors.InputError, NeighborLoader, Data(num_nodes=5, edge_index=torch.tensor([[0], [1]]), x=x), [1])


def test_attributes_that_are_left_out(tmp_path, capfd, caplog):
    data = make_data()
    data.age, data.titles = torch.zeros(399), ["a"] * 400
    ingest(data, tmp_path / "store")
    (record,) = caplog.records
    assert_in_table(record.getMessage())
    assert run(["info", str(tmp_path / "store")]) == 0
    assert "\nleft out of the source: age, titles\n" in capfd.readouterr().out
    for name in ("edge_attr", "edge_weight"):
        wrong = make_data()
        wrong[name] = torch.zeros(wrong.num_edges - 1)
        assert f"Data.{name} has shape" in refused(penstock.errors.InputError, ingest, wrong, tmp_path / name)


def test_masks_of_ids_and_lists_of_features(tmp_path):
    data = make_data()
    data.train_mask = data.train_mask.nonzero().view(-1)
    line = refused(penstock.errors.InputError, ingest, data, tmp_path / "store")
    assert "Data.train_mask has shape [200] and dtype int64" in line
    assert "expected a boolean mask" in line
    data = make_data()
    data.x = data.x.tolist()
    assert "Data.x is of type list" in refused(penstock.errors.InputError, ingest, data, tmp_path / "store")


def test_fields_of_names_that_are_taken(tmp_path, capfd):
    (tmp_path / "e.csv").write_text("src,dst,w\n0,1,5\n1,2,7\n")
    assert "'edge_index' of edges" in said(capfd, "ingest", tmp_path / "e.csv", tmp_path / "s", "--edge-field", "edge_index=w")
    data = make_data()
    data.n_id = torch.arange(400)
    assert "'n_id' of nodes" in refused(penstock.errors.InputError, ingest, data, tmp_path / "s")


def test_labels_out_of_range(tmp_path):
    data = make_data()
    data.y[5] = -7
    refused(penstock.errors.InputError, ingest, data, tmp_path / "store")


def test_values_too_large(tmp_path, capfd):
    for name, fault in (("x", "choose a wider --feature-dtype"), ("y", "scale the values down")):
        np.savez("g.npz", edge_index=np.array([[0], [1]]), num_nodes=2, **{name: np.array([[1.0, 2], [3, 1e39]])})
        assert fault in said(capfd, "ingest", "g.npz", "store")


def test_labels_that_number_no_classes(tmp_path):
    data = make_data()
    data.y[5] = 10**12
    assert "row 5: field 'y' is 1000000000000" in refused(penstock.errors.InputError, ingest, data, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_nan_features_and_nan_loss(tmp_path, capfd):
    data = make_data()
    data.x[17, 1] = float("nan")
    refused(penstock.errors.InputError, ingest, data, tmp_path / "store")
    ingest(data, tmp_path / "store", allow_nan=True)
    said(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", *TRAIN)


def test_an_attribute_called_id(tmp_path):
    data = make_data()
    data.id = torch.arange(400)
    refused(InputError, penstock.ingest, data, tmp_path / "store")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_blank_line_in_a_file_of_one_column(tmp_path, capfd, end):
    """Else later labels would be those of other nodes. At the end of a file it is no row."""
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,2\n")
    ingest_labels = ("ingest", "edges.csv", "store", "--nodes", "labels.csv", "--node-field", "y=c", "--overwrite")
    for lines in (["c", "1", "", "2"], ["c", "", "1", "2"], ["c", "1", "", "", "2"]):
        (tmp_path / "labels.csv").write_bytes(end.join(lines).encode())
        assert "blank line" in said(capfd, *ingest_labels)
    for lines in (["c", "1", '""', "2", "", ""], ["c", "1", '""', "2"]):
        (tmp_path / "labels.csv").write_bytes(end.join(lines).encode())
        assert call(capfd, *ingest_labels)[0] == 0
        assert Store(tmp_path / "store").node_field("y").tolist() == [1, -1, 2]
