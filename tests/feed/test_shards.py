"""A cache on several devices, shared by ranks (BGL 3.2.3): the same batches as without, and hits in the memory of all.

In the interpreter everything runs on CPU tensors, in memory that processes share; `TRITON_INTERPRET=0 pytest -m gpu` runs the same tests
with a device for each rank where there are several, else with all ranks on one, by CUDA IPC.
"""

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.distributed as dist

import penstock
from penstock.errors import NotSupportedError, UsageError
from penstock.feed.factored import FactoredLoader, run_factored
from penstock.gather import shard_seat_of_group, shard_seats
from penstock.plan import Plan, make_plan
from penstock.store import ingest
from tests import shard_ranks
from tests.devices import of_rank
from tests.feed.inputs import digests, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=34, shuffle=True, seed=3)
LEVELS = dict(policy="fifo", cache="60 rows", device_policy="fifo", device_cache="30 rows", slow="1GB/s,10us", device_topology="host")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return {kind: ingest(data, folder / kind, memory="4GiB") for kind, data in (("node", homogeneous_data()), ("paper", typed_data()))}


def loader_of(store, **options):
    seeds = "train" if store.is_homogeneous else ("paper", torch.arange(100))
    return penstock.NeighborLoader(store, **{**OPTIONS, "input_nodes": seeds, **options})


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
        loader = loader_of(stores[kind], device=of_rank(device, rank), plan=plan, num_workers=2, rank=rank, num_ranks=2, shards=seat)
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
        [peers] = [name for name in counts if "peers' " in name and name.split()[0] in ("peers'", kind)]
        assert min(counts[name]["num_rows"] for name in (peers, peers.replace("peers' ", ""))) > 0
        cache = loader.engine.caches.top[kind]
        kept.append(np.flatnonzero(cache.shard.policy.slots >= 0) * 2 + rank)
        assert kept[-1].size == min(cache.policy.capacity, 150) > 0
        assert loader.stats().device_bytes >= kept[-1].size * sum(cache.row_bytes)
    assert not set(kept[0]) & set(kept[1])


def test_ranks_that_are_processes(stores, device, tmp_path, caplog):
    """They read each other's memory; one that is killed while it is at work in the other's shard costs hits, and nothing else."""
    context, plain = multiprocessing.get_context("spawn"), penstock.NeighborLoader(stores["node"], **shard_ranks.OPTIONS)
    expected = [digests(plain) for _ in range(3)]
    heard, said = context.Pipe(duplex=False)
    other = context.Process(target=shard_ranks.stand_still, args=(stores["node"].path, tmp_path / "meeting", device, said), daemon=True)
    other.start()
    try:
        loader = shard_ranks.loader_of(stores["node"].path, tmp_path / "meeting", device, 0)
        assert digests(loader) == expected[0][::2]
        assert heard.poll(60)
        found, theirs = heard.recv()
        assert found == expected[0][1::2]
        for tiers in (loader.stats().tiers, theirs):
            assert min(tiers[name]["num_rows"] for name in ("cache", "peers' cache")) > 0
        assert heard.poll(60)
        assert heard.recv() == "at work"
        shard = loader.engine.caches.top["node"].shard
        assert shard.is_at_work
        with ThreadPoolExecutor(1) as pool:
            epoch = pool.submit(digests, loader)
            time.sleep(0.2)
            assert not epoch.done()
            other.kill()
            assert epoch.result(60) == expected[1][::2]
        assert shard.is_closed
        assert digests(loader) == expected[2][::2]
    finally:
        other.kill()
        other.join(60)
        dist.destroy_process_group()
    messages = [message for message in caplog.messages if message.startswith("rank")]
    assert sorted(messages)[-1] == "rank 1 of 2 has ended: rows of its shard are read from the tier below"


def test_what_cannot_be_shared(stores, device):
    [seat], store = shard_seats(1), stores["node"]
    for options, message in (
        (
            dict(shards=[seat], plan="bgl", device=device),
            "shards is one of the seats that shard_seats makes, or shard_seat_of_group's; got list",
        ),
        (dict(plan="bgl"), "shards shares what is kept on devices, and there is none: give device='cuda'"),
        (dict(device=device), "shards shares what the plan keeps on devices, and that is nothing: give device_policy"),
        (dict(device=device, plan=Plan(policy="fifo", cache="9 rows", slow="1GB/s,10us")), "and that is nothing: give device_policy"),
        (dict(device=device, plan=Plan(policy="belady", cache="9 rows")), "policy='belady' looks ahead, and ranks know nothing of each"),
        (dict(device=device, plan=Plan(device_policy="belady", device_cache="9 rows")), "device_policy='belady' looks ahead, and ranks"),
        (
            dict(device=device, plan=Plan(device_policy="fifo")),
            "shards shares a cache from the first batch on: give device_cache, which is",
        ),
        (dict(device=device, plan="ducati"), "neighbor_cache='shared' divides the memory of one device: leave shards out"),
        (
            dict(device=device, plan=Plan(host_memory="1GiB", policy="fifo", features="disk")),
            "host_memory='1GiB' is a budget of one process, shards is",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            loader_of(store, **{"shards": seat, **options})
    with pytest.raises(NotSupportedError, match="shards is for loaders that sample in their own process: use NeighborLoader in each"):
        run_factored(digests, store, [2], "train", num_processes=2, num_samplers=1, shards=seat)
    with pytest.raises(NotSupportedError, match="shards is for loaders that sample in their own process: use NeighborLoader in each"):
        FactoredLoader(store, [2], "train", num_samplers=1, shards=seat)
    with pytest.raises(UsageError, match=r"shard_seat_of_group is for ranks of torch.distributed: call init_process_group first"):
        shard_seat_of_group()


@pytest.mark.parametrize("features", ["given", "disk"])
def test_the_recipe_alone_and_beside(features, stores, device):
    """One rank has all; a loader beside it changes nothing that is kept."""
    [seat] = shard_seats(1)
    plan = make_plan("bgl", order="random", cache="20%", device_topology="host", features=features)
    loader = loader_of(stores["node"], plan=plan, device=device, shards=seat)
    expected = loader_of(stores["node"])
    assert digests(loader) == digests(expected)
    cache = loader.engine.caches.top["node"]
    kept = cache.shard.policy.slots.copy()
    seeds = torch.arange(40)
    assert digests(loader.beside(seeds)) == digests(loader_of(stores["node"], input_nodes=seeds, shuffle=False))
    assert (cache.shard.policy.slots == kept).all()
    assert (kept >= 0).sum() == (15 if features == "disk" else 60)
