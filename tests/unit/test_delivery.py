"""The order of work on a device, by streams that write down what they are asked: events are recorded, waited for, and kept while in use."""

from collections import deque
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data

from penstock.feed.delivery import Delivery, choose_device
from penstock.feed.layers import Layer
from penstock.feed.recorded import RecordedStep
from penstock.feed.subgraph import Subgraph
from penstock.feed.tensors import tensors_of
from penstock.plan import Plan


class Tensor(torch.Tensor):
    """Says to be on a device, and who uses it."""

    is_cuda = True

    def record_stream(self, stream):
        stream.asked.append("in use")


class Stream:
    def __init__(self, device=None, priority=0):
        self.asked, self.priority, self.device_index, self.cuda_stream = [], priority, 0 if device is None else device.index, id(self)

    def record_event(self, event=None):
        self.asked.append("record")
        return f"event after {len(self.asked)}" if event is None else event

    def wait_event(self, event):
        self.asked.append(f"wait for {event}")


@pytest.fixture
def streams(monkeypatch):
    """(the user's stream, the stack of streams that are current)"""
    current, devices = [Stream()], [0]

    @contextmanager
    def use_device(index):
        devices.append(index)
        yield
        devices.pop()

    @contextmanager
    def use(stream):
        assert devices[-1] == stream.device_index, "torch would go back to another device, and make a context there"
        current.append(stream)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device", use_device)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", use)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[-1])
    return current[0], current


def test_a_batch_is_handed_over_in_order(streams):
    user, current = streams
    delivery = Delivery(torch.device("cuda", 0))
    with delivery.working():
        assert current[-1] is delivery._stream
        current[-1].asked.append("gather")
        event = delivery.record()
    assert delivery._stream.asked == ["gather", "record"]
    batch = Data(x=torch.zeros(3).as_subclass(Tensor), y=torch.zeros(3), title="a batch")
    assert delivery.hand_over(batch, event) is batch
    assert user.asked == ["wait for event after 2", "in use"]
    assert batch.title == "a batch"
    made = {"of": [batch.x, "it"]}
    assert delivery.hand_over(made, event) is made
    assert user.asked[2:] == ["wait for event after 2", "in use"]


def test_steps_are_recorded_on_no_stream_of_a_loader(monkeypatch):
    """Torch gives out 32 streams in turn: of a loader that is kept while steps come and go, one after the other, each would come again."""
    turns = {0: count(), -1: count()}

    class InTurn(Stream):
        def __init__(self, device=None, priority=0):
            super().__init__(device, priority)
            self.cuda_stream = (priority + 2) * 1000 + next(turns[priority]) % 32

    monkeypatch.setattr(torch.cuda, "Stream", InTurn)
    loaders, batch = [Delivery(torch.device("cuda", 0)) for _ in range(3)], Data(x=torch.zeros(3))
    theirs = {stream.cuda_stream for each in loaders for stream in (each._stream, each._samples)}
    assert len(theirs) == 6
    steps, recorded = deque(maxlen=20), set()
    for _ in range(100):
        steps.append(step := RecordedStep(print))
        recorded.add(step._stream_of(batch).cuda_stream)
        assert len({each._stream_of(batch).cuda_stream for each in steps}) == len(steps)
    assert not recorded & theirs
    assert len(recorded) == 32 - 3, "streams that are let go are used again"
    more = [Delivery(torch.device("cuda", 0)) for _ in range(40)]  # more than there are share some
    assert len({each._stream.cuda_stream for each in more}) == 32


def test_no_other_device_is_asked(streams):
    """A new thread's device is the first one, whatever the loader's is."""
    _, current = streams
    delivery = Delivery(torch.device("cuda", 1))
    for within in (delivery.working, delivery.drawing):
        with within():
            assert current[-1].device_index == 1


def test_the_way_back_to_the_user(streams):
    user, current = streams
    delivery = Delivery(torch.device("cuda", 0))
    as_user = delivery.calling()
    with delivery.working():
        for _ in range(2):
            with as_user():
                assert current[-1] is user
            assert current[-1] is delivery._stream
    with Delivery().calling()():
        assert current == [user]


def test_samples_go_from_stream_to_stream(streams):
    """Drawn on one, read on another, and delivered to the user's: each waits for the one before, and all are known to the allocator."""
    user, current = streams
    delivery, ids, trees = Delivery(torch.device("cuda", 0)), *(torch.zeros(3).as_subclass(Tensor) for _ in range(2))
    sample = Subgraph({"node": ids}, {}, None, {"node": trees}, is_on_device=True)
    with delivery.drawing():
        assert current[-1] is delivery._samples
        assert delivery._samples.priority < delivery._stream.priority
        drawn = delivery.record()
    with delivery.working():
        delivery.hand_over(sample.tensors(), drawn)
        made = delivery.record()
    delivery.hand_over(Data(n_id=ids), made)
    assert delivery._samples.asked == ["record"]
    assert delivery._stream.asked == ["wait for event after 1", "in use", "in use", "record"]
    assert user.asked == ["wait for event after 4", "in use"]
    with delivery.working():
        delivery.hand_over(sample.tensors(), None)  # drawn by the CPU
    assert delivery._stream.asked[4:] == []


def test_the_user_is_two_steps_ahead_at_most(streams, monkeypatch):
    user, _ = streams
    waited = []

    class Event:
        def __init__(self, blocking):
            self.number = len(user.asked)

        def synchronize(self):
            waited.append((self.number, len(user.asked)))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    delivery = Delivery(torch.device("cuda", 0))
    for _ in range(4):
        delivery.keep_up()
        user.asked.append("step")
    assert user.asked == ["record", "step"] * 4
    assert waited == [(0, 5), (2, 7)], "the third batch waits for what came before the first one, the fourth for the first step"


def test_batches_are_moved_whole(streams, monkeypatch):
    moved = []
    monkeypatch.setattr("penstock.feed.delivery.move_tensor", lambda tensor, device: moved.append(device) or tensor)
    delivery = Delivery(torch.device("cuda", 0))
    delivery.move(Data(x=torch.zeros(3), edge_index=torch.zeros(2, 0), num_sampled_nodes=[1, 2], title="a batch"))
    assert moved == [torch.device("cuda", 0)] * 2


@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu")])
def test_on_the_cpu_nothing_is_done(device):
    delivery = choose_device(device, Plan())
    assert type(delivery) is Delivery
    batch = Data(x=torch.zeros(3))
    with delivery.working():
        assert delivery.hand_over(delivery.move(batch), delivery.record()) is batch
    delivery.keep_up()
    delivery.settle()


@pytest.mark.filterwarnings("ignore:Sparse .* in beta state")
def test_what_a_value_is_made_of():
    """Memory of a batch is known to the allocator by dense tensors only."""
    dense, row_ptr, ids = torch.ones(2, 3), torch.tensor([0, 1]), torch.tensor([4])
    layer = Layer(num_src=5, num_dst=1, row_ptr=row_ptr, sources=ids, edge_index=dense, edge_ids=None)
    found = list(tensors_of({"layers": [layer], "data": Data(x=dense, name="a"), "type": Layer}))
    assert [id(tensor) for tensor in found] == [id(tensor) for tensor in (row_ptr, ids, dense, dense)]
    foreign = SimpleNamespace(storage=SimpleNamespace(_row=None, _rowptr=row_ptr, _col=ids, _value=None, _sparse_sizes=(5, 1)))
    assert [id(tensor) for tensor in tensors_of(Data(adj_t=foreign))] == [id(row_ptr), id(ids)]
    for sparse, parts in ((dense.to_sparse(), 2), (dense.to_sparse_csr(), 3), (dense.to_sparse_csc(), 3), (dense.to_sparse_bsr((2, 3)), 3)):
        found = list(tensors_of(sparse))
        assert [tensor.layout for tensor in found] == [torch.strided] * parts
