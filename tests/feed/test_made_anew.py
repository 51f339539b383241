"""Loaders made again and again, by several ranks, and asked for single batches: what PyG's users expect of them, and what they are told."""

import itertools

import torch
from torch.utils.data.distributed import DistributedSampler

import penstock
from penstock.feed import LinkNeighborLoader, NeighborLoader, arguments
from tests.feed.inputs import homogeneous_data


def test_a_loader_that_gives_the_same_batches_again_says_so_once(caplog):
    torch.manual_seed(123_456)
    for _ in range(3):
        NeighborLoader(homogeneous_data(), [3], shuffle=True)
        NeighborLoader(homogeneous_data(), [3])
        NeighborLoader(homogeneous_data(), [3], shuffle=True, seed=5)
        NeighborLoader(homogeneous_data(), [4], shuffle=True)
    for fold in torch.arange(300).split(100):
        NeighborLoader(homogeneous_data(), [3], fold, shuffle=True)
    record, _ = caplog.records  # of fanout 3 and of fanout 4
    assert "by the seed of torch or of its generator, 123456: from epoch 0 on it gives the same batches" in record.getMessage()


def test_loaders_made_anew_over_seeds_in_another_order_are_noticed(caplog):
    """Each begins with the draws of epoch 0; train, val and test, and some folds, are not meant."""
    torch.manual_seed(654_321)
    data, seeds = homogeneous_data(), torch.arange(300)
    for part in seeds.split(60):
        NeighborLoader(data, [2], part)
        NeighborLoader(data, [2], part, seed=3)
    assert not caplog.records
    for links in torch.randint(0, 300, (9, 2, 50)):
        NeighborLoader(data, [2], links.flatten())
    [record] = caplog.records
    assert (
        "6 loaders over the same graph, each of other seeds, draw by the seed of torch or of their generators, 654321"
        in record.getMessage()
    )


def test_ranks_that_load_the_same_seeds_are_noticed(caplog, monkeypatch):
    """As by Lightning, which divides a DataLoader among processes. Parts of each one's own, ranks, and evaluation are not meant."""
    data, store = homogeneous_data(), torch.distributed.HashStore()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)

    def made_by_three(of_rank):
        first = next(arguments._numbers)
        for rank in range(3):
            monkeypatch.setattr(arguments, "_numbers", itertools.count(first))
            monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
            NeighborLoader(data, [2], batch_size=20, seed=rank, **of_rank(rank))
        return [record.getMessage() for record in caplog.records]

    assert not made_by_three(lambda rank: dict(input_nodes=torch.arange(300).chunk(3)[rank], shuffle=True))
    assert not made_by_three(lambda rank: dict(rank=rank, num_ranks=3, shuffle=True))
    assert not made_by_three(lambda rank: {})
    said = made_by_three(lambda rank: dict(shuffle=True))
    assert len(said) == 2
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: None)  # as of MPI
    assert made_by_three(lambda rank: dict(shuffle=True)) == said
    assert all("of 3 load the same seeds, each of them all: give rank= and num_ranks=" in each for each in said)


def test_calls_draw_anew():
    """The n-th one always the same; a batch's draws where its place is said."""

    def calls(**place):
        loader = NeighborLoader(homogeneous_data(), [3, 3], seed=1)
        return [penstock.digest(loader([1, 2, 3], **place)) for _ in range(6)], penstock.digest(loader.beside(torch.arange(9))([1, 2, 3]))

    drawn, beside = calls()
    assert len({*drawn}) == 6
    assert calls() == (drawn, beside)
    assert len({*calls(epoch=0)[0]}) == len({*calls(batch=4)[0]}) == 1


def test_what_a_loader_was_made_of():
    """As PyG's loaders have it."""
    data, sampler = homogeneous_data(), DistributedSampler(range(300), num_replicas=2, rank=0)
    loader = NeighborLoader(data, [2], torch.arange(300), batch_size=50, sampler=sampler, input_id=torch.arange(300))
    first = [batch.input_id.tolist() for batch in loader]
    loader.sampler.set_epoch(1)
    assert [batch.input_id.tolist() for batch in loader] != first
    assert loader.input_nodes.equal(loader.input_id)
    assert (loader.batch_sampler, loader.input_time) == (None, None)
    assert loader.beside(torch.arange(3)).input_nodes.tolist() == [0, 1, 2]
    links = LinkNeighborLoader(data, [2], data.edge_index, neg_sampling="binary")
    assert links.edge_label_index is data.edge_index
    assert links.neg_sampling.is_binary()
    assert links.beside(data.edge_index[:, :4]).edge_label_index.shape == (2, 4)
