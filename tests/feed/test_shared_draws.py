"""`shared_draws`: the same batches from any source, place of lists, thread and rank; state; links; and in training."""

import json

import pytest
import torch

import penstock
from penstock import LinkNeighborLoader, NeighborLoader, Plan
from penstock.errors import StateError
from penstock.feed.factored import FactoredLoader
from penstock.store import ingest
from penstock.train import TrainConfig, train
from tests.feed.inputs import check_homogeneous, check_typed, digests, homogeneous_data, typed_data
from tests.train.stores import make_store

OPTIONS = dict(num_neighbors=[3, 2], batch_size=32, seed=5)


def nodes_and_edges(loader):
    return [(batch.n_id.tolist(), batch.e_id.tolist()) for batch in loader]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_data(num_workers):
    data = homogeneous_data()
    alone = NeighborLoader(data, **OPTIONS)
    found = digests(NeighborLoader(data, **OPTIONS, shared_draws=True))
    for batch, other in zip(NeighborLoader(data, **OPTIONS, shared_draws=True, num_workers=num_workers), alone, strict=True):
        check_homogeneous(batch, data)
        assert batch.num_sampled_edges[0] == other.num_sampled_edges[0]
        assert batch.num_nodes < other.num_nodes
    assert digests(NeighborLoader(data, **OPTIONS, shared_draws=1, num_workers=num_workers)) == found
    assert digests(NeighborLoader(data, **OPTIONS)) == digests(NeighborLoader(data, **OPTIONS, shared_draws=False)) != found


def test_typed_data():
    data = typed_data()
    loader = NeighborLoader(data, [3, 2], input_nodes=("paper", data["paper"].train_mask), batch_size=40, seed=0, shared_draws=2)
    for batch in loader:
        check_typed(batch, data)


def test_batches_of_a_group_take_the_same_neighbours():
    """All nodes of a list that two batches have are the same in both, while the group lasts; ranks share it."""
    data = homogeneous_data()
    seeds = torch.arange(10).repeat(8)
    options = dict(num_neighbors=[4], input_nodes=seeds, batch_size=10, seed=1, shared_draws=4)
    taken = [batch.e_id.tolist() for batch in NeighborLoader(data, **options)]
    assert [taken.index(each) for each in taken] == [0, 0, 0, 0, 4, 4, 4, 4]
    for rank in range(2):
        assert [batch.e_id.tolist() for batch in NeighborLoader(data, **options, rank=rank, num_ranks=2)] == taken[rank::2]


@pytest.mark.parametrize("plan", [None, Plan(policy="presample", cache="20%"), Plan(policy="belady", cache="20%", window=3)], ids=str)
def test_state_at_every_batch(plan):
    data = homogeneous_data()
    options = dict(OPTIONS, shared_draws=3, shuffle=True)
    whole = digests(NeighborLoader(data, **options))
    loader = NeighborLoader(data, **options, plan=plan, num_workers=2)
    iterator = iter(loader)
    for index in range(len(loader)):
        other = NeighborLoader(data, **options)
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert digests(other) == whole[index:]
        next(iterator)
    state = loader.state_dict()
    for shared_draws in (False, True, 2):
        with pytest.raises(StateError, match="shared_draws: 3 then, "):
            NeighborLoader(data, **{**options, "shared_draws": shared_draws}).load_state_dict(state)
    assert "shared_draws" not in NeighborLoader(data, **OPTIONS).state_dict()["configuration"]


@pytest.mark.parametrize(
    "plan",
    [
        Plan(topology="memory"),
        Plan(topology="disk", features="disk"),
        Plan(neighbor_policy="presample", neighbor_cache="30%"),
        Plan(neighbor_policy="ratio", neighbor_cache="30%", neighbor_layout="prefix", topology="disk"),
        Plan(map_threads=2),
        Plan(host_memory="4GiB"),
    ],
    ids=str,
)
def test_where_lists_are_does_not_matter(plan, tmp_path):
    data = homogeneous_data()
    del data.title
    store = ingest(data, tmp_path / "store", memory="4GiB", edge_ids=True)
    expected = nodes_and_edges(NeighborLoader(data, **OPTIONS, shared_draws=2))
    for source in (store, store.path):
        assert nodes_and_edges(NeighborLoader(source, **OPTIONS, shared_draws=2, plan=plan, num_workers=2)) == expected


def test_samplers_as_processes(tmp_path):
    path = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB").path
    options = dict(OPTIONS, input_nodes="train", shared_draws=2)
    with FactoredLoader(path, num_samplers=2, **options) as loader:
        assert digests(loader) == digests(NeighborLoader(path, **options))


def test_padded_batches():
    data = homogeneous_data()
    for plain, padded in zip(*(NeighborLoader(data, **OPTIONS, shared_draws=True, pad=pad) for pad in (False, True)), strict=True):
        assert torch.equal(padded.n_id[padded.pad_node_mask].sort().values, plain.n_id.sort().values)


def test_links():
    data = homogeneous_data()
    options = dict(num_neighbors=[3, 2], batch_size=100, neg_sampling="binary", seed=1)
    alone, shared = (list(LinkNeighborLoader(data, **options, shared_draws=shared_draws)) for shared_draws in (False, True))
    for one, other in zip(shared, alone, strict=True):
        assert torch.equal(one.edge_label, other.edge_label)
        assert one.num_nodes <= other.num_nodes
    assert sum(batch.num_nodes for batch in shared) < sum(batch.num_nodes for batch in alone)


def test_training(tmp_path):
    """By the option of `penstock train`: other weights, the same again."""
    store = make_store(tmp_path / "store")
    configs = [TrainConfig(store=str(store.path), num_neighbors=(3, 2), batch_size=32, epochs=1, shared_draws=k) for k in (0, 2, 2)]
    alone, shared, again = (train(config, tmp_path / f"run-{number}").weights_digest for number, config in enumerate(configs))
    assert alone != shared == again


def test_a_batch_again():
    loader = NeighborLoader(homogeneous_data(), **OPTIONS, shared_draws=3)
    assert [penstock.digest(loader(epoch=0, batch=index)) for index in range(len(loader))] == digests(loader)
