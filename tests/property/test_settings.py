"""Batches are those of the plain loader under every setting of a plan: any of them, drawn at random, over a store on a disk."""

import errno
import shutil
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.cache.choose import LIST_POLICIES, POLICIES
from penstock.plan import Plan
from penstock.plan.plan import FEATURES, TOPOLOGIES
from penstock.store import ingest
from penstock.store.change import StoreChange
from penstock.store.packing import pack
from tests.disks import DEVICES
from tests.feed.inputs import homogeneous_data, typed_data

CAPACITIES = ("0%", "1 rows", "7%", "40%", "100%")
EPOCHS = 2


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Kind -> (store, the digests of the plain loader's batches). The packed ones have a copy of their features in another order."""
    folder, made = tmp_path_factory.mktemp("settings"), {}
    for kind, data in (("plain", homogeneous_data()), ("typed", typed_data())):
        store = ingest(data, folder / kind, memory="4GiB")
        expected = digests_of(store)
        path = shutil.copytree(store.path, folder / f"{kind} packed")
        node_type = "node" if kind == "plain" else "paper"
        with StoreChange(path) as change:
            pack(change, node_type, np.random.default_rng(0).permutation(store.num_nodes[node_type]), ["x"], made={}, work_bytes=1 << 20)
        made |= {kind: (store, expected), f"{kind} packed": (penstock.open(path), expected)}
    return made


def digests_of(store, **options):
    """All batches of some epochs."""
    seeds = "train" if store.is_homogeneous else ("paper", "train")
    options = dict(num_neighbors=[4, 3], batch_size=16, shuffle=True, seed=3, input_nodes=seeds) | options
    loader = penstock.NeighborLoader(store, **options)
    return [penstock.digest(batch) for _ in range(EPOCHS) for batch in loader]


@st.composite
def plans(draw):
    """Any plan; lists are kept or not, and one budget for all of them and the rows where that can be."""
    made = dict(
        features=draw(st.sampled_from(FEATURES)), topology=draw(st.sampled_from(TOPOLOGIES)),
        policy=draw(st.sampled_from([None, *POLICIES, "belady", "belady"])),
        window=draw(st.integers(1, 20)), slow=draw(st.sampled_from([None, None, "1GB/s,10us,64 rows"])),
        slow_topology=draw(st.sampled_from([None, None, "1GB/s,1us,4KiB blocks"])),
        neighbor_layout=draw(st.sampled_from(["direct", "prefix"])),
        neighbor_policy=draw(st.sampled_from([None, *LIST_POLICIES])),
    )  # fmt: skip
    if made["policy"] is not None:
        made["cache"] = draw(st.sampled_from(CAPACITIES))
    if made["neighbor_policy"] is not None:
        made["neighbor_cache"] = draw(st.sampled_from(["0", "1 lists", "15%", "100%"]))
    if draw(st.booleans()) and made.get("cache", "").endswith("%"):
        made |= dict(policy="presample", neighbor_policy="presample", neighbor_cache="shared")
    return Plan(**made)


@given(
    device=st.sampled_from(DEVICES),
    kind=st.sampled_from(["plain", "plain packed", "typed", "typed packed"]),
    plan=plans(),
    num_workers=st.sampled_from([0, 1, 4]),
    prefetch_factor=st.sampled_from([None, 1, 5]),
)
def test_batches_do_not_depend_on_the_plan(stores, device, kind, plan, num_workers, prefetch_factor):
    store, expected = stores[kind]
    options = dict(plan=plan, num_workers=num_workers, prefetch_factor=prefetch_factor if num_workers else None)
    if device == "io_uring":
        assert digests_of(store, **options) == expected
        return
    refused = OSError(errno.EPERM, "Operation not permitted")
    with mock.patch("penstock.store.tiers.disk.UringDevice", side_effect=refused) as tried:
        assert digests_of(store, **options) == expected
    assert tried.called == ("disk" in (plan.features, plan.topology))
