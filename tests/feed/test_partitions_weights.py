"""Loaders by weight over the parts of a partition: whoever has a list draws of it, and the batches are those of the whole store."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import penstock
from penstock import LinkNeighborLoader, NeighborLoader, Plan
from penstock.errors import CorruptStoreError, InputError, TierError
from penstock.exchange import draws, wire
from penstock.exchange.draws import OwnLists, SumsTier
from penstock.exchange.tables import sums_of
from penstock.partition import EdgeShares, make_book
from penstock.records import EDGE
from penstock.sample.draws import Draw, Frontier
from penstock.sample.weights import Weights, weigh
from tests.feed.inputs import homogeneous_data, typed_data
from tests.feed.links import WRITES
from tests.partitions import cut, on_all, random_owners


def weighed_data(dtype=torch.float32):
    """A third of the weights are 0, those of some nodes all of them; and a node has a long list, of uneven weights."""
    data, random = homogeneous_data(), torch.Generator().manual_seed(4)
    to_hub = torch.stack([torch.randint(0, 300, (500,), generator=random), torch.full((500,), 7)])
    data.edge_index, data.edge_attr = torch.cat([data.edge_index, to_hub], dim=1), None
    data.edge_weight = 4 * torch.rand(3500, generator=random) ** 6 * (torch.rand(3500, generator=random) > 0.3)
    data.edge_weight[data.edge_index[1] % 10 == 3] = 0
    data.edge_weight = data.edge_weight.to(dtype)
    return data


def typed_weighed_data():
    """Edges of one type have weights."""
    data = typed_data()
    data[WRITES].edge_weight = torch.arange(900) % 5
    return data


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    datas = {"plain": weighed_data(), "narrow": weighed_data(torch.bfloat16), "typed": typed_weighed_data()}
    return {name: penstock.ingest(data, folder / name) for name, data in datas.items()}


@pytest.fixture(scope="module")
def parts(stores, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return {(name, count): cut(store, folder / f"{name}-{count}", count) for name, store in stores.items() for count in (1, 2, 3)}


def make(data, name="plain", num_neighbors=(4, 3), **options):
    settings = dict(batch_size=16, shuffle=True, seed=5, weight_attr="edge_weight") | options
    return NeighborLoader(data, list(num_neighbors), ("paper", "train") if name == "typed" else "train", **settings)


def digests(loader):
    return [penstock.digest(batch) for batch in loader]


@pytest.mark.parametrize(
    ("name", "num_parts", "num_ranks"), [("plain", 1, 1), ("plain", 3, 3), ("plain", 2, 4), ("narrow", 2, 2), ("typed", 3, 3)]
)
@pytest.mark.parametrize("replace", [False, True])
def test_batches_are_those_of_the_store(name, num_parts, num_ranks, replace, stores, parts):
    def work(graph):
        loader = make(graph, name, replace=replace, rank=graph.rank, num_ranks=graph.num_ranks, num_workers=2)
        return digests(loader), loader.state_dict()

    whole = make(stores[name], name, replace=replace)
    expected = digests(whole)
    for rank, (found, state) in enumerate(on_all(parts[name, num_parts], num_ranks, work)):
        assert found == expected[rank::num_ranks]
        assert state == whole.state_dict()


@pytest.mark.parametrize(
    "options",
    [
        dict(num_neighbors=[-1, 2]),
        dict(num_neighbors=[100, 5]),
        dict(num_neighbors=[100, 70], replace=True),
        dict(num_neighbors=[20, 1, 3]),
        dict(disjoint=True),
        dict(subgraph_type="induced"),
        dict(subgraph_type="bidirectional"),
        dict(pad=True),
        dict(plan=Plan(policy="fifo", cache="20%", neighbor_policy="presample", neighbor_cache="50%")),
        dict(plan=Plan(policy="belady", cache="10%", window=3)),
    ],
    ids=str,
)
def test_any_sample(options, stores, parts, monkeypatch):
    monkeypatch.setattr(wire, "PIECE_BYTES", 60)
    expected = digests(make(stores["plain"], **options | {"plan": None}))
    assert on_all(parts["plain", 3], 3, lambda graph: digests(make(graph, num_workers=1, **options))) == [expected] * 3


def test_seeds_that_come_twice(stores, parts):
    nodes = torch.arange(40).repeat(3)

    def work(data):
        return digests(NeighborLoader(data, [3, 2], nodes, batch_size=50, seed=2, weight_attr="weight"))

    assert on_all(parts["plain", 2], 2, work) == [work(stores["plain"])] * 2


def test_links(stores, parts):
    def work(data):
        how = dict(neg_sampling="binary", exclude_links="reverse", weight_attr="edge_weight", batch_size=500, seed=3)
        return digests(LinkNeighborLoader(data, [4, 3], **how))

    assert on_all(parts["plain", 3], 3, work) == [work(stores["plain"])] * 3


def test_a_state_goes_either_way(stores, parts):
    whole = make(stores["plain"])
    batches = iter(whole)
    next(batches)
    state, rest = whole.state_dict(), [penstock.digest(batch) for batch in batches]

    def work(graph):
        loader = make(graph)
        loader.load_state_dict(state)
        return digests(loader)

    assert on_all(parts["plain", 2], 2, work) == [rest, rest]


def test_each_has_the_sums_of_its_own(stores, parts):
    whole = make(stores["plain"]).stats().weight_bytes
    assert whole == 3500 * 8 + 4 * (3500 // 8 + 1)
    found = on_all(parts["plain", 3], 3, lambda graph: make(graph).stats().weight_bytes - 8 * 301)
    assert sum(found) == pytest.approx(whole, abs=16)
    assert max(found) < 0.6 * whole


def lists_of(part):
    """Of nodes 0 to 3, of which 1 and 3 are in part 1, with 2 edges each."""
    indptr, book = np.arange(5) * 2, make_book(np.array([0, 1, 0, 1]), 2)
    shares, weights = EdgeShares(indptr, np.array([0, 2, 4]), book), Weights(np.array([1.0, 2.0, 0.0, 4.0]), by_position=True)
    return OwnLists(EDGE, 9, shares, part, np.arange(4, dtype=np.int32), lambda csc: weigh(EDGE, csc, weights))


HOW = Draw(-1, False, False, np.array([3, 2**64 - 1], np.uint64), 7, 1, 2)


def test_lists_of_others_are_not_drawn_of():
    lists = lists_of(1)
    assert lists.draw(HOW, Frontier(np.array([3, 1, 1]))).tolist() == [1, -1, 0, 1, 0, 1]
    for node in (0, -1, 4):
        with pytest.raises(InputError, match="lists were asked for that part 1 does not own"):
            lists.draw(HOW, Frontier(np.array([3, node])))


def test_questions():
    def as_list(numbers):
        return None if numbers is None else numbers.tolist()

    nodes, other = np.array([4, 5, 6]), np.array([2, 0, 9])
    for copies, until in itertools.product((None, other), (None, other - 7)):
        how, lists = draws.from_numbers(draws.to_numbers(replace(HOW, takes_last=until is None), Frontier(nodes, copies, until)))
        assert [*map(as_list, (lists.nodes, lists.copies, lists.until))] == [*map(as_list, (nodes, copies, until))]
        assert how.key.tolist() == HOW.key.tolist()
        assert (how.fanout, how.replace, how.takes_last, how.batch, how.hop, how.number) == (-1, False, until is None, 7, 1, 2)
    for numbers in (np.arange(9), np.arange(2, 14)):
        with pytest.raises(InputError, match=r"a question of \d+ numbers: are all processes of one version"):
            draws.from_numbers(numbers)


def test_sums_as_rows():
    tier, out = SumsTier(lists_of(1)), np.zeros(5 * 8, np.uint8)
    assert (tier.num_rows, tier.row_bytes) == (4, (8,))
    assert tier.submit(np.array([3, 0]), [out], np.array([1, 4])).wait() == 16
    sums = out.view(np.int64)
    assert sums[4] * 2 == pytest.approx(sums[1])  # 1 of 3 in a list, and all of a list whose largest is 4
    assert (sums[[0, 2, 3]] == 0).all()
    assert (tier.stats.num_rows, tier.stats.num_bytes) == (2, 16)
    with pytest.raises(TierError, match="row 4"):
        tier.submit(np.array([4]), [out], np.array([0]))


def test_row_pointers_that_are_damaged(stores, tmp_path):
    store = stores["plain"]
    path = cut(store, tmp_path / "parts", 1, {t: np.zeros_like(owners) for t, owners in random_owners(store, 1).items()})

    def work(graph):
        loader = make(graph)
        (file,) = path.rglob("indptr.npy")
        np.load(file, mmap_mode="r+")[150] = 1 << 40
        with pytest.raises(CorruptStoreError, match="node"):
            digests(loader)
        assert (sums_of("weight"), EDGE) in graph.tiers

    on_all(path, 1, work)
