"""A budget of the host's memory for loaders with a device: the same batches, all that the device takes of the host in the sum, and what is
too little refused.

In the interpreter the device's memory is the host's, so that no bound can be measured; `bench/beyond_memory.py` is for the CPU.
"""

import mmap
import re

import pytest
import torch

import penstock
from penstock.errors import BudgetError, NotSupportedError, UsageError
from penstock.feed.setup import drawing
from penstock.plan import Plan, make_plan
from penstock.store import budget, ingest
from penstock.store.tiers import pin
from tests.feed.inputs import digests, homogeneous_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=50, shuffle=True, seed=3, input_nodes="train")
BUDGET = "8GiB"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return ingest(homogeneous_data(), tmp_path_factory.mktemp("budget") / "store", memory="4GiB", edge_ids=True)


@pytest.fixture(scope="module")
def expected(store):
    return digests(penstock.NeighborLoader(store, **OPTIONS))


def bytes_of(words, part):
    """A part of a sum, in bytes."""
    found = re.search(rf"([\d.]+) (B|KiB|MiB|GiB) {part}", words)
    return 0 if found is None else float(found[1]) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[found[2]]


@pytest.mark.parametrize(
    ("plan", "tiers", "parts"),
    [
        (make_plan(None), ["cache", "disk"], {"sampling", "batches", "staging", "reading"}),
        (make_plan(None, device_policy="presample", device_cache="10%"), ["device cache", "host cache", "disk"], {"sampling", "staging"}),
        (make_plan("gnnlab", device_topology="host"), ["cache", "pinned"], {"pinned", "tables", "staging"}),
        (make_plan("uva", device_topology="pinned"), ["pinned"], {"pinned"}),
        (make_plan("ali+pg", device_topology="host"), ["cache", "pinned"], {"pinned", "sampling"}),
        (make_plan("ali+pg"), ["cache", "pinned"], {"pinned"}),
        (
            make_plan("bgl", features="disk", order="random", device_topology="host"),
            ["device cache", "host cache", "disk"],
            {"reading", "staging"},
        ),
        (Plan(policy="belady", cache="20%", device_topology="host"), ["cache", "pinned"], {"pinned", "sampling"}),
        (Plan(policy="fifo", device_topology="host"), ["cache", "pinned"], {"pinned", "sampling"}),
    ],
    ids=["ginex", "ginex, rows on the device", "gnnlab", "lists pinned", "lists of the host", "lists", "bgl", "belady", "found"],
)
def test_same_batches_within_a_budget(plan, tiers, parts, store, expected, device):
    plan = make_plan(plan, host_memory=BUDGET)
    loader = penstock.NeighborLoader(store, **OPTIONS, num_workers=2, plan=plan, device=device)
    assert digests(loader) == expected
    stats = loader.stats()
    named = [name for name in stats.tiers if "upload" not in name and "node/to/node" not in name]
    assert named == tiers
    assert all(bytes_of(stats.memory, part) > 0 for part in parts), stats.memory
    assert (bytes_of(stats.memory, "pinned") > 0) == (tiers[-1] == "pinned")
    assert (bytes_of(stats.memory, "sampling") > 0) == stats.sampling.startswith("by the CPU")
    if loader.engine.maker.device_sampler is not None:
        [csc] = loader.engine.maker.device_sampler.graph.adjacency.values()
        assert (csc.kept is not None) == (plan.neighbor_policy is not None)
    assert (stats.lists != {}) == (plan.neighbor_policy is not None and loader.engine.maker.device_sampler is None)


def alone(tensor):
    """The same with its pages to itself: of arrays that share one, some are copied."""
    space = torch.empty(tensor.nbytes + 2 * mmap.PAGESIZE, dtype=torch.uint8)
    own = space[-space.data_ptr() % mmap.PAGESIZE :][: tensor.nbytes]
    return own.view(tensor.dtype).view(tensor.shape).copy_(tensor)


def test_pinned_memory_is_in_the_sum(store, device, monkeypatch):
    rows = store.node_field("x", "node").nbytes  # single numbers are on the device
    edges = sum(store.edge_field(name, ("node", "to", "node")).nbytes for name in store.edge_fields(("node", "to", "node")))
    counted = []
    for place in ("host", "device", "pinned"):
        plan = Plan(host_memory=BUDGET, order="sequential", device_topology=place)
        loader = penstock.NeighborLoader(store, **{**OPTIONS, "shuffle": False}, plan=plan, device=device)
        counted.append(loader.engine.caches.fitted.memory.needs.pinned)
    assert counted == [rows + edges, rows + edges, rows + edges + 3000 * (4 + 4)]
    monkeypatch.setattr(pin, "OWN_BYTES", 0)
    monkeypatch.setattr(pin, "is_in_heap", lambda address: False)
    data = homogeneous_data().apply(alone)
    in_memory = penstock.NeighborLoader(data, **OPTIONS, plan=Plan(host_memory=BUDGET, policy="degree"), device=device)
    assert in_memory.engine.caches.fitted.memory.needs.pinned == 0  # it is the process' anyway


def test_too_small_a_budget_is_refused_with_the_sum(store, device):
    with pytest.raises(BudgetError) as refused:
        penstock.NeighborLoader(store, **OPTIONS, plan=make_plan("gnnlab", host_memory="64MiB"), device=device)
    assert re.fullmatch(
        r"host_memory of 64\.0 MiB does not hold one batch: .* process \+ .* batches \+ .* pinned \+ .* staging \+ .* 5 % reserve = "
        r".* at least\. Give more, or make batches, fanouts or num_workers smaller, or read from the disk what the device reads in memory "
        r"\(features='disk'\)",
        str(refused.value),
    )
    with pytest.raises(BudgetError, match=r"staging \+ .* num_workers smaller$"):
        penstock.NeighborLoader(store, **OPTIONS, plan=make_plan("ginex", host_memory="64MiB"), device=device)


def test_lists_are_pinned_where_a_budget_has_room_for_them(store, device, monkeypatch):
    monkeypatch.setattr(drawing, "_device_room", lambda device: 8 * 301)  # for the offsets only
    for left, where in ((2 * 3000 * 8, "in pinned memory"), (2 * 3000 * 8 - 2, "by the CPU: a topology of 26 KiB fits neither")):
        monkeypatch.setattr(drawing, "resident_bytes_outside", lambda suffix, left=left: (8 << 30) - left)
        loader = penstock.NeighborLoader(store, **OPTIONS, plan=make_plan("uva", host_memory=BUDGET, order="random"), device=device)
        assert where in loader.stats().sampling


def test_whose_policy_it_is():
    """Where the device reads all rows, a policy is for its memory, which the budget is not for."""
    for plan, expected in (
        (Plan(policy="degree", host_memory=BUDGET), (None, "0", "degree", None)),
        (Plan(policy="degree", cache="5%", host_memory=BUDGET), (None, "0", "degree", "5%")),
        (Plan(policy="degree", host_memory=BUDGET, features="disk"), ("degree", "0", None, None)),
        (make_plan("bgl", host_memory=BUDGET), (None, "0", "fifo", "10%")),
        (make_plan("bgl", host_memory=BUDGET, features="disk"), ("fifo", "10%", "fifo", "5%")),
    ):
        resolved = plan.resolved(has_device=True)
        assert (resolved.policy, resolved.cache, resolved.device_policy, resolved.device_cache) == expected
        assert resolved.resolved(has_device=True) == resolved
        assert plan.resolved(has_device=False).policy == plan.policy
    made = make_plan(None, host_memory=BUDGET, device_policy="degree", device_cache="5%")
    assert (made.recipe, made.policy, made.device_policy, made.device_cache) == ("ginex", "belady", "degree", "5%")


def test_what_cannot_be(store, device):
    with pytest.raises(NotSupportedError, match=r"neighbor_cache='shared' divides device memory, which is not part of host_memory: give"):
        penstock.NeighborLoader(store, **OPTIONS, plan=make_plan("ducati", host_memory=BUDGET), device=device)
    with pytest.raises(UsageError, match="device_policy='belady' looks ahead from the first batch: give device_cache"):
        penstock.NeighborLoader(store, **OPTIONS, plan=Plan(policy="belady", host_memory=BUDGET), device=device)


@pytest.mark.parametrize("recipe", ["uva", "gnnlab", "bgl"])
def test_rows_that_the_device_reads_are_no_memory_of_the_host(recipe, store, device, monkeypatch):
    """Nobody asks whether there is room for a batch of them."""
    loader = penstock.NeighborLoader(store, **OPTIONS, plan=make_plan(recipe, host_memory=BUDGET), device=device)
    monkeypatch.setattr(budget, "free_in_container", lambda: 0)
    assert len(list(loader)) == len(loader)
