"""`LinkNeighborLoader`: what a batch says of its links is true, by ways that know nothing of how it is made."""

import json
import logging

import numpy as np
import pytest
import torch
from scipy import stats
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import penstock
from penstock.errors import CorruptStoreError, PipelineError, StateError, UsageError
from penstock.feed import LinkNeighborLoader, NeighborLoader, link_arguments
from penstock.store import ingest
from tests.feed.inputs import check_homogeneous, check_typed, digests, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[3, 2], batch_size=32, seed=5)
WRITES = ("author", "writes", "paper")
BY = ("paper", "by", "author")
REV = ("paper", "rev_writes", "author")


def links_of(data, count=100):
    """Random pairs, and labels that say which they are."""
    random = torch.Generator().manual_seed(7)
    return torch.randint(0, data.num_nodes, (2, count), generator=random), torch.arange(count) + 10


def pairs(ends):
    return set(map(tuple, torch.as_tensor(ends).t().tolist()))


def with_reverses(data):
    """Every edge once, and its reverse."""
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1).unique(dim=1)
    data.edge_attr = torch.cat([data.edge_index.t(), torch.arange(data.edge_index.shape[1])[:, None]], dim=1)
    return data


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("disjoint", [False, True])
def test_links_with_labels(num_workers, disjoint):
    data = homogeneous_data()
    links, labels = links_of(data)
    options = dict(OPTIONS, edge_label_index=links, edge_label=labels, shuffle=True, disjoint=disjoint)
    loader = LinkNeighborLoader(data, **options, num_workers=num_workers)
    seen = []
    for batch in loader:
        check_homogeneous(batch, data)
        assert torch.equal(batch.n_id[batch.edge_label_index], links[:, batch.input_id])
        assert torch.equal(batch.edge_label, labels[batch.input_id])
        num_seeds = 2 * batch.input_id.numel() if disjoint else links[:, batch.input_id].unique().numel()
        assert batch.num_sampled_nodes[0] == num_seeds == batch.edge_label_index.unique().numel()
        assert batch.edge_label_index.max() < num_seeds, "ends come first"
        if disjoint:
            assert torch.equal(batch.batch[batch.edge_label_index], torch.arange(batch.input_id.numel()).expand(2, -1))
            assert torch.equal(*batch.batch[batch.edge_index])
        else:
            assert torch.equal(batch.n_id[:num_seeds], batch.n_id[:num_seeds].unique()), "each once, in order, as in PyG"
            assert batch.n_id.unique().numel() == batch.num_nodes
        seen += batch.input_id.tolist()
    assert sorted(seen) == list(range(100))
    assert len(loader) == 4
    assert len(loader.dataset) == 100
    assert digests(LinkNeighborLoader(data, **options)) == digests(LinkNeighborLoader(data, **options, num_workers=3, prefetch_factor=3))


def test_the_sample_is_that_of_the_nodes_at_the_ends():
    data = homogeneous_data()
    links, _ = links_of(data, 40)
    (batch,) = LinkNeighborLoader(data, [3, 2], edge_label_index=links, batch_size=40, seed=5)
    (nodes,) = NeighborLoader(data, [3, 2], input_nodes=links.unique(), batch_size=100, seed=5)
    for name in ("n_id", "edge_index", "e_id", "x", "row_ptr"):
        assert torch.equal(batch[name], nodes[name]), name


def test_all_edges_and_forms_of_links():
    data = homogeneous_data()
    whole = LinkNeighborLoader(data, **OPTIONS)
    assert len(whole.dataset) == 3000
    for batch in whole:
        assert torch.equal(batch.n_id[batch.edge_label_index], data.edge_index[:, batch.input_id])
        assert "edge_label" not in batch
    links, _ = links_of(data)
    of_the_data = homogeneous_data()
    of_the_data.edge_label = of_the_data.edge_label_time = torch.arange(3000)
    assert not {"edge_label", "edge_label_time"} & set(next(iter(LinkNeighborLoader(of_the_data, **OPTIONS))).keys())
    expected = digests(LinkNeighborLoader(data, **OPTIONS, edge_label_index=links))
    for form in (links.int(), links.numpy(), links.tolist(), (None, links), links.t().contiguous().t()):
        assert digests(LinkNeighborLoader(data, **OPTIONS, edge_label_index=form)) == expected
    (batch,) = LinkNeighborLoader(data, **dict(OPTIONS, batch_size=100), edge_label_index=links, input_id=torch.arange(100) * 3)
    assert torch.equal(batch.input_id, torch.arange(100) * 3)


@pytest.mark.parametrize("amount", [1, 0.5, 3])
@pytest.mark.parametrize("disjoint", [False, True])
def test_binary_negatives(amount, disjoint):
    data = homogeneous_data(40, 900)
    links, _ = links_of(data)
    options = dict(OPTIONS, edge_label_index=links, neg_sampling=("binary", amount), disjoint=disjoint)
    known = pairs(data.edge_index) | pairs(links)
    drawn = set()
    for batch in LinkNeighborLoader(data, **options):
        count = batch.input_id.numel()
        ends, num_negatives = batch.n_id[batch.edge_label_index], -(-count * amount // 1)
        assert ends.shape == (2, count + num_negatives)
        assert torch.equal(ends[:, :count], links[:, batch.input_id])
        assert batch.edge_label.dtype == torch.float32
        assert torch.equal(batch.edge_label, torch.cat([torch.ones(count), torch.zeros(int(num_negatives))]))
        assert not pairs(ends[:, count:]) & known
        assert batch.num_false_negatives == 0
        drawn |= pairs(ends[:, count:])
        if disjoint:
            owners = torch.cat([torch.arange(count), torch.arange(int(num_negatives)) % count])
            assert torch.equal(batch.batch[batch.edge_label_index], owners.expand(2, -1))
    assert len(drawn) > 25 * amount
    plain = dict(options, exclude_positives=False)
    found = [batch.n_id[batch.edge_label_index][:, batch.input_id.numel() :] for batch in LinkNeighborLoader(data, **plain)]
    assert any(pairs(each) & known for each in found)
    assert "num_false_negatives" not in next(iter(LinkNeighborLoader(data, **plain)))
    assert digests(LinkNeighborLoader(data, **options)) == digests(LinkNeighborLoader(data, **options, num_workers=2))


def test_forms_of_negatives():
    data = homogeneous_data()
    links, _ = links_of(data)
    options = dict(OPTIONS, edge_label_index=links)
    expected = digests(LinkNeighborLoader(data, **options, neg_sampling_ratio=1.0))
    assert digests(LinkNeighborLoader(data, **options, neg_sampling="triplet", neg_sampling_ratio=np.float32(1))) == expected, "as PyG"
    for form in ("binary", ("binary", 1), dict(mode="binary", amount=1), NegativeSampling("binary")):
        assert digests(LinkNeighborLoader(data, **options, neg_sampling=form)) == expected
    assert digests(LinkNeighborLoader(data, **options, neg_sampling_ratio=0.0)) == digests(LinkNeighborLoader(data, **options))


def test_labels_make_room_for_the_negatives():
    data = homogeneous_data()
    links, _ = links_of(data)
    options = dict(OPTIONS, edge_label_index=links, neg_sampling="binary")
    for labels, expected in (
        (torch.arange(100) % 3, torch.arange(100) % 3 + 1),
        (torch.arange(100) % 3 + 1, torch.arange(100) % 3 + 1),
        (torch.arange(100) % 3 - 1, torch.arange(100) % 3 - 1),
        (torch.arange(200).view(100, 2), torch.arange(200).view(100, 2) + 1),
    ):
        for batch in LinkNeighborLoader(data, **options, edge_label=labels):
            count = batch.input_id.numel()
            assert torch.equal(batch.edge_label[:count], expected[batch.input_id])
            assert not batch.edge_label[count:].any()
            assert batch.edge_label.shape == (2 * count, *labels.shape[1:])
            assert batch.edge_label.dtype == torch.int64


@pytest.mark.parametrize("amount", [1, 2])
@pytest.mark.parametrize("disjoint", [False, True])
def test_triplets(amount, disjoint):
    data = homogeneous_data(60, 900)
    data.edge_label_index, data.edge_label_time = torch.zeros(2, 900, dtype=torch.int64), torch.zeros(7)  # of the data: not a batch's
    links, _ = links_of(data)
    how = dict(neg_sampling=dict(mode="triplet", amount=amount), edge_label_index=links, disjoint=disjoint)
    known = pairs(data.edge_index) | pairs(links)
    data.edge_label = torch.zeros(900)
    empty = LinkNeighborLoader(data, **OPTIONS, **how)([])
    assert empty.dst_neg_index.shape == ((0,) if amount == 1 else (0, amount))
    for batch in LinkNeighborLoader(data, **OPTIONS, **how):
        count = batch.input_id.numel()
        assert torch.equal(batch.n_id[batch.src_index], links[0, batch.input_id])
        assert torch.equal(batch.n_id[batch.dst_pos_index], links[1, batch.input_id])
        assert batch.dst_neg_index.shape == ((count,) if amount == 1 else (count, amount))
        negatives = batch.dst_neg_index.view(count, amount)
        for number in range(amount):
            ends = torch.stack([links[0, batch.input_id], batch.n_id[negatives[:, number]]])
            assert not pairs(ends) & known
            if disjoint:
                assert torch.equal(batch.batch[negatives[:, number]], torch.arange(count))
        assert "edge_label_index" not in batch
        assert "edge_label_time" not in batch


def test_a_negative_that_cannot_be_found_is_counted():
    """Of a node that is joined to all, there is none."""
    data = Data(num_nodes=20, edge_index=torch.stack([torch.zeros(20, dtype=torch.int64), torch.arange(20)]))
    links = torch.tensor([[0, 5, 0], [3, 4, 9]])
    (batch,) = LinkNeighborLoader(data, [2], edge_label_index=links, neg_sampling="triplet", batch_size=3)
    assert batch.num_false_negatives == 2


def test_negatives_are_uniform_or_by_weight():
    """Chi-square over 20,000 pairs; nodes of weight 0 never come."""
    data, random = Data(num_nodes=20, edge_index=torch.empty(2, 0, dtype=torch.int64)), torch.Generator().manual_seed(0)
    links, weight = torch.zeros(2, 20000, dtype=torch.int64), torch.rand(20, generator=random)
    weight[3] = 0
    how = dict(edge_label_index=links, batch_size=20000, disjoint=True, seed=1, exclude_positives=False)
    for given, share in ((None, torch.full((20,), 1 / 20)), (weight, weight / weight.sum())):
        sampling = NegativeSampling("binary", src_weight=given, dst_weight=given)
        (batch,) = LinkNeighborLoader(data, [1], **how, neg_sampling=sampling)
        ends = batch.n_id[batch.edge_label_index[:, 20000:]]
        for ids in ends:
            counts, expected = np.bincount(ids, minlength=20), 20000 * share.double().numpy()
            possible = expected > 0
            assert not counts[~possible].any()
            assert stats.chisquare(counts[possible], expected[possible] * counts.sum() / expected.sum()).pvalue > 1e-3
        joint = np.bincount(ends[0] * 20 + ends[1], minlength=400).reshape(20, 20)[share > 0][:, share > 0]
        assert stats.chi2_contingency(joint).pvalue > 1e-3, "the ends are independent"


@pytest.mark.parametrize("how", ["self", "reverse", [("node", "to", "node")]])
@pytest.mark.parametrize("disjoint", [False, True])
def test_links_left_out(how, disjoint):
    data = with_reverses(homogeneous_data(80, 600))
    options = dict(num_neighbors=[-1, -1], batch_size=16, seed=5, disjoint=disjoint)
    for batch, whole in zip(LinkNeighborLoader(data, **options, exclude_links=how), LinkNeighborLoader(data, **options), strict=True):
        check_homogeneous(batch, data)
        links = data.edge_index[:, batch.input_id]
        unwanted = pairs(links) if how == "self" else pairs(links) | pairs(links.flip(0))
        kept = torch.tensor([tuple(pair) not in unwanted for pair in whole.n_id[whole.edge_index].t().tolist()])
        assert torch.equal(batch.edge_index, whole.edge_index[:, kept])
        assert torch.equal(batch.e_id, whole.e_id[kept])
        assert batch.num_excluded_edges == (~kept).sum() > 0
        assert torch.equal(batch.n_id, whole.n_id)
        ends = np.cumsum(whole.num_sampled_edges)
        assert batch.num_sampled_edges == [int(each.sum()) for each in np.split(kept.numpy(), ends[:-1])]
        if not disjoint:
            assert [layer.edge_index.shape[1] for layer in penstock.layers(batch)] == np.cumsum(batch.num_sampled_edges)[::-1].tolist()
            target = torch.repeat_interleave(torch.arange(batch.row_ptr.numel() - 1), batch.row_ptr.diff())
            assert torch.equal(target, batch.edge_index[1])


def test_a_warning_of_answers_among_the_edges(caplog):
    data = homogeneous_data()
    link_arguments._warn_of_leaks.cache_clear()
    with caplog.at_level(logging.WARNING, "penstock"):
        LinkNeighborLoader(data, [2], exclude_links="reverse")
        LinkNeighborLoader(data, [2], edge_label_index=links_of(data)[0])
        assert not caplog.records
        LinkNeighborLoader(data, [2], edge_label_index=data.edge_index.flip(0))
        assert not caplog.records
        LinkNeighborLoader(data, [2], edge_label_index=data.edge_index[:, ::9])
        assert len(caplog.records) == 1
        LinkNeighborLoader(data, [2])
    assert [record.message for record in caplog.records] == [
        "links that a batch asks about are among the edges of its sample, as in PyG, and a model can see the answer there: "
        "exclude_links='reverse' leaves them and their reverses out"
    ]


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("chosen", [WRITES, ("author", "paper"), list(WRITES), (WRITES, None)], ids=str)
def test_typed(chosen, disjoint):
    data = typed_data()
    options = dict(OPTIONS, neg_sampling="binary", disjoint=disjoint)
    for batch in LinkNeighborLoader(data, **options, edge_label_index=chosen):
        check_typed(batch, data)
        links, count = batch[WRITES], batch[WRITES].input_id.numel()
        sources, targets = (batch[t].n_id[ids] for t, ids in zip(("author", "paper"), links.edge_label_index, strict=True))
        assert torch.equal(torch.stack([sources, targets])[:, :count], data[WRITES].edge_index[:, links.input_id])
        assert not pairs(torch.stack([sources, targets])[:, count:]) & pairs(data[WRITES].edge_index)
        assert batch.input_type == WRITES
        if disjoint:
            for node_type, ids in zip(("author", "paper"), links.edge_label_index, strict=True):
                assert torch.equal(batch[node_type].batch[ids], torch.arange(2 * count) % count)


def test_typed_triplets_and_types_without_edges():
    data = typed_data()
    likes, links = ("author", "likes", "venue"), torch.stack([torch.arange(60), torch.arange(60) % 8])
    for batch in LinkNeighborLoader(data, **OPTIONS, edge_label_index=(likes, links), neg_sampling=("triplet", 2)):
        count = batch[likes].input_id.numel()
        assert torch.equal(batch["author"].n_id[batch["author"].src_index], links[0, batch[likes].input_id])
        assert torch.equal(batch["venue"].n_id[batch["venue"].dst_pos_index], links[1, batch[likes].input_id])
        assert batch["venue"].dst_neg_index.shape == (count, 2)
        assert "edge_label_index" not in batch[likes]
        assert batch[likes].num_false_negatives == 0


@pytest.mark.parametrize(
    ("how", "left_out"),
    [
        ("self", [(WRITES, False)]),
        ("reverse", [(WRITES, False), (REV, True)]),
        (BY, [(BY, True)]),
        ((list(each) for each in (BY,)), [(BY, True)]),
        ([WRITES, BY], [(WRITES, False), (BY, True)]),
    ],
    ids=["self", "reverse", "one type", "a generator", "both ways"],
)
def test_typed_links_left_out(how, left_out):
    data = typed_data()
    data[BY].edge_index = data[REV].edge_index = data[WRITES].edge_index.flip(0)
    data[REV].edge_attr = torch.arange(900)
    options = dict(num_neighbors=[-1, -1], batch_size=16, seed=5, edge_label_index=WRITES)
    loader = LinkNeighborLoader(data, **options, exclude_links=how)
    assert digests(loader.beside(WRITES)) == digests(loader)
    loader.load_state_dict(loader.state_dict() | {"epoch": 0})
    for batch, whole in zip(loader, LinkNeighborLoader(data, **options), strict=True):
        check_typed(batch, data)
        links, num_removed = data[WRITES].edge_index[:, batch[WRITES].input_id], 0
        for edge_type in data.edge_types:
            source, _, target = edge_type
            ends = torch.stack([whole[t].n_id[ids] for t, ids in zip((source, target), whole[edge_type].edge_index, strict=True)])
            unwanted = set().union(*(pairs(links.flip(0) if is_reversed else links) for e, is_reversed in left_out if e == edge_type))
            kept = torch.tensor([tuple(pair) not in unwanted for pair in ends.t().tolist()], dtype=torch.bool)
            assert torch.equal(batch[edge_type].edge_index, whole[edge_type].edge_index[:, kept])
            num_removed += int((~kept).sum())
        assert batch[WRITES].num_excluded_edges == num_removed > 0


def timed(level):
    data, random = homogeneous_data(), torch.Generator().manual_seed(3)
    if level == "node":
        data.time = torch.randint(0, 100, (300,), generator=random)
    else:
        data.edge_time = torch.randint(0, 100, (3000,), generator=random)
    return data, "time" if level == "node" else "edge_time"


@pytest.mark.parametrize("level", ["node", "edge"])
@pytest.mark.parametrize("neg_sampling", [None, ("binary", 1.5), ("triplet", 2)], ids=str)
def test_times(level, neg_sampling):
    data, name = timed(level)
    links, _ = links_of(data)
    moments = torch.randint(0, 100, (100,), generator=torch.Generator().manual_seed(1))
    options = dict(OPTIONS, edge_label_index=links, edge_label_time=moments, time_attr=name, neg_sampling=neg_sampling)
    for batch in LinkNeighborLoader(data, **options):
        count, of_links = batch.input_id.numel(), moments[batch.input_id]
        source, target = batch.edge_index
        when = batch.time[source] if level == "node" else batch.edge_time
        assert (when <= of_links[batch.batch[target]]).all()
        if neg_sampling is not None and neg_sampling[0] == "triplet":
            assert torch.equal(batch.seed_time, of_links)
            drawn, until = batch.dst_neg_index.t().reshape(-1), of_links.repeat(2)
        else:
            num_negatives = 0 if neg_sampling is None else -(-count * 3 // 2)
            assert torch.equal(batch.edge_label_time, of_links[torch.arange(count + num_negatives) % count])
            drawn, until = batch.edge_label_index[:, count:].reshape(-1), batch.edge_label_time[count:].repeat(2)
        if level == "node":  # but where nobody is there yet: the first who comes
            assert ((batch.time[drawn] <= until) | (batch.time[drawn] == data.time.min())).all()
    assert digests(LinkNeighborLoader(data, **options)) == digests(LinkNeighborLoader(data, **options, num_workers=2))


@pytest.mark.parametrize("amount", [0.5, 1])
def test_candidates_in_time(amount):
    """By weight, among those that are there: chi-square. A node of the very time of the link may come; the number of negatives is rounded
    up."""
    data = Data(num_nodes=20, edge_index=torch.empty(2, 0, dtype=torch.int64), time=torch.arange(20).flip(0) // 2)
    weight, links = torch.rand(20, generator=torch.Generator().manual_seed(0)) + 0.1, torch.zeros(2, 9001, dtype=torch.int64)
    how = dict(edge_label_index=links, edge_label_time=torch.full((9001,), 4), time_attr="time", batch_size=9001, exclude_positives=False)
    (batch,) = LinkNeighborLoader(data, [1], **how, neg_sampling=NegativeSampling("binary", amount, dst_weight=weight), seed=0)
    assert batch.edge_label_index.shape[1] == 9001 + (9001 if amount == 1 else 4501)
    ids = batch.n_id[batch.edge_label_index[1, 9001:]]
    share = torch.where(data.time <= 4, weight, 0.0).double().numpy()
    counts = np.bincount(ids, minlength=20)
    assert not counts[share == 0].any()
    assert stats.chisquare(counts[share > 0], (share / share.sum() * counts.sum())[share > 0]).pvalue > 1e-3


def test_typed_triplets_in_time():
    data, moments = typed_data(), torch.arange(900) % 50
    data["paper"].time = torch.arange(500) % 60
    options = dict(OPTIONS, edge_label_index=WRITES, edge_label_time=moments, time_attr="time", neg_sampling="triplet")
    for batch in LinkNeighborLoader(data, **options):
        for node_type in ("author", "paper"):
            assert torch.equal(batch[node_type].seed_time, moments[batch[WRITES].input_id])


def test_times_of_types():
    data, random = typed_data(), torch.Generator().manual_seed(3)
    data["paper"].time = torch.randint(0, 100, (500,), generator=random)
    moments = torch.randint(0, 100, (900,), generator=random)
    options = dict(OPTIONS, edge_label_index=WRITES, edge_label_time=moments, time_attr="time", neg_sampling="binary")
    for batch in LinkNeighborLoader(data, **options):
        when = moments[batch[WRITES].input_id]
        source, target = batch[BY].edge_index
        assert (batch["paper"].time[source] <= when[batch["author"].batch[target]]).all()


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
        share = loader._maker.batches.first_share()["node"]
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
            first = loader._maker.batches.first_share()
            negatives = loader._maker.seeds.negatives
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
    first = whole._maker.batches.first_share()
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
    for order in ("proximity", "community"):
        seen = [batch[WRITES].input_id for batch in LinkNeighborLoader(data, **OPTIONS, edge_label_index=WRITES, order=order)]
        assert sorted(torch.cat(seen).tolist()) == list(range(900))


@pytest.mark.parametrize("is_named", [False, True])
def test_all_edges_of_a_store_are_not_looked_at_before_a_batch_asks(is_named, tmp_path, monkeypatch):
    store = ingest(homogeneous_data(), tmp_path / "store")
    monkeypatch.setattr("penstock.feed.links.EdgeEnds.at", lambda *_: pytest.fail("looked at"))
    LinkNeighborLoader(store, **OPTIONS, **({"order": "random"} if is_named else {"shuffle": True}))


def test_damaged_lists_are_told_as_such(tmp_path):
    for name, what in (("indices", "comes from node 99999"), ("indptr", "lies outside its")):
        store = ingest(homogeneous_data(), tmp_path / name)
        path = next(path for path in (tmp_path / name).rglob(f"{name}.npy"))
        np.load(path, mmap_mode="r+")[5] = 99999
        for options in ({}, {"neg_sampling": "binary"}):
            with pytest.raises((CorruptStoreError, PipelineError), match=what):
                list(LinkNeighborLoader(penstock.Store(store.path), **OPTIONS, **options))


@pytest.mark.parametrize("order", ["sequential", "random", "proximity", "community"])
def test_orders(order):
    data = homogeneous_data()
    links, _ = links_of(data)
    seen = [batch.input_id for batch in LinkNeighborLoader(data, **OPTIONS, edge_label_index=links, order=order)]
    assert sorted(torch.cat(seen).tolist()) == list(range(100))


def test_transform_of_the_sampler_output():
    """It gets what PyG's would, and what it changes is there."""
    data = homogeneous_data()
    links, labels = links_of(data)

    def transform(output):
        input_id, index, label, time = output.metadata
        assert time is None
        output.metadata = (input_id, index.flip(0), label + 1, None)
        return output

    def cut(output):
        output.metadata = output.metadata[:1]
        return output

    options = dict(OPTIONS, edge_label_index=links, edge_label=labels)
    for batch in LinkNeighborLoader(data, **options, transform_sampler_output=cut):
        assert torch.equal(batch.n_id[batch.edge_label_index], links[:, batch.input_id])
        assert torch.equal(batch.edge_label, labels[batch.input_id])
    for batch in LinkNeighborLoader(data, **options, transform_sampler_output=transform):
        assert torch.equal(batch.n_id[batch.edge_label_index.flip(0)], links[:, batch.input_id])
        assert torch.equal(batch.edge_label, labels[batch.input_id] + 1)


@pytest.mark.parametrize("subgraph_type", ["bidirectional", "induced"])
def test_subgraph_types(subgraph_type):
    data = with_reverses(homogeneous_data(80, 600))
    options = dict(OPTIONS, subgraph_type=subgraph_type, exclude_links="reverse")
    for batch in LinkNeighborLoader(data, **options):
        links = data.edge_index[:, batch.input_id]
        assert torch.equal(batch.n_id[batch.edge_label_index], links)
        assert not pairs(batch.n_id[batch.edge_index]) & (pairs(links) | pairs(links.flip(0)))


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


def test_an_edge_type_by_its_ends_alone_must_tell():
    data = typed_data()
    data["author", "reads", "paper"].edge_index = data[WRITES].edge_index
    with pytest.raises(UsageError, match="may mean any of"):
        LinkNeighborLoader(data, [2], edge_label_index=("author", "paper"))
    data["author", "to", "paper"].edge_index = data[WRITES].edge_index
    batch = next(iter(LinkNeighborLoader(data, [2], edge_label_index=("author", "paper"))))
    assert batch.input_type == ("author", "to", "paper")


def test_reverses_by_name():
    """A type that joins a node type to itself, and another that holds its reverses."""
    follows, back = ("a", "follows", "a"), ("a", "rev_follows", "a")
    ends = torch.randint(0, 30, (2, 200), generator=torch.Generator().manual_seed(0))
    data = HeteroData({"a": {"num_nodes": 30}, follows: {"edge_index": ends}, back: {"edge_index": ends.flip(0)}})
    for given, edge_type in ((follows, follows), (back, back)):
        for batch in LinkNeighborLoader(data, [-1], edge_label_index=given, exclude_links="reverse", batch_size=20):
            asked = pairs(data[edge_type].edge_index[:, batch[edge_type].input_id])
            for other in (follows, back):
                found = pairs(batch["a"].n_id[batch[other].edge_index])
                assert not found & {pair[::-1] for pair in asked}
            assert not pairs(batch["a"].n_id[batch[edge_type].edge_index]) & asked


def test_links_of_a_type_without_edges_leave_nothing_out():
    data = typed_data()
    likes = ("author", "likes", "venue")
    for batch in LinkNeighborLoader(data, [2], edge_label_index=(likes, [[1], [2]]), exclude_links="self"):
        assert "num_excluded_edges" not in batch[likes]


def test_trees_of_all_types_are_counted_together(monkeypatch):
    monkeypatch.setattr("penstock.rng.MAX_COPIES", 50)
    with pytest.raises((UsageError, PipelineError), match="at most 50 seeds a batch, got 64"):
        next(iter(LinkNeighborLoader(typed_data(), **OPTIONS, edge_label_index=WRITES, disjoint=True)))
