"""Links as what is learnt: told from negatives, scored on those that were held out, and found again by the rows of their ends."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import penstock
from penstock.errors import UsageError
from penstock.report.live import introduction, summary_of, what_is_there
from penstock.report.page import render
from penstock.train import TrainConfig, infer_run, train
from penstock.train import links as links_module
from penstock.train.data import read_training_data
from penstock.train.learner import Learner
from penstock.train.links import products
from penstock.train.ranks import Ranks
from penstock.train.task import Links

LIKES, REV = ("user", "likes", "item"), ("item", "rev_likes", "user")
QUICK = dict(num_neighbors=(5, 3), batch_size=128, hidden=16, epochs=6, num_workers=0, lr=0.01, dropout=0.0)
GROUPS = 4


def group_edges(num_sources, num_targets, num_edges, random):
    """Nine of ten edges join nodes of one group, which is the number of a node modulo 4."""
    source = torch.randint(0, num_sources, (num_edges,), generator=random)
    target = torch.randint(0, num_targets // GROUPS, (num_edges,), generator=random) * GROUPS + source % GROUPS
    other = torch.randint(0, num_targets, (num_edges,), generator=random)
    return torch.unique(torch.stack([source, torch.where(torch.rand(num_edges, generator=random) < 0.9, target, other)]), dim=1)


def plain_data(*, has_features=True):
    random = torch.Generator().manual_seed(1)
    edges = group_edges(240, 240, 1500, random)
    edges = torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)
    data = Data(edge_index=edges, num_nodes=240)
    if has_features:
        data.x = torch.nn.functional.one_hot(torch.arange(240) % GROUPS, GROUPS) + 0.5 * torch.randn(240, GROUPS, generator=random)
    return data


def typed_data():
    """Users with features, items without."""
    random, data = torch.Generator().manual_seed(2), HeteroData()
    edges = group_edges(160, 120, 2500, random)
    data["user"].x = torch.nn.functional.one_hot(torch.arange(160) % GROUPS, GROUPS) + 0.5 * torch.randn(160, GROUPS, generator=random)
    data["item"].num_nodes = 120
    data[LIKES].edge_index, data[REV].edge_index = edges, edges.flip(0)
    return data


def held_out(data, path, **how):
    penstock.ingest(data, path / "whole")
    penstock.hold_out(path / "whole", path / "store", **how)
    return penstock.open(path / "store")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return held_out(plain_data(), tmp_path_factory.mktemp("plain"), val=0.1, test=0.2)


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    return held_out(typed_data(), tmp_path_factory.mktemp("typed"), edge_type=LIKES, val=0.1, test=0.2)


def run(store, folder, **options):
    return train(TrainConfig(store=str(store.path), **QUICK | options), folder)


@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "gin", "bare", "rgcn", "hgt"])
def test_groups_are_learnt(model, store, typed, tmp_path):
    """Links within groups are told from pairs of any two; three of four pairs are of two groups, and a tenth of links."""
    if model == "bare":
        store, model = held_out(plain_data(has_features=False), tmp_path), "sage"
    of = typed if model in ("rgcn", "hgt") else store
    result = run(of, tmp_path / "run", model=model, metric="auc", epochs=15, eval_every=5)
    assert result.metric == "auc"
    assert result.test > 0.68
    assert result.val == max(record.val for record in result.history if record.val is not None)
    assert result.history[-1].train_score > 0.68


@pytest.mark.parametrize("metric", ["mrr", "hits@10", "auc"])
@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_scores_are_those_of_the_rows(metric, kind, store, typed, tmp_path):
    """What `penstock infer` writes for both ends gives the score that the run said."""
    of = store if kind == "plain" else typed
    result = run(of, tmp_path / "run", metric=metric, epochs=2, eval_negatives=30)
    target = infer_run(tmp_path / "run")
    rows = {target["node_type"]: np.load(target["out"])}
    if kind == "typed":
        source = infer_run(tmp_path / "run", node_type="user")
        assert source["out"] != target["out"]
        rows["user"] = np.load(source["out"])
    config = TrainConfig(store=str(of.path), **QUICK | {"metric": metric, "eval_negatives": 30})
    links = read_training_data(of, config).edges
    ranks, own, others = [], [], []
    for sources, candidates in links._blocks(of.graph(), "test", Ranks()):
        scores = (rows[links.edge_type[0]][sources][:, None] * rows[links.edge_type[2]][candidates]).sum(-1)
        ranks += [1 + (each[1:] > each[0]).sum() + (each[1:] == each[0]).sum() / 2 for each in scores]
        own += scores[:, 0].tolist()
        others += scores[:, 1:].reshape(-1).tolist()
    assert len(ranks) == of.links("test").shape[1]
    expected = {
        "mrr": np.mean(1 / np.array(ranks)),
        "hits@10": np.mean(np.array(ranks) <= 10),
        "auc": np.mean([np.mean(one > np.array(others)) + np.mean(one == np.array(others)) / 2 for one in own]),
    }
    assert result.test == pytest.approx(expected[metric], abs=2e-3)


def test_negatives_of_evaluations(store, typed):
    """The same every time, of each link so many; none is a link that the store knows."""
    for of in (store, typed):
        config = TrainConfig(store=str(of.path), **QUICK | {"eval_negatives": 7})
        links, again = (read_training_data(of, config).edges for _ in range(2))
        known = {tuple(pair) for index in (of.edge_index(links.edge_type), *map(of.links, ("val", "test"))) for pair in index.T.tolist()}
        for part in ("val", "test"):
            blocks, others = list(links._blocks(of.graph(), part, Ranks())), list(again._blocks(of.graph(), part, Ranks()))
            for (sources, candidates), (_, candidates_again) in zip(blocks, others, strict=True):
                assert np.array_equal(candidates, candidates_again)
                assert candidates.shape == (sources.size, 8)
                for source, (_, *negatives) in zip(sources.tolist(), candidates.tolist(), strict=True):
                    assert not {(source, each) for each in negatives} & known
            found = np.concatenate([np.stack([sources, candidates[:, 0]]) for sources, candidates in blocks], axis=1)
            assert np.array_equal(found, of.links(part))
        needed = links.nodes(of.graph(), Ranks())
        assert set(needed) == set(links.node_types)


def test_negatives_of_large_graphs_are_among_few_nodes(store, monkeypatch):
    """So that an evaluation needs no more than these, and the ends of links; still none of them is a link."""
    monkeypatch.setattr(links_module, "POOL", 20)
    config = TrainConfig(store=str(store.path), **QUICK | {"eval_negatives": 7})
    links = read_training_data(store, config).edges
    ends = np.concatenate([store.links("val"), store.links("test")], axis=1)
    known = {tuple(pair) for pair in np.concatenate([store.edge_index(), ends], axis=1).T.tolist()}
    drawn = set()
    for part in ("val", "test"):
        for sources, candidates in links._blocks(store.graph(), part, Ranks()):
            pairs = {(source, each) for source, row in zip(sources.tolist(), candidates[:, 1:].tolist(), strict=True) for each in row}
            assert not pairs & known
            drawn |= set(candidates[:, 1:].reshape(-1).tolist())
    assert 10 < len(drawn) <= 20
    assert set(links.nodes(store.graph(), Ranks())["node"].tolist()) == drawn | set(ends.reshape(-1).tolist())


def test_no_batch_shows_its_links(store, typed):
    """Neither as edges nor as their reverses."""
    for of in (store, typed):
        config = TrainConfig(store=str(of.path), **QUICK)
        data = read_training_data(of, config)
        loader = data.edges.loader(penstock.LinkNeighborLoader, data.source(), [5, 3], batch_size=128, seed=0)
        count = 0
        for batch in loader:
            source, target = (batch, batch) if of is store else (batch["user"], batch["item"])
            asked = set(zip(source.n_id[source.src_index].tolist(), target.n_id[target.dst_pos_index].tolist(), strict=True))
            count += len(asked)
            for e in (LIKES, REV) if of is typed else (None,):
                edges = batch if e is None else batch[e]
                ends = (batch, batch) if e is None else (batch[e[0]], batch[e[2]])
                shown = set(zip(*(each.n_id[row].tolist() for each, row in zip(ends, edges.edge_index, strict=True)), strict=True))
                assert not shown & (asked if e != REV else {(v, u) for u, v in asked})
                if e is None:
                    assert not shown & {(v, u) for u, v in asked}
        assert count == data.counts["train"]


def test_sampled_evaluation_over_all_neighbours_is_the_full_one(store, typed, tmp_path):
    for number, of in enumerate((store, typed)):
        how = dict(num_neighbors=(-1, -1), epochs=2)
        full, sampled = (run(of, tmp_path / f"{number}-{how_}", evaluation=how_, **how) for how_ in ("full", "sampled"))
        assert full.weights_digest == sampled.weights_digest
        assert full.val == pytest.approx(sampled.val, abs=1e-3)


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_a_run_that_is_resumed_ends_with_the_same_weights(kind, store, typed, tmp_path):
    of = store if kind == "plain" else typed
    whole = run(of, tmp_path / "whole", dropout=0.2, num_negatives=3)
    run(of, tmp_path / "other", dropout=0.2, num_negatives=3, epochs=3)
    config = TrainConfig(store=str(of.path), **QUICK | {"dropout": 0.2, "num_negatives": 3, "num_workers": 2})
    resumed = train(config, tmp_path / "other", resume=True)
    assert resumed.weights_digest == whole.weights_digest
    assert (resumed.val, resumed.test) == (whole.val, whole.test)


def test_a_step_by_hand(typed):
    """The loss is that of the products of rows of both ends, half of it of links."""
    config = TrainConfig(store=str(typed.path), **QUICK | {"num_negatives": 3})
    data = read_training_data(typed, config)
    learner = Learner(config, data, torch.device("cpu"))
    loader = data.edges.loader(penstock.LinkNeighborLoader, data.source(), [5, 3], batch_size=64, seed=0)
    batch = next(iter(loader))
    loss, scores, labels = learner.loss(batch)
    rows = learner._rows_of_seeds(batch)
    users, items = rows["user"], rows["item"]
    expected = torch.empty(64, 4)
    for number in range(64):
        candidates = [batch["item"].dst_pos_index[number], *batch["item"].dst_neg_index[number]]
        for place, each in enumerate(candidates):
            expected[number, place] = users[batch["user"].src_index[number]] @ items[each] / 4
    torch.testing.assert_close(scores, expected)
    halves = -torch.log(torch.sigmoid(expected[:, 0])).mean(), -torch.log(1 - torch.sigmoid(expected[:, 1:])).mean()
    torch.testing.assert_close(loss, sum(halves) / 2)
    assert labels.tolist() == [0] * 64
    loss.backward()
    assert all(head.weight.grad.abs().sum() > 0 for head in (learner.model.head, learner.model.source_head)), "each end has its own"


def test_metrics():
    scores = np.array([[3.0, 1, 2], [1, 3, 2], [2, 2, 1], [0, 0, 0]], np.float32)
    ranks = [1, 3, 1.5, 2]
    assert Links(8, "mrr").digest(scores).tolist() == ranks
    undefined = np.array([[np.nan, 1, 2], [1, np.nan, 0], [np.nan] * 3], np.float32)
    assert Links(8, "mrr").digest(undefined).tolist() == [3, 2, 3], "weights that are lost win nothing"
    zeros = np.zeros(4, np.int64)
    for metric, expected in (("mrr", np.mean([1 / rank for rank in ranks])), ("hits@10", 1.0)):
        task = Links(8, metric)
        assert task.score_digest(task.digest(scores), zeros) == pytest.approx(expected)
        assert np.isnan(task.score(scores, zeros)), "among fewer in training"
    wide = np.concatenate([np.zeros((2, 1)), np.arange(-5, 15)[None].repeat(2, 0)], axis=1)
    wide[1, 0] = 9.5
    assert Links(8, "hits@10").score_digest(Links(8, "hits@10").digest(wide), zeros[:2]) == 0.5
    pairs = [(own > other) + (own == other) / 2 for own in scores[:, 0] for other in scores[:, 1:].reshape(-1)]
    assert Links(8, "auc").score(scores, zeros) == pytest.approx(np.mean(pairs))
    torch.testing.assert_close(products(torch.ones(1, 4), torch.ones(1, 2, 4)), torch.full((1, 2), 2.0))


def test_what_is_said(store, tmp_path):
    result = run(store, tmp_path / "run", epochs=1)
    d = result.description
    assert d["target"] == "node,to,node"
    assert f"{store.links('test').shape[1]:,} test" in what_is_there(d)
    assert "links scored by mrr" in introduction(d, 1)
    assert "train -" in summary_of(result.history[0], "mrr")
    page = render(result)
    assert f"{store.links('val').shape[1]:,} links" in page
    assert "node,to,node" in page


def test_learnt_of_another_graph(store, tmp_path):
    """A model of links gives rows for a graph of which nothing was held out."""
    run(store, tmp_path / "run", epochs=1)
    made = infer_run(tmp_path / "run", tmp_path / "rows.npy", store=store.path.parent / "whole", inductive=True)
    assert made["shape"] == [240, 16]


def test_labels_and_links(tmp_path):
    """Of a store with both, links are learnt, unless labels are asked for."""
    data = plain_data()
    data.y = torch.arange(240) % GROUPS
    data.train_mask = data.val_mask = torch.arange(240) % 2 == 0
    data.val_mask = ~data.train_mask
    store = held_out(data, tmp_path)
    assert run(store, tmp_path / "links", epochs=1).metric == "mrr"
    assert run(store, tmp_path / "named", epochs=1, target="node,to,node").metric == "mrr"
    assert run(store, tmp_path / "labels", epochs=1, target="node").metric == "accuracy"
    with pytest.raises(UsageError, match="nor an edge type that links were held out of, which are node,to,node"):
        run(store, tmp_path / "neither", target="nodes")
