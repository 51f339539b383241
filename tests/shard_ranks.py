"""What other processes do in tests of shared caches: importable by name."""

import os
import time

import torch.distributed as dist

import penstock
from penstock.gather import shard_seat_of_group
from penstock.plan import Plan
from tests.devices import of_rank
from tests.feed.inputs import digests

OPTIONS = dict(num_neighbors=[4, 3], input_nodes="train", batch_size=25, shuffle=True, seed=3)
PLAN = Plan(policy="fifo", cache="30 rows", device_topology="host")


def loader_of(path, meeting, device, rank):
    """A loader of one of two ranks, which find each other by a process group."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    seat = shard_seat_of_group(timeout_s=60)
    options = {**OPTIONS, "plan": PLAN, "device": of_rank(device, rank), "num_workers": 1}
    return penstock.NeighborLoader(path, **options, rank=rank, num_ranks=2, shards=seat)


def stand_still(path, meeting, device, said):
    """An epoch as rank 1; in the next one, stand still while at work in rank 0's shard."""
    loader = loader_of(path, meeting, device, 1)
    said.send((digests(loader), loader.stats().tiers))
    of_rank_0 = loader.engine.caches.top["node"]._tiers[0]

    def write(*arguments):
        said.send("at work")
        time.sleep(60)
        os._exit(1)

    of_rank_0.write = write
    list(loader)
