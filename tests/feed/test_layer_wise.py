"""`layer_wise`: the same batches from any source, place of lists, thread and rank; state; links; trimmed models; and in training."""

import json

import pytest
import torch
from torch_geometric.nn import GraphSAGE

import penstock
from penstock import LinkNeighborLoader, NeighborLoader, Plan
from penstock.cache.presample import presample_visits
from penstock.errors import StateError
from penstock.feed.factored import FactoredLoader
from penstock.records import EDGE
from penstock.store import ingest
from penstock.train import TrainConfig, train
from tests.feed.inputs import check_homogeneous, check_typed, digests, homogeneous_data, typed_data
from tests.train.stores import make_store

OPTIONS = dict(num_neighbors=[40, 20], batch_size=32, seed=5, layer_wise=True)


def nodes_and_edges(loader):
    return [(batch.n_id.tolist(), batch.e_id.tolist()) for batch in loader]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_data(num_workers):
    data = homogeneous_data()
    loader = NeighborLoader(data, **OPTIONS, num_workers=num_workers)
    for batch in loader:
        check_homogeneous(batch, data)
        assert batch.num_sampled_nodes == [batch.batch_size, 40, 20]
    found = digests(NeighborLoader(data, **OPTIONS))
    assert digests(NeighborLoader(data, **OPTIONS, num_workers=num_workers)) == found
    assert [penstock.digest(loader(epoch=0, batch=index)) for index in range(len(loader))] == found
    for rank in range(2):
        assert digests(NeighborLoader(data, **OPTIONS, num_workers=num_workers, rank=rank, num_ranks=2)) == found[rank::2]


def test_typed_data():
    data = typed_data()
    options = dict(input_nodes=("paper", data["paper"].train_mask), batch_size=40, seed=0, layer_wise=True)
    for batch in NeighborLoader(data, [30, 20], **options):
        check_typed(batch, data)
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


@pytest.mark.parametrize("plan", [None, Plan(policy="presample", cache="20%"), Plan(policy="belady", cache="20%", window=3)], ids=str)
def test_state_at_every_batch(plan):
    data = homogeneous_data()
    options = dict(OPTIONS, shuffle=True)
    whole = digests(NeighborLoader(data, **options))
    loader = NeighborLoader(data, **options, plan=plan, num_workers=2)
    iterator = iter(loader)
    for index in range(len(loader)):
        other = NeighborLoader(data, **options)
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert digests(other) == whole[index:]
        next(iterator)
    plain = {**options, "layer_wise": False}
    with pytest.raises(StateError, match="layer_wise"):
        NeighborLoader(data, **plain).load_state_dict(loader.state_dict())
    assert "layer_wise" not in NeighborLoader(data, **plain).state_dict()["configuration"]


@pytest.mark.parametrize(
    "plan",
    [
        Plan(topology="memory"),
        Plan(topology="disk", features="disk"),
        Plan(neighbor_policy="presample", neighbor_cache="30%"),
        Plan(neighbor_policy="ratio", neighbor_cache="30%", neighbor_layout="prefix", topology="disk"),
        Plan(host_memory="4GiB"),
    ],
    ids=str,
)
def test_where_lists_are_does_not_matter(plan, tmp_path):
    data = homogeneous_data()
    del data.title
    store = ingest(data, tmp_path / "store", memory="4GiB", edge_ids=True)
    expected = nodes_and_edges(NeighborLoader(data, **OPTIONS))
    assert nodes_and_edges(NeighborLoader(store, **OPTIONS, plan=plan, num_workers=2)) == expected


def test_visits_of_lists_that_give_nothing():
    """They are read too, so they count where lists are to be kept."""
    batches = NeighborLoader(homogeneous_data(), **OPTIONS)._maker.batches
    visits = presample_visits(batches).lists[EDGE]
    assert visits.sum() == len(batches.seeds) + 40 * batches.num_batches


def test_samplers_as_processes(tmp_path):
    path = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB").path
    options = dict(OPTIONS, input_nodes="train")
    with FactoredLoader(path, num_samplers=2, **options) as loader:
        assert digests(loader) == digests(NeighborLoader(path, **options))


def test_padded_batches():
    data = homogeneous_data()
    for plain, padded in zip(*(NeighborLoader(data, **OPTIONS, pad=pad) for pad in (False, True)), strict=True):
        assert torch.equal(padded.n_id[padded.pad_node_mask].sort().values, plain.n_id.sort().values)


def test_links():
    data = homogeneous_data()
    options = dict(num_neighbors=[40, 20], batch_size=100, neg_sampling="binary", exclude_links="self", seed=1)
    for one, other in zip(*(LinkNeighborLoader(data, **options, layer_wise=layer_wise) for layer_wise in (True, False)), strict=True):
        assert torch.equal(one.edge_label, other.edge_label)
        assert one.num_sampled_nodes == [other.num_sampled_nodes[0], 40, 20]


def test_training(tmp_path):
    """By the option of `penstock train`: other weights, the same again."""
    store = make_store(tmp_path / "store")
    configs = [
        TrainConfig(store=str(store.path), num_neighbors=(30, 20), batch_size=32, epochs=1, layer_wise=k) for k in (False, True, True)
    ]
    alone, layered, again = (train(config, tmp_path / f"run-{number}").weights_digest for number, config in enumerate(configs))
    assert alone != layered == again
