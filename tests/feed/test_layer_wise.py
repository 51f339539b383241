"""`layer_wise`: fanouts count the new nodes of a layer; trimmed models; visits; links. See also `test_ways.py`."""

import torch
from torch_geometric.nn import GraphSAGE

from penstock import LinkNeighborLoader, NeighborLoader
from penstock.cache.presample import presample_visits
from penstock.records import EDGE
from tests.feed.inputs import digests, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[40, 20], batch_size=32, seed=5, layer_wise=True)


def test_fanouts_are_of_layers():
    for batch in NeighborLoader(homogeneous_data(), **OPTIONS):
        assert batch.num_sampled_nodes == [batch.batch_size, 40, 20]


def test_with_room_for_all_it_is_all_neighbours():
    data = typed_data()
    options = dict(input_nodes=("paper", data["paper"].train_mask), batch_size=40, seed=0, layer_wise=True)
    whole = digests(NeighborLoader(data, [-1, -1], **options))
    assert digests(NeighborLoader(data, [10_000, 10_000], **options)) == whole
    assert digests(NeighborLoader(data, [-1, -1], **{**options, "layer_wise": False})) == whole


def test_a_trimmed_model_computes_the_same():
    data = homogeneous_data()
    model = GraphSAGE(data.x.shape[1], 8, num_layers=2).eval()
    for batch in NeighborLoader(data, **OPTIONS):
        hops = dict(num_sampled_nodes_per_hop=batch.num_sampled_nodes, num_sampled_edges_per_hop=batch.num_sampled_edges)
        whole, trimmed = model(batch.x, batch.edge_index), model(batch.x, batch.edge_index, **hops)
        assert torch.allclose(whole[: batch.batch_size], trimmed[: batch.batch_size], atol=1e-5)


def test_visits_of_lists_that_give_nothing():
    """They are read too, so they count where lists are to be kept."""
    batches = NeighborLoader(homogeneous_data(), **OPTIONS).engine.maker.batches
    visits = presample_visits(batches).lists[EDGE]
    assert visits.sum() == len(batches.seeds) + 40 * batches.num_batches


def test_links():
    data = homogeneous_data()
    options = dict(num_neighbors=[40, 20], batch_size=100, neg_sampling="binary", exclude_links="self", seed=1)
    for one, other in zip(*(LinkNeighborLoader(data, **options, layer_wise=layer_wise) for layer_wise in (True, False)), strict=True):
        assert one.num_sampled_nodes == [other.num_sampled_nodes[0], 40, 20]
