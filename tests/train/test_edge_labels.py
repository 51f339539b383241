"""Labels of edges as what is learnt: classes, several labels and numbers, of edges that the graph has not got when they are told."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import penstock
from penstock.errors import InputError, MissingFieldError, UsageError
from penstock.report.live import introduction, summary_of, what_is_there
from penstock.report.page import render
from penstock.train import TrainConfig, infer_pairs, infer_run, train
from penstock.train import labels as labels_module
from penstock.train.data import read_training_data
from penstock.train.edge_labels import EdgeLabels
from penstock.train.task import Classes, Labels, Numbers
from tests.train.stores import make_store

RATES, REV = ("user", "rates", "film"), ("film", "rev_rates", "user")
QUICK = dict(num_neighbors=(5, 3), batch_size=128, hidden=16, epochs=8, num_workers=0, lr=0.01, dropout=0.0)
LABELS = {"kind": "accuracy", "is_new": "auc", "tags": "micro-f1", "stars": "rmse", "pair": "rmse"}
"""Fields of edges, and the metric that suits each."""


def labels_of(first, second, random):
    """Labels that follow from a number of either end, 0 to 3, with little noise."""
    noise = torch.randn(first.numel(), generator=random) / 10
    return {
        "kind": (first + second) % 3,
        "is_new": (first > second).to(torch.uint8),
        "tags": torch.stack([first > 1, second > 1, first == second], dim=1).to(torch.uint8),
        "stars": 100 + 10.0 * (first - second) + noise,
        "pair": torch.stack([first + noise, 1000.0 * second], dim=1),
    }


def features(numbers, random):
    return torch.nn.functional.one_hot(numbers, 4) + 0.1 * torch.randn(numbers.numel(), 4, generator=random)


def plain_data():
    random = torch.Generator().manual_seed(1)
    edges = torch.randint(0, 240, (2, 4000), generator=random)
    data = Data(edge_index=edges, num_nodes=240, x=features(torch.arange(240) % 4, random))
    for name, labels in labels_of(*(edges % 4), random).items():
        data[name] = labels
    data.time = torch.arange(4000) + 10**6
    data.some = torch.where(torch.arange(4000) % 50 == 7, -1, data.kind)
    data.nothing = torch.full((4000,), 2.5)
    return data


def typed_data():
    """Users with features, films without, whose numbers are learnt."""
    random, data = torch.Generator().manual_seed(2), HeteroData()
    edges = torch.stack([torch.randint(0, count, (6000,), generator=random) for count in (160, 60)])
    data["user"].x, data["film"].num_nodes = features(torch.arange(160) % 4, random), 60
    data[RATES].edge_index, data[REV].edge_index = edges, edges.flip(0)
    for name, labels in labels_of(*(edges % 4), random).items():
        data[RATES][name] = labels
    return data


def held_out(data, path, **how):
    penstock.ingest(data, path / "whole")
    penstock.hold_out(path / "whole", path / "store", val=0.1, test=0.2, **how)
    return penstock.open(path / "store")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return held_out(plain_data(), tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    return held_out(typed_data(), tmp_path_factory.mktemp("typed"), edge_type=RATES)


def config_of(store, field, **options):
    return TrainConfig(store=str(store.path), edge_label=field, **QUICK | options)


def run(store, folder, field, **options):
    return train(config_of(store, field, **options), folder)


@pytest.mark.parametrize(("kind", "field"), [*(("plain", field) for field in LABELS), ("typed", "kind"), ("typed", "stars")])
def test_labels_are_learnt(kind, field, store, typed, tmp_path):
    """Far better than whatever says nothing of the ends."""
    of = store if kind == "plain" else typed
    result = run(of, tmp_path / "run", field, epochs=15, eval_every=5, **(dict(batch_size=256, lr=0.03) if kind == "typed" else {}))
    labels = of.link_field(field, "test", of.type_with_links()).astype(np.float64)
    assert result.metric == LABELS[field]
    assert result.description["seeds"] == "edges"
    if result.metric == "rmse":
        assert result.test < 0.4 * labels.std(axis=0).mean()
    else:
        assert result.test > {"accuracy": 0.75, "auc": 0.85, "micro-f1": 0.8}[result.metric]
    assert result.history[-1].num_seeds == of.num_edges[of.type_with_links()]


@pytest.mark.parametrize("model", ["gcn", "gat", "gin", "hgt"])
def test_every_model_learns_them(model, store, typed, tmp_path):
    result = run(typed if model == "hgt" else store, tmp_path / "run", "is_new", model=model, epochs=6, eval_every=3, lr=0.02)
    assert result.history[-1].loss < result.history[0].loss
    assert model in ("gcn", "gin") or result.test > 0.8, "sums over neighbours, which are random here, drown a node's own row"


@pytest.mark.parametrize("field", LABELS)
@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_scores_are_those_of_the_rows(field, kind, store, typed, tmp_path):
    """What `penstock infer` writes for both ends, and the head that is in the checkpoint, give the score that the run said."""
    of = store if kind == "plain" else typed
    edge_type = of.type_with_links()
    result = run(of, tmp_path / "run", field, epochs=2)
    rows = {infer_run(tmp_path / "run", node_type=t)["node_type"]: None for t in {edge_type[0], edge_type[2]}}
    for t in rows:
        rows[t] = np.load(infer_run(tmp_path / "run", tmp_path / f"{t}.npy", node_type=t)["out"])
        assert rows[t].shape == (of.num_nodes[t], QUICK["hidden"])
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=False)
    weights = state["best"]["model"] or state["model"]
    sources, targets = of.links("test", edge_type)
    ends = torch.from_numpy(np.concatenate([rows[edge_type[0]][sources], rows[edge_type[2]][targets]], axis=1))
    hidden = (ends @ weights["of_pairs.mix.weight"].T + weights["of_pairs.mix.bias"]).relu()
    outputs = (hidden @ weights["of_pairs.last.weight"].T + weights["of_pairs.last.bias"]).numpy()
    task = read_training_data(of, config_of(of, field)).task
    assert task.score(outputs, of.link_field(field, "test", edge_type)) == pytest.approx(result.test, rel=1e-3)


def test_batches_show_neither_edges_nor_reverses(typed):
    """And their labels are those of the store, as the loss takes them."""
    for field, dtype in (("kind", torch.int64), ("stars", torch.float64), ("tags", torch.uint8)):
        data = read_training_data(typed, config_of(typed, field))
        loader = data.edges.loader(penstock.LinkNeighborLoader, data.source(), [5, 3], batch_size=64, seed=0, shuffle=True)
        known = typed.edge_field(field, RATES)
        for batch in loader:
            assert batch[RATES].edge_label.dtype == dtype
            assert np.array_equal(batch[RATES].edge_label.numpy(), known[batch[RATES].input_id.numpy()])
            ends = [batch[t].n_id[each] for t, each in zip(("user", "film"), batch[RATES].edge_label_index, strict=True)]
            asked = set(zip(*(each.tolist() for each in ends), strict=True))
            assert len(asked) > 10
            shown = [batch[t].n_id[each] for t, each in zip(("user", "film"), batch[RATES].edge_index, strict=True)]
            back = [batch[t].n_id[each] for t, each in zip(("film", "user"), batch[REV].edge_index, strict=True)]
            assert not asked & set(zip(*(each.tolist() for each in shown), strict=True))
            assert not asked & set(zip(*(each.tolist() for each in reversed(back)), strict=True))


def test_sampled_evaluation_and_recipes(typed, tmp_path):
    """Scores over all neighbours by fanouts of all; plans do not change weights."""
    full = run(typed, tmp_path / "full", "stars", epochs=2, num_neighbors=(-1, -1))
    sampled = run(typed, tmp_path / "sampled", "stars", epochs=2, num_neighbors=(-1, -1), evaluation="sampled")
    assert sampled.weights_digest == full.weights_digest
    assert sampled.test == pytest.approx(full.test, rel=1e-4)
    cached = run(typed, tmp_path / "cached", "stars", epochs=2, num_neighbors=(-1, -1), policy="presample", cache="50%", num_workers=2)
    assert cached.weights_digest == full.weights_digest


def test_a_run_goes_on_where_it_stood(typed, tmp_path):
    whole = run(typed, tmp_path / "whole", "stars", epochs=4)
    run(typed, tmp_path / "parts", "stars", epochs=2)
    resumed = train(config_of(typed, "stars", epochs=4), tmp_path / "parts", resume=True)
    assert resumed.weights_digest == whole.weights_digest
    assert [record.loss for record in resumed.history] == [record.loss for record in whole.history]
    with pytest.raises(penstock.errors.StateError, match="edge_label"):
        train(config_of(typed, "kind", epochs=5), tmp_path / "parts", resume=True)


def test_the_task_is_found_a_few_edges_at_a_time(store, monkeypatch):
    """Whatever the size of blocks; what is learnt is as of nodes with these labels."""
    kinds = {"kind": Classes, "is_new": Classes, "tags": Labels, "stars": Numbers, "pair": Numbers}
    for field, kind in kinds.items():
        found = []
        for block in (7, 1000, 1 << 16):
            monkeypatch.setattr(labels_module, "BLOCK", block)
            monkeypatch.setattr("penstock.train.edge_labels.BLOCK", block)
            found.append(read_training_data(store, config_of(store, field)).task)
        assert type(found[0]) is kind
        if kind is Numbers:
            rows = store.edge_field(field).reshape(store.num_edges[("node", "to", "node")], -1).astype(np.float64)
            for task in found:
                assert task.mean == pytest.approx(rows.mean(axis=0))
                assert task.spread == pytest.approx(rows.std(axis=0))
        assert found[0] == found[1] == found[2]


def test_classes_that_are_kept_as_floats(store):
    spec, values = store.edge_fields()["stars"], np.array([3.0, np.nan, 1.0], np.float32)
    assert EdgeLabels(values, spec, "", "auto")[:].tolist() == [3, -1, 1]
    assert EdgeLabels(values, spec, "", "rmse")[[0, 2]].tolist() == [3.0, 1.0]
    assert not EdgeLabels(values, spec, "", "rmse").are_fractional()
    assert EdgeLabels(values + np.float32(0.5), spec, "", "rmse").are_fractional()
    assert not EdgeLabels(store.edge_field("kind"), store.edge_fields()["kind"], "", "rmse").are_fractional()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_labels_of_any_width(tmp_path):
    """Integers that torch only stores, and floats of two bytes: they are learnt as the same labels in others."""
    data = plain_data()
    data.tags_wide, data.kind_half = data.tags.to(torch.uint16), data.kind.half()
    of = held_out(data, tmp_path)
    for field, other in (("tags", "tags_wide"), ("kind", "kind_half")):
        scores = [run(of, tmp_path / name, name, epochs=1).test for name in (field, other)]
        assert scores[0] == scores[1], field


def test_what_only_later_edges_have(tmp_path):
    """Edges held out by time with labels of their own: a class that no edge before had, and halves where there were whole numbers."""
    data = plain_data()
    is_late = torch.arange(4000) >= 3900
    data.late_kind = torch.where(is_late, 3, data.kind)
    data.late_half = data.kind + 0.5 * is_late
    later = held_out(data, tmp_path, by="time")
    assert read_training_data(later, config_of(later, "late_kind")).task == Classes(4, "accuracy")
    assert isinstance(read_training_data(later, config_of(later, "late_half")).task, Numbers)


@pytest.mark.parametrize("field", ["y", "kind"])
def test_a_class_that_given_links_alone_have(field, tmp_path):
    """Of `y` a store knows how many classes the ingested edges had."""
    table = pa.table({"src": np.arange(300) % 20, "dst": np.arange(300) % 17, field: np.arange(300) % 3})
    pq.write_table(table, tmp_path / "edges.parquet")
    edges = {"files": "edges.parquet", "fields": {field: field}}
    (tmp_path / "graph.json").write_text(json.dumps({"nodes": {"node": {}}, "edges": {"node__to__node": edges}}))
    penstock.ingest(tmp_path / "graph.json", tmp_path / "whole")
    pq.write_table(table.slice(0, 4).set_column(2, field, pa.array([0, 1, 2, 3])), tmp_path / "test.parquet")
    penstock.hold_out(tmp_path / "whole", tmp_path / "store", val=0.1, test=tmp_path / "test.parquet")
    of = penstock.open(tmp_path / "store")
    assert read_training_data(of, config_of(of, field)).task == Classes(4, "accuracy")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(edge_label="what"), MissingFieldError, r"have no field 'what' to learn \(edge_label\); they have .*'kind'"),
        (dict(edge_label="some"), InputError, "field 'some': train edge [0-9]+, row [0-9]*(07|57) of the input, has no label: leave"),
        (dict(edge_label="time"), InputError, "field 'time' makes 100[0-9]+ classes for [0-9]+ edges: choose a field of classes"),
        (dict(edge_label="nothing"), InputError, "field 'nothing': all [0-9]+ train edges have the same, there is nothing to learn"),
        (dict(edge_label="kind", metric="mrr"), InputError, "metric='mrr' is of links, and these are labels"),
        (dict(edge_label="stars", metric="accuracy"), InputError, "must be classes, .*; an edge has 1"),
        (dict(edge_label="kind", target="node"), UsageError, "edge_label is of edges, and target='node' is a node type"),
        (dict(edge_label="kind", target="a,b,c"), UsageError, "'a,b,c' is not a node type of .* nor an edge type that links were held out"),
    ],
    ids=str,
)
def test_what_cannot_be_learnt(options, error, message, store, tmp_path):
    with pytest.raises(error, match=message):
        train(TrainConfig(store=str(store.path), **QUICK | options), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_stores_without_such_labels(tmp_path):
    """Nothing was held out; links were given, of which nothing else is known."""
    make_store(tmp_path / "nodes")
    with pytest.raises(UsageError, match="edge_label is learnt of edges of which some were held out"):
        train(TrainConfig(store=str(tmp_path / "nodes"), edge_label="y", **QUICK), tmp_path / "run")
    penstock.ingest(plain_data(), tmp_path / "whole")
    penstock.hold_out(tmp_path / "whole", tmp_path / "given", val=0, test=np.array([[0, 1], [2, 3], [4, 5]]))
    with pytest.raises(MissingFieldError, match="links 'test' were given, without 'kind': give a table with"):
        train(TrainConfig(store=str(tmp_path / "given"), edge_label="kind", **QUICK), tmp_path / "run")


def test_applied_to_another_graph(typed, tmp_path):
    """One of which nothing was held out, and whose edges have no labels."""
    run(typed, tmp_path / "run", "stars", epochs=1)
    data = typed_data()
    for name in LABELS:
        del data[RATES][name]
    penstock.ingest(data, tmp_path / "later")
    said = infer_pairs(tmp_path / "run", typed.links("test", RATES), store=tmp_path / "later", inductive=True)
    assert said["shape"] == [typed.links("test", RATES).shape[1], 1]
    with pytest.raises(UsageError, match=r"pairs='test' is no part of the links of .*, which are none"):
        infer_pairs(tmp_path / "run", "test", store=tmp_path / "later", inductive=True)


def test_what_is_said(typed, tmp_path):
    result = run(typed, tmp_path / "run", "stars", epochs=2)
    description, count = result.description, f"{typed.links('test').shape[1]:,}"
    assert description["target"] == "user,rates,film"
    assert f"{count} test" in what_is_there(description)
    assert "labels scored by rmse" in introduction(description, 2)
    assert "train" in summary_of(result.history[0], "rmse")
    assert f"{count} edges" in render(result)
    assert "stars" in render(result)


@pytest.fixture(scope="module")
def with_ids(tmp_path_factory):
    """A graph from a table in ids of the user's, and the table, of which every tenth row is an official split."""
    path, random = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    first, second = random.integers(0, 160, 4000), random.integers(0, 60, 4000)
    stars = 1 + (first % 4) * 0.5 + (second % 3)
    table = pa.table({"src": [f"u{each}" for each in first], "dst": 1000 + second, "stars": stars, "kind": (first + second) % 3})
    pq.write_table(table, path / "rates.parquet")
    pacsv.write_csv(table.take(np.arange(0, 4000, 10)), path / "test.csv")
    edges = {"files": "rates.parquet", "fields": {"stars": "stars", "kind": "kind"}}
    graph = {"nodes": {"user": {}, "film": {"ids": "int"}}, "edges": {"user__rates__film": edges}}
    (path / "graph.json").write_text(json.dumps(graph))
    penstock.ingest(path / "graph.json", path / "whole", undirected=True)
    penstock.hold_out(path / "whole", path / "store", edge_type=RATES, val=0.1, test=path / "test.csv")
    return penstock.open(path / "store"), path / "test.csv", table


def test_an_official_split_from_a_table(with_ids, tmp_path):
    """Its links have the fields that it has, and are pairs to ask for by the same ids; what is said of them has these ids."""
    store, file, table = with_ids
    rows = table.take(np.arange(0, 4000, 10)).to_pydict()
    assert list(store.link_fields("test")) == ["src", "dst", "stars", "kind"]
    assert {name: store.link_field(name, "test").tolist() for name in ("stars", "kind")} == {name: rows[name] for name in ("stars", "kind")}
    sources, targets = store.links("test")
    assert store.original_ids(sources, "user") == rows["src"]
    assert store.original_ids(targets, "film").tolist() == rows["dst"]
    numbers, classes, links = (tmp_path / name for name in ("numbers", "classes", "links"))
    result = run(store, numbers, "stars", epochs=6, lr=0.03)
    assert result.test < 0.8 * np.std(rows["stars"])
    said = infer_pairs(numbers, "test")
    found = infer_pairs(numbers, file, numbers / "pairs.parquet")
    assert found["shape"] == said["shape"]
    written = pq.read_table(found["out"]).to_pydict()
    assert (written["src"], written["dst"]) == (rows["src"], rows["dst"])
    np.testing.assert_allclose(written["number"], np.load(said["out"])[:, 0], rtol=1e-4)
    run(store, classes, "kind", epochs=1)
    infer_pairs(classes, str(file), classes / "pairs.csv")
    written = pacsv.read_csv(classes / "pairs.csv").to_pydict()
    (tmp_path / "asked.csv").write_text(f"src,dst,kind\n{rows['src'][0]},{rows['dst'][0]},?\n")  # what is not known yet
    infer_pairs(classes, tmp_path / "asked.csv", classes / "asked.csv")
    assert pacsv.read_csv(classes / "asked.csv").to_pydict() == {name: values[:1] for name, values in written.items()}
    assert written["class"] == np.load(infer_pairs(classes, "test")["out"]).argmax(axis=1).tolist()
    train(TrainConfig(store=str(store.path), **QUICK | {"epochs": 1}), links)
    infer_pairs(links, file, links / "pairs.csv")
    written = pacsv.read_csv(links / "pairs.csv").to_pydict()
    assert list(written) == ["src", "dst", "score"]
    np.testing.assert_allclose(written["score"], np.load(infer_pairs(links, "test")["out"]), rtol=1e-4, atol=1e-6)


def scores_by(task, said, labels):
    """The metric, of what `penstock infer --pairs` wrote."""
    return task._score(said.astype(np.float64) if isinstance(task, Numbers) else task.digest(said), labels)


@pytest.mark.parametrize("field", ["kind", "stars", "pair"])
@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_what_is_said_of_pairs(field, kind, store, typed, tmp_path, monkeypatch):
    """Of a part that was held out, the score of the run; of given pairs the same rows, in their order."""
    monkeypatch.setattr("penstock.train.pairs.PAIRS", 50)
    of = store if kind == "plain" else typed
    edge_type = of.type_with_links()
    result, task = run(of, tmp_path / "run", field, epochs=2), read_training_data(of, config_of(of, field)).task
    made = infer_pairs(tmp_path / "run", "test")
    assert made["out"] == str(tmp_path / "run" / "pairs-test.npy")
    said, links = np.load(made["out"]), of.links("test", edge_type)
    assert made["edge_type"] == list(edge_type)
    assert said.shape == (links.shape[1], task.num_outputs) == tuple(made["shape"])
    assert said.dtype == np.float32
    assert scores_by(task, said, of.link_field(field, "test", edge_type)) == pytest.approx(result.test, rel=1e-3)
    order = np.random.default_rng(0).permutation(links.shape[1])[:70]
    for pairs in (links[:, order], links.T[order]):
        again = np.load(infer_pairs(tmp_path / "run", pairs, tmp_path / "some.npy", num_workers=1)["out"])
        np.testing.assert_allclose(again, said[order], rtol=1e-4, atol=1e-3)


def test_scores_of_pairs(store, typed, tmp_path):
    """Of links, the product of the rows of both ends."""
    for number, of in enumerate((store, typed)):
        folder, edge_type = tmp_path / f"run-{number}", of.type_with_links()
        train(TrainConfig(store=str(of.path), **QUICK | {"epochs": 1}), folder)
        rows = [np.load(infer_run(folder, folder / f"{end}.npy", node_type=edge_type[end])["out"]) for end in (0, 2)]
        said = np.load(infer_pairs(folder, "val")["out"])
        sources, targets = of.links("val", edge_type)
        np.testing.assert_allclose(said, (rows[0][sources] * rows[1][targets]).sum(1) / 4, rtol=1e-3, atol=1e-5)
