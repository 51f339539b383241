"""Data sets of GraphBolt, written small by the tests after its specification."""

import logging
import pickle
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from tests.tables import check_table, edges_of, read_all

from penstock.errors import InputError, UsageError
from penstock.feed import NeighborLoader
from penstock.records import EDGE, NODE
from penstock.sources import open_source
from penstock.store import ingest

RNG = np.random.default_rng(0)
COUNTS = {"user": 30, "item": 20}
LIKES = np.stack([RNG.integers(0, 30, 100), RNG.integers(0, 20, 100)])
EDGES = {"user:likes:item": LIKES, "item:rev_likes:user": LIKES[::-1].copy(), "user:knows:user": RNG.integers(0, 30, (2, 60))}
TRIPLES = {tuple(key.split(":")): edges for key, edges in EDGES.items()}
FEATURES = {kind: RNG.standard_normal((count, 5)).astype(np.float32) for kind, count in COUNTS.items()}
YEARS = RNG.integers(2000, 2020, 30)
PRICES = {key: RNG.standard_normal((edges.shape[1], 2)).astype(np.float32) for key, edges in EDGES.items()}
LABELS = RNG.integers(0, 4, 30)
PARTS = {"train_set": np.array([3, 1, 2]), "validation_set": np.array([7, 5]), "test_set": np.array([9])}


ENDINGS = {"numpy": ".npy", "torch": ".pt", "csv": ".csv"}


class Folder:
    """Writes files, and then metadata in the way of PyYAML."""

    def __init__(self, path):
        self.path = path
        self.metadata = {"dataset_name": path.name, "graph": {"nodes": [], "edges": []}, "feature_data": [], "tasks": []}
        (path / "data").mkdir(parents=True)

    def save(self, name, array, written="numpy"):
        """Save an array; returns what metadata says of it."""
        path = f"data/{name}{ENDINGS[written]}"
        if written == "csv":
            np.savetxt(self.path / path, array.T, fmt="%d", delimiter=",")
        elif written == "numpy":
            np.save(self.path / path, array)
        else:
            torch.save(torch.from_numpy(array.copy()), self.path / path)
        return {"format": written, "path": path, "in_memory": False}

    def feature(self, domain, kind, name, array, written="numpy"):
        saved = self.save(f"{domain}-{kind}-{name}".replace(":", "-"), array, written)
        self.metadata["feature_data"].append({"domain": domain, "name": name, "type": kind, **saved})

    def task(self, name, kind, parts, labels=None, **more):
        """Add a task: part -> seeds; labels of all nodes, as torch writes them."""
        task = {"name": name, **more}
        for key, seeds in parts.items():
            data = [{"name": "seeds", **self.save(f"{name}-{key}", seeds)}]
            if labels is not None:
                data.append({"name": "labels", **self.save(f"{name}-{key}-labels", labels[seeds], "torch")})
            task[key] = [{"type": kind, "data": data}]
        self.metadata["tasks"].append(task)

    def write(self, file="metadata.yaml"):
        (self.path / file).write_text("\n".join(lines_of(self.metadata)) + "\n")
        return self.path


def lines_of(value, indent=""):
    """YAML as PyYAML writes it: items are indented as much as their key; what is None is left out."""
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, dict | list):
                yield f"{indent}{key}:" + ("" if each else " []")
                yield from lines_of(each, indent + ("  " if isinstance(each, dict) else ""))
            elif each is not None:
                yield f"{indent}{key}: {str(each).lower() if isinstance(each, bool) else each}"
    else:
        for each in value:
            first, *rest = lines_of(each, "  ")
            yield f"{indent}- {first[2:]}"
            yield from (indent + line for line in rest)


@pytest.fixture
def plain(tmp_path):
    folder = Folder(tmp_path / "plain")
    folder.metadata["graph"] = {"nodes": [{"num": 30}], "edges": [folder.save("edges", EDGES["user:knows:user"], "csv")]}
    folder.feature("node", None, "feat", FEATURES["user"])
    folder.feature("node", None, "year", YEARS, "torch")
    folder.feature("edge", None, "feat", PRICES["user:knows:user"], "torch")
    folder.task("classes", None, PARTS, LABELS, num_classes=5)
    return folder


@pytest.fixture(params=["csv", "numpy"])
def typed(tmp_path, request):
    folder = Folder(tmp_path / "typed")
    folder.metadata["graph"] = {
        "nodes": [{"type": kind, "num": count} for kind, count in COUNTS.items()],
        "edges": [{"type": key, **folder.save(key.split(":")[1], edges, request.param)} for key, edges in EDGES.items()],
    }
    for kind, features in FEATURES.items():
        folder.feature("node", kind, "feat_0", features)
        folder.feature("node", kind, "feat_1", features[:, 1:], "torch")
    for key, prices in PRICES.items():
        folder.feature("edge", key, "price", prices)
    folder.task("classes", "user", PARTS, LABELS)
    folder.task("links", "user:likes:item", {"train_set": LIKES.T[:50], "test_set": LIKES.T[50:]})
    return folder


def split_of(source, node_type=NODE):
    return {part: ids.tolist() for part, ids in source.splits[node_type]["default"].items()}


def placed(values):
    """Labels of the nodes that are in a part."""
    y, seeds = np.full(30, -1), np.concatenate([*PARTS.values()])
    y[seeds] = values[seeds]
    return y


def test_plain(plain, tmp_path, caplog):
    source = open_source(plain.write())
    assert source.is_homogeneous
    np.testing.assert_array_equal(edges_of(source), EDGES["user:knows:user"])
    np.testing.assert_array_equal(check_table(source.edges[EDGE].table)["x"], PRICES["user:knows:user"])
    columns = check_table(source.nodes[NODE].table)
    for name, expected in {"x": FEATURES["user"], "year": YEARS, "y": placed(LABELS)}.items():
        np.testing.assert_array_equal(columns[name], expected)
    assert split_of(source) == {"train": [1, 2, 3], "val": [5, 7], "test": [9]}
    assert source.provenance == {"kind": "graphbolt", "files": ["plain"], "left_out": [], "task": "classes"}
    assert not caplog.records
    store = ingest(source, tmp_path / "store")
    assert store.num_nodes[NODE] == 30
    assert store.node_fields()["y"].properties["num_classes"] == 5
    batch = next(iter(NeighborLoader(store, [-1], "train", batch_size=3)))
    np.testing.assert_array_equal(batch.x, FEATURES["user"][batch.n_id])
    np.testing.assert_array_equal(batch.edge_attr, PRICES["user:knows:user"][batch.e_id])
    np.testing.assert_array_equal(batch.y[:3], LABELS[[1, 2, 3]])


def test_typed(typed, tmp_path, caplog):
    path = typed.write()
    with caplog.at_level(logging.WARNING):
        assert list(open_source(path).nodes["user"].table.columns) == ["feat_0", "feat_1", "y"]
    assert "left out: links of task 'links' (LinkNeighborLoader takes them as edge_label_index)" in caplog.text
    assert "'item' has features feat_0, feat_1, and none is x, which models read: name it, as by --node-field x=feat_0" in caplog.text
    source = open_source(path, node_fields={"x": "feat_0", "other": "feat_1"}, edge_fields={"weight": "price"})
    assert source.provenance["left_out"] == ["links of task 'links' (LinkNeighborLoader takes them as edge_label_index)"]
    assert not source.is_homogeneous
    assert {kind: nodes.num_nodes for kind, nodes in source.nodes.items()} == COUNTS
    for kind, features in FEATURES.items():
        columns = check_table(source.nodes[kind].table)
        np.testing.assert_array_equal(columns["x"], features)
        np.testing.assert_array_equal(columns["other"], features[:, 1:])
    np.testing.assert_array_equal(read_all(source.nodes["user"].table)["y"], placed(LABELS))
    assert list(source.edges) == list(TRIPLES)
    for edge_type, edges in TRIPLES.items():
        np.testing.assert_array_equal(edges_of(source, edge_type), edges)
        np.testing.assert_array_equal(check_table(source.edges[edge_type].table)["weight"], PRICES[":".join(edge_type)])
    assert list(source.splits) == ["user"]
    assert split_of(source, "user") == {"train": [1, 2, 3], "val": [5, 7], "test": [9]}
    store = ingest(path, tmp_path / "store", node_fields={"x": "feat_0"})
    batch = next(iter(NeighborLoader(store, [-1], ("user", "train"), batch_size=3)))
    for edge_type in TRIPLES:
        ids = batch[edge_type].e_id
        ends = [batch[kind].n_id[row] for kind, row in zip(edge_type[::2], batch[edge_type].edge_index, strict=True)]
        np.testing.assert_array_equal(torch.stack(ends), TRIPLES[edge_type][:, ids])


@pytest.mark.parametrize(
    ("labels", "num_classes", "expected"),
    [
        (LABELS.astype(np.float32), 4, placed(LABELS)),
        (LABELS.astype(np.uint8)[:, None], 4, placed(LABELS)),
        (LABELS + 0.5, None, np.where(placed(LABELS) < 0, np.nan, placed(LABELS) + 0.5)),
        (np.eye(4, dtype=np.uint8)[LABELS], None, np.where(placed(LABELS)[:, None] < 0, np.nan, np.eye(4)[LABELS])),
    ],
)
def test_labels(plain, tmp_path, labels, num_classes, expected):
    """Classes in any dtype are integers, -1 where no part has the node; other labels are NaN there."""
    plain.metadata["tasks"] = []
    plain.task("labels", None, PARTS, labels, **({} if num_classes is None else {"num_classes": num_classes}))
    source = open_source(plain.write())
    y = check_table(source.nodes[NODE].table)["y"]
    assert y.dtype == (np.int64 if num_classes else np.float64 if labels.dtype == np.float64 else np.float32)
    np.testing.assert_array_equal(y, expected)
    ingest(source, tmp_path / "store")


def test_tasks(plain, caplog):
    """One is chosen by its name; parts without labels leave them open; names before GraphBolt 2.2; further data is named."""
    plain.task("years", None, PARTS, YEARS - 2000)
    path = plain.write()
    with pytest.raises(
        InputError, match=r"metadata.yaml: several tasks have nodes as seeds \(classes, years\); choose one by split=\.\.\."
    ):
        open_source(path)
    np.testing.assert_array_equal(read_all(open_source(path, split="years").nodes[NODE].table)["y"], placed(YEARS - 2000))
    with pytest.raises(InputError, match=r"no task 'nodes' has nodes as seeds; there are classes, years"):
        open_source(path, split="nodes")
    task = plain.metadata["tasks"].pop()
    del plain.metadata["tasks"][0]["test_set"][0]["data"][1], task
    seeds, _ = plain.metadata["tasks"][0]["train_set"][0]["data"]
    seeds["name"] = "seed_nodes"
    plain.metadata["tasks"][0]["train_set"][0]["data"].append({"name": "indexes", **plain.save("i", np.arange(3))})
    plain.metadata["feature_data"].append({"domain": "graph", "name": "size", **plain.save("size", np.ones(1))})
    source = open_source(plain.write())
    assert split_of(source) == {"train": [1, 2, 3], "val": [5, 7], "test": [9]}
    assert read_all(source.nodes[NODE].table)["y"][9] == -1
    assert source.provenance["left_out"] == ["feature 'size' of the graph", "'indexes' of train_set in task 'classes'"]
    plain.metadata["tasks"] = plain.metadata["feature_data"] = None
    bare = open_source(plain.write())
    assert bare.nodes[NODE].table is None
    assert not bare.splits


def test_sets_of_unusual_kinds(plain):
    """A part without seeds, whose dtype says nothing; no number of classes; bfloat16, which is no integer; words, which are no labels."""
    plain.task("classes", None, PARTS | {"test_set": np.array([], dtype=int)}, LABELS)
    plain.metadata["tasks"] = plain.metadata["tasks"][1:]
    np.save(plain.path / "data" / "classes-test_set.npy", np.array([]))
    path = plain.write()
    (path / "metadata.yaml").write_text((path / "metadata.yaml").read_text().replace("  train_set:", "  num_classes: null\n  train_set:"))
    source = open_source(path)
    assert split_of(source) == {"train": [1, 2, 3], "val": [5, 7], "test": []}
    assert read_all(source.nodes[NODE].table)["y"][[1, 2, 3]].tolist() == LABELS[[1, 2, 3]].tolist()
    halves = torch.tensor([0.5, 1.5, 2.5]).to(torch.bfloat16)
    torch.save(halves, path / "data" / "classes-train_set-labels.pt")
    assert read_all(open_source(path).nodes[NODE].table)["y"][[3, 1, 2]].tolist() == halves.tolist()
    torch.save(torch.stack([halves, halves]), path / "data" / "edges.pt")
    with pytest.raises(InputError, match=r"edges.pt: holds bfloat16; node ids are integers"):
        open_source({"edges": {"a__to__a": str(path / "data" / "edges.pt")}})
    np.save(path / "data" / "words.npy", np.array(["a", "b", "c"]))
    text = (
        (path / "metadata.yaml")
        .read_text()
        .replace("format: torch\n      path: data/classes-train_set-labels.pt", "format: numpy\n      path: data/words.npy")
    )
    (path / "metadata.yaml").write_text(text)
    with pytest.raises(InputError, match=r"words.npy: holds <U1; fields are numbers"):
        open_source(path)


def test_features_of_the_graph_itself(plain):
    """Those by which GraphBolt samples are listed beside nodes and edges."""
    plain.metadata["graph"]["feature_data"] = [{"domain": "edge", "name": "weight", **plain.save("w", np.arange(60.0))}]
    np.testing.assert_array_equal(read_all(open_source(plain.write()).edges[EDGE].table)["weight"], np.arange(60))


class _Fused:
    """Saved under DGL's name; holds its TorchBind object as `_c_csc_graph`."""


class _Bound:
    """Saved as torch saves a TorchBind object: its state and the name of its class."""

    def __getstate__(self):
        return self.state, "__torch__.torch.classes.graphbolt.FusedCSCSamplingGraph"


@pytest.fixture
def save_fused(monkeypatch):
    """Write a graph as DGL does: classes of the same names, and a dictionary of dictionaries of tensors."""
    folder = "dgl.graphbolt.impl.fused_csc_sampling_graph"
    for name in ("dgl", "dgl.graphbolt", "dgl.graphbolt.impl", folder):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for cls, module, name in ((_Fused, sys.modules[folder], "FusedCSCSamplingGraph"), (_Bound, torch, "ScriptObject")):
        cls.__module__, cls.__qualname__, cls.__name__ = module.__name__, name, name
        monkeypatch.setattr(module, name, cls, raising=False)

    def save(path, state):
        graph = _Fused()
        graph._c_csc_graph = _Bound()
        graph._c_csc_graph.state = {key: {k: torch.as_tensor(v) for k, v in each.items()} for key, each in state.items()}
        torch.save(graph, path)

    return save


def fused(edges, num_nodes, **more):
    """Neighbour lists, and the number of each edge before it was sorted by target."""
    order = np.argsort(edges[1], kind="stable")
    indptr = np.searchsorted(edges[1][order], np.arange(num_nodes + 1)).astype(np.int32)
    return {"version_number": np.array([6199]), "indptr": indptr, "indices": edges[0][order].astype(np.int32)}, order


@pytest.mark.parametrize("has_ids", [True, False])
def test_preprocessed_plain(plain, save_fused, has_ids):
    (plain.path / "preprocessed").mkdir()
    plain.metadata["graph_topology"] = {"type": "FusedCSCSamplingGraph", "path": "preprocessed/fused_csc_sampling_graph.pt"}
    del plain.metadata["graph"]
    arrays, order = fused(EDGES["user:knows:user"], 30)
    ids = {"edge_attributes": {"_ORIGINAL_EDGE_ID": order.astype(np.int32)}} if has_ids else {}
    save_fused(plain.path / "preprocessed" / "fused_csc_sampling_graph.pt", {"independent_tensors": arrays, **ids})
    plain.write("preprocessed/metadata.yaml")
    source = open_source(plain.path)
    assert source.is_homogeneous
    edges = EDGES["user:knows:user"] if has_ids else EDGES["user:knows:user"][:, order]
    np.testing.assert_array_equal(edges_of(source), edges)
    columns = check_table(source.edges[EDGE].table)
    if has_ids:
        np.testing.assert_array_equal(columns["x"], PRICES["user:knows:user"])
    else:
        assert "x" not in columns
        assert source.provenance["left_out"] == ["feature 'x' of edges (nothing says which edge a row is of)"]
    np.testing.assert_array_equal(read_all(source.nodes[NODE].table)["x"], FEATURES["user"])
    assert split_of(source) == {"train": [1, 2, 3], "val": [5, 7], "test": [9]}
    (plain.path / "metadata.yaml").write_text("graph: of raw files that are gone")
    np.testing.assert_array_equal(edges_of(open_source(plain.path / "preprocessed")), edges)


def test_preprocessed_typed(typed, save_fused):
    (typed.path / "preprocessed").mkdir()
    typed.metadata["graph_topology"] = {"type": "FusedCSCSamplingGraph", "path": "preprocessed/graph.pt"}
    del typed.metadata["graph"]
    first, keys = {"item": 0, "user": 20}, sorted(EDGES)
    shifted = [EDGES[key] + np.array([[first[kind]] for kind in key.split(":")[::2]]) for key in keys]
    arrays, order = fused(np.concatenate(shifted, axis=1), 50)
    types, own = (np.concatenate([make(i, EDGES[key].shape[1]) for i, key in enumerate(keys)])[order] for make in (_same, _numbers))
    arrays |= {"node_type_offset": np.array([0, 20, 50]), "type_per_edge": types.astype(np.uint8)}
    numbers = {"node_type_to_id": {"item": 0, "user": 1}, "edge_type_to_id": {key: i for i, key in enumerate(keys)}}
    state = {"independent_tensors": arrays, **numbers, "edge_attributes": {"_ORIGINAL_EDGE_ID": own}}
    save_fused(typed.path / "preprocessed" / "graph.pt", state)
    typed.write("preprocessed/metadata.yaml")
    source = open_source(typed.path, node_fields={"x": "feat_0"})
    assert {kind: nodes.num_nodes for kind, nodes in source.nodes.items()} == COUNTS
    for edge_type, edges in TRIPLES.items():
        np.testing.assert_array_equal(edges_of(source, edge_type), edges)
        np.testing.assert_array_equal(read_all(source.edges[edge_type].table)["price"], PRICES[":".join(edge_type)])
    for array, value in ((own, own[0]), (arrays["indptr"], 1 << 20)):  # an id twice; a list that passes the end
        kept, array[-1] = array[-1], value
        save_fused(typed.path / "preprocessed" / "graph.pt", state)
        with pytest.raises(InputError, match=r"graph.pt: not a graph of GraphBolt that is loaded without DGL"):
            open_source(typed.path)
        array[-1] = kept


def _same(i, count):
    return np.full(count, i)


def _numbers(i, count):
    return np.arange(count)


class Code:
    def __reduce__(self):
        return (open, ("ran", "w"))


@pytest.mark.parametrize("value", [Code(), {"a": 1}, torch.zeros(3)])
def test_preprocessed_by_something_else(plain, tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    (plain.path / "preprocessed").mkdir()
    plain.metadata["graph_topology"] = {"path": "preprocessed/graph.pt"}
    plain.write("preprocessed/metadata.yaml")
    torch.save(value, plain.path / "preprocessed" / "graph.pt", pickle_module=pickle)
    with pytest.raises(
        InputError, match=r"graph.pt: not a graph of GraphBolt that is loaded without DGL; give the folder with its raw files"
    ):
        open_source(plain.path)
    assert not (tmp_path / "ran").exists()


def test_options(plain):
    path = plain.write()
    source = open_source(path, node_fields={"x": "year", "feat": "feat"})
    assert list(source.nodes[NODE].table.columns) == ["feat", "x", "y"]
    with pytest.raises(UsageError, match=r"node_fields names 'f', which is no feature of nodes; they are feat, year"):
        open_source(path, node_fields={"x": "f"})
    with pytest.raises(InputError, match=r"feature_data\[1\]: a second field or an id would be called 'id': name it by node_fields"):
        open_source(path, node_fields={"id": "year"})
