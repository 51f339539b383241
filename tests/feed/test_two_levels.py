"""Two caches by a plan, one of the device above one of the host (BGL): the same batches as without, and each level counts what a simulation
of it counts.

In the interpreter everything runs on CPU tensors; `TRITON_INTERPRET=0 pytest -m gpu` runs the same tests on a device.
"""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock.cache import FIFO, LRU, plan_static
from penstock.cache.choose import plan_beneath
from penstock.errors import UsageError
from penstock.feed.setup import device_cache
from penstock.gather import CachedTier, DeviceTable, RowKind, TieredTable
from penstock.plan import RECIPES, Plan, make_plan
from penstock.store import ingest
from penstock.store.device_memory import DeviceMemory
from penstock.store.tiers import HostTier, SlowTier
from tests.feed.inputs import digests, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=50, shuffle=True, seed=3)
LEVELS = dict(policy="fifo", cache="150 rows", device_policy="fifo", device_cache="40 rows", slow="1GB/s,10us", device_topology="host")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("levels")
    return {kind: ingest(data, folder / kind, memory="4GiB") for kind, data in (("node", homogeneous_data()), ("paper", typed_data()))}


def loader_of(store, device=None, **options):
    """Samples are drawn by the CPU, which is quicker here: `test_device_drawing.py` has the others."""
    seeds = "train" if store.is_homogeneous else ("paper", torch.arange(100))
    return penstock.NeighborLoader(store, **{**OPTIONS, "input_nodes": seeds, **options}, device=device)


def hits_of(loader, node_type="node"):
    """(of the device, of the host, read), rows of a node type."""
    label = "" if len(loader.engine.caches.tables) == 1 else f"{node_type} "
    tiers = {name.removeprefix(label): counts["num_rows"] for name, counts in loader.stats().tiers.items() if name.startswith(label)}
    [slow] = set(tiers) - {"device cache", "host cache", "upload of host cache"}
    return tiers["device cache"], tiers["host cache"], tiers[slow]


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        ("paper", dict(cache="50%", device_cache="10%")),
        ("node", dict(policy="lru", device_policy="sieve", slow=None, features="disk", device_topology=None)),
        ("paper", dict(policy="belady", device_policy="degree", window=3)),
        ("node", dict(policy="presample", device_policy="presample")),
        ("node", dict(policy="fifo", device_policy="belady", window=3, map_threads=2, slow=None)),
        ("node", dict(policy="degree", device_policy="clock")),
    ],
    ids=lambda value: "" if isinstance(value, str) else f"{value.get('device_policy', 'fifo')} over {value.get('policy', 'fifo')}",
)
def test_same_batches(kind, plan, stores, device):
    loader = loader_of(stores[kind], device, plan=Plan(**{**LEVELS, **plan}), num_workers=2)
    expected = loader_of(stores[kind])
    for _ in range(2):
        assert digests(loader) == digests(expected)
    for table in loader.engine.caches.tables.values():
        assert isinstance(table, DeviceTable)
        assert [type(tier) for tier in (table.tier, table.tier.beneath)] == [CachedTier, CachedTier]
    assert min(hits_of(loader, kind)) > 0
    assert loader.stats().device_bytes > 0


@pytest.mark.parametrize("num_workers", [0, 3])
def test_each_level_counts_what_a_simulation_of_it_counts(num_workers, stores, device):
    """The trace of the host's level is what the device's misses, batch by batch; over epochs, and with a loader beside."""
    plan = Plan(**{**LEVELS, "device_policy": "lru"})
    loader = loader_of(stores["node"], device, plan=plan, num_workers=num_workers)
    near, far, hits = LRU(300, 40), FIFO(300, 150), [0, 0, 0]
    for _ in range(2):
        for batch in loader:
            ids = batch.n_id.cpu().numpy()
            missed = ids[near.access(ids).hit_slots < 0]
            num_found = int(np.count_nonzero(far.access(missed).hit_slots >= 0))
            hits = [count + more for count, more in zip(hits, (ids.size - missed.size, num_found, missed.size - num_found), strict=True)]
    assert hits_of(loader) == tuple(hits)
    assert min(hits) > 0
    beside = loader.beside(torch.arange(40))
    assert digests(beside) == digests(loader_of(stores["node"], input_nodes=torch.arange(40), shuffle=False))
    assert hits_of(loader)[:2] == tuple(hits[:2])
    [cache] = loader.engine.caches.top.values()
    assert (cache.policy.slots == near.slots).all()
    assert (cache.beneath.policy.slots == far.slots).all()


def test_static_rows_above_belady_count_as_simulated(stores, device):
    plan = Plan(**{**LEVELS, "policy": "belady", "device_policy": "degree", "window": 3})
    loader = loader_of(stores["node"], device, plan=plan, num_workers=2)
    [cache] = loader.engine.caches.top.values()
    begun_with = {int(slot): node for node, slot in enumerate(cache.beneath.policy.slots) if slot >= 0}
    assert begun_with
    assert (cache.policy.slots[list(begun_with.values())] < 0).all()
    batches = [batch.n_id.cpu().numpy() for batch in loader]
    asked = [ids[cache.policy.slots[ids] < 0] for ids in batches]
    far, hits = cache.beneath._make_policy(), 0
    far.fill(np.array([begun_with[slot] for slot in range(len(begun_with))]))
    for number in range(-2, len(asked)):
        for ahead in asked[max(0, number + 2) : number + 3]:
            far.announce(ahead)
        if number >= 0:
            hits += int(np.count_nonzero(far.access(asked[number]).hit_slots >= 0))
    assert hits_of(loader)[:2] == (sum(ids.size for ids in batches) - sum(ids.size for ids in asked), hits)


def test_what_the_host_keeps_is_not_on_the_device_as_well(stores, device):
    loader = loader_of(stores["node"], device, plan=Plan(**{**LEVELS, "policy": "degree", "device_policy": "degree"}))
    [cache] = loader.engine.caches.top.values()
    near, far = (np.flatnonzero(tier.policy.slots >= 0) for tier in (cache, cache.beneath))
    assert (near.size, far.size) == (40, 150)
    whole = loader_of(stores["node"], plan=Plan(policy="degree", cache="190 rows"))
    [best] = whole.engine.caches.top.values()
    assert sorted([*near, *far]) == np.flatnonzero(best.policy.slots >= 0).tolist()


def test_the_host_keeps_the_best_beneath_a_content_that_changes(stores, device):
    plan = Plan(**{**LEVELS, "policy": "degree", "device_policy": "belady", "window": 3})
    [cache] = loader_of(stores["node"], device, plan=plan).engine.caches.top.values()
    [alone] = loader_of(stores["node"], plan=Plan(policy="degree", cache="150 rows")).engine.caches.top.values()
    assert (cache.policy.slots >= 0).any()
    assert ((cache.beneath.policy.slots >= 0) == (alone.policy.slots >= 0)).all()


@pytest.mark.parametrize("num_above", [0, 1, 7, 12])
def test_the_best_beneath_others(num_above):
    random = np.random.default_rng(num_above)
    hotness, above = random.integers(0, 5, 12), random.permutation(12)[:num_above]
    expected = [node for node in plan_static(hotness, 12) if node not in above][:4]
    assert plan_beneath(hotness, 4, above).tolist() == expected


def test_the_recipe_has_one_level_or_two(stores, device):
    """Two where there is a device that does not read all rows by itself."""
    plan = make_plan("bgl", order="random", cache="20%", device_topology="host")
    expected = digests(loader_of(stores["node"]))
    for where, changes, names in (
        (None, {}, ["cache", "mmap"]),
        (None, {"features": "disk"}, ["cache", "disk"]),
        (device, {}, ["cache", "pinned"]),
        (device, {"features": "disk"}, ["device cache", "upload of host cache", "host cache", "disk"]),
    ):
        loader = loader_of(stores["node"], where, plan=make_plan(plan, **changes), num_workers=2)
        assert digests(loader) == expected
        assert [name for name in loader.stats().tiers if "node/to/node" not in name] == names
        capacities = [level.policy.capacity for level in loader.engine.caches.tiers_of(CachedTier)]
        assert capacities == ([15, 60] if len(names) == 4 else [60])
    assert (RECIPES["bgl"].policy, RECIPES["bgl"].device_policy) == ("fifo", "same")


def test_a_cache_that_comes_after_the_first_steps(stores, device, monkeypatch):
    """The host's serves alone before; then it is asked for what the device's misses."""
    monkeypatch.setattr(device_cache, "look_at_device_memory", lambda device: DeviceMemory(0, 8 * 300 + 120 * (18 + 24), 0))
    loader = loader_of(stores["node"], device, plan=Plan(**{**LEVELS, "cache": "250 rows", "device_cache": None}), batch_size=20)
    assert list(loader.stats().tiers) == ["host cache", "slow mmap"]
    plain = loader_of(stores["node"], batch_size=20)
    assert [digests(loader) for _ in range(2)] == [digests(plain) for _ in range(2)]
    assert loader.engine.caches.top["node"].policy.capacity == 120
    assert sum(hits_of(loader)) == loader.stats().num_nodes
    assert min(hits_of(loader)) > 0


def test_a_table_of_the_users(stores, device):
    table = TieredTable(SlowTier(HostTier([np.arange(300.0)]), delay_s=1e-4), [RowKind("own", np.dtype(np.float64), ())])
    plan = Plan(policy="fifo", cache="50%", device_policy="lru", device_cache="10%", device_topology="host")
    data = Data(edge_index=homogeneous_data().edge_index, num_nodes=300)
    options = dict(OPTIONS, input_nodes=torch.arange(100), tables={"node": table})
    loader = penstock.NeighborLoader(data, **options, plan=plan, device=device)
    assert digests(loader) == digests(penstock.NeighborLoader(data, **options))
    assert min(hits_of(loader)) > 0


def test_what_cannot_be(stores, device):
    with pytest.raises(
        UsageError, match=r"^policy='fifo' is for rows that \S+ does not read by itself, and those of 'node' are in memory of"
    ):
        loader_of(stores["node"], device, plan=Plan(**{**LEVELS, "slow": None}))
    with pytest.raises(UsageError, match="device_policy='fifo' keeps rows on a device, and there is none"):
        loader_of(stores["node"], plan=Plan(**LEVELS))
    for changes, message in (
        (dict(policy="belady"), "policy='belady' looks ahead, and must know what device_policy='fifo' will miss: give a static one"),
        (dict(policy="belady", device_policy="same"), "must know what device_policy='same' will miss"),
        (dict(policy="belady", device_policy="degree", device_cache=None), r"\(random, degree.*\) and device_cache, or another policy"),
        (
            dict(policy="degree", device_policy="degree", device_cache=None),
            "policy='degree' keeps the best rows that .*: give device_cache",
        ),
        (dict(device_policy="belady", device_cache=None), "device_policy='belady' looks ahead from the first batch: give device_cache"),
        (dict(policy=None, device_policy="same"), "device_policy='same' stands for policy, which is not given"),
        (dict(policy="presample", neighbor_policy="presample", neighbor_cache="shared"), "of one cache: leave device_policy='fifo' out"),
    ):
        with pytest.raises(UsageError, match=message):
            Plan(**{**LEVELS, **changes})
