"""Inputs whose features say which node or edge they belong to: a scrambled id shows anywhere."""

import torch
from torch_geometric.data import Data, HeteroData

from penstock import digest


def homogeneous_data(num_nodes=300, num_edges=3000, *, hub_degree=0, is_sorted=False):
    """Data with x[i] = (i, -i), y[i] = i % 7, edge_attr[e] = (source, destination, e), and a graph-level attribute.

    Node 7 gets `hub_degree` more edges.
    """
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    to_hub = torch.stack([torch.randint(0, num_nodes, (hub_degree,), generator=generator), torch.full((hub_degree,), 7)])
    edge_index = torch.cat([edge_index, to_hub], dim=1)
    if is_sorted:
        edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
    ids = torch.arange(num_nodes)
    data = Data(x=torch.stack([ids, -ids], dim=1).float(), y=ids % 7, edge_index=edge_index)
    data.edge_attr = torch.cat([edge_index.t(), torch.arange(num_edges + hub_degree)[:, None]], dim=1)
    data.half = ids.to(torch.bfloat16)
    data.title = "whole graph"
    data.train_mask = ids % 3 == 0
    return data


def typed_data():
    """HeteroData with the same kind of features; venues have none, and no edge enters them."""
    generator = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["author"].x = torch.arange(60).float()[:, None]
    data["paper"].x = torch.arange(500).float()[:, None] + 1000
    data["paper"].y = torch.arange(500) % 5
    data["paper"].train_mask = torch.arange(500) < 200
    data["venue"].num_nodes = 9
    counts = {"author": 60, "paper": 500, "venue": 9}
    for src, relation, dst, num_edges in (
        ("author", "writes", "paper", 900),
        ("paper", "by", "author", 900),
        ("venue", "prints", "paper", 300),
    ):
        edge_index = torch.stack([torch.randint(0, counts[t], (num_edges,), generator=generator) for t in (src, dst)])
        data[src, relation, dst].edge_index = edge_index
        data[src, relation, dst].edge_attr = torch.arange(num_edges)
    return data


def check_homogeneous(batch, data):
    """Every row of a batch is that of its node or edge, and every edge is real."""
    source, target = batch.edge_index
    check_nodes(batch, data)
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    assert torch.equal(batch.edge_attr[:, 0], batch.n_id[source])
    assert torch.equal(batch.edge_attr[:, 1], batch.n_id[target])


def check_nodes(batch, data):
    """Every row of a batch is that of its node."""
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.y, data.y[batch.n_id])
    assert torch.equal(batch.half, data.half[batch.n_id])
    assert batch.num_nodes == batch.n_id.numel()
    assert batch.title == "whole graph"


def check_typed(batch, data):
    """The same for typed batches."""
    check_typed_nodes(batch, data)
    for edge_type in data.edge_types:
        source, target = batch[edge_type].edge_index
        given = data[edge_type].edge_index[:, batch[edge_type].e_id]
        assert torch.equal(batch[edge_type].edge_attr, batch[edge_type].e_id)
        assert torch.equal(batch[edge_type[0]].n_id[source], given[0])
        assert torch.equal(batch[edge_type[2]].n_id[target], given[1])


def check_typed_nodes(batch, data):
    """Rows of nodes only."""
    for node_type in ("author", "paper"):
        assert torch.equal(batch[node_type].x, data[node_type].x[batch[node_type].n_id])


def digests(batches):
    """Of each batch."""
    return [digest(batch) for batch in batches]
