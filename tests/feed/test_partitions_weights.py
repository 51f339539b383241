"""Loaders by weight over the parts of a partition: whoever has a list has its sums, and draws of it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import penstock
from penstock import NeighborLoader
from penstock.errors import CorruptStoreError, InputError, TierError
from penstock.exchange import draws
from penstock.exchange.draws import OwnLists, SumsTier
from penstock.exchange.tables import sums_of
from penstock.partition import EdgeShares, make_book
from penstock.records import EDGE
from penstock.sample.draws import Draw, Frontier
from penstock.sample.weights import Weights, weigh
from tests.feed.inputs import digests
from tests.feed.ways import plain_data
from tests.partitions import cut, on_all, random_owners


def weighed_data(dtype=torch.float32):
    """A third of the weights are 0, those of some nodes all of them; and a node has a long list, of uneven weights."""
    data = plain_data()
    data.edge_weight = data.edge_weight.to(dtype)
    del data.edge_attr, data.edge_time
    return data


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    datas = {"plain": weighed_data(), "narrow": weighed_data(torch.bfloat16)}
    return {name: penstock.ingest(data, folder / name) for name, data in datas.items()}


@pytest.fixture(scope="module")
def parts(stores, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return {(name, count): cut(store, folder / f"{name}-{count}", count) for name, store in stores.items() for count in (2, 3)}


def make(data, **options):
    settings = dict(batch_size=16, shuffle=True, seed=5, weight_attr="edge_weight") | options
    return NeighborLoader(data, [4, 3], "train", **settings)


@pytest.mark.parametrize("replace", [False, True])
def test_narrow_weights(replace, stores, parts):
    whole = make(stores["narrow"], replace=replace)
    expected = digests(whole), whole.state_dict()

    def work(graph):
        loader = make(graph, replace=replace)
        return digests(loader), loader.state_dict()

    assert on_all(parts["narrow", 2], 2, work) == [expected] * 2


def test_seeds_that_come_twice(stores, parts):
    nodes = torch.arange(40).repeat(3)

    def work(data):
        return digests(NeighborLoader(data, [3, 2], nodes, batch_size=50, seed=2, weight_attr="weight"))

    assert on_all(parts["plain", 2], 2, work) == [work(stores["plain"])] * 2


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


HOW = Draw(-1, False, False, -1, np.array([3, 2**64 - 1], np.uint64), 7, 1, 2)


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
        how, lists = draws.from_numbers(
            draws.to_numbers(replace(HOW, takes_last=until is None, reach=1 << 40), Frontier(nodes, copies, until))
        )
        assert [*map(as_list, (lists.nodes, lists.copies, lists.until))] == [*map(as_list, (nodes, copies, until))]
        assert how.key.tolist() == HOW.key.tolist()
        assert (how.fanout, how.replace, how.takes_last, how.reach) == (-1, False, until is None, 1 << 40)
        assert (how.batch, how.hop, how.number) == (7, 1, 2)
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
