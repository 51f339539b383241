"""Classify the nodes of a store: train on mini-batches, score over all neighbours.

    python examples/nodes.py [STORE]

STORE: a folder made by `penstock ingest` or `penstock generate`, with features `x`, classes `y` (-1: no label) and a split; without it a
small graph is generated. The loop is PyG's. The model may be called as ever, `model(batch.x, batch.edge_index)`; over `penstock.layers`, as
here, each layer is a sparse matrix of exactly the rows that later layers read, which on a CPU takes a fraction of the time.
"""

import sys
import tempfile
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv

import penstock


def main(path: str) -> None:
    store = penstock.open(path)
    num_features, num_classes = store.node_field("x").shape[1], int(store.node_field("y").max()) + 1
    torch.manual_seed(0)
    convs = torch.nn.ModuleList(SAGEConv(a, b) for a, b in pairwise([num_features, 64, num_classes]))
    optimizer = torch.optim.Adam(convs.parameters(), lr=0.01)
    loader = penstock.NeighborLoader(store, [10, 10], input_nodes="train", batch_size=512, shuffle=True, num_workers=2, seed=0)

    for epoch in range(3):
        total = 0.0
        for batch in loader:
            x = F.dropout(batch.x, 0.2)
            for conv, layer in zip(convs, penstock.layers(batch), strict=True):
                x = conv((x, x[: layer.num_dst]), layer.adj_t())
                x = x.relu() if conv is not convs[-1] else x
            loss = F.cross_entropy(x, batch.y[: batch.batch_size], ignore_index=-1)  # seeds are the first nodes
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.batch_size
        print(f"epoch {epoch}: loss {total / len(store.split('train')):.3f}")

    logits = penstock.infer(
        convs,
        store,
        [lambda batch: convs[0](batch.x, batch.edge_index).relu(), lambda batch: convs[1](batch.x, batch.edge_index)],
    )  # layer by layer, over all neighbours, of all nodes; out="logits.npy" and a plan bound its memory
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
