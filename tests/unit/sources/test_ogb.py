"""OGB's raw folders and MAG240M, written small by the tests."""

import gzip
import json

import numpy as np
import pytest
import torch
from tests.tables import check_table, edges_of, read_all

from penstock.cli.info import as_text
from penstock.errors import InputError, UsageError
from penstock.records import EDGE, NODE
from penstock.sources import open_source
from penstock.store import Store, ingest

RNG = np.random.default_rng(0)
EDGES = RNG.integers(0, 30, (2, 100))
FEATURES = RNG.standard_normal((30, 5)).astype(np.float32)
LABELS = RNG.integers(0, 4, 30)
YEARS = RNG.integers(2000, 2020, 30)
PARTS = {"train": [3, 1, 2], "valid": [7, 5], "test": [9]}


def write_csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        for row in np.asarray(rows, dtype=object).reshape(len(rows), -1) if len(rows) else []:
            file.write(",".join(str(cell) for cell in row) + "\n")


def write_split(folder):
    for part, ids in PARTS.items():
        write_csv(folder / f"{part}.csv.gz", ids)


def check_split(source, node_type=NODE):
    split = source.splits[node_type]["default"]
    assert {part: ids.tolist() for part, ids in split.items()} == {"train": [1, 2, 3], "val": [5, 7], "test": [9]}


@pytest.fixture
def arxiv(tmp_path):
    raw = tmp_path / "ogbn_arxiv" / "raw"
    write_csv(raw / "edge.csv.gz", EDGES.T)
    write_csv(raw / "num-node-list.csv.gz", [30])
    write_csv(raw / "num-edge-list.csv.gz", [100])
    write_csv(raw / "node-feat.csv.gz", FEATURES)
    write_csv(raw / "node-label.csv.gz", LABELS)
    write_csv(raw / "node_year.csv.gz", YEARS)
    write_split(tmp_path / "ogbn_arxiv" / "split" / "time")
    return tmp_path / "ogbn_arxiv"


@pytest.mark.parametrize("inner", ["", "raw"])
def test_arxiv(arxiv, inner):
    source = open_source(arxiv / inner)
    assert source.is_homogeneous
    assert source.nodes[NODE].num_nodes == 30
    np.testing.assert_array_equal(edges_of(source), EDGES)
    columns = check_table(source.nodes[NODE].table)
    assert columns["y"].dtype == np.int64
    for name, expected in {"x": FEATURES, "y": LABELS, "node_year": YEARS}.items():
        np.testing.assert_array_equal(columns[name], expected)
    check_split(source)
    assert source.provenance == {"kind": "ogb", "files": ["ogbn_arxiv"], "split": "time"}


def test_proteins(tmp_path):
    raw, tasks, weights = tmp_path / "raw", RNG.integers(0, 2, (30, 12)), RNG.random((100, 8)).astype(np.float32)
    write_csv(raw / "edge.csv.gz", EDGES.T)
    write_csv(raw / "num-node-list.csv.gz", [30])
    write_csv(raw / "edge-feat.csv.gz", weights)
    write_csv(raw / "node-label.csv.gz", tasks)
    write_csv(raw / "node_species.csv.gz", YEARS)
    source = open_source(tmp_path)
    columns, edges = check_table(source.nodes[NODE].table), check_table(source.edges[EDGE].table)
    assert columns["y"].dtype == np.uint8
    np.testing.assert_array_equal(columns["y"], tasks)
    np.testing.assert_array_equal(columns["node_species"], YEARS)
    np.testing.assert_array_equal(edges["x"], weights)
    assert source.splits == {}


def test_choosing_a_split(arxiv):
    write_split(arxiv / "split" / "random")
    with pytest.raises(InputError, match=r"several splits \(random, time\); choose one by split="):
        open_source(arxiv)
    check_split(open_source(arxiv, split="random"))
    with pytest.raises(InputError, match="no split 'sales' there; there are random, time"):
        open_source(arxiv, split="sales")
    with pytest.raises(UsageError, match="an OGB folder has no option 'src'; its options are split"):
        open_source(arxiv, src="a")


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("num-node-list.csv.gz", [10, 20], "holds 10,20; expected the number of nodes of one graph"),
        ("num-node-list.csv.gz", ["x"], "holds 'x'; expected"),
        ("node-label.csv.gz", LABELS[:29], "node-label.csv.gz ends after 29 rows and .*node-feat.csv.gz has more"),
        ("node-label.csv.gz", [0.5] * 30, "node-label.csv.gz, line 1: label 0.5 is no class number"),
        ("node-feat.csv.gz", [["1", "b"]] * 30, "line 1: column '1' holds 'b'"),
    ],
)
def test_bad_files(arxiv, file, rows, message):
    write_csv(arxiv / "raw" / file, rows)
    with pytest.raises(InputError, match=message.replace("10,20", "'10,20'")):
        read_all(open_source(arxiv).nodes[NODE].table)


def test_missing_node_count(arxiv):
    (arxiv / "raw" / "num-node-list.csv.gz").unlink()
    with pytest.raises(InputError, match=r"num-node-list.csv.gz: no such file"):
        open_source(arxiv)


def test_mag(tmp_path):
    raw, time = tmp_path / "ogbn_mag" / "raw", tmp_path / "ogbn_mag" / "split" / "time"
    types = {("author", "writes", "paper"): EDGES, ("paper", "cites", "paper"): EDGES[:, :7]}
    write_csv(raw / "num-node-dict.csv.gz", [["paper", "author"], [30, 40]])
    write_csv(raw / "triplet-type-list.csv.gz", [list(edge_type) for edge_type in types])
    for edge_type, edges in types.items():
        folder = raw / "relations" / "___".join(edge_type)
        write_csv(folder / "edge.csv.gz", edges.T)
        write_csv(folder / "edge_reltype.csv.gz", [3] * edges.shape[1])
    write_csv(raw / "node-feat" / "paper" / "node-feat.csv.gz", FEATURES)
    write_csv(raw / "node-feat" / "paper" / "node_year.csv.gz", YEARS)
    write_csv(raw / "node-label" / "paper" / "node-label.csv.gz", LABELS)
    write_split(time / "paper")
    source = open_source(tmp_path / "ogbn_mag")
    assert not source.is_homogeneous
    assert {name: nodes.num_nodes for name, nodes in source.nodes.items()} == {"author": 40, "paper": 30}
    for edge_type, edges in types.items():
        np.testing.assert_array_equal(edges_of(source, edge_type), edges)
    assert read_all(source.edges["paper", "cites", "paper"].table)["edge_reltype"].tolist() == [3] * 7
    columns = check_table(source.nodes["paper"].table)
    np.testing.assert_array_equal(columns["x"], FEATURES)
    np.testing.assert_array_equal(columns["y"], LABELS)
    np.testing.assert_array_equal(columns["node_year"], YEARS)
    assert source.nodes["author"].table is None
    check_split(source, "paper")


def test_info_names_the_parts_in_the_order_of_their_use(arxiv, tmp_path):
    assert "    split default: train 3, val 2, test 1\n" in as_text(Store.open(ingest(arxiv, tmp_path / "store").path))


def test_relations_and_parts_without_rows(arxiv, tmp_path):
    write_csv(arxiv / "split" / "time" / "valid.csv.gz", [])
    assert [ids.size for ids in open_source(arxiv).splits[NODE]["default"].values()] == [1, 3, 0]
    raw = tmp_path / "mag" / "raw"
    write_csv(raw / "num-node-dict.csv.gz", [["paper"], [30]])
    write_csv(raw / "triplet-type-list.csv.gz", [["paper", "cites", "paper"], ["paper", "quotes", "paper"]])
    write_csv(raw / "relations" / "paper___cites___paper" / "edge.csv.gz", EDGES.T)
    write_csv(raw / "relations" / "paper___quotes___paper" / "edge.csv.gz", [])
    write_csv(raw / "relations" / "paper___quotes___paper" / "edge_reltype.csv.gz", [])
    assert list(ingest(tmp_path / "mag", tmp_path / "store").num_edges.values()) == [100, 0]


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("num-node-dict.csv.gz", [["paper", "author"], [30]], "num-node-dict.csv.gz, row 2: 1 fields where 2 are expected"),
        ("num-node-dict.csv.gz", [], "num-node-dict.csv.gz: empty, it has no rows"),
        ("triplet-type-list.csv.gz", [["paper", "cites"]], r"triplet-type-list.csv.gz, row 1: 2 fields where 3 .* \('paper,cites'\)"),
    ],
)
def test_bad_files_of_types(tmp_path, file, rows, message):
    files = {"num-node-dict.csv.gz": [["paper"], [30]], "triplet-type-list.csv.gz": [["paper", "cites", "paper"]], file: rows}
    (tmp_path / "relations").mkdir()
    for name, lines in files.items():
        with gzip.open(tmp_path / name, "wt") as out:
            out.writelines(",".join(map(str, line)) + "\n" for line in lines)
    with pytest.raises(InputError, match=message):
        open_source(tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_papers100m(tmp_path, save):
    raw = tmp_path / "raw"
    raw.mkdir()
    labels = np.where(np.arange(30) % 3 == 0, LABELS, np.nan).astype(np.float32)[:, None]
    save(
        raw / "data.npz",
        edge_index=EDGES,
        node_feat=FEATURES.astype(np.float16),
        node_year=YEARS[:, None],
        num_nodes_list=np.array([30]),
        num_edges_list=np.array([100]),
    )
    save(raw / "node-label.npz", node_label=labels)
    write_split(tmp_path / "split" / "time")
    source = open_source(tmp_path)
    np.testing.assert_array_equal(edges_of(source), EDGES)
    check_table(source.edges[EDGE].table)
    columns = check_table(source.nodes[NODE].table)
    np.testing.assert_array_equal(columns["x"], FEATURES.astype(np.float16))
    np.testing.assert_array_equal(columns["node_year"], YEARS)
    np.testing.assert_array_equal(columns["y"], np.where(np.arange(30) % 3 == 0, LABELS, -1))
    check_split(source)


def test_papers100m_with_one_feature(tmp_path):
    np.savez(tmp_path / "data.npz", edge_index=EDGES, num_nodes_list=np.array([30]), node_feat=FEATURES[:, :1])
    assert check_table(open_source(tmp_path).nodes[NODE].table)["x"].shape == (30, 1)


def test_bad_binary_folder(tmp_path):
    np.savez(tmp_path / "data.npz", edge_index=EDGES)
    with pytest.raises(InputError, match="needs edge_index and num_nodes_list; its keys are edge_index"):
        open_source(tmp_path)
    np.savez(tmp_path / "data.npz", edge_index=EDGES, num_nodes_list=np.array([29]), node_feat=FEATURES)
    with pytest.raises(InputError, match="has 30 rows for 29 nodes"):
        open_source(tmp_path)


def write_mag240m(folder, *, with_torch_files):
    types = {("author", "writes", "paper"): EDGES, ("paper", "cites", "paper"): EDGES[:, :9]}
    for edge_type, edges in types.items():
        (folder / "processed" / "___".join(edge_type)).mkdir(parents=True)
        np.save(folder / "processed" / "___".join(edge_type) / "edge_index.npy", edges)
    paper = folder / "processed" / "paper"
    paper.mkdir()
    np.save(paper / "node_feat.npy", FEATURES.astype(np.float16))
    np.save(paper / "node_label.npy", np.where(LABELS == 0, np.nan, LABELS).astype(np.float32))
    np.save(paper / "node_year.npy", YEARS)
    parts = {name: np.array(ids) for name, ids in (("train", [3, 1, 2]), ("valid", [7, 5]), ("test-dev", [9]), ("test-whole", [9]))}
    if with_torch_files:
        torch.save({"paper": 30, "author": 40, "num_classes": 4}, folder / "meta.pt")
        torch.save(parts, folder / "split_dict.pt")
        return
    (folder / "num_nodes.json").write_text(json.dumps({"paper": 30, "author": 40}))
    (folder / "split").mkdir()
    for name, ids in parts.items():
        np.save(folder / "split" / f"{name}.npy", ids)


@pytest.mark.parametrize("with_torch_files", [True, False])
def test_mag240m(tmp_path, with_torch_files):
    write_mag240m(tmp_path, with_torch_files=with_torch_files)
    source = open_source(tmp_path)
    assert {name: nodes.num_nodes for name, nodes in source.nodes.items()} == {"author": 40, "paper": 30}
    np.testing.assert_array_equal(edges_of(source, ("author", "writes", "paper")), EDGES)
    columns = check_table(source.nodes["paper"].table)
    np.testing.assert_array_equal(columns["x"], FEATURES.astype(np.float16))
    np.testing.assert_array_equal(columns["y"], np.where(LABELS == 0, -1, LABELS))
    np.testing.assert_array_equal(columns["node_year"], YEARS)
    check_split(source, "paper")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{paper", "num_nodes.json: not a JSON file that can be read"),
        ("[30]", r"must give each node type its number of nodes, got \[30\]"),
        ('{"paper": "30"}', "must give each node type its number of nodes, got {'paper': '30'}"),
    ],
)
def test_bad_numbers_of_nodes_of_mag240m(tmp_path, text, message):
    write_mag240m(tmp_path, with_torch_files=False)
    (tmp_path / "num_nodes.json").write_text(text)
    with pytest.raises(InputError, match=message):
        open_source(tmp_path)


def test_a_folder_of_mag240m_that_names_no_edge_type(tmp_path):
    write_mag240m(tmp_path, with_torch_files=False)
    (tmp_path / "processed" / "a___b___c___d").mkdir()
    with pytest.raises(InputError, match="a___b___c___d: a folder of edges is called <source type>___<relation>___<destination type>"):
        open_source(tmp_path)


def test_a_torch_file_that_would_run_code_is_refused(tmp_path):
    write_mag240m(tmp_path, with_torch_files=True)
    torch.save({"paper": Exploit()}, tmp_path / "meta.pt")
    with pytest.raises(InputError, match=r"meta.pt: cannot be loaded without running code in it"):
        open_source(tmp_path)


def test_a_torch_file_that_ends_too_early_is_refused(tmp_path):
    write_mag240m(tmp_path, with_torch_files=True)
    (tmp_path / "meta.pt").write_bytes(b"\x80\x02")
    with pytest.raises(InputError, match=r"meta.pt: cannot be loaded without running code in it \(EOFError\)"):
        open_source(tmp_path)


class Exploit:
    def __reduce__(self):
        return print, ("run",)
