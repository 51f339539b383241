"""Small stores for training tests."""

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from penstock.store import ingest


def undirected(generator, num_nodes, num_edges):
    """Symmetric edges without self-loops or repetitions."""
    edges = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    return torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)


def masks(data, num_nodes):
    """Half train, a quarter each val and test."""
    place = torch.arange(num_nodes) // 5 % 4
    data.train_mask, data.val_mask, data.test_mask = place < 2, place == 2, place == 3


def make_data(num_nodes=400, *, num_classes=4, labels=None):
    """Communities by number modulo, with features that hint at them."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(num_nodes) % num_classes
    edge_index = undirected(generator, num_nodes, 4 * num_nodes)
    same = y[edge_index[0]] == y[edge_index[1]]
    edge_index = edge_index[:, same | (torch.arange(same.numel()) % 10 == 0)]
    edge_index = torch.unique(torch.cat([edge_index, edge_index.flip(0)], dim=1), dim=1)
    x = torch.nn.functional.one_hot(y, num_classes).float() + torch.randn(num_nodes, num_classes, generator=generator)
    data = Data(x=x, y=y if labels is None else labels, edge_index=edge_index)
    masks(data, num_nodes)
    return data


def make_store(path, **options):
    """The same as a store."""
    return ingest(make_data(**options), path)


def make_weighted_store(path):
    """The same with weights of edges, some of them 0."""
    data = make_data()
    data.w = torch.randint(0, 4, (data.num_edges,), generator=torch.Generator().manual_seed(1)).float()
    return ingest(data, path)


def make_labelled_store(path):
    """The same with labels of edges, of which `some` has none of one edge, and `late` is no class but for one."""
    data, random = make_data(), torch.Generator().manual_seed(1)
    data.edge_weight = 1e3 * torch.rand(data.num_edges, generator=random) ** 8
    data.kind = torch.randint(0, 3, (data.num_edges,), generator=random).bfloat16()
    data.tags = torch.randint(0, 2, (data.num_edges, 3), generator=random, dtype=torch.uint8)
    data.some, data.late = data.kind.long(), data.kind.float()
    data.some[8], data.late[8] = -1, 0.5  # which stays in the graph
    return ingest(data, path)


def make_bare_store(path):
    """The same without features."""
    data = make_data()
    data.x, data.num_nodes = None, 400
    return ingest(data, path)


def make_typed_data():
    """Papers with features and labels, authors with features, venues without."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    y = torch.arange(300) % 3
    data["paper"].x = torch.nn.functional.one_hot(y, 3).float() + torch.randn(300, 3, generator=generator)
    data["paper"].y = y
    masks(data["paper"], 300)
    data["author"].x = torch.randn(80, 5, generator=generator)
    data["venue"].num_nodes = 7
    counts = {"paper": 300, "author": 80, "venue": 7}
    for src, relation, dst, num_edges in (
        ("author", "writes", "paper", 900),
        ("paper", "by", "author", 900),
        ("venue", "prints", "paper", 300),
    ):
        ends = [torch.randint(0, counts[t], (num_edges,), generator=generator) for t in (src, dst)]
        data[src, relation, dst].edge_index = torch.stack(ends)
    return data


def make_typed_store(path):
    """The same as a store."""
    return ingest(make_typed_data(), path)


def multi_labels(num_nodes=400):
    """A 0/1 matrix of three labels."""
    ids = np.arange(num_nodes)
    return torch.from_numpy(np.stack([ids % 2, ids % 4 == 1, ids % 4 > 1], axis=1).astype(np.uint8))
