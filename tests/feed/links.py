"""Links for tests of loaders, and what they are compared as."""

import torch

OPTIONS = dict(num_neighbors=[3, 2], batch_size=32, seed=5)
WRITES = ("author", "writes", "paper")
BY = ("paper", "by", "author")
REV = ("paper", "rev_writes", "author")


def links_of(data, count=100):
    """Random pairs, and labels that say which they are."""
    random = torch.Generator().manual_seed(7)
    return torch.randint(0, data.num_nodes, (2, count), generator=random), torch.arange(count) + 10


def pairs(ends):
    return set(map(tuple, torch.as_tensor(ends).t().tolist()))


def with_reverses(data):
    """Every edge once, and its reverse."""
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1).unique(dim=1)
    data.edge_attr = torch.cat([data.edge_index.t(), torch.arange(data.edge_index.shape[1])[:, None]], dim=1)
    return data
