"""Stop anywhere, and go on to the same weights, bit for bit.

    python examples/resume.py

A training is ended in the middle of an epoch and begun again from its file, with another number of threads. `loader.state_dict()` is the
epoch and the number of the next batch; the rest is what every PyTorch script saves.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import penstock

NUM_EPOCHS = 2


def train(path: str, file: Path, num_workers: int, stop_after: int | None = None) -> dict[str, torch.Tensor]:
    """Return the weights at the end, or after `stop_after` batches, as if the process were ended there."""
    torch.manual_seed(0)
    model = GraphSAGE(32, hidden_channels=32, num_layers=2, out_channels=16, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = penstock.NeighborLoader(path, [10, 5], "train", batch_size=256, shuffle=True, num_workers=num_workers, seed=0)
    state = {"loader": loader.state_dict()}
    if file.exists():
        state = torch.load(file)
        loader.load_state_dict(state["loader"])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])  # of dropout; on a GPU, that of torch.cuda too
        print(f"going on at batch {state['loader']['batch']} of epoch {state['loader']['epoch']}")

    num_batches = 0
    while state["loader"]["epoch"] < NUM_EPOCHS:
        for batch in loader:  # the rest of an epoch, then whole ones
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            num_batches += 1
            if num_batches == stop_after:
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
                torch.save({"loader": loader.state_dict(), **states}, file.with_suffix(".new"))
                os.replace(file.with_suffix(".new"), file)  # never half a file
                return model.state_dict()
        state = {"loader": loader.state_dict()}
    return model.state_dict()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph = f"{folder}/graph"
        penstock.generate("communities", graph, num_nodes=10_000, feature_dim=32)
        whole = train(graph, Path(folder, "not there"), num_workers=2)
        train(graph, Path(folder, "state.pt"), num_workers=2, stop_after=13)
        resumed = train(graph, Path(folder, "state.pt"), num_workers=1)
    same = all(torch.equal(whole[name], resumed[name]) for name in whole)
    print("the same weights, bit for bit" if same else "other weights")


if __name__ == "__main__":
    main()
