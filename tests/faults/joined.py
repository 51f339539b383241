"""A process of a partition, for tests: joins by torch.distributed, loads, and says what it saw.

python -m tests.faults.joined PARTS WHAT ...    (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment)
"""

import json
import logging
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import penstock
from penstock.errors import TierError
from penstock.exchange import join


def load(graph, **options):
    settings = dict(batch_size=16, shuffle=True, seed=5, rank=graph.rank, num_ranks=graph.num_ranks) | options
    return penstock.NeighborLoader(graph, [4, 3], "train", **settings)


def digests(graph):
    """Of an epoch; and which rank and part this is."""
    return {"rank": graph.rank, "part": graph.part.number, "digests": [penstock.digest(batch) for batch in load(graph)]}


def load_links(graph, **options):
    """All edges, with negatives that are looked up where their targets' lists are."""
    settings = dict(batch_size=100, shuffle=True, seed=5, neg_sampling="binary", exclude_links="reverse") | options
    return penstock.LinkNeighborLoader(graph, [4, 3], rank=graph.rank, num_ranks=graph.num_ranks, **settings)


def links(graph):
    """Of an epoch of links."""
    return {"digests": [penstock.digest(batch) for batch in load_links(graph, num_workers=2)]}


def train(graph):
    """Train on seeds of the own part, with gradients from all; gives the weights."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(2, 7))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(2):
        for batch in load(graph, order="split", drop_last=True, num_workers=1):
            optimizer.zero_grad()
            logits = model(batch.x[: batch.batch_size] / 300)
            torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size]).backward()
            optimizer.step()
    return {"weights": [parameter.flatten().tolist() for parameter in model.parameters()]}


def be_killed(graph, make=load):
    """Rank 1 is killed in the middle of an epoch; the others go on until they are told, and say what."""
    loader = make(graph)
    dist.barrier()  # a loader that is made asks the others too
    try:
        while True:
            for number, _ in enumerate(loader):
                if graph.rank == 1 and number == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
    except TierError as error:
        return {"error": str(error)}


def be_killed_among_links(graph):
    """The same of links."""
    return be_killed(graph, load_links)


def leave_early(graph):
    """Rank 0 has enough after one batch; the others go through two epochs."""
    for _ in load(graph):
        if graph.rank == 0:
            return {"batches": 1}
    return {"batches": 1 + len(list(load(graph)))}


def main():
    parts, *whats = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING)
    dist.init_process_group("gloo")
    for what in whats:
        with join(parts, timeout_s=20) as graph:
            print(json.dumps(globals()[what](graph)), flush=True)
    if not any(what.startswith("be_killed") for what in whats):
        dist.destroy_process_group()
    else:
        os._exit(0)


if __name__ == "__main__":
    main()
