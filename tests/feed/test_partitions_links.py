"""Loaders of links over the parts of a partition: the batches are those of the whole store, whoever has which list."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock import LinkNeighborLoader, Plan
from penstock.errors import InputError, MissingFieldError, NotSupportedError, TierError, UsageError
from penstock.exchange import pairs, tables
from penstock.exchange.pairs import PairShares, PairTier, PartLists
from penstock.exchange.tables import NEIGHBORS, NUMBERS, PAIRS
from penstock.feed import link_arguments
from penstock.partition import EdgesByPlace, make_book
from penstock.records import EDGE
from penstock.sample import negatives
from tests.feed.inputs import homogeneous_data, typed_data
from tests.feed.links import BY, WRITES, links_of
from tests.partitions import cut, on_all

FANOUTS = [4, 3]
GIVEN = torch.cat([links_of(homogeneous_data(), 60)[0], homogeneous_data().edge_index[:, :40]], dim=1)
"""Links of which less than half are edges."""
BINARY, TRIPLET = dict(mode="binary", amount=1.5), dict(mode="triplet", amount=2)


def dense_data():
    """So many edges that negatives are found late, or not at all: node 0 is joined by all, and has edges in a list of its own."""
    ends = torch.stack(torch.meshgrid(torch.arange(40), torch.arange(40), indexing="ij")).reshape(2, -1)
    kept = (ends[1] == 0) | (torch.rand(1600, generator=torch.Generator().manual_seed(3)) < 0.6)
    return Data(edge_index=ends[:, kept], num_nodes=40, edge_weight=torch.arange(int(kept.sum())) / 7)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A homogeneous store with numbers of edges, a typed one, and a dense one."""
    folder = tmp_path_factory.mktemp("stores")
    datas = {"plain": homogeneous_data(), "typed": typed_data(), "dense": dense_data()}
    return {name: penstock.ingest(data, folder / name) for name, data in datas.items()}


@pytest.fixture(scope="module")
def parts(stores, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return {(name, count): cut(store, folder / f"{name}-{count}", count) for name, store in stores.items() for count in (1, 2, 3)}


def make(data, name="plain", **options):
    links = {"edge_label_index": WRITES} if name == "typed" else {}
    if name == "typed" and options.get("exclude_links"):
        options = options | {"exclude_links": [WRITES, BY]}
    return LinkNeighborLoader(data, FANOUTS, **{"batch_size": 200, "shuffle": True, "seed": 5} | links | options)


def digests(loader):
    return [penstock.digest(batch) for batch in loader]


@pytest.mark.parametrize(
    ("name", "num_parts", "num_ranks"), [("plain", 1, 1), ("plain", 3, 3), ("plain", 2, 4), ("typed", 2, 2), ("dense", 3, 3)]
)
@pytest.mark.parametrize("options", [dict(), dict(neg_sampling=BINARY, exclude_links="reverse"), dict(neg_sampling=TRIPLET)], ids=str)
def test_all_edges(name, num_parts, num_ranks, options, stores, parts):
    def work(graph):
        loader = make(graph, name, rank=graph.rank, num_ranks=graph.num_ranks, num_workers=2, **options)
        return digests(loader), loader.state_dict()

    whole = make(stores[name], name, **options)
    expected = digests(whole)
    assert len(expected) > 3
    for rank, (found, state) in enumerate(on_all(parts[name, num_parts], num_ranks, work)):
        assert found == expected[rank::num_ranks]
        assert state == whole.state_dict()


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(neg_sampling=BINARY),
        dict(neg_sampling=TRIPLET, disjoint=True),
        dict(neg_sampling="binary", exclude_positives=False),
        dict(neg_sampling="binary", exclude_links="reverse", subgraph_type="bidirectional"),
        dict(neg_sampling=dict(mode="binary", amount=1, dst_weight=torch.arange(300.0))),
        dict(neg_sampling=dict(mode="triplet", amount=8, dst_weight=torch.isin(torch.arange(300), GIVEN[1, :4]).float())),
        dict(edge_label=torch.arange(100) % 4, neg_sampling="binary", replace=True, pad=True, shuffle=False),
    ],
    ids=["plain", "binary", "triplet", "any-pair", "bidirectional", "by-weight", "each-other", "labels"],
)
def test_links_that_are_given(options, stores, parts):
    def work(data):
        loader = make(data, edge_label_index=GIVEN, batch_size=32, **options)
        return digests(loader), loader.state_dict()

    assert on_all(parts["plain", 2], 2, work) == [work(stores["plain"])] * 2


@pytest.mark.parametrize(
    "plan",
    [
        Plan(policy="fifo", cache="20%"),
        Plan(policy="belady", cache="10%", window=3),
        Plan(policy="presample", cache="40%", presample_batches=2, neighbor_policy="presample", neighbor_cache="50%"),
    ],
    ids=lambda plan: plan.policy,
)
@pytest.mark.parametrize("name", ["plain", "typed"])
def test_caches(plan, name, stores, parts):
    expected = digests(make(stores[name], name, neg_sampling="binary"))
    found = on_all(parts[name, 2], 2, lambda graph: digests(make(graph, name, neg_sampling="binary", plan=plan, num_workers=2)))
    assert found == [expected] * 2


def test_a_state_goes_either_way(stores, parts):
    def half(data):
        loader = make(data, neg_sampling=BINARY)
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        return loader.state_dict()

    def rest(data, state):
        loader = make(data, neg_sampling=BINARY)
        loader.load_state_dict(state)
        return digests(loader)

    expected = digests(make(stores["plain"], neg_sampling=BINARY))[4:]
    states = on_all(parts["plain", 3], 3, half)
    assert [rest(stores["plain"], state) for state in states] == [expected] * 3
    state = half(stores["plain"])
    assert on_all(parts["plain", 2], 2, lambda graph: rest(graph, state)) == [expected] * 2


def test_a_warning_of_answers_among_the_edges(parts, caplog):
    for given, is_said in ((GIVEN, False), (homogeneous_data().edge_index[:, :50], True), (None, True)):
        caplog.clear()
        link_arguments._warn_of_leaks.cache_clear()
        on_all(parts["plain", 2], 2, lambda graph, given=given: make(graph, edge_label_index=given))
        assert ("exclude_links='reverse' leaves them" in caplog.text) == is_said


def test_negatives_that_take_many_attempts(stores, parts, monkeypatch):
    """Long lists are searched in order, and what cannot be found is counted, as of the store."""
    monkeypatch.setattr(negatives.make_adjacency, "__defaults__", (10,))
    monkeypatch.setattr(negatives, "ATTEMPTS", 3)

    def work(data):
        loader = make(data, "dense", neg_sampling=TRIPLET)
        batches = list(loader)
        return [penstock.digest(batch) for batch in batches], sum(batch.num_false_negatives for batch in batches)

    expected = work(stores["dense"])
    assert expected[1] > 0
    assert on_all(parts["dense", 3], 3, work) == [expected] * 3


class TestLabels:
    """Those that are a field of the edges."""

    @pytest.mark.parametrize("neg_sampling", [None, BINARY])
    def test_of_a_store_and_its_parts(self, neg_sampling, stores, parts):
        def work(data):
            loader = make(data, edge_label="edge_attr", neg_sampling=neg_sampling)
            return digests(loader), loader.state_dict()

        assert on_all(parts["plain", 2], 2, work) == [work(stores["plain"])] * 2

    def test_they_are_those_of_the_links(self, stores):
        store, labels = stores["plain"], torch.from_numpy(stores["plain"].edge_field("x").copy())
        batch = next(iter(make(store, edge_label="edge_attr", input_id=torch.arange(store.num_edges[EDGE]))))
        assert torch.equal(batch.edge_label, labels[batch.input_id])
        batch = next(iter(make(store, edge_label="edge_attr", input_id=torch.arange(store.num_edges[EDGE]), neg_sampling="binary")))
        assert torch.equal(batch.edge_label, torch.cat([labels[batch.input_id] + 1, torch.zeros(200, *labels.shape[1:])]))
        data = homogeneous_data()
        batch = next(iter(make(data, edge_label="edge_attr")))
        assert torch.equal(batch.edge_label, data.edge_attr[batch.input_id])

    def test_what_is_refused(self, stores, parts):
        def work(data):
            with pytest.raises(MissingFieldError, match="edge_label='grade': edges node/to/node have no such field; they have 'edge_attr'"):
                make(data, edge_label="grade")
            with pytest.raises(UsageError, match="edge_label='edge_attr' is a field of edges, and the links are not all edges of a type"):
                make(data, edge_label="edge_attr", edge_label_index=torch.zeros(2, 3, dtype=torch.long))
            with pytest.raises(UsageError, match="edge_label has no place in triplets"):
                make(data, edge_label="edge_attr", neg_sampling=TRIPLET)

        work(stores["plain"])
        on_all(parts["plain", 1], 1, work)
        data = homogeneous_data()
        data.phase = torch.zeros(data.num_edges, dtype=torch.complex64)
        with pytest.raises(InputError, match=r"edge_label is torch\.complex64: labels are dense"):
            make(data, edge_label="phase")


def test_own_links_first(stores, tmp_path):
    """By order="split" each process has links into its own part; nothing is kept of each of them."""
    store = stores["plain"]
    owners = {"node": (np.arange(300) % 5 > 1).astype(np.int16)}
    cut(store, tmp_path / "parts", 2, owners)
    targets = np.repeat(np.arange(300), np.diff(store.csc(EDGE).indptr))

    def work(graph):
        seen = []
        for given in (None, torch.from_numpy(np.stack([store.csc(EDGE).indices, targets]))):
            how = dict(order="split", shuffle=False, rank=graph.rank, num_ranks=2)
            loader = make(graph, edge_label_index=given, input_id=torch.arange(targets.size), **how)
            seen.append(torch.cat([batch.input_id for batch in loader]).numpy())
        assert np.array_equal(*seen)
        return seen[0]

    first, second = on_all(tmp_path / "parts", 2, work)
    assert sorted(np.concatenate([first, second])) == list(range(targets.size))
    owned = [(owners["node"][targets[links]] == rank).mean() for rank, links in enumerate((first, second))]
    assert max(owned) == 1
    assert min(owned) > 0.75


def test_edges_by_place():
    random = np.random.default_rng(2)
    for num_parts in (1, 3):
        book, degrees = make_book(random.integers(0, num_parts, 50), num_parts), random.integers(0, 4, 50)
        edges = EdgesByPlace(np.concatenate([[0], np.cumsum(degrees)]), book)
        assert edges[np.arange(edges.size)].tolist() == book.sort(np.repeat(np.arange(50), degrees)).tolist()
        trainers = random.integers(0, 2, 50)
        book = make_book(book.owners(np.arange(50)), num_parts, trainers, 2)
        assert (num_parts == 1) or book.digest != make_book(book.owners(np.arange(50)), num_parts).digest
        in_order = sorted(range(50), key=lambda node: (book.owners(np.array([node]))[0], trainers[node], node))
        assert book.nodes.tolist() == in_order
        edges = EdgesByPlace(np.concatenate([[0], np.cumsum(degrees)]), book)
        assert edges[np.arange(edges.size)].tolist() == book.sort(np.repeat(np.arange(50), degrees)).tolist()


def test_what_travels(stores, parts):
    """Of the links of a batch: their sources and numbers; of negatives one byte each, however long lists are."""

    def work(graph):
        loader = make(graph, neg_sampling="binary", exclude_links="self")
        before = {key: tier.stats.num_rows + tier.peers["own part"].num_rows for key, tier in graph.tiers.items()}
        seeds = loader.engine.maker.seeds.at(np.arange(200), seed=5, epoch=0, batch=0)
        rows = {key: tier.stats.num_rows + tier.peers["own part"].num_rows - before[key] for key, tier in graph.tiers.items()}
        assert (rows[NEIGHBORS, EDGE], rows[NUMBERS, EDGE]) == (200, 200)
        assert 200 <= rows[PAIRS, EDGE] < 220
        assert graph.tiers[PAIRS, EDGE].stats.num_bytes == graph.tiers[PAIRS, EDGE].stats.num_rows
        assert seeds.notes["num_false_negatives"] == 0
        return True

    assert on_all(parts["plain", 2], 2, work) == [True] * 2


def test_more_pairs_than_have_numbers(parts, monkeypatch):
    monkeypatch.setattr(tables, "MOST_PAIRS", 300 * 300)
    assert pairs.MOST_PAIRS == 1 << 63

    def work(graph):
        make(graph)
        with pytest.raises(NotSupportedError, match="neg_sampling without exclude_positives=False reads all neighbour lists"):
            make(graph, neg_sampling="binary")

    on_all(parts["plain", 2], 2, work)


class TestPairs:
    """A tier whose rows are pairs of nodes."""

    def test_all_of_a_part(self):
        random, joined = np.random.default_rng(1), np.random.default_rng(1).random((6, 9)) < 0.4  # [targets, sources]
        lists = PartLists(np.concatenate([[0], np.cumsum(joined.sum(1))]), np.nonzero(joined)[1].astype(np.int32), 9)
        tier, rows, places, out = PairTier(lists), random.permutation(54)[:40], random.permutation(60)[:40], np.full(60, 7, np.uint8)
        assert (tier.num_rows, tier.row_bytes) == (54, (1,))
        assert tier.submit(rows, [out], places).wait() == 40
        assert out[places].tolist() == joined.reshape(-1)[rows].tolist()
        assert (out == 7).sum() == 20
        assert (tier.stats.num_rows, tier.stats.num_bytes) == (40, 40)
        for row in (-1, 54):
            with pytest.raises(TierError, match=f"row {row}"):
                tier.submit(np.array([row]), [out], np.zeros(1, np.int64))

    def test_whose_they_are(self):
        shares = PairShares(make_book(np.array([1, 0, 1, 0]), 2), 3)
        assert shares.num_rows == 12
        assert shares.owners(np.arange(12)).tolist() == [1] * 3 + [0] * 3 + [1] * 3 + [0] * 3
        assert shares.local(np.array([3, 5, 9]), 0).tolist() == [0, 2, 3]
        with pytest.raises(InputError, match="rows were asked for that part 0 does not own"):
            shares.local(np.array([0]), 0)
