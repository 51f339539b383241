"""Loaders over the parts of a partition: the batches are those of the whole store, whoever has which node."""

import os
import threading
from contextlib import suppress

import numpy as np
import pytest
import torch
import torch.distributed
from torch_geometric.data import Data

import penstock
from penstock import NeighborLoader, Plan
from penstock.errors import BudgetError, NotSupportedError, UsageError
from penstock.exchange import join
from penstock.exchange.tables import FIELDS, NEIGHBORS
from penstock.feed.fit import room
from penstock.order.split import SplitOrder
from penstock.partition import check_partition, make_book, write_parts
from penstock.records import EDGE, NODE
from tests.feed.inputs import homogeneous_data, typed_data
from tests.partitions import cut, free_addresses, on_all, random_owners, together

FANOUTS = [4, 3]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A homogeneous and a typed store, both with fields of nodes and edges; the latter has no features of one type."""
    folder = tmp_path_factory.mktemp("stores")
    found = {}
    for name, data in (("plain", homogeneous_data()), ("typed", typed_data())):
        penstock.ingest(data, folder / name)
        found[name] = penstock.open(folder / name)
    return found


@pytest.fixture(scope="module")
def parts(stores, tmp_path_factory):
    """Partitions of them, by (name, number of parts)."""
    folder = tmp_path_factory.mktemp("parts")
    return {(name, count): cut(store, folder / f"{name}-{count}", count) for name, store in stores.items() for count in (1, 2, 3)}


def seeds_of(name):
    return "train" if name == "plain" else ("paper", "train")


def digests(loader):
    return [penstock.digest(batch) for batch in loader]


def without_numbers(output):
    """A sample whose edges nobody can tell any more."""
    output.edge = None
    return output


def make(data, name, **options):
    settings = dict(batch_size=16, shuffle=True, seed=5) | options
    return NeighborLoader(data, FANOUTS, seeds_of(name), **settings)


@pytest.mark.parametrize(("name", "num_parts", "num_ranks"), [("plain", 1, 1), ("plain", 3, 3), ("plain", 2, 4), ("typed", 2, 2)])
def test_batches_are_those_of_the_store(name, num_parts, num_ranks, stores, parts):
    def work(graph):
        loader = make(graph, name, rank=graph.rank, num_ranks=graph.num_ranks, num_workers=2)
        return digests(loader), digests(loader)

    first, second = make(stores[name], name), make(stores[name], name)
    expected = digests(first), (digests(second), digests(second))[1]
    found = on_all(parts[name, num_parts], num_ranks, work)
    for rank, epochs in enumerate(found):
        for epoch, batches in enumerate(epochs):
            assert batches == expected[epoch][rank::num_ranks]


@pytest.mark.parametrize(
    "options",
    [
        dict(batch_size=1000, drop_last=False),
        dict(transform_sampler_output=without_numbers),
    ],
    ids=lambda options: "-".join(map(str, options)),
)
def test_any_sample(options, stores, parts):
    expected = digests(make(stores["plain"], "plain", **options))
    for batches in on_all(parts["plain", 2], 2, lambda graph: digests(make(graph, "plain", **options))):
        assert batches == expected


@pytest.mark.parametrize(
    "plan",
    [
        Plan(policy="fifo", cache="20%"),
        Plan(policy="presample", cache="40%", presample_batches=2),
        Plan(policy="degree", cache="10 rows"),
        Plan(policy="ratio", cache="20%"),
        Plan(policy="belady", cache="10%", window=3),
        Plan(policy="sieve", cache="30%", neighbor_policy="presample", neighbor_cache="30%"),
        Plan(neighbor_policy="presample", neighbor_cache="50%", neighbor_layout="prefix"),
    ],
    ids=lambda plan: f"{plan.policy}-{plan.neighbor_policy}",
)
@pytest.mark.parametrize("name", ["plain", "typed"])
def test_caches_above_others_rows(plan, name, stores, parts):
    def work(graph):
        loader = make(graph, name, plan=plan, num_workers=2)
        return digests(loader), loader.stats()

    expected = digests(make(stores[name], name))
    for batches, stats in on_all(parts[name, 2], 2, work):
        assert batches == expected
        if plan.policy is not None:
            hits = sum(one["num_rows"] for tier, one in stats.tiers.items() if tier.endswith("cache"))
            assert hits > 0
        if plan.neighbor_policy is not None:
            assert sum(one["num_edges"] for tier, one in stats.lists.items() if tier.endswith("cache")) > 0


def test_rows_are_counted_by_whose_they_are(stores, parts):
    def work(graph):
        loader = make(graph, "plain")
        nodes = np.concatenate([batch.n_id.numpy() for batch in loader])
        owners = graph.books["node"].owners(nodes)
        return loader.stats().tiers, (owners == graph.part.number).sum(), (owners != graph.part.number).sum()

    for tiers, own, others in on_all(parts["plain", 3], 3, work):
        assert (tiers["own part"]["num_rows"], tiers["remote"]["num_rows"]) == (own, others)


def counted_lists(graph, nodes):
    """[lists, edges] by whose they are, of the destination of each edge that was read."""
    places = {"own part": graph.books["node"].owners(nodes) == graph.part.number}
    places["remote"] = ~places["own part"]
    return {place: [np.unique(nodes[chosen]).size, chosen.sum()] for place, chosen in places.items()}


def test_lists_are_counted_by_whose_they_are(stores, parts):
    def work(graph):
        loader, counts = make(graph, "plain"), {"own part": np.zeros(2, int), "remote": np.zeros(2, int)}
        for batch in loader:
            for place, count in counted_lists(graph, batch.n_id[batch.edge_index[1]].numpy()).items():
                counts[place] += count
        return counts, loader.stats().lists

    for counts, lists in on_all(parts["plain", 3], 3, work):
        assert {place: [one["num_lists"], one["num_edges"]] for place, one in lists.items()} == {p: list(c) for p, c in counts.items()}
        assert {place: one["num_bytes"] for place, one in lists.items()} == {p: 4 * c[1] for p, c in counts.items()}
        assert lists["own part"]["seconds"] < lists["remote"]["seconds"]


def test_lists_that_are_kept_are_taken_in_from_their_owners(stores, parts):
    indptr = stores["plain"].graph().adjacency[EDGE].indptr
    destinations = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))

    def work(graph):
        loader = make(graph, "plain", plan=Plan(neighbor_policy="degree", neighbor_cache="100%"))
        next(iter(loader))
        return counted_lists(graph, destinations), loader.stats().lists

    for counts, lists in on_all(parts["plain", 3], 3, work):
        assert lists.pop("cache")["num_edges"] > 0
        assert {place: [one["num_lists"], one["num_edges"]] for place, one in lists.items()} == counts


class TestSplit:
    """Each process trains on seeds of its own part."""

    def test_every_seed_comes_once_and_most_are_ones_own(self, stores, tmp_path):
        store = stores["plain"]
        owners = {"node": (np.arange(300) >= 100).astype(np.int16)}  # a third of the nodes, and of the seeds, in part 0

        def work(graph):
            loader = make(graph, "plain", order="split", rank=graph.rank, num_ranks=2)
            seeds = [batch.n_id[: batch.batch_size].numpy() for batch in loader]
            return seeds, [graph.books["node"].owners(ids) for ids in seeds]

        cut(store, tmp_path / "parts", 2, owners)
        (first, of_first), (second, of_second) = on_all(tmp_path / "parts", 2, work)
        assert sorted(np.concatenate([*first, *second])) == sorted(store.split("train"))
        assert (np.concatenate(of_second) == 1).all()
        assert (np.concatenate(of_first) == 0).mean() == pytest.approx(2 / 3, abs=0.05)  # it gets half of the seeds

    def test_trainers_of_a_part_have_seeds_of_their_own(self, stores, tmp_path):
        """A second level: with two processes a part, and with one, which takes turns between the two."""
        store, random = stores["plain"], np.random.default_rng(3)
        owners, trainers = (np.zeros(300, np.int16) for _ in range(2))
        train = store.split("train")
        owners[train[: train.size // 2]], trainers[random.permutation(train.size // 2)] = 1, 1
        for part in range(2):
            own = train[owners[train] == part]
            trainers[own] = random.permutation(own.size) < own.size // 2
        write_parts(store, {"node": owners}, 2, tmp_path / "parts", trainers={"node": trainers}, num_trainers=2)
        assert check_partition(tmp_path / "parts", deep=True).is_ok

        def work(graph):
            loader = make(graph, "plain", order="split", rank=graph.rank, num_ranks=graph.num_ranks)
            return [batch.n_id[: batch.batch_size].numpy() for batch in loader]

        by_four, by_two = on_all(tmp_path / "parts", 4, work), on_all(tmp_path / "parts", 2, work)
        assert sorted(np.concatenate([np.concatenate(each) for each in by_four])) == sorted(train)
        for rank, batches in enumerate(by_four):
            seeds = np.concatenate(batches)
            assert (owners[seeds] == rank % 2).mean() > 0.9  # shares differ by one seed, and so do those of parts here
            assert (trainers[seeds] == rank // 2).mean() > 0.9
        for rank, batches in enumerate(by_two):
            mixed = [each.tolist() for pair in zip(by_four[rank], by_four[rank + 2], strict=True) for each in pair]
            assert [each.tolist() for each in batches] == mixed

    def test_it_depends_on_the_partition_alone(self):
        book = make_book(np.array([1, 0, 2, 1, 0, 2, 2]), 3)
        order = SplitOrder(book.sort(np.array([2, 4, 6, 1, 0])), 3, book.digest, seed=1)
        batches = [order.batch(0, index, 1) for index in range(order.num_batches(1, False))]
        assert sorted(np.concatenate(batches)) == [0, 1, 2, 3, 4]
        assert {int(batches[0][0]), int(batches[3][0])} == {1, 3}  # of part 0
        assert not np.array_equal([order.batch(e, 0, 2).tolist() for e in range(8)], [order.batch(0, 0, 2).tolist()] * 8)

    def test_a_graph_without_parts(self, stores):
        with pytest.raises(UsageError, match="order='split' gives each process seeds of its part, and this graph has none"):
            make(stores["plain"], "plain", order="split")


def test_what_reads_all_edges_is_refused(stores, parts):
    def work(graph):
        for options, match in (
            (dict(order="proximity"), "an order by proximity or community reads all neighbour lists"),
            (dict(plan=Plan(policy="inclusion", cache="10%")), "inclusion probability reads all neighbour lists"),
        ):
            with pytest.raises(NotSupportedError, match=match):
                make(graph, "plain", **options)
        for name, value in (
            ("host_memory", "1GiB"),
            ("features", "disk"),
            ("features", "memory"),
            ("topology", "disk"),
            ("map_threads", 2),
        ):
            with pytest.raises(
                NotSupportedError, match=f"{name}={value!r}: rows and neighbour lists of a partition are with its processes"
            ):
                make(graph, "plain", plan=Plan(**{name: value}))
        for plan in (Plan(slow="1GB/s,1us"), Plan(slow_topology="1GB/s,1us"), "ginex", "pyg"):
            with pytest.raises(NotSupportedError, match="of a partition are with its processes, in mapped files: leave it out"):
                make(graph, "plain", plan=plan)

    on_all(parts["plain", 2], 2, work)


def assert_the_same(data, folder, fanouts, **options):
    """A loader of all nodes gives the same batches of a store and of a partition of it."""
    penstock.ingest(data, folder / "store")
    store = penstock.open(folder / "store")
    expected = digests(NeighborLoader(store, fanouts, batch_size=5, **options))
    found = on_all(cut(store, folder / "parts", 2), 2, lambda graph: digests(NeighborLoader(graph, fanouts, batch_size=5, **options)))
    assert found == [expected] * 2


@pytest.mark.parametrize("options", [dict(replace=True), dict(disjoint=True)], ids=str)
def test_more_rows_than_there_are(options, tmp_path):
    """Edges, and nodes of disjoint trees, that a batch has many times."""
    assert_the_same(homogeneous_data(5, 12), tmp_path, [50, 20], **options)


def test_groups(parts, monkeypatch):
    """Processes that follow each other, as those of one machine do, have one part, and each asks another process for the rest."""
    said, all_have_said = [None] * 4, threading.Barrier(4)

    class Group:
        def __init__(self, rank):
            self.rank = rank

    def gather(found, mine, group):
        said[group.rank] = mine
        all_have_said.wait(20)
        found[:] = said

    played = {
        "is_initialized": lambda: True,
        "get_rank": lambda group: group.rank,
        "get_world_size": lambda group: 4,
        "all_gather_object": gather,
    }
    for name, function in played.items():
        monkeypatch.setattr(torch.distributed, name, function)

    def run(process):
        with join(parts["plain", 2], group=Group(process)) as graph:
            asked = {peer.rank for peer in graph.tiers[NEIGHBORS, EDGE]._peers if peer is not None}
            return graph.part.number, graph.rank, *asked

    assert together(4, run) == [(0, 0, 1), (0, 2, 3), (1, 1, 0), (1, 3, 2)]


def test_a_block_that_fails_waits_for_nobody(parts):
    has_failed, is_there = threading.Event(), threading.Event()

    def work(graph):
        if graph.rank == 0:
            is_there.wait(20)
            raise KeyError("an error of the block")
        is_there.set()
        return has_failed.wait(20)

    def run(rank):
        try:
            with join(parts["plain", 2], addresses=addresses, rank=rank) as graph:
                return work(graph)
        except KeyError:
            has_failed.set()

    addresses = free_addresses(2)
    assert together(2, run) == [None, True]


def test_forked_processes(stores, parts):
    """A child asks by connections of its own, and what it lets go of is still its parent's."""
    neighbors, addresses = stores["plain"].csc(EDGE).indices, free_addresses(2)
    graphs = together(2, lambda rank: join(parts["plain", 2], addresses=addresses, rank=rank))
    tier, of_other = (graph.tiers[NEIGHBORS, EDGE] for graph in graphs)

    def reads_well(positions, tier=tier):
        out = np.empty(positions.size * 4, np.uint8)
        tier.submit(positions, [out], np.arange(positions.size)).wait()
        return np.array_equal(out.view(np.int32), neighbors[positions])

    assert reads_well(np.arange(9))
    assert reads_well(np.arange(9), of_other)
    child = os.fork()
    if not child:
        with suppress(BaseException):
            is_well = all(reads_well(np.arange(1000, 2000)) for _ in range(100))
            graphs[0].close()
            os._exit(0 if is_well else 1)
        os._exit(2)
    assert all(reads_well(np.arange(1000)) for _ in range(100))
    assert os.waitpid(child, 0)[1] == 0
    assert reads_well(np.arange(1000))
    assert reads_well(np.arange(1000), of_other)
    for graph in graphs:
        graph.close(wait=False)


def test_rows_of_no_bytes(tmp_path):
    assert_the_same(Data(x=torch.empty(5, 0), edge_index=homogeneous_data(5, 12).edge_index), tmp_path, [3])


def test_features_of_one_type_only(stores, parts):
    def work(graph):
        return next(iter(make(graph, "typed")))

    batch = on_all(parts["typed", 2], 2, work)[0]
    assert "x" not in batch["venue"]
    assert batch["venue"].num_nodes == batch["venue"].n_id.numel()
    assert torch.equal(batch["paper"].x[:, 0], batch["paper"].n_id.float() + 1000)


def test_parts_that_own_nothing_of_a_type(stores, tmp_path):
    owners = random_owners(stores["typed"], 2)
    owners["author"][:] = 1
    cut(stores["typed"], tmp_path / "parts", 3, owners)
    expected = digests(make(stores["typed"], "typed"))
    assert on_all(tmp_path / "parts", 3, lambda graph: digests(make(graph, "typed"))) == [expected] * 3


@pytest.mark.parametrize(
    "plan",
    [
        None,
        Plan(device_policy="fifo", device_cache="20%"),
        Plan(device_policy="presample", device_cache="20%"),
        Plan(policy="fifo", cache="30%", device_policy="fifo", device_cache="10%"),
    ],
    ids=str,
)
def test_rows_on_a_device(plan, stores, parts, device):
    def work(graph):
        loader = make(graph, "plain", plan=plan, device=device, num_workers=1)
        return digests(loader), loader.stats()

    expected = digests(make(stores["plain"], "plain"))
    for batches, stats in on_all(parts["plain", 2], 2, work):
        assert batches == expected
        assert "neighbour lists are with the processes of a partition" in stats.sampling


@pytest.mark.parametrize("is_tried", [False, True], ids=["without a step", "with a step"])
def test_what_a_part_has_is_read_apart_and_its_rows_are_counted(is_tried, parts, monkeypatch, caplog):
    advised, counted, measure = [], [], room.measure_batch
    monkeypatch.setattr(room, "free_in_container", lambda: 100)
    monkeypatch.setattr(room, "advise_random", lambda array: advised.append(id(array)))
    monkeypatch.setattr(room, "measure_batch", lambda *args: counted.append(dict(args[1])) or measure(*args))
    monkeypatch.setattr(room, "_is_said", False)

    def work(graph):
        with pytest.raises(BudgetError, match=" left: give it more memory, or take smaller batches or fanouts"):
            make(graph, "plain", rank=graph.rank, num_ranks=2, step=(lambda batch: None) if is_tried else None)
        tables = [graph.tables[NEIGHBORS, EDGE], graph.tables[FIELDS, NODE]]
        return [id(array) for table in tables for array in table.arrays], sum(graph.tiers[FIELDS, NODE].row_bytes)

    for arrays, row_bytes in on_all(parts["plain", 2], 2, work):
        assert set(advised) >= set(arrays)
        assert all(each == {NODE: row_bytes} for each in counted)
    assert len(counted) == 2
    (said,) = [message for message in caplog.messages if "row by row" in message]
    assert said.endswith(": give it more memory")
