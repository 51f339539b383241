"""Edges that are not held out."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from penstock import cli
from penstock.store import Store, hold_out, ingest
from penstock.train import aggregate
from tests.refusals import call, said
from tests.train.stores import make_typed_store


@pytest.fixture
def typed(tmp_path):
    make_typed_store(tmp_path / "typed")
    return tmp_path / "typed"


def test_edges_that_are_not_held_out(tmp_path, store, typed, capfd):
    new = tmp_path / "new"
    types = " or ".join(map(",".join, Store.open(typed).edge_types))
    assert said(capfd, "hold-out", typed, new).endswith(f"has several edge types, choose one by --edge-type: {types}")
    assert "has no edges a,b; it has node,to,node" in said(capfd, "hold-out", store, new, "--edge-type", "a,b")
    assert f"has no edges node/to/node; it has {types}" in said(capfd, "hold-out", typed, new, "--edge-type", "node/to/node")
    assert "is not a store" in said(capfd, "hold-out", tmp_path, new)
    assert not new.exists()


def test_shares(tmp_path, store, capfd):
    new = tmp_path / "new"
    for given in (("--val", "1"), ("--test", "-0.1"), ("--val", "nan")):
        assert "is no share of the edges" in said(capfd, "hold-out", store, new, *given)
    for given in (("--val", "0", "--test", "0"), ("--val", "0.5", "--test", "0.5")):
        assert "must leave something in the graph" in said(capfd, "hold-out", store, new, *given)
    assert "val would have none" in said(capfd, "hold-out", store, new, "--val", "1e-9")
    assert "the graph would have none" in said(capfd, "hold-out", store, new, "--val", "0.4999999999", "--test", "0.5")
    assert not new.exists()


def test_links_that_are_given(tmp_path, store, capfd):
    new, file = tmp_path / "new", tmp_path / "links.npy"
    assert "--val takes a share, or a file of pairs, .npy, .csv or" in said(capfd, "hold-out", store, new, "--val", "a few")
    for damaged in (b"1 2", b""):
        file.write_bytes(damaged)
        assert "links.npy is none" in said(capfd, "hold-out", store, new, "--test", file)
    file.write_bytes(b"\x93NUMPY")
    assert "not a .npy array that can be read" in said(capfd, "hold-out", store, new, "--test", file)
    np.save(file, np.array([["a", 1]], object))
    assert "holds Python objects" in said(capfd, "hold-out", store, new, "--test", file)
    np.save(file, np.zeros((500, 2), np.int64))
    file.write_bytes(file.read_bytes()[:-100])
    assert "truncated" in said(capfd, "hold-out", store, new, "--test", file)
    for links in (np.zeros((3, 3), np.int64), np.zeros((2, 5)), np.zeros((0, 2), np.int64), np.arange(4)):
        np.save(file, links)
        assert "must be a share, or whole numbers" in said(capfd, "hold-out", store, new, "--test", file)
    for links, what in (([[0, 1], [400, 2]], "source"), ([[0, 3], [1, -1]], "target")):
        np.save(file, np.array(links))
        assert f"1 of 2 {what} ids lie outside [0, 400)" in said(capfd, "hold-out", store, new, "--test", file)
    np.save(file, Store.open(store).edge_index())
    whole = said(capfd, "hold-out", store, new, "--val", "0", "--test", file)
    assert re.search("the graph would have none of .*, since edges like given links are left out", whole)
    assert not new.exists()
    np.save(file, np.array([[0, 1], [2, 3]]))
    assert call(capfd, "hold-out", store, new, "--test", file)[0] == 0
    assert Store.open(new).links("test").tolist() == [[0, 2], [1, 3]], "a link a row"


def test_tables_of_links(tmp_path, capfd):
    """In ids of the user's, words of users and numbers of films."""
    (tmp_path / "rates.csv").write_text(
        "src,dst,stars,time\n" + "".join(f"u{i % 9},{1000 + i % 7},{i % 5},2026-01-0{1 + i % 9}\n" for i in range(60))
    )
    (tmp_path / "graph.json").write_text(
        '{"nodes": {"user": {}, "film": {"ids": "int"}}, "edges": {"user__rates__film": '
        '{"files": "rates.csv", "fields": {"stars": "stars", "time": "time"}}}}'
    )
    assert call(capfd, "ingest", tmp_path / "graph.json", tmp_path / "store")[0] == 0
    new, file = tmp_path / "new", tmp_path / "links.csv"

    def refuses(text):
        file.write_text(text)
        return said(capfd, "hold-out", tmp_path / "store", new, "--test", file)

    assert "links.csv needs columns src and dst, the ids of both ends, named in a line above" in refuses("u1,1000\nu2,1001\n")
    assert "links.csv needs columns src and dst" in refuses("user,film\nu1,1000\n")
    assert "links.csv needs columns src and dst" in refuses("1,1000,5\n"), "the third would be lost"
    assert "links.csv has no pairs" in refuses("src,dst\n")
    assert "line 3: 'src' is 'ann', which no node of type 'user' has as its id" in refuses("src,dst\nu1,1000\nann,1001\n")
    assert "line 2: 'src' is ' u1', which" in refuses("src,dst\n u1,1000\n")
    assert "line 2: 'dst' is '9', which no node of type 'film' has as its id" in refuses("src,dst\nu1,9\n")
    assert "line 2: column 'dst' holds 'x', which is not of type int64" in refuses("src,dst\nu1,x\n")
    assert "line 3: column 'stars' is empty" in refuses("src,dst,stars\nu1,1000,3\nu1,1001,\n")
    assert "column 'time' is in plain numbers, and that of the store in days since" in refuses("src,dst,time\nu1,1000,3\n")
    fine = refuses("src,dst,time\nu1,1000,2026-01-01 10:00:00\n")
    assert "column 'time' is in seconds since 1970-01-01, and that of the store in days since" in fine

    def refuses_columns(**columns):
        pq.write_table(pa.table(columns), tmp_path / "links.parquet")
        return said(capfd, "hold-out", tmp_path / "store", new, "--test", tmp_path / "links.parquet")

    text = refuses_columns(src=["u1"], dst=["1000"])
    assert "links.parquet: column 'dst' holds text, and the ids of node type 'film' are whole numbers" in text
    assert refuses_columns(src=["u1"], dst=[1e3]).endswith("holds double; ids are 64-bit integers or strings")
    assert "links.parquet needs columns src and dst" in refuses_columns(src=["u1"]), "which is not both ends"
    text = refuses_columns(src=["u1"], dst=[1000], stars=[[1, 2]])
    assert "links.parquet: column 'stars' has 2 numbers in a row, and that of the store 1" in text
    assert "is none" in said(capfd, "hold-out", tmp_path / "store", new, "--test", tmp_path)
    assert not new.exists()


def test_fields_that_edges_are_not_held_out_by(tmp_path, store, capfd):
    new = tmp_path / "new"
    assert "have no field 'when'" in said(capfd, "hold-out", store, new, "--by", "when")
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    for name, values in (("share", torch.rand(3)), ("brain", torch.rand(3).bfloat16()), ("pair", torch.zeros(3, 2, dtype=torch.int64))):
        data = Data(edge_index=edges, num_nodes=4)
        data[name] = values
        ingest(data, tmp_path / name)
        assert "a whole number per edge" in said(capfd, "hold-out", tmp_path / name, new, "--by", name)


def test_reverses(tmp_path, typed, capfd):
    new = tmp_path / "new"
    reverse = "any of paper,by,author may hold the reverses of author,writes,paper"
    assert reverse in said(capfd, "hold-out", typed, new, "--edge-type", "author,writes,paper")
    assert "is no type of edges" in said(capfd, "hold-out", typed, new, "--edge-type", "author,writes,paper", "--reverse", "a,b,c")
    data, cites = HeteroData(), torch.randint(0, 50, (2, 400), generator=torch.Generator().manual_seed(0))
    data["paper"].num_nodes = 50
    data["paper", "cites", "paper"].edge_index, data["paper", "cited_by", "paper"].edge_index = cites, cites.flip(0)
    data["paper", "near", "paper"].edge_index = torch.randint(0, 50, (2, 400), generator=torch.Generator().manual_seed(1))
    ingest(data, tmp_path / "papers")
    for first, second in (("cites", "cited_by"), ("cited_by", "cites")):
        have = f"most edges paper,{first},paper have their reverse in paper,{second},paper"
        assert have in said(capfd, "hold-out", tmp_path / "papers", new, "--edge-type", f"paper,{first},paper")
    assert cli.run(["hold-out", str(tmp_path / "papers"), str(tmp_path / "near"), "--edge-type", "paper,near,paper"]) == 0
    given = ["--edge-type", "paper,cites,paper", "--reverse", "paper,cited_by,paper"]
    assert cli.run(["hold-out", str(tmp_path / "papers"), str(new), *given]) == 0
    assert Store.open(new).reverses_left_out(("paper", "cites", "paper")) == [("paper", "cited_by", "paper")]


def test_destinations(tmp_path, store, capfd):
    new = tmp_path / "new"
    hold_out(store, new)
    assert "is a store already" in said(capfd, "hold-out", store, new)
    assert "the store itself" in said(capfd, "hold-out", store, store / ".", "--overwrite")
    assert "in the store" in said(capfd, "hold-out", store, store / "nodes" / "inner")
    assert "does not exist" in said(capfd, "hold-out", store, tmp_path / "none" / "further")
    assert "already: take the store that it was made from" in said(capfd, "hold-out", new, tmp_path / "again")


def test_features_that_tell(tmp_path, store, capfd):
    aggregate(store, tmp_path / "mean")
    assert "hold out first" in said(capfd, "hold-out", tmp_path / "mean", tmp_path / "new")


def test_a_disk_without_room(tmp_path, store, capfd, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    assert "for its edges, and the disk has 10 B free" in said(capfd, "hold-out", store, tmp_path / "new")
    assert not (tmp_path / "new").exists()
