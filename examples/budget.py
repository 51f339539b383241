"""Train on a store that need not fit in memory, within a budget for the whole process.

    python examples/budget.py STORE BYTES        for example papers/ 2GiB

Features and neighbour lists are read from the disk past the page cache. What is kept of them in memory, how many batches are made at once
and how far the loader looks ahead follow from a short profile, in which the step below is tried on a copy of the model. Too small a budget
is refused, with the least that would do. Without arguments a graph of 120 MB is generated in the current folder, and trained on in 1.2
GiB, of which Python, torch and the model have the most.
"""

import copy
import re
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import penstock


def make_step(model: torch.nn.Module):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(batch: Data) -> float:
        optimizer.zero_grad()
        logits = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(logits, batch.y[: batch.batch_size], ignore_index=-1)  # -1: no label
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main(path: str, budget: str) -> None:
    store = penstock.open(path)
    torch.manual_seed(0)
    num_features, num_classes = store.node_field("x").shape[1], int(store.node_field("y").max()) + 1
    model = GraphSAGE(num_features, hidden_channels=64, num_layers=2, out_channels=num_classes)
    loader = penstock.NeighborLoader(
        store,
        [10, 10],
        input_nodes="train",
        batch_size=512,
        shuffle=True,
        num_workers=2,
        seed=0,
        plan=penstock.Plan(host_memory=budget),
        step=make_step(copy.deepcopy(model)),
    )
    print(loader.stats().memory)

    step = make_step(model)
    for epoch in range(2):
        for batch in loader:
            loss = step(batch)
            del batch  # before the next one is asked for: two at once would be beyond the plan
        print(f"epoch {epoch}: loss of the last batch {loss:.3f}")
    for name, tier in loader.stats().tiers.items():
        print(f"{name}: asked for {tier['num_rows']:,} rows, {tier['num_bytes'] / 2**20:,.0f} MiB")
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    print(f"at most {int(peak[1]) / 2**20:.2f} GiB in memory")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(*sys.argv[1:])
    elif len(sys.argv) > 1:
        sys.exit("usage: python examples/budget.py STORE BYTES")
    else:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            penstock.generate("communities", f"{folder}/graph", num_nodes=200_000, feature_dim=128, train=0.05)
            main(f"{folder}/graph", "1.2GiB")
