"""Classify the nodes of a store with a model of PyG's: train on mini-batches, then score it exactly, over all neighbours.

    python examples/nodes.py [STORE]

STORE: a folder made by `penstock ingest` or `penstock generate`, with features `x`, labels `y` and a split; without it a small graph is
generated. Only the loader and the last step differ from the same script with PyG alone.
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
    model = GraphSAGE(num_features, hidden_channels=64, num_layers=2, out_channels=num_classes, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = penstock.NeighborLoader(store, [10, 10], input_nodes="train", batch_size=512, shuffle=True, num_workers=2, seed=0)

    for epoch in range(3):
        model.train()
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            logits = model(batch.x, batch.edge_index)[: batch.batch_size]  # seeds are the first nodes
            loss = F.cross_entropy(logits, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.batch_size
        print(f"epoch {epoch}: loss {total / len(store.split('train')):.3f}, {accuracy(model, store, 'val')}")
    print(accuracy(model, store, "test"))


def accuracy(model: torch.nn.Module, store: penstock.Store, part: str) -> str:
    """Score a part of the split. No neighbours are sampled, and no node is computed twice."""
    predicted = penstock.infer(model, store, input_nodes=part).argmax(axis=1)
    return f"{part} accuracy {(predicted == store.node_field('y')[store.split(part)]).mean():.3f}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            penstock.generate("communities", f"{folder}/graph", num_nodes=20_000)
            main(f"{folder}/graph")
