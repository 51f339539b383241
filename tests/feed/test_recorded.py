"""A step that is recorded does what the step does. In the interpreter it is called: `-m gpu` records it, on a device or a pretended one."""

import copy
from collections import namedtuple
from contextlib import suppress

import pytest
import torch
from torch.autograd.grad_mode import set_multithreading_enabled
from torch_geometric.nn import GAT, GCN, GATConv, GraphSAGE, SAGEConv

import penstock
from penstock.errors import UsageError
from penstock.feed import RecordedStep
from penstock.kernels import _triton
from tests.feed.inputs import homogeneous_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=30, shuffle=True, seed=3, drop_last=True)


class Training:
    """A model, and a step of it. Attributes: batches, those that Python was run for."""

    def __init__(self, device, make=SAGEConv):
        torch.manual_seed(0)
        self.model = torch.nn.ModuleList([make(2, 8), make(8, 7)]).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True, capturable=device.type == "cuda")
        self.batches = []

    def step(self, batch):
        self.batches.append(batch)
        x = self.rows(batch)[: batch.batch_size]
        loss = torch.nn.functional.cross_entropy(x, batch.y[: batch.batch_size])
        self.optimizer.zero_grad()
        with set_multithreading_enabled(False):  # on a pretended device other threads know nothing of this one's stream
            loss.backward()
        self.optimizer.step()
        return loss, {"logits": x}

    def rows(self, batch):
        x = batch.x / 300
        for number, (conv, layer) in enumerate(zip(self.model, penstock.layers(batch), strict=True)):
            x = conv((x, x[: layer.num_dst]), layer.edge_index, size=(layer.num_src, layer.num_dst))
            x = x.relu() if number == 0 else x
        return x

    def weights(self):
        return [weight.detach().cpu() for weight in self.model.parameters()]


def make_loader(device, **options):
    data, device = homogeneous_data(), device if on_cuda(device) else None
    return penstock.NeighborLoader(data, input_nodes=data.train_mask, device=device, **{**OPTIONS, **options})


def train(device, *, is_recorded, num_epochs=2, make=SAGEConv, kind=Training, **options):
    training, results = kind(_triton.tensor_device(device), make), []
    step = RecordedStep(training.step) if is_recorded else training.step
    loader = make_loader(device, pad=True, **options)
    for _ in range(num_epochs):
        results += [step(batch) for batch in loader]
    return training, step, [(loss.item(), kept["logits"].detach().cpu()) for loss, kept in results]


@pytest.mark.parametrize("is_whole", [True, False])
def test_it_learns_the_same(is_whole, device):
    plain, _, expected = train(device, is_recorded=False, drop_last=is_whole)
    recorded, step, got = train(device, is_recorded=True, drop_last=is_whole)
    for (loss, logits), (other, others) in zip(got, expected, strict=True):
        torch.testing.assert_close((loss, logits), (other, others), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(recorded.weights(), plain.weights(), rtol=1e-4, atol=1e-5)
    if on_cuda(device):
        assert step.num_graphs == 1
        assert len(recorded.batches) == 4 + 2 * (not is_whole)


def attention(num_in, num_out):
    """PyG's, which by itself adds loops."""
    return GATConv(num_in, num_out, add_self_loops=False)


def test_layers_with_attention_are_recorded(device):
    """A softmax over the edges of each node, and many short kernels."""
    (plain, _, expected), (recorded, step, got) = (train(device, is_recorded=each, make=attention) for each in (False, True))
    torch.testing.assert_close([loss for loss, _ in got], [loss for loss, _ in expected], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(recorded.weights(), plain.weights(), rtol=1e-4, atol=1e-5)
    assert step.num_graphs == on_cuda(device)


class TrimmedTraining(Training):
    """Of a model as it is, `model(x, edge_index)`."""

    def __init__(self, device, make):
        super().__init__(device)
        self.model = penstock.trim(make(2, 8, 2, 7)).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True, capturable=device.type == "cuda")

    def rows(self, batch):
        return self.model(batch.x / 300, batch.edge_index)


@pytest.mark.parametrize("make", [GraphSAGE, GCN, GAT])
def test_trimmed_models_are_recorded(make, device):
    (plain, _, expected), (recorded, step, got) = (
        train(device, is_recorded=each, make=make, kind=TrimmedTraining) for each in (False, True)
    )
    torch.testing.assert_close([loss for loss, _ in got], [loss for loss, _ in expected], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(recorded.weights(), plain.weights(), rtol=1e-4, atol=1e-5)
    assert step.num_graphs == on_cuda(device)


def test_other_sizes_are_other_recordings(device):
    training = Training(_triton.tensor_device(device))
    step = RecordedStep(training.step, warm_up=1, max_graphs=2)
    loaders = [make_loader(device, pad=True, batch_size=size) for size in (10, 20, 25)]
    for _ in range(2):
        for loader in loaders:
            for _, batch in zip(range(3), loader, strict=False):
                step(batch)
    if on_cuda(device):
        assert step.num_graphs == 2


def on_cuda(device):
    return _triton.tensor_device(device).type == "cuda"


@pytest.mark.parametrize("kind", ["item", "data"])
def test_what_cannot_be_recorded_is_refused(kind, device):
    training = Training(_triton.tensor_device(device))

    def step(batch):
        loss, _ = training.step(batch)
        return loss.item() if kind == "item" else batch

    recorded, batches = RecordedStep(step, warm_up=1), iter(make_loader(device, pad=True))
    if not on_cuda(device):
        return
    message = {"item": "may not wait for the device", "data": "returns tensors"}[kind]
    if kind == "item":
        recorded(next(batches))
    with pytest.raises(UsageError, match=message):
        recorded(next(batches))


def test_a_mended_step_may_follow(device):
    """A recording that failed leaves torch's allocator and its random numbers as they were."""
    training = Training(_triton.tensor_device(device))

    def step(batch):
        batch.x = torch.nn.functional.dropout(batch.x)
        loss, _ = training.step(batch)
        return loss.item() if is_wrong else loss

    for is_wrong in (True, False):
        recorded, batches = RecordedStep(step, warm_up=1), iter(make_loader(device, pad=True))
        recorded(next(batches))
        if is_wrong and on_cuda(device):
            with pytest.raises(UsageError, match="may not wait for the device"):
                recorded(next(batches))
            torch.cuda.empty_cache()
        else:
            recorded(next(batches))
            assert recorded.num_graphs == on_cuda(device)


def test_a_signal_in_a_recording_that_fails_stays_one(device):
    """Even where the step has swallowed what made the recording fail."""

    def step(batch):
        with suppress(RuntimeError):
            batch.x.sum().item()
        if len(calls) == 1:
            raise KeyboardInterrupt
        calls.append(batch)

    calls, recorded, batches = [], RecordedStep(step, warm_up=1), iter(make_loader(device, pad=True))
    recorded(next(batches))
    with pytest.raises(KeyboardInterrupt):
        recorded(next(batches))
    if on_cuda(device):
        torch.cuda.empty_cache()


def test_errors_of_a_step_are_its_own(device):
    def step(batch):
        raise RuntimeError("mat1 and mat2 shapes")

    recorded, batches = RecordedStep(step, warm_up=1), iter(make_loader(device, pad=True))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            recorded(next(batches))


def test_a_step_may_do_what_it_likes_with_its_batch(device):
    """It has a twin; batches that come later, and the user's, are not it."""
    w = torch.full((2,), 0.5, device=_triton.tensor_device(device))
    Pair = namedtuple("Pair", "total rest")

    def step(batch):
        batch.h = batch.x * 2
        batch.x = torch.relu(batch.x * w)
        labels = batch.y
        del batch.y
        batch.y = labels[: batch.batch_size]
        return Pair(batch.x.sum() + batch.h.sum() + batch.y.sum(), [7, None])

    recorded, kept = RecordedStep(step, warm_up=1), []
    for got, plain in zip(make_loader(device, pad=True), make_loader(device, pad=True), strict=True):
        expected = step(plain)
        x = got.x.clone()
        found = recorded(got)
        assert type(found) is Pair
        torch.testing.assert_close(found.total, expected.total)
        assert found.rest == [7, None]
        if on_cuda(device) and recorded.num_graphs:
            kept.append((got, x))
    assert len(kept) == 2 * on_cuda(device)
    assert all(torch.equal(batch.x, x) for batch, x in kept), "a batch of the user's was written to"


def test_weights_of_layers_outlive_larger_batches(device):
    """`adj_t` without values takes ones that larger batches replace."""
    loaders = [make_loader(device, pad=True, batch_size=size) for size in (10, 50)]

    def step(batch):
        first, _ = penstock.layers(batch)
        return torch.sparse.mm(first.adj_t(), batch.x).sum()

    recorded, small = RecordedStep(step, warm_up=1), list(loaders[0])
    for batch in [*small[:2], *loaders[1], *small[2:]]:
        torch.testing.assert_close(recorded(batch), step(batch))


def test_links_that_are_counted_are_no_other_size(device):
    data, there = homogeneous_data(), device if on_cuda(device) else None
    options = dict(num_neighbors=[3], edge_label_index=data.edge_index[:, :300], batch_size=40, drop_last=True, pad=True, device=there)
    loader = penstock.LinkNeighborLoader(data, neg_sampling="binary", exclude_links="self", shuffle=True, **options)
    recorded = RecordedStep(lambda batch: batch.x.sum() + batch.edge_label.sum(), warm_up=1)
    for batch in loader:
        torch.testing.assert_close(recorded(batch), batch.x.sum() + batch.edge_label.sum())
    assert recorded.num_graphs == on_cuda(device)


def test_each_size_is_told(device):
    """What decides a recording: shapes, dtypes, numbers, hops, and whose they are."""
    if not on_cuda(device):
        return
    step, (batch, *_) = RecordedStep(print), make_loader(device, pad=True)
    forms = {step._form_of(batch)}
    for change in (
        dict(batch_size=29),
        dict(num_sampled_nodes=[1, *batch.num_sampled_nodes[1:]]),
        dict(x=batch.x.double()),
        dict(x=batch.x[:-1]),
        dict(x=batch.x.t().contiguous().t()),
        dict(title="another"),
    ):
        other = copy.copy(batch)
        for name, value in change.items():
            other[name] = value
        forms.add(step._form_of(other))
    assert len(forms) == 7
    assert None not in forms
    same = copy.copy(batch)
    same.x = batch.x.clone()
    assert step._form_of(same) in forms


def test_what_cannot_be_copied_is_said(device, caplog):
    step = RecordedStep(lambda batch: None)
    for batch in make_loader(device, pad=True):
        batch.kept = {"a": 1}
        step(batch)
    assert caplog.text.count("kept of a batch is a dict") == on_cuda(device)


def test_many_sizes_are_said(device, caplog, monkeypatch):
    monkeypatch.setattr("penstock.feed.recorded.MANY", 3)
    step = RecordedStep(lambda batch: None)
    for batch in [*make_loader(device), *make_loader(device, seed=4), *make_loader(device, seed=5)]:
        step(batch)
    if on_cuda(device):
        assert caplog.text.count("pad=True") == 1


def test_on_the_cpu_it_is_called():
    data, batches = homogeneous_data(), []
    step = RecordedStep(lambda batch: batches.append(batch) or {"nodes": batch.num_nodes})
    for batch in penstock.NeighborLoader(data, input_nodes=data.train_mask, **OPTIONS):
        assert step(batch) == {"nodes": batch.num_nodes}
    assert step.num_graphs == 0
    assert len(batches) == 3
    with pytest.raises(UsageError, match="must be a function"):
        RecordedStep("step")
