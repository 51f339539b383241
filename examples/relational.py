"""A relational database: tables are node types, foreign keys are edge types, and each row came at a time.

    python examples/relational.py

Asked at a day, will a customer buy something in the 30 days that follow? A seed is a customer and a day. With `time_attr` its sample has no
purchase after that day, so that the model learns nothing from the future; the same customer may be asked about at several days.
"""

import torch
import torch.nn.functional as F
import torch_geometric.transforms as T
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

import penstock

NUM_CUSTOMERS, NUM_PRODUCTS, NUM_CATEGORIES, WIDTH = 800, 200, 10, 32
LAST_DAY, AHEAD = 360, 30


def make_tables() -> tuple[torch.Tensor, torch.Tensor]:
    """The category of each product, and [customer, product, day] of each purchase. Customers buy more or less often, until they leave."""
    rate, leaves = 0.1 * torch.rand(NUM_CUSTOMERS), torch.randint(LAST_DAY // 4, 2 * LAST_DAY, (NUM_CUSTOMERS,))
    bought = (torch.rand(NUM_CUSTOMERS, LAST_DAY + 1) < rate[:, None]) & (torch.arange(LAST_DAY + 1) < leaves[:, None])
    customer, day = bought.nonzero().T
    return torch.arange(NUM_PRODUCTS) % NUM_CATEGORIES, torch.stack([customer, torch.randint(NUM_PRODUCTS, day.shape), day])


def make_graph(category: torch.Tensor, purchases: torch.Tensor) -> HeteroData:
    """A node for each row of a table; purchases have two foreign keys and a time."""
    customer, product, day = purchases
    data = HeteroData()
    data["customer"].num_nodes = NUM_CUSTOMERS
    data["product"].x = F.one_hot(category).float()
    data["purchase"].x, data["purchase"].time = torch.rand(day.numel(), 1), day
    data["purchase", "by", "customer"].edge_index = torch.stack([torch.arange(day.numel()), customer])
    data["purchase", "of", "product"].edge_index = torch.stack([torch.arange(day.numel()), product])
    return T.ToUndirected()(data)


class Model(nn.Module):
    """Rows are encoded by table, then exchanged along the foreign keys."""

    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        self.product, self.purchase = nn.Linear(NUM_CATEGORIES, WIDTH), nn.Linear(2, WIDTH)
        self.convs = nn.ModuleList(HeteroConv({e: SAGEConv(WIDTH, WIDTH, aggr="sum") for e in data.edge_types}) for _ in range(2))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, batch: HeteroData) -> torch.Tensor:
        of = batch["purchase"]
        age = (batch["customer"].seed_time[of.batch] - of.time) / AHEAD  # `batch`: the seed in whose tree a row is
        x = {
            "customer": torch.ones(batch["customer"].num_nodes, WIDTH),
            "product": self.product(batch["product"].x),
            "purchase": self.purchase(torch.cat([of.x, torch.exp(-age)[:, None]], dim=1)),
        }
        for conv in self.convs:
            x = {node_type: rows.relu() for node_type, rows in conv(x, batch.edge_index_dict).items()}
        return self.head(x["customer"][: batch["customer"].batch_size]).squeeze(1)


def main() -> None:
    torch.manual_seed(0)
    category, purchases = make_tables()
    data = make_graph(category, purchases)
    model = penstock.trim(Model(data))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

    def load(days: torch.Tensor, **how: bool) -> penstock.NeighborLoader:
        """Batches of all customers at each of these days, with what they did next as `y`."""
        customers, times = torch.arange(NUM_CUSTOMERS).repeat(days.numel()), days.repeat_interleave(NUM_CUSTOMERS)
        counts = torch.zeros(NUM_CUSTOMERS, LAST_DAY + 1).index_put_((purchases[0], purchases[2]), torch.ones(())).cumsum(1)
        y = (counts[customers, times + AHEAD] > counts[customers, times]).float()

        def attach(batch: HeteroData) -> HeteroData:
            batch["customer"].y = y[batch["customer"].input_id]
            return batch

        return penstock.NeighborLoader(
            data, [12, 4], ("customer", customers), input_time=times, time_attr="time", transform=attach,
            batch_size=256, num_workers=2, seed=0, **how,
        )  # fmt: skip

    earlier, later = load(torch.arange(60, 271, 70), shuffle=True), load(torch.tensor([300, 330]))
    for epoch in range(3):
        for batch in earlier:
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(batch), batch["customer"].y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            scores, y = map(torch.cat, zip(*((model(batch), batch["customer"].y) for batch in later), strict=True))
        print(f"epoch {epoch}: loss of the last batch {loss.item():.3f}, AUC on later days {auc(scores, y):.3f}")


def auc(scores: torch.Tensor, y: torch.Tensor) -> float:
    """The share of pairs of a customer who bought and one who did not that are in the right order."""
    ranks = scores.argsort().argsort().double() + 1
    num_true = y.sum().double()
    return float((ranks[y == 1].sum() - num_true * (num_true + 1) / 2) / (num_true * (len(y) - num_true)))


if __name__ == "__main__":
    main()
