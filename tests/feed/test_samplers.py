"""Samplers of the user's: each pass reads one once, whatever a plan looks at before, and a state knows what it gave."""

import json

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler

from penstock import Plan
from penstock.errors import StateError, UsageError
from penstock.feed import NeighborLoader
from penstock.order import SequentialOrder
from tests.feed.inputs import check_homogeneous, check_typed, digests, homogeneous_data, typed_data

LOOKS_AHEAD = Plan(policy="belady", cache="10%", window=8, hold="ids")
PLANS = ["gnnlab", "ducati", "bgl", Plan(policy="presample", cache="10%", presample_epochs=3), LOOKS_AHEAD]


class Shuffled:
    """Another permutation at each reading."""

    def __init__(self, num=300):
        self.generator, self.num, self.num_readings = torch.Generator().manual_seed(0), num, 0

    def __len__(self):
        return self.num

    def __iter__(self):
        self.num_readings += 1
        return iter(torch.randperm(self.num, generator=self.generator).tolist())


def make(sampler, **options):
    return NeighborLoader(homogeneous_data(), [3], **{"batch_size": 32, "seed": 0, "sampler": sampler, **options})


def make_in_batches(sampler, **options):
    return make(None, batch_sampler=BatchSampler(sampler, 32, drop_last=False), batch_size=1, **options)


def seeds_of(batches):
    return [seed for batch in batches for seed in batch.input_id.tolist()]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "plan": LOOKS_AHEAD}], ids=["plain", "threads", "ahead"])
def test_passes_that_overlap(options):
    loader = make(RandomSampler(range(300)), **options)
    for first, second in [zip(*zip(iter(loader), iter(loader), strict=True), strict=True)]:
        assert sorted(seeds_of(first)) == sorted(seeds_of(second)) == list(range(300))
    next(iter(loader))  # left early: what was begun for it goes on
    assert sorted(seeds_of(loader)) == list(range(300))


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_batches_do_not_depend_on_the_plan(plan):
    def passes(plan):
        sampler = Shuffled()
        loader = make(sampler, plan=plan)
        seeds = [seeds_of(loader) for _ in range(3)]
        assert sampler.num_readings == 3
        return seeds

    assert passes(plan) == passes(None)


@pytest.mark.parametrize("is_batch_sampler", [False, True])
def test_samplers_that_are_told_of_epochs(is_batch_sampler):
    def passes(plan):
        sampler = DistributedSampler(range(300), num_replicas=2, rank=0, seed=3)
        loader = make_in_batches(sampler, plan=plan) if is_batch_sampler else make(sampler, plan=plan)
        for epoch in (5, 6):
            sampler.set_epoch(epoch)
            yield digests(loader)

    assert list(passes("gnnlab")) == list(passes(None))


@pytest.mark.parametrize("is_batch_sampler", [False, True])
def test_a_state_inside_an_epoch(is_batch_sampler):
    def make_again():
        return make_in_batches(Shuffled()) if is_batch_sampler else make(Shuffled())

    loader = make_again()
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = seeds_of(iterator)
    other = make_again()
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert seeds_of(other) == rest
    seeds = seeds_of(other)
    other.load_state_dict(state)
    for _ in range(2):  # nothing is lost: it stands where it stood
        with pytest.raises(StateError, match="inside epoch 0, and the sampler gives another sequence now"):
            next(iter(other))
        assert other.state_dict() == state
    at_the_end = {**make_again().state_dict(), "epoch": 1}
    other.load_state_dict(at_the_end)  # between epochs, any sequence will do
    assert sorted(seeds_of(other)) == sorted(seeds)


def test_a_sampler_that_ends_early():
    class Short(Shuffled):
        def __len__(self):
            return 400

    with pytest.raises(UsageError, match=r"the sampler ended after 300, fewer than its length: batch 10 is empty \(stage order"):
        list(make(Short()))


def test_a_sampler_whose_length_changes():
    sampler = list(range(80))
    loader = make(sampler)
    assert [len(seeds_of(loader)), len(loader)] == [80, 3]
    sampler += range(80, 300)
    assert sorted(seeds_of(loader)) == list(range(300))
    assert len(loader) == 10
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    state = loader.state_dict()
    assert state["batch"] == 5
    other = make(list(range(80)))  # of another length when the state is taken up
    other.load_state_dict(state)
    assert other.state_dict() == state
    del sampler[100:]
    assert len(seeds_of(loader)) == 100


def test_a_sampler_that_gives_more_than_its_length():
    class Long(Shuffled):
        def __len__(self):
            return 40

    loader = make(Long())
    assert len(loader) == 2
    assert sorted(seeds_of(loader)) == list(range(300))


@pytest.mark.parametrize("plan", [None, "gnnlab"])
@pytest.mark.parametrize("as_sampler", [torch.tensor, np.array, list, iter, lambda given: (each for each in given)])
def test_positions_however_they_come(as_sampler, plan):
    for given in ([5, 4, 3, 3], [0]):
        assert seeds_of(make(as_sampler(given), plan=plan)) == given


def test_an_order_and_a_sampler():
    for options in ({"sampler": range(3)}, {"sampler": None, "batch_sampler": [[1]], "batch_size": 1}):
        with pytest.raises(UsageError, match="order excludes sampler and batch_sampler"):
            make(**{"order": SequentialOrder(300), **options})


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "plan": "gnnlab"}, {"num_workers": 2, "plan": LOOKS_AHEAD}], ids=str)
def test_subgraphs_of_nodes_that_a_sampler_chooses(options):
    """No hops, all edges among the seeds: GraphSAINT's and Cluster-GCN's batches."""
    data, random = homogeneous_data(hub_degree=100), np.random.default_rng(0)
    chosen = [random.choice(300, size, replace=False) for size in (90, 1, 150)]
    loader = NeighborLoader(data, [], batch_sampler=chosen, subgraph_type="induced", seed=0, **options)
    for nodes, batch in zip(chosen, loader, strict=True):
        check_homogeneous(batch, data)
        assert batch.n_id.tolist() == nodes.tolist()
        source, target = data.edge_index
        is_inside = torch.isin(source, batch.n_id) & torch.isin(target, batch.n_id)
        assert sorted(batch.e_id.tolist()) == torch.nonzero(is_inside).view(-1).tolist()
    with pytest.raises(UsageError, match="needs 1 to 16 hops, got 0"):
        NeighborLoader(data, [], batch_sampler=chosen)


def test_typed_subgraphs_of_nodes_that_a_sampler_chooses():
    data, nodes = typed_data(), list(range(0, 500, 3))
    (batch,) = NeighborLoader(data, [], "paper", batch_sampler=[nodes], subgraph_type="induced", seed=0)
    check_typed(batch, data)
    assert batch["paper"].n_id.tolist() == nodes
    assert batch["author"].num_nodes == batch.num_edges == 0
