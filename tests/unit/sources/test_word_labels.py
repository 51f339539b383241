"""Labels that are words: the same numbers whatever the order of rows, the format, the parts and the chunks."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables import check_table, read_all

from penstock.errors import InputError
from penstock.records import NODE
from penstock.sources import csv_table, open_source, word_labels
from penstock.store import check, generate, ingest

WORDS = ["owl", "", "cat", " dog", "cat", None, "Cat", "\u00e9l\u00e9phant"]
NAMES = ["Cat", "cat", "dog", "owl", "\u00e9l\u00e9phant"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,2\n")
    return tmp_path


def write(folder, words, ending, name="nodes"):
    if ending == "csv":
        (folder / f"{name}.csv").write_text("a,class\n" + "".join(f"{i},{word or ''}\n" for i, word in enumerate(words)))
    else:
        column = pa.array(words).dictionary_encode() if ending == "categories" else words
        pq.write_table(pa.table({"a": range(len(words)), "class": column}), folder / f"{name}.parquet")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("ending", ["csv", "parquet", "categories"])
def test_words_are_numbered_in_sorted_order(folder, ending, seed):
    words = [WORDS[i] for i in np.random.default_rng(seed).permutation(len(WORDS))]
    (folder / "parts").mkdir()
    write(folder / "parts", words[:4], ending, "part-0")
    write(folder / "parts", words[4:], ending, "part-1")
    source = open_source("edges.csv", nodes="parts", node_fields={"y": "class", "x": ["a"]})
    labels = check_table(source.nodes[NODE].table)["y"]
    assert labels.tolist() == [NAMES.index(word.strip()) if word else -1 for word in words]
    store = ingest(source, "store")
    assert store.node_field("y").tolist() == labels.tolist()
    assert store.node_fields()["y"].properties == {"num_classes": 5, "class_names": NAMES}
    assert check("store", deep=True).is_ok
    larger = generate("kronecker", "larger", base=store, num_copies=2)
    assert larger.node_fields()["y"].properties["class_names"] == NAMES


def test_numbers_stay_numbers(folder):
    write(folder, ["10", "9"], "csv")
    source = open_source("edges.csv", nodes="nodes.csv", node_fields={"y": "class"})
    assert check_table(source.nodes[NODE].table)["y"].tolist() == [10, 9]


@pytest.mark.parametrize(("limit", "value"), [("MAX_CLASSES", 6), ("MAX_BYTES", 16)])
def test_too_many_words_are_refused(folder, limit, value, monkeypatch):
    monkeypatch.setattr(word_labels, limit, value)
    write(folder, [f"word {i}" for i in range(7)], "csv")
    with pytest.raises(InputError, match=r"nodes.csv, line 2: 7 different labels 'y' by the end of these 7 rows; at most"):
        ingest("edges.csv", "store", nodes="nodes.csv", node_fields={"y": "class"})
    assert not (folder / "store").exists()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(("first", "second", "names"), [("owl", "cat", ["cat", "owl"]), ("7", "3", None)])
def test_labels_that_begin_late(folder, ending, first, second, names, monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 64)
    words = [""] * 100 + [first, "", second]
    write(folder, [int(word) if word.isdigit() else word or None for word in words], ending)
    source = open_source("edges.csv", nodes=f"nodes.{ending}", node_fields={"y": "class"})
    expected = [names.index(word) if names and word else int(word or -1) for word in words]
    assert check_table(source.nodes[NODE].table)["y"].tolist() == expected


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("labels", [["owl", "cat"], [7, 3], [0.5, 2.5]], ids=str)
@pytest.mark.parametrize("at", [0, 1])
def test_parts_without_labels(folder, ending, labels, at):
    (folder / "parts").mkdir()
    write(folder / "parts", [None, None], ending, f"part-{at}")
    write(folder / "parts", labels, ending, f"part-{1 - at}")
    table = open_source("edges.csv", nodes="parts", node_fields={"y": "class"}).nodes[NODE].table
    known, missing = [1, 0] if labels[0] == "owl" else labels, np.nan if labels[0] == 0.5 else -1
    np.testing.assert_array_equal(check_table(table)["y"], [*known, missing, missing] if at else [missing, missing, *known])


def test_labels_of_nobody(folder):
    for ending in ("csv", "parquet"):
        write(folder, [None] * 3, ending)
        source = open_source("edges.csv", nodes=f"nodes.{ending}", node_fields={"y": "class"})
        assert check_table(source.nodes[NODE].table)["y"].tolist() == [-1, -1, -1]


def test_a_bad_cell_where_labels_begin_late(folder, monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 64)
    write(folder, [""] * 100 + ["7"] * 30 + ["x"], "csv")
    with pytest.raises(InputError, match=r"nodes.csv, line 132: column 'class' holds 'x', which is not of type int64"):
        read_all(open_source("edges.csv", nodes="nodes.csv", node_fields={"y": "class"}).nodes[NODE].table)
    (folder / "nodes.csv").write_bytes(("a,class\n" + "1,\n" * 100 + "1,Zoë\n").encode("latin-1"))
    with pytest.raises(InputError, match=r"nodes.csv, line 102: not UTF-8 text"):
        open_source("edges.csv", nodes="nodes.csv", node_fields={"y": "class"})


def test_words_elsewhere_are_refused(folder):
    (folder / "edges.csv").write_text("src,dst,kind\n0,1,likes\n")
    with pytest.raises(InputError, match="field 'y' holds strings; a store holds numbers"):
        ingest("edges.csv", "store", edge_fields={"y": "kind"})
    write(folder, ["a"], "csv")
    with pytest.raises(InputError, match="wanted for 'z', holds string; fields are numbers"):
        ingest("edges.csv", "store", nodes="nodes.csv", node_fields={"z": "class"})


def test_words_are_in_the_digest(folder):
    found = []
    for words in (["cat", "owl", ""], ["cat", "owl", ""], ["ape", "owl", ""]):
        write(folder, words, "csv")
        found.append(ingest("edges.csv", f"store-{len(found)}", nodes="nodes.csv", node_fields={"y": "class"}, num_nodes=3).digest)
    assert found[0] == found[1] != found[2]
