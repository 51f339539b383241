"""What a device counts of the samples it draws, to find out what is hot: the numbers of the CPU."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

import penstock
from penstock.cache import presample_device
from penstock.cache.presample import presample_visits
from penstock.errors import UsageError
from penstock.kernels._recording import Recording
from penstock.kernels._triton import tensor_device
from penstock.order import RandomOrder, SequentialOrder
from penstock.plan import Plan
from penstock.records import EDGE, NODE
from penstock.sample import NeighborSampler, device_graph
from penstock.sample.batches import SampledBatches
from penstock.sample.device_graph import device_sampler
from penstock.sample.seeds import NodeSeeds
from penstock.store import ingest
from tests.differential.ways import random_moments, timed_graph
from tests.feed.inputs import digests, homogeneous_data, typed_data
from tests.graphs import assert_same_bytes, homogeneous_graph, typed_graph


@pytest.mark.parametrize("how", [{}, {"num_epochs": 2, "max_batches": 3}], ids=str)
@pytest.mark.parametrize("kind", [NODE, "paper"])
@pytest.mark.parametrize("are_distinct", [True, False])
@pytest.mark.parametrize("are_timed", [False, True])
def test_visits_are_those_of_the_cpu(kind, how, are_distinct, are_timed, device):
    """A row that is in several trees is read once."""
    random = np.random.default_rng()
    graph = homogeneous_graph(random, 90, 400, hub_degree=60) if kind == NODE else typed_graph(random)
    graph = timed_graph(random, graph) if are_timed else graph
    sampler = NeighborSampler(graph, [3, 2], seed=int(random.integers(1 << 30)), replace=not are_distinct)
    seeds = random.permutation(graph.num_nodes[kind])[:18] if are_distinct else random.integers(0, 12, 18)
    times = random_moments(random, graph, 18) if are_timed else None
    batches = SampledBatches(sampler, NodeSeeds(kind, seeds, times=times), RandomOrder(seeds.size, 5), 9)
    there = device_sampler(sampler, tensor_device(device), "pinned")
    ours, theirs = presample_device.count_on_device(batches, there.over, **how), presample_visits(batches, **how)
    assert ours is not None
    for name in ("nodes", "lists"):
        found, expected = getattr(ours, name), getattr(theirs, name)
        assert list(found) == list(expected)
        for key, counts in expected.items():
            assert_same_bytes(found[key], counts)
    assert sum(counts.sum() for counts in theirs.nodes.values()) > 0


def test_counts_that_narrow_integers_do_not_hold(device):
    """One batch, whose seeds are all the same: its list is read again and again."""
    graph, seeds = homogeneous_graph(np.random.default_rng(0), 90, 400, hub_degree=60), np.full(300, 7)
    sampler = NeighborSampler(graph, [2], seed=1)
    batches = SampledBatches(sampler, NodeSeeds(NODE, seeds), RandomOrder(300, 5), 300)
    ours = presample_device.count_on_device(batches, device_sampler(sampler, tensor_device(device)).over)
    for found, expected in zip((ours.nodes, ours.lists), (presample_visits(batches).nodes, presample_visits(batches).lists), strict=True):
        for key in expected:
            assert_same_bytes(found[key], expected[key])


PLANS = [
    Plan(policy="presample", cache="20%", device_topology="device"),
    Plan(policy="presample", cache="20%", neighbor_policy="presample", neighbor_cache="30%", device_topology="pinned"),
    Plan(device_policy="presample"),
]


@pytest.mark.parametrize(
    ("plan", "has_room"),
    [*((plan, True) for plan in PLANS), (PLANS[1], False)],
    ids=["lists there", "lists over the link", "as much as there is room for", "lists over the link, no room to count"],
)
def test_a_loader_finds_out_what_is_hot_on_its_device(plan, has_room, device, monkeypatch, caplog):
    """Or on the CPU, where the device has no room; the same either way."""
    asked, count = [], presample_device._count

    def counted(*arguments):
        asked.append(0)
        if not has_room:
            raise torch.OutOfMemoryError("no room")
        count(*arguments)

    monkeypatch.setattr(presample_device, "_count", counted)
    how = dict(num_neighbors=[3, 2], batch_size=40, seed=3, shuffle=True)
    for data, seeds in ((homogeneous_data(), torch.arange(60)), (typed_data(), ("paper", torch.arange(50)))):
        before = len(asked)
        loader = penstock.NeighborLoader(data, input_nodes=seeds, device=device, plan=plan, **how)
        assert len(asked) - before == (len(loader) if has_room else 1)
        assert digests(loader) == digests(penstock.NeighborLoader(data, input_nodes=seeds, **how))
    assert ("has no room to count what samples visit" in caplog.text) != has_room


def test_kept_rows_and_lists_are_those_of_the_cpu(device):
    plan = Plan(policy="presample", cache="20%", neighbor_policy="presample", neighbor_cache="30%")
    how = dict(num_neighbors=[3, 2], input_nodes=torch.arange(150), batch_size=40, seed=3)
    drawn = {
        where: penstock.NeighborLoader(homogeneous_data(), device=device, plan=replace(plan, device_topology=where), **how)
        for where in ("pinned", "host")
    }
    slots = [loader.engine.caches.directories[NODE] for loader in drawn.values()]
    assert_same_bytes(*slots)


def made(data, **options):
    return penstock.NeighborLoader(data, **{**dict(num_neighbors=[3, 2], batch_size=40, seed=3, input_nodes=torch.arange(150)), **options})


@pytest.mark.parametrize(("how", "count"), [({"presample_epochs": 2}, 8), ({"presample_batches": 2}, 2)], ids=["epochs", "batches"])
def test_as_much_is_counted_as_the_plan_says(how, count, device, monkeypatch):
    asked, counted = [], presample_device._count
    monkeypatch.setattr(presample_device, "_count", lambda *arguments: (asked.append(0), counted(*arguments)))
    plans = (Plan(policy="presample", cache="20%", device_topology=where, **how) for where in ("pinned", "host"))
    assert_same_bytes(*(made(homogeneous_data(), device=device, plan=plan).engine.caches.directories[NODE] for plan in plans))
    assert len(asked) == count


def test_under_a_budget_of_the_host_the_cpu_counts(device, monkeypatch):
    """What comes from the device is in memory that the budget does not know of."""
    asked, count = [], presample_device.count_on_device
    monkeypatch.setattr(presample_device, "count_on_device", lambda *arguments, **how: (asked.append(0), count(*arguments, **how))[1])
    plan = Plan(policy="degree", cache="10%", neighbor_policy="presample", neighbor_cache="30%", device_topology="pinned")
    for budget in (None, "4GiB"):
        asked.clear()
        loader = made(homogeneous_data(), device=device, plan=replace(plan, host_memory=budget))
        assert loader.engine.maker.device_sampler.graph.adjacency[EDGE].kept is not None
        assert bool(asked) == (budget is None)


def test_what_the_device_reads_is_what_the_plan_has_put_in_memory(device, tmp_path):
    store = ingest(homogeneous_data(), tmp_path / "store")
    maker = made(store, device=device, plan=Plan(topology="memory", policy="presample", cache="20%", device_topology="pinned")).engine.maker
    for edge_type, csc in maker.sampler.graph.adjacency.items():
        assert not isinstance(csc.indices, np.memmap)
        if tensor_device(device).type == "cpu":  # a driver may have had it copied
            assert maker.device_sampler.graph.adjacency[edge_type].indices.data_ptr() == csc.indices.ctypes.data


def test_an_order_over_other_seeds_is_refused(device):
    plan = Plan(policy="presample", cache="20%", device_topology="pinned")
    for num_seeds in (100, 200):
        with pytest.raises(UsageError, match=f"the order is over {num_seeds} seeds, given are 150"):
            made(homogeneous_data(), device=device, plan=plan, order=SequentialOrder(num_seeds))


def test_lists_are_placed_once_at_a_time(device, monkeypatch):
    """Those that are placed to find out what is hot are gone before the best ones are placed."""
    placed, place = [], device_graph.place_graph

    def noted(*arguments, **options):
        gc.collect()
        assert all(one() is None for one in placed)
        graph = place(*arguments, **options)
        placed.append(weakref.ref(next(iter(graph.adjacency.values())).indptr))
        return graph

    monkeypatch.setattr(device_graph, "place_graph", noted)
    kept = Plan(policy="presample", cache="20%", neighbor_policy="presample", neighbor_cache="30%", device_topology="pinned")
    loader = made(homogeneous_data(), device=device, plan=kept)
    assert len(placed) == 2
    del loader
    placed.clear()
    assert made(homogeneous_data(), device=device, plan=Plan(policy="presample", cache="20%", device_topology="pinned"))
    assert len(placed) == 1, "where none are kept, they stay"


def test_samples_are_asked_for_as_one(device, monkeypatch):
    asked, ask = [], Recording.ask
    monkeypatch.setattr(Recording, "ask", lambda recording: (asked.append(0), ask(recording)))
    plan = Plan(policy="presample", cache="20%", device_topology="device")
    loader = made(homogeneous_data(), device=device, plan=plan, batch_size=15)
    assert len(asked) == 10 - 2 * presample_device.UNDER_WAY
    asked.clear()
    assert len(list(loader)) == 10
    assert len(asked) == 10 - 2
