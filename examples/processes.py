"""Train by several processes with a loop of your own, each on batches of its own.

    torchrun --nproc-per-node 2 examples/processes.py [STORE]

Rank r of R takes batches r, r + R, ... of the one order of the seeds, so that an epoch sees each seed once; with `drop_last` all have
equally many, as DistributedDataParallel wants it. The processes map one store: its pages are in memory once.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import penstock


def main(path: str) -> None:
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    store = penstock.open(path)
    torch.manual_seed(0)
    num_features, num_classes = store.node_field("x").shape[1], int(store.node_field("y").max()) + 1
    model = DistributedDataParallel(GraphSAGE(num_features, hidden_channels=64, num_layers=2, out_channels=num_classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(rank)  # the weights are equal; what a model draws from here on, as for dropout, is not
    loader = penstock.NeighborLoader(
        store, [10, 10], "train", batch_size=256, shuffle=True, drop_last=True, num_workers=1, seed=0, rank=rank, num_ranks=num_ranks
    )
    for epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            logits = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(logits, batch.y[: batch.batch_size], ignore_index=-1)  # -1: no label
            loss.backward()
            optimizer.step()
        print(f"rank {rank} of {num_ranks}, epoch {epoch}: {len(loader)} batches, loss of the last one {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit("start it by: torchrun --nproc-per-node 2 examples/processes.py")
    dist.init_process_group("gloo")
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            where = [f"{folder}/graph"]
            dist.broadcast_object_list(where)  # rank 0 makes the graph, and all open it
            if dist.get_rank() == 0:
                penstock.generate("communities", where[0], num_nodes=20_000)
            dist.barrier()
            main(where[0])
            dist.barrier()  # the folder stays until all are done
    dist.destroy_process_group()
