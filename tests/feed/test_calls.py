"""What a batch costs besides its nodes and edges: calls of functions, which no load of the machine changes."""

import sys

import torch
from torch_geometric.data import HeteroData

import penstock


def count_calls(num_edge_types):
    """How many functions are called for a batch of one seed, whose edges are of few of the types."""
    data = HeteroData({name: {"x": torch.zeros(50, 2)} for name in "abcdefgh"})
    for number in range(num_edge_types):
        edge_type = "abcdefgh"[number % 8], str(number), "abcdefgh"[(3 * number + number // 8) % 8]
        data[edge_type].edge_index = torch.randint(50, (2, 200), generator=torch.Generator().manual_seed(number))
    batches = iter(penstock.NeighborLoader(data, [3, 2], input_nodes="a", batch_size=1, seed=0))
    for _ in range(3):
        next(batches)
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if event in ("call", "c_call") else None)
    try:
        next(batches)
    finally:
        sys.setprofile(None)
    return len(calls)


def test_an_edge_type_costs_few_calls():
    few, many = count_calls(8), count_calls(40)
    assert (many - few) / 32 < 160, "255 before types were looked up once a batch, 120 since"
