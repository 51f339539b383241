"""Epochs without a stop between them: the same batches, begun before they are asked for."""

import gc
import threading
import time
import weakref

import pytest
import torch

import penstock
from penstock.errors import PipelineError, UsageError
from penstock.plan import Plan
from tests.faults.test_interrupts import in_child
from tests.feed.inputs import digests, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[3, 2], batch_size=32, shuffle=True, seed=5)
PLANS = [
    None,
    Plan(policy="fifo", cache="20%"),
    Plan(policy="belady", cache="10%", window=3),
    Plan(policy="belady", cache="10%", window=25),  # over two epochs and more
    Plan(policy="belady", cache="5 rows", window=4, hold="ids"),
]


def make(data=None, **options):
    return penstock.NeighborLoader(homogeneous_data() if data is None else data, **{**OPTIONS, **options})


def slow(batch):
    time.sleep(0.02)
    return batch


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_the_same_batches(num_workers, plan):
    plain, loader = make(), make(non_stop=True, num_workers=num_workers, plan=plan)
    streams = set()
    for _ in range(4):
        iterator = iter(loader)
        streams.add(iterator.stream)
        assert digests(iterator) == digests(plain)
        assert next(iterator, None) is None
    assert len(streams) == 1
    assert loader.stats().num_batches == 4 * len(loader)


@pytest.mark.parametrize("num_ranks", [2, 3, 12])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks(num_ranks, drop_last):
    """Some have a batch more than others, and some have none."""
    for rank in range(num_ranks):
        how = dict(rank=rank, num_ranks=num_ranks, drop_last=drop_last and num_ranks < 10)
        plain, loader = make(**how), make(**how, non_stop=True, num_workers=2)
        for _ in range(3):
            assert digests(loader) == digests(plain)


def test_links_and_types():
    how = dict(edge_label_index=("author", "writes", "paper"), neg_sampling="binary", batch_size=100, seed=2, shuffle=True)
    plain = penstock.LinkNeighborLoader(typed_data(), [3, 2], **how)
    loader = penstock.LinkNeighborLoader(typed_data(), [3, 2], **how, non_stop=True, num_workers=2)
    for _ in range(3):
        assert digests(loader) == digests(plain)


@pytest.mark.parametrize("non_stop", [False, True])
def test_the_next_epoch_is_begun_before_it_is_asked_for(non_stop):
    made, enough = [], threading.Event()

    def note(batch):
        made.append(batch.input_id[:1])
        if len(made) > 10:
            enough.set()
        return batch

    loader = make(non_stop=non_stop, num_workers=2, transform=note, filter_per_worker=True)
    assert len(list(loader)) == 10
    assert enough.wait(20 if non_stop else 0.1) == non_stop
    time.sleep(0.1)
    assert len(made) <= 10 + loader.engine.options.max_in_flight
    assert (len(made) > 10) == non_stop


def epochs_of(loader, count):
    return [digests(loader) for _ in range(count)]


def test_left_half_way_and_states():
    epochs = epochs_of(make(), 5)
    loader = make(non_stop=True, num_workers=2)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    state = loader.state_dict()
    assert digests(loader) == epochs[1], "the rest of an epoch that was left does not come"
    assert digests(iterator) == epochs[0][4:], "but to who still has it"
    assert digests(loader) == epochs[2]
    end = loader.state_dict()
    loader.load_state_dict(state)
    assert digests(loader) == epochs[0][4:]
    loader.load_state_dict(end)
    assert digests(loader) == epochs[3]
    other = make(non_stop=True, num_workers=3)
    other.load_state_dict(loader.state_dict())
    assert digests(other) == epochs[4]
    assert digests(loader) == epochs[4]


def test_a_state_does_not_share_the_batches_of_who_goes_on():
    epochs = epochs_of(make(), 2)
    loader = make(non_stop=True, num_workers=2)
    first = iter(loader)
    for _ in range(3):
        next(first)
    loader.load_state_dict(loader.state_dict())
    second = iter(loader)
    assert penstock.digest(next(first)) == epochs[0][3]
    assert digests(second) == epochs[0][3:]
    assert digests(first) == epochs[0][4:]
    assert digests(loader) == epochs[1]


def test_a_transform_that_was_there_for_a_while_only():
    """For an evaluation, say: batches made meanwhile are not those of the next epoch."""
    loader = make(non_stop=True, num_workers=2, filter_per_worker=True, transform=slow)
    list(loader)
    loader.transform = lambda batch: batch.update({"x": batch.x + 1000})
    time.sleep(0.1)
    loader.transform = slow
    assert digests(loader) == epochs_of(make(), 2)[1]


def test_a_loader_that_stops_makes_nothing_ahead():
    for non_stop in (False, 1):
        made = []
        loader = make(non_stop=non_stop, num_workers=2, transform=lambda batch: made.append(0) or batch, filter_per_worker=True)  # noqa: B023
        list(loader)
        time.sleep(0.1)
        assert len(made) == 10


@pytest.mark.parametrize("change", ["in place", "exchanged", "transform"])
def test_what_is_changed_between_epochs_is_seen(change):
    data = homogeneous_data()
    loader = make(data, non_stop=True, num_workers=2, filter_per_worker=True, transform=slow)
    list(loader)
    time.sleep(0.1)  # batches of the next one are there
    if change == "in place":
        data.x += 1000
    elif change == "exchanged":
        data.x = data.x + 1000
    else:
        loader.transform = lambda batch: batch.update({"x": batch.x + 1000})
    for batch in loader:
        assert torch.equal(batch.x[:, 0], batch.n_id + 1000.0)


def test_what_a_plan_keeps_is_not_changed():
    data = homogeneous_data()
    loader = make(data, non_stop=True, num_workers=2, plan=Plan(policy="fifo", cache="20%"))
    list(loader)
    data.x += 1
    with pytest.raises(UsageError, match="x was changed after the loader was made"):
        next(iter(loader))


@pytest.mark.parametrize("failing", [(0, 5), (1, 0), (1, 3)])
def test_what_fails_is_raised_at_its_batch_and_the_next_epoch_is_whole(failing):
    """Whenever it was made."""
    epoch, index = failing
    plain = make()
    first_seeds = [[batch.input_id[0] for batch in plain] for _ in range(2)]
    wrong = first_seeds[epoch][index]

    def fail(batch):
        if wrong == batch.input_id[0]:
            raise ValueError("a transform of the user's")
        return batch

    loader, epochs = make(non_stop=True, num_workers=2, transform=fail, filter_per_worker=True), epochs_of(make(), 3)
    for number in range(epoch):
        assert digests(loader) == epochs[number]
    iterator = iter(loader)
    for _ in range(index):
        next(iterator)
    with pytest.raises(PipelineError, match=f"ValueError in stage transform of batch {index}: a transform of the user's"):
        next(iterator)
    assert next(iterator, None) is None
    assert digests(loader) == epochs[epoch + 1]


def test_a_forked_child_begins_anew():
    loader, epochs = make(non_stop=True, num_workers=2), epochs_of(make(), 2)
    assert digests(loader) == epochs[0]
    assert in_child(lambda: int(digests(loader) != epochs[1])) == 0
    assert digests(loader) == epochs[1]


def test_gradients_that_are_wanted_now():
    """What was made with gradients off is not for a pass with them on."""
    loader = make(non_stop=True, num_workers=2)
    with torch.no_grad():
        first = iter(loader)
        list(first)
    second = iter(loader)
    assert second.stream is not first.stream
    assert digests(second) == epochs_of(make(), 2)[1]
    with torch.no_grad():
        assert iter(loader).stream is not second.stream


@pytest.mark.parametrize("plan", [None, Plan(policy="belady", cache="10%", window=25)], ids=str)
def test_nothing_lives_on_when_the_loader_is_dropped(plan):
    loader = make(non_stop=True, num_workers=2, plan=plan)
    list(loader)
    gone, pool = weakref.ref(loader), weakref.ref(loader.engine.maker.pool)
    before = threading.active_count()
    del loader
    gc.collect()
    for _ in range(100):
        if gone() is None and pool() is None and threading.active_count() < before:
            break
        time.sleep(0.05)
        gc.collect()
    assert gone() is None
    assert pool() is None
    assert threading.active_count() < before


def test_loaders_beside_stop():
    """An evaluation is one pass."""
    loader = make(non_stop=True, num_workers=2)
    beside = loader.beside(torch.arange(50))
    assert len(list(beside)) == 2
    assert beside.engine.running is None


def test_on_a_device(device):
    plan = Plan(device_policy="presample", device_cache="20%")
    plain, loader = make(), make(non_stop=True, device=device, plan=plan)
    for _ in range(3):
        assert digests(loader) == digests(plain)


def test_a_number_of_epochs():
    """Nothing is made in vain after them, and those that follow stop."""
    made, epochs = [], epochs_of(make(), 5)
    loader = make(non_stop=3, num_workers=2, transform=lambda batch: made.append(0) or batch, filter_per_worker=True)
    first = iter(loader)
    assert digests(first) == epochs[0]
    for number in (1, 2):
        following = iter(loader)
        assert digests(following) == epochs[number]
        assert following.stream is first.stream
    time.sleep(0.1)
    assert len(made) == 30
    for number in (3, 4):
        following = iter(loader)
        assert digests(following) == epochs[number]
        assert following.stream is not first.stream
    assert len(made) == 50
    loader.load_state_dict({**loader.state_dict(), "epoch": 1})
    assert epochs_of(loader, 2) == epochs[1:3]
