"""A step that is recorded does what the step does. In the interpreter it is called: `-m gpu` records it, on a device or a pretended one."""

import pytest
import torch
from torch.autograd.grad_mode import set_multithreading_enabled
from torch_geometric.nn import SAGEConv

import penstock
from penstock.errors import UsageError
from penstock.feed import RecordedStep
from penstock.kernels import _triton
from tests.feed.inputs import homogeneous_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=30, shuffle=True, seed=3, drop_last=True)


class Training:
    """A model, and a step of it. Attributes: batches, those that Python was run for."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.model = torch.nn.ModuleList([SAGEConv(2, 8), SAGEConv(8, 7)]).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, fused=True, capturable=device.type == "cuda")
        self.batches = []

    def step(self, batch):
        self.batches.append(batch)
        x = batch.x / 300
        for number, (conv, layer) in enumerate(zip(self.model, penstock.layers(batch), strict=True)):
            x = conv((x, x[: layer.num_dst]), layer.edge_index)
            x = x.relu() if number == 0 else x
        x = x[: batch.batch_size]
        loss = torch.nn.functional.cross_entropy(x, batch.y[: batch.batch_size])
        self.optimizer.zero_grad()
        with set_multithreading_enabled(False):  # on a pretended device other threads know nothing of this one's stream
            loss.backward()
        self.optimizer.step()
        return loss, {"logits": x}

    def weights(self):
        return [weight.detach().cpu() for weight in self.model.parameters()]


def make_loader(device, **options):
    data, device = homogeneous_data(), device if _triton.tensor_device(device).type == "cuda" else None
    return penstock.NeighborLoader(data, input_nodes=data.train_mask, device=device, **{**OPTIONS, **options})


def train(device, *, is_recorded, num_epochs=2, **options):
    training, results = Training(_triton.tensor_device(device)), []
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
    if _triton.tensor_device(device).type == "cuda":
        assert step.num_graphs == 1
        assert len(recorded.batches) == 4 + 2 * (not is_whole)


def test_other_sizes_are_other_recordings(device):
    training = Training(_triton.tensor_device(device))
    step = RecordedStep(training.step, warm_up=1, max_graphs=2)
    loaders = [make_loader(device, pad=True, batch_size=size) for size in (10, 20, 25)]
    for _ in range(2):
        for loader in loaders:
            for _, batch in zip(range(3), loader, strict=False):
                step(batch)
    if _triton.tensor_device(device).type == "cuda":
        assert step.num_graphs == 2


def test_a_step_that_waits_is_refused(device):
    training = Training(_triton.tensor_device(device))

    def step(batch):
        return training.step(batch)[0].item()

    recorded, batches = RecordedStep(step, warm_up=1), iter(make_loader(device, pad=True))
    recorded(next(batches))
    if _triton.tensor_device(device).type == "cuda":
        with pytest.raises(UsageError, match="may not wait for the device"):
            recorded(next(batches))


def test_many_sizes_are_said(device, caplog, monkeypatch):
    monkeypatch.setattr("penstock.feed.recorded.MANY", 3)
    step = RecordedStep(lambda batch: None)
    for batch in [*make_loader(device), *make_loader(device, seed=4), *make_loader(device, seed=5)]:
        step(batch)
    if _triton.tensor_device(device).type == "cuda":
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
