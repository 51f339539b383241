"""Predict links: which pairs are joined, learnt from earlier edges and scored on later ones.

    python examples/links.py

Each edge has a time; the earlier four fifths train the model, the rest score it. With `time_attr` no edge of a sample is later than the
link that it is drawn for, and with `exclude_links` neither the link nor its reverse is among them. No negative is an edge of the graph. The
loader takes a store as well: links then are `edge_label_index=None`, all edges of the graph, or any int[2, n].
"""

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import stochastic_blockmodel_graph

import penstock


def make_graph() -> Data:
    """1,000 nodes in 10 groups, of which their features say a little; edges come in random order."""
    edges = stochastic_blockmodel_graph([100] * 10, torch.full((10, 10), 0.002) + 0.1 * torch.eye(10), directed=True)
    x = torch.randn(1000, 32) + F.one_hot(torch.arange(1000) // 100, 32)
    return Data(x=x, edge_index=edges, edge_time=torch.randperm(edges.shape[1]))


def main() -> None:
    torch.manual_seed(0)
    data = make_graph()
    is_early = data.edge_time < 0.8 * data.num_edges
    model = penstock.trim(GraphSAGE(32, hidden_channels=64, num_layers=2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

    loader = penstock.LinkNeighborLoader(
        data,
        [8, 4],
        edge_label_index=data.edge_index[:, is_early],
        edge_label_time=data.edge_time[is_early],
        time_attr="edge_time",
        neg_sampling="binary",
        exclude_links="reverse",
        batch_size=512,
        shuffle=True,
        num_workers=2,
        seed=0,
    )
    later = loader.beside(  # the same settings and caches over other links, in their order
        data.edge_index[:, ~is_early], edge_label_time=data.edge_time[~is_early], neg_sampling="binary"
    )

    for epoch in range(5):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(score(model, batch), batch.edge_label)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss of the last batch {loss.item():.3f}, AUC on later links {auc(model, later):.3f}")


def score(model: torch.nn.Module, batch: Data) -> torch.Tensor:
    """One number for each pair of `edge_label_index`, whose ids are rows of the batch."""
    rows = model(batch.x, batch.edge_index)
    source, target = batch.edge_label_index
    return (rows[source] * rows[target]).sum(dim=1)


@torch.no_grad()
def auc(model: torch.nn.Module, loader: penstock.LinkNeighborLoader) -> float:
    """How often a link is scored above a negative."""
    model.eval()
    scores, labels = zip(*((score(model, batch), batch.edge_label) for batch in loader), strict=True)
    scores, labels = torch.cat(scores), torch.cat(labels)
    ranks = scores.argsort().argsort().float()
    positives, negatives = int((labels == 1).sum()), int((labels == 0).sum())
    return float((ranks[labels == 1].sum() - positives * (positives - 1) / 2) / (positives * negatives))


if __name__ == "__main__":
    main()
