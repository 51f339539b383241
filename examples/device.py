"""Train on a GPU whose memory need not hold the graph: it draws the samples, reads rows out of host memory, and keeps the best of them.

    python examples/device.py [STORE [PLAN]]

PLAN: a recipe: `gnnlab`, by default, which keeps the rows on the device that sampled epochs ask for most, or `pagraph`, `uva`, `ducati`,
`bgl`. All batches have one size (`pad`), so that a step is recorded once, and launched as a whole from then on. The last batch of each
epoch is made again on the CPU and compared, bit for bit.
"""

import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import penstock
from penstock.feed import RecordedStep

BATCH_SIZE = 1024


def main(path: str, plan: str = "gnnlab", device: str = "cuda") -> None:
    store = penstock.open(path)
    torch.manual_seed(0)
    num_features, num_classes = store.node_field("x").shape[1], int(store.node_field("y").max()) + 1
    loader = penstock.NeighborLoader(
        store, [15, 10], "train", batch_size=BATCH_SIZE, shuffle=True, drop_last=True, seed=0, device=device, plan=plan, pad=True
    )
    print(f"samples: {loader.stats().sampling}")
    place = loader(epoch=0, batch=0).x.device  # that of `device`
    model = penstock.trim(GraphSAGE(num_features, hidden_channels=128, num_layers=2, out_channels=num_classes)).to(place)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, capturable=place.type == "cuda")

    def step(batch: Data) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch.x, batch.edge_index)[:BATCH_SIZE], batch.y[:BATCH_SIZE], ignore_index=-1)  # -1: no label
        loss.backward()
        optimizer.step()
        return loss.detach()

    recorded = RecordedStep(step)
    for epoch in range(3):
        losses = []
        for batch in loader:
            losses.append(recorded(batch))  # nobody waits for the device within an epoch
        loader.verify(batch)
        print(f"epoch {epoch}: mean loss {torch.stack(losses).mean().item():.3f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:3])
    else:
        with tempfile.TemporaryDirectory() as folder:
            penstock.generate("communities", f"{folder}/graph", num_nodes=200_000, feature_dim=128)
            main(f"{folder}/graph")
