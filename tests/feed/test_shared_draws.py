"""`shared_draws`: lists take the same neighbours where they can, within a batch and over a group of them. See also `test_ways.py`."""

import torch

from penstock import LinkNeighborLoader, NeighborLoader
from tests.feed.inputs import digests, homogeneous_data

OPTIONS = dict(num_neighbors=[3, 2], batch_size=32, seed=5)


def test_fewer_nodes_of_as_many_edges():
    data = homogeneous_data()
    alone, shared = NeighborLoader(data, **OPTIONS), NeighborLoader(data, **OPTIONS, shared_draws=True)
    for batch, other in zip(shared, alone, strict=True):
        assert batch.num_sampled_edges[0] == other.num_sampled_edges[0]
        assert batch.num_nodes < other.num_nodes


def test_true_is_one_and_false_none():
    data = homogeneous_data()
    found = digests(NeighborLoader(data, **OPTIONS, shared_draws=True))
    assert digests(NeighborLoader(data, **OPTIONS, shared_draws=1)) == found
    assert digests(NeighborLoader(data, **OPTIONS)) == digests(NeighborLoader(data, **OPTIONS, shared_draws=False)) != found


def test_batches_of_a_group_take_the_same_neighbours():
    """All nodes of a list that two batches have are the same in both, while the group lasts; ranks share it."""
    data = homogeneous_data()
    seeds = torch.arange(10).repeat(8)
    options = dict(num_neighbors=[4], input_nodes=seeds, batch_size=10, seed=1, shared_draws=4)
    taken = [batch.e_id.tolist() for batch in NeighborLoader(data, **options)]
    assert [taken.index(each) for each in taken] == [0, 0, 0, 0, 4, 4, 4, 4]
    for rank in range(2):
        assert [batch.e_id.tolist() for batch in NeighborLoader(data, **options, rank=rank, num_ranks=2)] == taken[rank::2]


def test_links():
    data = homogeneous_data()
    options = dict(num_neighbors=[3, 2], batch_size=100, neg_sampling="binary", seed=1)
    alone, shared = (list(LinkNeighborLoader(data, **options, shared_draws=shared_draws)) for shared_draws in (False, True))
    for one, other in zip(shared, alone, strict=True):
        assert one.num_nodes <= other.num_nodes
    assert sum(batch.num_nodes for batch in shared) < sum(batch.num_nodes for batch in alone)
