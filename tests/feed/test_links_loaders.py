"""Loaders of links as loaders: stores, plans, states, ranks and orders change no batch, or are refused."""

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NegativeSampling
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import penstock
from penstock.errors import CorruptStoreError, PipelineError, StateError
from penstock.feed import LinkNeighborLoader
from penstock.order import NEAR, ORDERS
from penstock.store import ingest
from tests.feed.inputs import digests, homogeneous_data, typed_data
from tests.feed.links import BY, OPTIONS, WRITES, links_of


def typed_store(tmp_path):
    """A store, and `HeteroData` with its edges in its order."""
    store = ingest(typed_data(), tmp_path / "store", edge_ids=False)
    data = HeteroData()
    for node_type in store.node_types:
        data[node_type].num_nodes = store.graph().num_nodes[node_type]
    for edge_type, csc in store.graph().adjacency.items():
        targets = np.repeat(np.arange(csc.num_dst), np.diff(csc.indptr))
        data[edge_type].edge_index = torch.from_numpy(np.stack([csc.indices.astype(np.int64), targets]))
    return store, data


def test_a_store_gives_what_its_edges_give(tmp_path):
    store, data = typed_store(tmp_path)
    options = dict(OPTIONS, edge_label_index=WRITES, neg_sampling="binary", exclude_links=[WRITES, BY], shuffle=True)
    for ours, theirs in zip(LinkNeighborLoader(store, **options), LinkNeighborLoader(data, **options), strict=True):
        assert torch.equal(ours[WRITES].edge_label_index, theirs[WRITES].edge_label_index)
        for node_type in data.node_types:
            assert torch.equal(ours[node_type].n_id, theirs[node_type].n_id)
        for edge_type in data.edge_types:
            assert torch.equal(ours[edge_type].edge_index, theirs[edge_type].edge_index)


def test_links_of_a_store_are_numbered_as_its_edges(tmp_path):
    data = homogeneous_data()
    store = ingest(data, tmp_path / "store")
    for batch in LinkNeighborLoader(store, **OPTIONS, shuffle=True):
        assert torch.equal(batch.n_id[batch.edge_label_index], data.edge_index[:, batch.input_id])


@pytest.mark.parametrize(
    "plan",
    ["ginex", penstock.Plan(policy="presample", cache="20%"), penstock.Plan(policy="inclusion", cache="60 rows", presample_batches=2)],
    ids=str,
)
def test_plans_change_nothing(plan, tmp_path):
    data = homogeneous_data()
    store, (links, labels) = ingest(data, tmp_path / "store"), links_of(data)
    options = dict(OPTIONS, edge_label_index=links, edge_label=labels, neg_sampling=("binary", 2), exclude_links="self")
    expected = digests(LinkNeighborLoader(store, **options))
    loader = LinkNeighborLoader(store, **options, plan=plan, num_workers=2)
    assert digests(loader) == expected
    assert loader.stats().tiers["cache"]["num_rows"] > 0


def test_what_is_hot_counts_negatives_too():
    """Inclusion by calculation against batches that were drawn."""
    data = homogeneous_data(100, 400)
    links, _ = links_of(data, 60)
    weight = torch.arange(100).float()
    for sampling in (("binary", 2), ("triplet", 1), None, NegativeSampling("binary", 1, dst_weight=weight)):
        loader = LinkNeighborLoader(
            data, [1], edge_label_index=links, neg_sampling=sampling, batch_size=10, shuffle=True, seed=1, exclude_positives=False
        )
        share = loader.engine.maker.batches.first_share()["node"]
        counts = np.zeros(100)
        for _ in range(60):
            for batch in loader:
                counts[batch.n_id[: batch.num_sampled_nodes[0]].numpy()] += 1
        deviation = (counts - 360 * share) / np.sqrt(np.maximum(360 * share * (1 - share), 1))
        assert np.abs(deviation).max() < 4.5
        assert abs(deviation.mean()) < 0.3


def test_what_is_hot_of_two_types(monkeypatch, tmp_path):
    """Of a store too, whose edges are counted in blocks; batches may be larger than the set."""
    monkeypatch.setattr("penstock.feed.links.BLOCK", 7)
    data = typed_data()
    data["paper"].time = torch.arange(500).flip(0)
    weight = torch.rand(500, generator=torch.Generator().manual_seed(0))
    for source in (data, ingest(typed_data(), tmp_path / "store")):
        for sampling in ("binary", NegativeSampling("binary", 2, dst_weight=weight), ("triplet", 1)):
            timed = {} if source is not data else {"time_attr": "time", "edge_label_time": torch.full((900,), 500)}
            loader = LinkNeighborLoader(source, [1], edge_label_index=WRITES, neg_sampling=sampling, batch_size=90, **timed)
            first = loader.engine.maker.batches.first_share()
            negatives = loader.engine.maker.seeds.negatives
            drawn = negatives.count(90)
            for node_type, ids, candidates in zip(
                ("author", "paper"), data[WRITES].edge_index, (negatives.sources, negatives.targets), strict=True
            ):
                count, nodes = np.bincount(ids, minlength=data[node_type].num_nodes), data[node_type].num_nodes
                share = (
                    np.full(nodes, 1 / nodes)
                    if isinstance(sampling, (str, tuple)) or node_type == "author"
                    else (weight.double() / weight.double().sum()).numpy()
                )
                expected = 1 - 0.9**count * (1 - share * (candidates is not None)) ** drawn
                assert np.allclose(first[node_type], expected, atol=1e-6)
    whole = LinkNeighborLoader(data, [1], edge_label_index=(WRITES, [[1, 2], [3, 4]]), neg_sampling="triplet", batch_size=900)
    first = whole.engine.maker.batches.first_share()
    assert (first["author"] == np.isin(np.arange(60), [1, 2])).all()
    assert np.allclose(first["paper"], np.where(np.isin(np.arange(500), [3, 4]), 1, 1 - (1 - 1 / 500) ** 2))


def test_state(tmp_path):
    data = homogeneous_data()
    links, labels = links_of(data)
    options = dict(OPTIONS, edge_label_index=links, edge_label=labels, neg_sampling="binary", shuffle=True, exclude_links="self")
    expected = [digests(loader) for loader in [LinkNeighborLoader(data, **options)] for _ in range(2)]
    loader, rest = LinkNeighborLoader(data, **options), []
    iterator = iter(loader)
    begun = [penstock.digest(next(iterator)) for _ in range(2)]
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = LinkNeighborLoader(data, **options, num_workers=2)
    resumed.load_state_dict(state)
    rest = digests(resumed)
    assert [begun + rest, digests(resumed)] == expected
    other = links.clone()
    other[0, 0] = (other[0, 0] + 1) % 300
    for changes in (
        {"edge_label_index": other},
        {"edge_label": labels + 1},
        {"neg_sampling": ("binary", 2)},
        {"neg_sampling": ("triplet", 1), "edge_label": None},
        {"neg_sampling": NegativeSampling("binary", src_weight=torch.arange(300.0))},
        {"exclude_links": "reverse"},
        {"exclude_links": None},
        {"exclude_positives": False},
        {"input_id": torch.arange(100)},
        {"seed": 6},
    ):
        with pytest.raises(StateError, match="another configuration"):
            LinkNeighborLoader(data, **{**options, **changes}).load_state_dict(state)


def test_ranks_and_a_batch_alone():
    data = homogeneous_data()
    links, _ = links_of(data)
    options = dict(OPTIONS, edge_label_index=links, neg_sampling="binary", shuffle=True)
    whole = LinkNeighborLoader(data, **options)
    expected = digests(whole)
    ranks = [digests(LinkNeighborLoader(data, **options, rank=rank, num_ranks=2)) for rank in range(2)]
    assert [ranks[index % 2][index // 2] for index in range(4)] == expected
    assert [penstock.digest(whole(batch=index)) for index in range(4)] == expected
    alone = whole([3, 5])
    assert torch.equal(alone.n_id[alone.edge_label_index[:, :2]], links[:, [3, 5]])


def test_beside():
    data = homogeneous_data()
    links, labels = links_of(data)
    loader = LinkNeighborLoader(data, **OPTIONS, neg_sampling="binary", exclude_links="self", shuffle=True)
    beside = loader.beside(links, labels)
    assert isinstance(beside, LinkNeighborLoader)
    expected = LinkNeighborLoader(data, **OPTIONS, edge_label_index=links, edge_label=labels, exclude_links="self")
    assert digests(beside) == digests(expected)
    assert digests(loader.beside(links, neg_sampling="triplet")) == digests(
        LinkNeighborLoader(data, **OPTIONS, edge_label_index=links, neg_sampling="triplet", exclude_links="self")
    )


def test_states_of_other_types_times_and_weights_are_refused():
    data = typed_data()
    weight, links = torch.arange(1.0, 61), torch.arange(40).view(2, -1)
    data["author", "knows", "author"].edge_index, data["author"].time = links, torch.arange(60)
    data["author", "likes", "author"].edge_index = links
    base = dict(OPTIONS, edge_label_index=(("author", "knows", "author"), links), edge_label=torch.zeros(20))
    timed = dict(base, time_attr="time", edge_label_time=torch.arange(20))
    for options, changes in (
        (
            dict(base, neg_sampling=NegativeSampling("binary", src_weight=weight)),
            {"neg_sampling": NegativeSampling("binary", dst_weight=weight)},
        ),
        (
            dict(base, neg_sampling=NegativeSampling("binary", src_weight=weight, dst_weight=weight)),
            {"neg_sampling": NegativeSampling("binary", src_weight=weight, dst_weight=weight.flip(0))},
        ),
        (base, {"edge_label": torch.zeros(20, 1)}),
        (base, {"edge_label": torch.zeros(20, dtype=torch.int32)}),
        (base, {"edge_label_index": (("author", "likes", "author"), links)}),
        (timed, {"edge_label_time": torch.arange(20) + 1}),
    ):
        state = LinkNeighborLoader(data, **options).state_dict()
        with pytest.raises(StateError, match="another configuration"):
            LinkNeighborLoader(data, **{**options, **changes}).load_state_dict(state)
    only = HeteroData({"a": {"num_nodes": 9}, "b": {"num_nodes": 9}, ("a", "to", "b"): {"edge_index": links[:, :9] % 9}})
    only["b"].time = torch.arange(9)
    options = dict(edge_label_index=("a", "b"), edge_label_time=torch.arange(9), time_attr="time", neg_sampling="binary", seed=1)
    state = LinkNeighborLoader(only, [2], **options).state_dict()
    only["b"].time = torch.arange(9).flip(0)  # of no edge's source: of negatives alone
    with pytest.raises(StateError, match="another configuration"):
        LinkNeighborLoader(only, [2], **options).load_state_dict(state)


def test_orders_that_look_at_the_graph_go_by_the_targets():
    data = typed_data()
    node_type, ids = LinkNeighborLoader(data, **OPTIONS, edge_label_index=WRITES).engine.maker.seeds.nodes()
    assert (node_type, ids.tolist()) == ("paper", data[WRITES].edge_index[1].tolist())
    for order in NEAR:
        seen = [batch[WRITES].input_id for batch in LinkNeighborLoader(data, **OPTIONS, edge_label_index=WRITES, order=order)]
        assert sorted(torch.cat(seen).tolist()) == list(range(900))


@pytest.mark.parametrize("is_named", [False, True])
def test_all_edges_of_a_store_are_not_looked_at_before_a_batch_asks(is_named, tmp_path, monkeypatch):
    store = ingest(homogeneous_data(), tmp_path / "store")
    monkeypatch.setattr("penstock.feed.links.EdgeEnds.at", lambda *_: pytest.fail("looked at"))
    assert len(LinkNeighborLoader(store, **OPTIONS, **({"order": "random"} if is_named else {"shuffle": True}))) == 94


def test_damaged_lists_are_told_as_such(tmp_path):
    for name, what in (("indices", "comes from node 99999"), ("indptr", "lies outside its")):
        store = ingest(homogeneous_data(), tmp_path / name)
        path = next(path for path in (tmp_path / name).rglob(f"{name}.npy"))
        np.load(path, mmap_mode="r+")[5] = 99999
        for options in ({}, {"neg_sampling": "binary"}):
            with pytest.raises((CorruptStoreError, PipelineError), match=what):
                list(LinkNeighborLoader(penstock.Store(store.path), **OPTIONS, **options))


@pytest.mark.parametrize("order", ORDERS)
def test_orders(order):
    data = homogeneous_data()
    links, _ = links_of(data)
    seen = [batch.input_id for batch in LinkNeighborLoader(data, **OPTIONS, edge_label_index=links, order=order)]
    assert sorted(torch.cat(seen).tolist()) == list(range(100))


def test_a_pair_of_stores():
    data, features, graph = typed_data(), MyFeatureStore(), MyGraphStore()
    for node_type in ("author", "paper"):
        features.put_tensor(data[node_type].x, group_name=node_type, attr_name="x", index=None)
    for edge_type in (WRITES, BY):
        size = tuple(data[t].num_nodes for t in (edge_type[0], edge_type[2]))
        graph.put_edge_index(tuple(data[edge_type].edge_index), edge_type=edge_type, layout="coo", size=size)
    for batch in LinkNeighborLoader((features, graph), **OPTIONS, edge_label_index=WRITES, neg_sampling="binary"):
        index, count = batch[WRITES].edge_label_index, batch[WRITES].input_id.numel()
        ends = torch.stack([batch["author"].n_id[index[0]], batch["paper"].n_id[index[1]]])
        assert torch.equal(ends[:, :count], data[WRITES].edge_index[:, batch[WRITES].input_id])
        assert torch.equal(batch["paper"].x, data["paper"].x[batch["paper"].n_id])
