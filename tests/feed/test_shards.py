"""A cache on several devices, shared by ranks (BGL 3.2.3): the same batches as without, and hits in the memory of all.

In the interpreter everything runs on CPU tensors, in memory that processes share; `TRITON_INTERPRET=0 pytest -m gpu` runs the same tests
with all ranks on one device, by CUDA IPC.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import penstock
from penstock.gather import shard_seats
from penstock.plan import Plan
from penstock.store import ingest
from tests.devices import DEVICES
from tests.feed.inputs import homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=34, shuffle=True, seed=3)
LEVELS = dict(policy="fifo", cache="60 rows", device_policy="fifo", device_cache="30 rows", slow="1GB/s,10us", device_topology="host")


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return {kind: ingest(data, folder / kind, memory="4GiB") for kind, data in (("node", homogeneous_data()), ("paper", typed_data()))}


def loader_of(store, **options):
    seeds = "train" if store.is_homogeneous else ("paper", torch.arange(100))
    return penstock.NeighborLoader(store, **{**OPTIONS, "input_nodes": seeds, **options})


def digests(loader):
    return [penstock.digest(batch) for batch in loader]


def on_ranks(num_ranks, work):
    """What `work(rank, seat)` returns, in threads that play the ranks."""
    with ThreadPoolExecutor(num_ranks) as pool:
        return list(pool.map(work, range(num_ranks), shard_seats(num_ranks, timeout_s=30)))


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        ("node", Plan(**LEVELS)),
        ("paper", Plan(**{**LEVELS, "policy": "belady", "device_policy": "degree", "window": 3})),
        ("node", Plan(policy="lru", cache="30 rows", device_topology="host")),
    ],
    ids=["fifo over fifo", "degree over belady", "lru"],
)
def test_same_batches(kind, plan, stores, device):
    """Each rank's batches are those of its rank without shards, over two epochs, the first of which rank 0 leaves early."""

    def train(rank, seat):
        loader = loader_of(stores[kind], device=device, plan=plan, num_workers=2, rank=rank, num_ranks=2, shards=seat)
        found = []
        for batch in loader:
            found.append(penstock.digest(batch))
            if rank == 0:
                break
        return loader, found, digests(loader)

    first, second = (digests(loader) for loader in [loader_of(stores[kind])] for _ in range(2))
    kept = []
    for rank, (loader, found, again) in enumerate(on_ranks(2, train)):
        assert found == first[rank::2][: 1 if rank == 0 else None]
        assert again == second[rank::2]
        counts = loader.stats().tiers
        [peers] = [name for name in counts if name.endswith("cache of peers") and name.startswith(("cache", "device", kind))]
        assert min(counts[name]["num_rows"] for name in (peers, peers.removesuffix(" of peers"))) > 0
        cache = loader._caches.caches[kind]
        kept.append(np.flatnonzero(cache.shard.policy.slots >= 0) * 2 + rank)
        assert kept[-1].size == min(cache.policy.capacity, 150) > 0
        assert loader.stats().device_bytes >= kept[-1].size * sum(cache.row_bytes)
    assert not set(kept[0]) & set(kept[1])
