"""What a device takes of the host's memory, counted: what is pinned, what is on its way, what the host knows of the rows kept there."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from penstock.feed.caches import Caches
from penstock.feed.fit.device import FOUND_BYTES_PER_NODE, DeviceUse, batch_bytes, device_use, state_bytes
from penstock.feed.fit.profile import Profile
from penstock.gather import DeviceTable, RowKind, TieredTable
from penstock.plan import Plan
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample.weights import Weights, with_weights
from penstock.store.huge_pages import copy_to_own_pages
from penstock.store.tiers import HostTier, PinnedTier, pinned
from penstock.store.tiers.pin import Pinned

GRAPH = Graph({NODE: 100}, {EDGE: CSC(np.arange(0, 404, 4), np.zeros(400, np.int32), np.arange(400, dtype=np.int64))}, True)
FLOATS = RowKind("x", np.dtype(np.float64), (2,))


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((100, 2)))
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def caches_of(array, reader):
    return Caches({NODE: DeviceTable(PinnedTier([array], reader), [FLOATS])}, graph=GRAPH)


def test_maps_that_a_device_reads_must_stay_and_arrays_are_there_anyway(mapped, reader):
    assert device_use(Plan(), caches_of(mapped, reader), topology="host", is_mapped=True).pinned_bytes == 1600
    array = copy_to_own_pages(np.zeros((100, 2)))
    assert device_use(Plan(), caches_of(array, reader), topology="host", is_mapped=False).pinned_bytes == 0


def test_copies_are_counted_once(mapped, reader, monkeypatch):
    """They are in the process' memory when it is looked at."""

    def copy(array, device, name):
        return Pinned(torch.from_numpy(array.copy().reshape(-1).view(np.uint8)), "copied", array.nbytes)

    monkeypatch.setattr(pinned, "pin", copy)
    use = device_use(Plan(), caches_of(mapped, reader), topology="host", is_mapped=True)
    assert (use.pinned_bytes, use.copied_bytes) == (1600, 1600)


@pytest.mark.parametrize(
    ("topology", "plan", "pinned", "placing"),
    [
        ("pinned", Plan(), 400 * 4 + 400 * 8, 3200),
        ("pinned", Plan(topology="memory"), 0, 3200),  # read in, so it is in the process' memory
        ("device", Plan(), 0, 3200),
        ("host", Plan(), 0, 0),
    ],
)
def test_lists_that_a_device_reads(topology, plan, pinned, placing):
    weighted = with_weights(GRAPH, {EDGE: Weights(np.ones(400))})
    more = device_use(plan, Caches(graph=weighted), topology=topology, is_mapped=True)
    assert (more.pinned_bytes, more.placing_bytes) == (pinned, placing), "sums are in memory already, and no larger than numbers of edges"
    few = Graph({NODE: 100}, {EDGE: replace(weighted.adjacency[EDGE], edge_ids=None)}, True)
    assert device_use(plan, Caches(graph=few), topology=topology, is_mapped=True).placing_bytes == placing, "8 bytes an edge"
    use = device_use(plan, Caches(graph=GRAPH), topology=topology, is_mapped=True)
    assert (use.pinned_bytes, use.placing_bytes, use.is_drawing) == (pinned, placing, topology != "host")


def test_what_of_a_batch_passes_through_the_host(reader):
    profile, widths = Profile(num_nodes={"a": 10, "b": 100}, sample_bytes=5000), {"a": 16, "b": 4}
    assert batch_bytes(profile, widths, None) == (5000, 160 + 400)
    assert batch_bytes(profile, widths, DeviceUse()) == (5000, 160 + 400)
    assert batch_bytes(profile, widths, DeviceUse(types_read=frozenset("b"))) == (5000, 160)
    assert batch_bytes(profile, widths, DeviceUse(types_read=frozenset("ab"), is_drawing=True)) == (8 * 110, 0)


def test_what_the_host_knows_of_rows_on_a_device(reader):
    caches = caches_of(np.zeros((100, 2)), reader)
    for plan, expected in (
        (Plan(), 0),
        (Plan(device_policy="degree", device_cache="30 rows"), 4 * 100),
        (Plan(device_policy="lru", device_cache="30 rows"), 9 * 100 + 24 * 30),
        (Plan(device_policy="fifo", device_cache="30 rows"), 4 * 100),
        (Plan(device_policy="degree"), (4 + FOUND_BYTES_PER_NODE) * 100),
        (Plan(device_policy="lru"), (9 + 24) * 100),
        (Plan(device_policy="fifo"), 4 * 100),
    ):
        assert state_bytes(plan, GRAPH, device_use(plan, caches, topology="host", is_mapped=False)) == expected
    over_a_disk = DeviceUse(rows={NODE: 30})
    assert state_bytes(Plan(device_policy="fifo", device_cache="30 rows"), GRAPH, over_a_disk) == 9 * 100 + 24 * 30
    assert state_bytes(Plan(), GRAPH, None) == 0


def test_only_what_the_device_reads_by_itself_is_read_by_it(reader):
    tables = {"a": TieredTable(HostTier([np.zeros((100, 2))]), [FLOATS]), **caches_of(np.zeros((100, 2)), reader).tables}
    assert device_use(Plan(), Caches(tables, graph=GRAPH), topology="host", is_mapped=False).types_read == {NODE}
