"""`LinkNeighborLoader`: what a batch says of its links is true, by ways that know nothing of how it is made."""

import logging

import numpy as np
import pytest
import torch
from scipy import stats
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

import penstock
from penstock.errors import PipelineError, UsageError
from penstock.feed import LinkNeighborLoader, NeighborLoader, link_arguments
from tests.feed.inputs import check_homogeneous, check_typed, digests, homogeneous_data, typed_data
from tests.feed.links import BY, OPTIONS, REV, WRITES, links_of, pairs, with_reverses


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
        LinkNeighborLoader(data, [2], seed=0, exclude_links="reverse")
        LinkNeighborLoader(data, [2], seed=0, edge_label_index=links_of(data)[0])
        assert not caplog.records
        LinkNeighborLoader(data, [2], seed=0, edge_label_index=data.edge_index.flip(0))
        assert not caplog.records
        LinkNeighborLoader(data, [2], seed=0, edge_label_index=data.edge_index[:, ::9])
        assert len(caplog.records) == 1
        LinkNeighborLoader(data, [2], seed=0)
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
