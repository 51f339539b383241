"""A cache on the device, sized by what the first steps leave free: when it comes, how large it is, and that batches stay the same."""

import pytest
import torch

import penstock
from penstock.feed.setup import device_cache
from penstock.gather import CachedTier, FusedCache, fused
from penstock.plan import Plan
from penstock.store import ingest
from penstock.store.device_memory import DeviceMemory
from penstock.store.tiers import DeviceTier, PinnedTier
from tests.feed.inputs import digests, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=25, shuffle=True, seed=3)
ROW_BYTES = 8 + 8 + 2 + 1  # x, y, half and train_mask of `homogeneous_data`


@pytest.fixture
def memory(monkeypatch):
    """Sets what is free on the device, past the reserve."""

    def leave(num_bytes):
        monkeypatch.setattr(device_cache, "look_at_device_memory", lambda device: DeviceMemory(0, num_bytes, 0))

    return leave


def loader_of(data, device, **plan):
    plan = Plan(**{"device_policy": "degree", "device_topology": "host", **plan})
    return penstock.NeighborLoader(data, **OPTIONS, input_nodes=data.train_mask, plan=plan, device=device)


@pytest.mark.parametrize("policy", ["degree", "presample", "fifo"])
def test_it_comes_after_two_steps_and_once(policy, memory, device):
    data = homogeneous_data()
    expected = digests(penstock.NeighborLoader(data, **OPTIONS, input_nodes=data.train_mask))
    memory(60 * ROW_BYTES + (4 if policy != "fifo" else 8) * 300 + (24 * 60 if policy == "fifo" else 0))
    loader, tiers, found = loader_of(data, device, device_policy=policy), [], []
    for batch in loader:
        found.append(penstock.digest(batch))
        tiers.append(type(loader.engine.caches.tables["node"].tier))
    assert found == expected
    assert tiers == [PinnedTier, PinnedTier, FusedCache, FusedCache]
    table = loader.engine.caches.tables["node"]
    assert loader.stats().device_cache.startswith("1 KiB, 20.0% of the rows: ")
    assert loader.stats().device_bytes >= 60 * ROW_BYTES
    list(loader)
    assert loader.engine.caches.tables["node"] is table
    assert loader.stats().tiers["cache"]["num_rows"] > 0


def test_of_the_best_rows_those_that_find_room(memory, device):
    data = homogeneous_data()
    memory(10 * ROW_BYTES + 4 * 300)
    found, given = loader_of(data, device), loader_of(data, device, device_cache="10 rows")
    for loader in (found, given):
        list(loader)
    caches = [loader.engine.caches.top["node"] for loader in (found, given)]
    assert (caches[0].policy.slots == caches[1].policy.slots).all()
    assert found.stats().device_bytes == given.stats().device_bytes


@pytest.mark.parametrize(("free", "why"), [(0, "0 B, 0.0% of the rows: 0 B free"), (1000, "does not even hold the directory")])
def test_where_nothing_is_left_nothing_is_kept(free, why, memory, device):
    memory(free)
    loader = loader_of(homogeneous_data(), device)
    assert len(list(loader)) == 4
    assert loader.stats().device_bytes == 300 * (8 + 2 + 1), "labels and other single numbers"
    assert why in loader.stats().device_cache


def refuse(*arguments, **options):
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("where", "what"),
    [(DeviceTier, "__init__"), (FusedCache, "_bring"), (fused, "to_device")],
    ids=["rows", "filling", "table of slots"],
)
def test_a_device_that_refuses_after_all_is_no_error(where, what, memory, monkeypatch, device):
    memory(1 << 20)
    loader, expected = loader_of(homogeneous_data(), device), digests(loader_of(homogeneous_data(), device))
    make = device_cache.CacheToCome._make

    def make_in_vain(self):
        with monkeypatch.context() as patched:
            patched.setattr(where, what, refuse)
            make(self)

    monkeypatch.setattr(device_cache.CacheToCome, "_make", make_in_vain)
    assert digests(loader) == expected
    assert loader.stats().device_cache.startswith("none: ")
    assert isinstance(loader.engine.caches.tables["node"].tier, PinnedTier)


def test_over_a_disk_and_over_types(memory, device, tmp_path):
    memory(1 << 20)
    store = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")
    expected = digests(penstock.NeighborLoader(store, **OPTIONS, input_nodes="train"))
    plan = Plan(features="disk", device_policy="fifo", device_topology="host")
    loader = penstock.NeighborLoader(store, **OPTIONS, input_nodes="train", plan=plan, device=device, num_workers=2)
    assert digests(loader) == expected
    assert type(loader.engine.caches.tables["node"].tier) is CachedTier
    options = dict(OPTIONS, input_nodes=("paper", torch.arange(200)))
    expected = digests(penstock.NeighborLoader(typed_data(), **options))
    plan = Plan(device_policy="degree", device_topology="host")
    loader = penstock.NeighborLoader(typed_data(), **options, plan=plan, device=device)
    assert digests(loader) == expected
    assert set(loader.engine.caches.top) == {"author", "paper"}
    assert loader.stats().device_cache.split(": ")[0].endswith("100.0% of the rows")


def test_it_sees_the_memory_of_the_machine(device):
    """As it is: of a small graph all rows are kept."""
    loader = loader_of(homogeneous_data(), device)
    assert len(list(loader)) == 4
    assert "100.0% of the rows" in loader.stats().device_cache
