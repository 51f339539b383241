"""A typed graph: papers, authors who have no features, and a model that PyG makes heterogeneous.

    python examples/typed.py

Authors learn a row each, of which a step changes those of its batch only (`sparse=True`), however many there are. Batches say by `n_id`
whose rows are wanted.
"""

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphSAGE, to_hetero

import penstock

NUM_PAPERS, NUM_AUTHORS, NUM_FIELDS = 6000, 2000, 8


def make_graph() -> HeteroData:
    """Authors write papers of their own field nine times in ten; a paper's features say little of it."""
    data = HeteroData()
    field = torch.randint(NUM_FIELDS, (NUM_PAPERS,))
    data["paper"].x = torch.randn(NUM_PAPERS, 32) + 0.5 * F.one_hot(field, 32)
    data["paper"].y = field
    data["paper"].train_mask = torch.rand(NUM_PAPERS) < 0.2
    data["author"].num_nodes = NUM_AUTHORS
    papers = torch.arange(NUM_PAPERS).repeat_interleave(3)
    own = field[papers] + NUM_FIELDS * torch.randint(NUM_AUTHORS // NUM_FIELDS, papers.shape)
    authors = torch.where(torch.rand(papers.shape) < 0.9, own, torch.randint(NUM_AUTHORS, papers.shape))
    data["author", "writes", "paper"].edge_index = torch.stack([authors, papers])
    return T.ToUndirected()(data)


def main() -> None:
    torch.manual_seed(0)
    data = make_graph()
    authors = torch.nn.Embedding(NUM_AUTHORS, 32, sparse=True)
    model = penstock.trim(to_hetero(GraphSAGE(32, 64, num_layers=2, out_channels=NUM_FIELDS), data.metadata()))
    loader = penstock.NeighborLoader(data, [8, 8], ("paper", "train"), batch_size=256, shuffle=True, num_workers=2, seed=0)
    others = ("paper", ~data["paper"].train_mask)
    rest = penstock.NeighborLoader(data, [8, 8], others, batch_size=1024, num_workers=2, seed=0)

    def predict(batch: HeteroData) -> torch.Tensor:
        x = {"paper": batch["paper"].x, "author": authors(batch["author"].n_id)}
        return model(x, batch.edge_index_dict)["paper"][: batch["paper"].batch_size]

    with torch.no_grad():
        predict(loader(epoch=0, batch=0))  # to_hetero's layers take their shapes from a batch
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01), torch.optim.SparseAdam(authors.parameters(), lr=0.01)]
    for epoch in range(4):
        for batch in loader:
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = F.cross_entropy(predict(batch), batch["paper"].y[: batch["paper"].batch_size])
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
        with torch.no_grad():
            right = sum(int((predict(batch).argmax(1) == batch["paper"].y[: batch["paper"].batch_size]).sum()) for batch in rest)
        print(f"epoch {epoch}: loss of the last batch {loss.item():.3f}, accuracy on other papers {right / int(others[1].sum()):.3f}")


if __name__ == "__main__":
    main()
