"""What frameworks do to a loader between epochs: iterators that are asked for and left, samplers that are told of epochs."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils.data import SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from penstock.errors import UsageError
from penstock.feed import LinkNeighborLoader, NeighborLoader
from tests.feed.inputs import digests, homogeneous_data

DATA = homogeneous_data()


def make(**options):
    return NeighborLoader(DATA, **{"num_neighbors": [3, 2], "batch_size": 32, "shuffle": True, "seed": 5, **options})


@pytest.fixture(scope="module")
def epochs():
    loader = make()
    return [digests(loader) for _ in range(6)]


def train(loader, first, last, *, limit=None, state=None):
    """As Lightning does: it looks whether there is an iterator, loads the state of a checkpoint from within an epoch, asks for an iterator
    before it says which epoch it is, and for another one afterwards, unless it is in the midst of one. Returns digests of each epoch."""
    iter(loader)
    if state is not None:
        loader.load_state_dict(state)
    iterator, seen = iter(loader), []
    for epoch in range(first, last):
        if (set_epoch := getattr(loader.sampler, "set_epoch", None)) is not None:
            set_epoch(epoch)
        if epoch > 0 and (state is None or epoch > first):
            iterator = iter(loader)
        seen.append(digests(itertools.islice(iterator, limit)))
    return seen


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("non_stop", [False, True])
def test_an_epoch_is_that_of_who_says_so(epochs, num_workers, non_stop):
    """After a checkpoint from the end of an epoch too, of which the loader is told nothing else."""
    for first in range(5):
        loader = make(num_workers=num_workers, non_stop=non_stop)
        assert train(loader, first, 5) == epochs[first:5]
        assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (5, 0)


def test_a_state_from_within_an_epoch_stays(epochs):
    for delivered in range(1, 10):
        loader = make(num_workers=1)
        states = [loader.state_dict() for _ in itertools.islice(loader, delivered)]
        assert train(make(), 0, 3, state=states[-1]) == [epochs[0][delivered:], *epochs[1:3]]


def test_epochs_that_are_cut_short(epochs):
    """Lightning's limit_train_batches: the last state of an epoch stands in the midst of the loader's."""
    loader = make()
    assert train(loader, 0, 2, limit=4) == [epoch[:4] for epoch in epochs[:2]]
    state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 4)
    assert train(make(), 2, 4, limit=4, state=state) == [epoch[:4] for epoch in epochs[2:4]]


def test_nobody_goes_back(epochs):
    """A second training over the same loader counts from 0 again: it gets other batches."""
    loader = make()
    assert train(loader, 0, 2) == epochs[:2]
    assert train(loader, 0, 2) == epochs[2:4]
    loader.sampler.set_epoch(3)
    assert digests(loader) == epochs[4]


def test_an_iterator_that_nobody_asks_changes_nothing(epochs):
    loader = make()
    iterators = [iter(loader) for _ in range(3)]
    assert loader.state_dict()["epoch"] == 0
    assert digests(iterators[2]) == epochs[0]
    assert [digests(pair) for pair in zip(*zip(loader, iterators[0], strict=True), strict=True)] == epochs[1:3], "side by side"
    iterator = iter(loader)
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "batch": 7})
    assert digests(iterator) == epochs[1][7:]


def test_passes_of_several_threads_are_of_different_epochs(epochs):
    for _ in range(20):
        loader = make()
        with ThreadPoolExecutor(4) as threads:
            assert sorted(threads.map(digests, [iter(loader) for _ in range(4)])) == sorted(epochs[:4])


def test_what_a_pass_begins_with_may_fail_again():
    loader = make(shuffle=False, sampler=(given := [1, 2, -3]))
    iterator = iter(loader)
    with pytest.raises(UsageError, match="position -3 of the seeds was asked for"):
        next(iterator)
    given[2] = 3
    assert next(iter(loader)).input_id.tolist() == [1, 2, 3]


def test_samplers_in_place_of_torchs():
    for loader in (make(), LinkNeighborLoader(DATA, [2], batch_size=100, shuffle=True), make(shuffle=False, order="proximity")):
        for _ in range(2):
            expected = list(loader.sampler)
            assert (len(loader.sampler), sorted(expected)) == (len(loader.dataset), list(range(len(loader.dataset))))
            assert torch.cat([batch.input_id for batch in loader]).tolist() == expected
    unshuffled = make(shuffle=False).sampler
    assert isinstance(unshuffled, SequentialSampler)
    assert list(unshuffled) == list(range(300))
    assert make(shuffle=False, batch_sampler=[[1]], batch_size=1).sampler is None


def test_epochs_that_are_none():
    sampler = make().sampler
    sampler.set_epoch(np.int64(2))
    for wrong in (-1, 1.5, True, None):
        with pytest.raises(UsageError, match="set_epoch takes the number of an epoch, from 0 on; got"):
            sampler.set_epoch(wrong)


def test_a_sampler_of_the_users_that_is_told_after_the_iterator():
    def given():
        return DistributedSampler(range(300), num_replicas=2, rank=1, seed=3)

    loader = make(shuffle=False, sampler=given())
    whole = train(loader, 0, 3)
    assert len({tuple(epoch) for epoch in whole}) == 3
    loader = make(shuffle=False, sampler=given())
    train(loader, 0, 1)
    loader.sampler.set_epoch(1)
    state = [loader.state_dict() for _ in itertools.islice(loader, 3)][-1]
    assert train(make(shuffle=False, sampler=given()), 1, 3, state=state) == [whole[1][3:], whole[2]]
