"""Classify the nodes of a store: train on mini-batches, score over all neighbours.

    python examples/nodes.py [STORE]

STORE: a folder made by `penstock ingest` or `penstock generate`, with features `x`, classes `y` (-1: no label) and a split; without it a
small graph is generated. Model and loop are PyG's. `penstock.trim` has each layer compute the rows that later layers read, which on a CPU
takes a fraction of the time; without that line the loss is the same but for rounding.
"""

import sys
import tempfile

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import penstock


def main(path: str) -> None:
    store = penstock.open(path)
    num_features, num_classes = store.node_field("x").shape[1], int(store.node_field("y").max()) + 1
    torch.manual_seed(0)
    model = GraphSAGE(num_features, hidden_channels=64, num_layers=2, out_channels=num_classes)
    penstock.trim(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = penstock.NeighborLoader(store, [10, 10], input_nodes="train", batch_size=512, shuffle=True, num_workers=2, seed=0)

    for epoch in range(3):
        total = 0.0
        for batch in loader:
            logits = model(F.dropout(batch.x, 0.2), batch.edge_index)[: batch.batch_size]  # seeds are the first nodes
            loss = F.cross_entropy(logits, batch.y[: batch.batch_size], ignore_index=-1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.batch_size
        print(f"epoch {epoch}: loss {total / len(store.split('train')):.3f}")

    logits = penstock.infer(model, store)  # layer by layer, over all neighbours, of all nodes; out="logits.npy" and a plan bound its memory
    for part in ("val", "test"):
        nodes = store.split(part)
        labels = store.node_field("y")[nodes]
        print(f"{part} accuracy {(logits[nodes].argmax(axis=1) == labels)[labels >= 0].mean():.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            penstock.generate("communities", f"{folder}/graph", num_nodes=20_000)
            main(f"{folder}/graph")
