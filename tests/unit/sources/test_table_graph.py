"""Graphs in tables of edges and nodes, and the one way in."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.tables import check_table, edges_of, read_all

from penstock.errors import InputError, MissingFieldError, MissingFileError, PenstockError, UsageError
from penstock.records import EDGE, NODE
from penstock.sources import open_source
from penstock.sources.source import ArrayTable, EdgeTable, NodeTable, Source
from penstock.store import ingest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {
        "edges.csv": "src,dst,w,t\n0,1,2,10\n1,2,0.5,20\n2,0,1,30\n",
        "named.csv": "from,to\nann,bob\nbob,eve\n",
        "nodes.csv": "id,part,class,f0,f1\nbob,train,0,1,2\nann,valid,1,3,4\neve,,0,5,6\n",
        "train.csv": "id\neve\nbob\n",
        "valid.txt": "ann\n",
        "rows.csv": "part,class,f0,f1\ntrain,0,1,2\nTest,1,3,4\nnone,2,5,6\n",
        "train_numbers.csv": "2\n0\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    np.save("x.npy", np.arange(6, dtype=np.float16).reshape(3, 2))
    np.save("mask.npy", np.array([False, True, False]))
    return tmp_path


def split_of(source, node_type=NODE):
    return {part: ids.tolist() for part, ids in source.splits[node_type]["default"].items()}


def test_edges_alone(folder):
    source = open_source("edges.csv", edge_fields={"weight": "w", "time": "t"})
    assert source.is_homogeneous
    assert not source.mapped
    assert source.nodes[NODE].num_nodes is None
    assert source.nodes[NODE].table is None
    assert edges_of(source).tolist() == [[0, 1, 2], [1, 2, 0]]
    columns = check_table(source.edges[EDGE].table)
    assert columns["weight"].tolist() == [2, 0.5, 1]
    assert columns["time"].tolist() == [10, 20, 30]


def test_rows_are_nodes(folder):
    options = {"node_fields": {"x": "f*", "y": "class"}, "split": "part"}
    source = open_source("edges.csv", nodes="rows.csv", **options)
    assert not source.mapped
    columns = check_table(source.nodes[NODE].table)
    assert columns["x"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert columns["y"].tolist() == [0, 1, 2]
    assert split_of(source) == {"train": [0], "test": [1]}


def test_fields_from_npy(folder):
    source = open_source(
        "edges.csv", nodes="rows.csv", node_fields={"x": "x.npy", "y": "class"}, splits={"train": "train_numbers.csv", "val": "mask.npy"}
    )
    assert source.nodes[NODE].table.columns["x"].dtype == np.float16
    assert list(check_table(source.nodes[NODE].table)) == ["y", "x"]
    assert split_of(source) == {"train": [0, 2], "val": [1]}
    alone = open_source("edges.csv", node_fields={"x": "x.npy"}, edge_fields={"x": "x.npy"})
    assert alone.nodes[NODE].num_nodes == 3
    assert read_all(alone.edges[EDGE].table)["x"].shape == (3, 2)
    np.save("x1.npy", np.arange(3.0)[:, None])
    one = open_source("edges.csv", node_fields={"x": "x1.npy", "age": "x1.npy"})
    assert [column.row_shape for column in one.nodes[NODE].table.columns.values()] == [(1,), ()]


@pytest.mark.parametrize("ending", ["npy", "pt"])
def test_edges_from_arrays(folder, ending):
    """[2, E] as PyG has it, or pairs [E, 2], in either memory order; two edges are read as PyG reads them."""
    edges = np.array([[0, 1, 2, 0], [1, 2, 0, 2]], dtype=np.int32)
    for name, array in {"e": edges, "f": np.asfortranarray(edges), "pairs": edges.T.copy(), "g": edges.T, "two": edges[:, :2]}.items():
        np.save(f"{name}.npy", array) if ending == "npy" else torch.save(torch.from_numpy(array.copy(order="K")), f"{name}.pt")
        source = open_source(f"{name}.{ending}")
        check_table(source.edges[EDGE].table)
        assert edges_of(source).tolist() == edges[:, : 2 if name == "two" else 4].tolist()
    np.save("w1.npy", np.arange(4.0))
    np.save("w2.npy", np.array([4.0, 5.0]))
    parts = open_source([f"e.{ending}", f"two.{ending}"], edge_fields={"weight": ["w1.npy", "w2.npy"]})
    assert check_table(parts.edges[EDGE].table)["weight"].tolist() == [0, 1, 2, 3, 4, 5]
    assert ingest(parts, folder / "store").num_edges[EDGE] == 6
    typed = open_source({"edges": {"a__to__b": f"e.{ending}"}, "nodes": {"a": {"num_nodes": 3}, "b": {"num_nodes": 3}}})
    np.testing.assert_array_equal(edges_of(typed), edges)


def test_named_nodes(folder):
    source = open_source("named.csv", src="from", dst="to", nodes="nodes.csv", node_fields={"y": "class"}, split="part")
    assert source.mapped == {NODE}
    assert check_table(source.nodes[NODE].table)["id"].tolist() == ["bob", "ann", "eve"]
    assert read_all(source.edges[EDGE].table)["src"].tolist() == ["ann", "bob"]
    assert split_of(source) == {"train": [0], "val": [1]}


def test_splits_name_nodes_by_their_ids(folder):
    source = open_source("named.csv", src="from", dst="to", nodes="nodes.csv", splits={"train": "train.csv", "val": "valid.txt"})
    assert split_of(source) == {"train": [0, 2], "val": [1]}


def test_split_folder(folder):
    (folder / "split").mkdir()
    for name, rows in (("train", "0\n"), ("valid", "2\n"), ("test", "1\n")):
        (folder / "split" / f"{name}.csv").write_text(rows)
    assert split_of(open_source("edges.csv", splits="split", num_nodes=3)) == {"train": [0], "val": [2], "test": [1]}


def test_sparse_integers(folder):
    assert open_source("edges.csv", ids="int").mapped == {NODE}
    source = open_source("edges.csv", ids="string")
    assert source.mapped == {NODE}
    assert read_all(source.edges[EDGE].table)["src"].tolist() == ["0", "1", "2"]
    (folder / "numbered.csv").write_text("id,part\n20,train\n10,test\n-3,\n")
    source = open_source("edges.csv", nodes="numbered.csv", split="part")
    assert source.mapped == {NODE}
    assert read_all(source.nodes[NODE].table)["id"].tolist() == [20, 10, -3]
    assert open_source("edges.csv", nodes="numbered.csv", ids="number").mapped == frozenset()
    np.save("t.npy", np.array([-3, 20]))
    assert split_of(open_source("edges.csv", nodes="numbered.csv", splits={"train": "t.npy"})) == {"train": [0, 2]}


def test_masks_are_by_row_also_where_nodes_have_ids(folder):
    np.save("ids.npy", np.array(["eve"]))
    np.save("column.npy", np.array([[False], [True], [False]]))
    options = {"src": "from", "dst": "to", "nodes": "nodes.csv"}
    source = open_source("named.csv", **options, splits={"train": "column.npy", "val": "train.csv"} | {"test": "valid.txt"})
    assert split_of(source) == {"train": [1], "val": [0, 2], "test": [1]}
    assert split_of(open_source("named.csv", **options, splits={"val": "mask.npy", "test": "ids.npy"})) == {"val": [1], "test": [2]}
    np.save("long.npy", np.ones(4, bool))
    with pytest.raises(InputError, match=r"long.npy: has shape \[4\] and dtype bool; expected bool\[3\], one row per node"):
        open_source("named.csv", **options, splits={"train": "long.npy"})
    np.save("numbers.npy", np.arange(2))
    with pytest.raises(
        InputError, match=r"numbers.npy: has shape .* and dtype int64; expected a list of strings, as the ids are, or a mask"
    ):
        open_source("named.csv", **options, splits={"train": "numbers.npy"})


def test_tables_without_rows_have_no_kind_of_ids(folder):
    (folder / "none.csv").write_text("src,dst,t\n")
    pq.write_table(pa.table({"src": pa.array([], pa.string()), "dst": pa.array([], pa.string())}), "none.parquet")
    (folder / "some.csv").write_text("src,dst\nann,3\n")
    for files in ({"files": "none.csv", "fields": {"time": "t"}}, "none.parquet"):
        source = open_source({"edges": {"u__knows__u": files, "u__buys__i": "some.csv", "i__of__i": "none.parquet"}})
        assert source.mapped == {"u"}
        assert [edges.table.columns["src"].dtype for edges in source.edges.values()] == [object, object, np.int64]
        assert read_all(source.edges["u", "knows", "u"].table)["src"].shape == (0,)
        store = ingest(source, folder / "store", overwrite=True)
        assert list(store.num_edges.values()) == [0, 1, 0]
    (folder / "parts").mkdir()
    for name, text in (("a", "src,dst\n"), ("b", "src,dst\nann,bob\n"), ("c", "src,dst\n")):
        (folder / "parts" / f"{name}.csv").write_text(text)
    assert read_all(open_source("parts").edges[EDGE].table)["dst"].tolist() == ["bob"]


def test_parts_of_a_split_without_rows(folder):
    (folder / "empty.csv").touch()
    np.save("empty.npy", np.array([]))
    splits = {"train": "train_numbers.csv", "val": "empty.csv", "test": "empty.npy"}
    assert split_of(open_source("edges.csv", splits=splits)) == {"train": [0, 2], "val": [], "test": []}
    named = {"train": "train.csv", "val": "empty.csv", "test": "empty.npy"}
    source = open_source("named.csv", src="from", dst="to", nodes="nodes.csv", splits=named)
    assert split_of(source) == {"train": [0, 2], "val": [], "test": []}


def test_a_number_of_nodes_of_numpy(folder):
    """It is written as a number, so that the store can be opened."""
    (folder / "two.csv").write_text("src,dst\n0,1\n")
    assert ingest("two.csv", folder / "store", num_nodes=np.int64(7)).num_nodes == {NODE: 7}


def test_part_files(folder):
    (folder / "parts").mkdir()
    for i in range(3):
        pq.write_table(pa.table({"src": [i, i + 1], "dst": [9, 9]}), folder / "parts" / f"part-{i}.parquet")
    for given in ("parts", "parts/*.parquet", folder / "parts", [f"parts/part-{i}.parquet" for i in range(3)]):
        table = open_source(given).edges[EDGE].table
        assert table.num_rows == 6
        assert check_table(table)["src"].tolist() == [0, 1, 1, 2, 2, 3]
        assert table.where(3).endswith("part-1.parquet, row 1")
    for i in range(2):
        (folder / f"e-{i}.csv").write_text("src,dst\n\n0,1\n")
    table = open_source("e-?.csv").edges[EDGE].table
    assert table.num_rows is None
    assert table.where(1).endswith("e-1.csv, line 3")


@pytest.mark.parametrize("options", [{}, {"src": "src", "dst": "dst", "edge_fields": {"weight": "w"}}])
def test_a_file_that_was_cut_by_lines(folder, options):
    """Only one part has the header, which is that of all."""
    for i, lines in enumerate(["5.0,8,7", "w,dst,src\n0.5,1,0", "1.5,3,2"]):
        (folder / f"e-{i}.csv").write_text(f"{lines}\n")
    columns = read_all(open_source("e-?.csv", **options).edges[EDGE].table)
    assert [columns[end].tolist() for end in ("src", "dst")] == [[7, 0, 2], [8, 1, 3]]
    if options:
        assert columns["weight"].tolist() == [5.0, 0.5, 1.5]


DESCRIPTION = {
    "nodes": {
        "user": {"files": "users.csv", "id": "name", "fields": {"x": ["age", "income"]}, "split": "part"},
        "item": {"num_nodes": 4, "fields": {"x": "items.npy"}},
    },
    "edges": {
        "user__buys__item": {"files": "buys-*.csv", "src": "who", "dst": "what", "fields": {"time": "at"}},
        "user__knows__user": "knows.csv",
    },
}


@pytest.fixture
def described(folder):
    inner = folder / "shop"
    inner.mkdir()
    (inner / "users.csv").write_text("name,part,age,income\nann,train,1,2\nbob,test,3,4\n")
    np.save(inner / "items.npy", np.eye(4))
    (inner / "buys-1.csv").write_text("who,what,at\nann,3,7\n")
    (inner / "buys-2.csv").write_text("who,what,at\nbob,0,8\n")
    (inner / "knows.csv").write_text("src,dst\nann,bob\n")
    (inner / "graph.json").write_text(json.dumps(DESCRIPTION))
    return inner / "graph.json"


def test_typed_graph_from_a_description(described, monkeypatch):
    source = open_source(described)
    monkeypatch.chdir(described.parent)
    for same in (source, open_source(DESCRIPTION)):
        assert not same.is_homogeneous
        assert same.mapped == {"user"}
        assert list(same.edges) == [("user", "buys", "item"), ("user", "knows", "user")]
        assert same.nodes["item"].num_nodes == 4
        columns = check_table(same.edges["user", "buys", "item"].table)
        assert {key: values.tolist() for key, values in columns.items()} == {"src": ["ann", "bob"], "dst": [3, 0], "time": [7, 8]}
        assert read_all(same.nodes["user"].table)["x"].tolist() == [[1, 2], [3, 4]]
        assert split_of(same, "user") == {"train": [0], "test": [1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edgs": {}}, "graph.json: unknown key 'edgs'; a description has edges and nodes"),
        ({"edges": {}}, "graph.json: names no edges"),
        ({"edges": {"a-b": "knows.csv"}}, "edge type 'a-b' is not <source type>__<relation>__<destination type>"),
        ({"edges": {"a__b__c": {"src": "x"}}}, "edges 'a__b__c': needs \"files\""),
        ({"edges": ["knows.csv"]}, "graph.json: 'edges' must name types, each with its files, got "),
        ({"nodes": None}, "graph.json: 'nodes' must name types, each with its files, got None"),
        ({"edges": {"a__b__c": 3}}, "edges 'a__b__c': must be files, or an object of files, src, dst, .*; got 3"),
        ({"edges": {"a__b__c": {"files": []}}}, r"edges 'a__b__c': files must be the name of a file, or a list of names, got \[\]"),
        ({"edges": {"a__b__c": {"files": 3}}}, "files must be the name of a file, or a list of names, got 3"),
        ({"edges": {"a__b__c": {"files": "knows.csv", "header": 1}}}, "header must be true or false, got 1"),
        ({"nodes": {"user": {"fields": "f*"}}}, "nodes 'user': fields must be names with the columns of each .*, got 'f"),
        ({"nodes": {"user": {"fields": {"y": 3}}}}, "fields must be names with the columns"),
        ({"nodes": {"user": {"num_nodes": "5"}}}, "nodes 'user': num_nodes must be a whole number, got '5'"),
        ({"nodes": {"user": {"splits": {"train": 3}}}}, "splits must be a folder, or parts with the file of each"),
        ({"edges": {"a__b__c": {"files": "knows.csv", "source": "x"}}}, "unknown key 'source'; known are files, src, dst"),
    ],
)
def test_bad_descriptions(described, change, message):
    described.write_text(json.dumps(DESCRIPTION | change))
    with pytest.raises(UsageError, match=message):
        open_source(described)


def test_a_description_is_utf8_whatever_the_locale(described, monkeypatch):
    text = json.dumps({"edges": {"Zoë__buys__item": "knows.csv"}}, ensure_ascii=False)
    described.write_bytes(b"\xef\xbb\xbf" + text.encode())
    monkeypatch.setattr("locale.getencoding", lambda: "ascii")
    assert list(open_source(described).edges) == [("Zoë", "buys", "item")]


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("absent.csv", {}, MissingFileError, "absent.csv: no such file or folder"),
        ("absent-*.csv", {}, MissingFileError, r"absent-\*.csv: no CSV, Parquet, .mtx or .npy file there"),
        ("x.pdf", {}, InputError, "x.pdf: not a kind of file that a graph can be read from; known are .*, and folders$"),
        ("x.npy", {}, InputError, "x.npy: holds float16; node ids are integers"),
        ("t.npy", {}, InputError, r"t.npy: has shape \[3, 3\]; an edge_index has shape \[2, number of edges\]"),
        ("e.npy", {"src": "0"}, UsageError, "edges node-to-node: 'src' is to come from a column, and e.npy is an array"),
        ("e.npy", {"edge_fields": {"w": "w"}}, UsageError, "edges node-to-node: 'w' is to come from a column, and e.npy is an array"),
        ("empty", {}, InputError, "empty: no graph that is known here"),
        ("a_store", {}, UsageError, "a_store: is a store already"),
        (7, {}, UsageError, "cannot read a graph from int; give a path"),
        ("edges.csv", {"source": "a"}, UsageError, "an edge list has no option 'source': did you mean 'src'?"),
        ("edges.csv", {"colour": "a"}, UsageError, "an edge list has no option 'colour'; its options are src, dst, edge_fields"),
        ("edges.csv", {"delimiter": "::"}, UsageError, "delimiter must be one character"),
        ("edges.csv", {"ids": "text"}, UsageError, "ids must be 'number', 'int' or 'string', got 'text'"),
        ("edges.csv", {"ids": "number", "id": "id"}, UsageError, "leave one out"),
        ("edges.csv", {"num_nodes": -1}, UsageError, "num_nodes must be 0 or more, got -1"),
        ("edges.csv", {"split": "part"}, UsageError, "split names a column of the node table"),
        ("edges.csv", {"src": "from"}, MissingFieldError, "no column 'from' for 'src'; the columns are src, dst, w, t"),
        ("edges.csv", {"edge_fields": {"weight": "weight"}}, MissingFieldError, "no column 'weight' for 'weight'"),
        ("edges.csv", {"edge_fields": {"src": "w"}}, UsageError, "a field cannot be called 'src'"),
        ("edges.csv", {"edge_fields": {"src": "x.npy"}}, UsageError, "a field cannot be called 'src'"),
        ("edges.csv", {"edge_dtypes": {"weight": "float32"}}, UsageError, "dtypes names 'weight', which is no field; fields are none"),
        ("edges.csv", {"edge_fields": {"a": "w"}, "edge_dtypes": {"a": "text"}}, UsageError, "'text' of 'a' is no number type"),
        ("edges.csv", {"node_fields": {"y": "class"}}, UsageError, "'y' is to come from a column, and there is no node table"),
        ("edges.csv", {"node_fields": {"x": "x.npy"}, "num_nodes": 4}, InputError, "x.npy has 3 rows for num_nodes=4"),
        ("edges.csv", {"nodes": "nodes.csv", "ids": None}, InputError, "integers in .*edges.csv .* and strings in .*nodes.csv"),
        (
            "named.csv",
            {"src": "from", "dst": "to", "ids": "int"},
            InputError,
            "line 2: column 'from' holds 'ann', which is not of type int64",
        ),
        ("named.csv", {"src": "0", "dst": "1", "nodes": "rows.csv", "header": True}, UsageError, "nothing is read from rows.csv"),
        (
            "named.csv",
            {"src": "from", "dst": "to", "nodes": "rows.csv", "node_fields": {"y": "class"}},
            UsageError,
            "has fields of 'node' and no column of ids",
        ),
        (
            "named.csv",
            {"src": "from", "dst": "to", "splits": {"train": "train.csv"}},
            UsageError,
            "they need a node table that holds the ids",
        ),
        ("edges.csv", {"splits": {"validation": "train.csv"}}, UsageError, "splits has a part 'validation'; parts are train, val, test"),
        ("edges.csv", {"splits": {"train": "absent.npy"}}, MissingFileError, "absent.npy: no such file or folder"),
        ("edges.csv", {"splits": {"train": "train_numbers.csv"}, "num_nodes": 2}, InputError, r"lie outside \[0, 2\); first is 2 in row 0"),
        ("edges.csv", {"nodes": "rows.csv", "split": "class"}, InputError, "rows.csv, line 2: '0' is no part of a split"),
        ("edges.csv", {"nodes": "rows.csv", "split": "kind"}, MissingFieldError, "no column 'kind' for 'split'"),
    ],
)
def test_bad_requests(folder, source, options, error, message):
    (folder / "x.pdf").touch()
    np.save("t.npy", np.eye(3, dtype=int))
    np.save("e.npy", np.eye(2, dtype=int))
    (folder / "empty").mkdir()
    (folder / "a_store").mkdir()
    (folder / "a_store" / "manifest.json").touch()
    with pytest.raises(error, match=message) as caught:
        read_all(open_source(source, **options).edges[EDGE].table)
    assert isinstance(caught.value, PenstockError)
    assert "\n" not in str(caught.value)


def test_ids_of_a_split_that_are_not_there(folder):
    (folder / "train.csv").write_text("id\neve\nmallory\n")
    with pytest.raises(InputError, match=r"train.csv: 1 of 2 ids are not in .*nodes.csv; first is 'mallory' in row 1"):
        open_source("named.csv", src="from", dst="to", nodes="nodes.csv", splits={"train": "train.csv"})


def test_lengths_that_differ_are_found_while_reading(folder):
    np.save("x.npy", np.zeros((4, 2)))
    source = open_source("edges.csv", nodes="rows.csv", node_fields={"x": "x.npy", "y": "class"})
    with pytest.raises(InputError, match=r"rows.csv ends after 3 rows and .*x.npy has more"):
        read_all(source.nodes[NODE].table)


def test_parts_that_disagree(folder):
    for i, dtype in enumerate((pa.int64(), pa.string())):
        pq.write_table(pa.table({"src": pa.array([1], pa.int64()).cast(dtype), "dst": [2]}), f"p{i}.parquet")
    with pytest.raises(InputError, match=r"p1.parquet: column 'src' is object\[\] here and int64\[\] in .*p0.parquet"):
        open_source("p*.parquet")


def test_a_missing_file_is_what_python_expects(folder):
    with pytest.raises(FileNotFoundError):
        open_source("absent.parquet")


def test_a_source_is_returned(folder):
    edges = ArrayTable({"src": np.zeros(1, int), "dst": np.zeros(1, int)}, "edges")
    source = Source(nodes={NODE: NodeTable(node_type=NODE)}, edges={EDGE: EdgeTable(edge_type=EDGE, table=edges)}, is_homogeneous=True)
    assert open_source(source) is source
