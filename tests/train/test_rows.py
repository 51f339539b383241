"""Rows that nodes learn: those of a batch change as torch's SparseAdam has them, and no others."""

from unittest import mock

import numpy as np
import pytest
import torch

from penstock.kernels.update_rows import cpu, reference
from penstock.train.rows import LearntRows, RowAdam, _update_on_device
from tests.graphs import assert_same_bytes


def run(table, optimizer, batches, targets):
    """Steps towards targets, over some rows each."""
    for ids in batches:
        ((table(ids) - targets[ids]) ** 2).sum().backward()
        optimizer.step([table.take_gradient()])


@pytest.fixture
def problem():
    random = np.random.default_rng()
    batches = [torch.from_numpy(random.permutation(50)[: random.integers(0, 30)]) for _ in range(12)]
    return LearntRows(50, 6), batches, torch.randn(50, 6)


def test_steps_are_those_of_torch(problem):
    table, batches, targets = problem
    weight = torch.nn.Parameter(table.weight.clone())
    ours, theirs = RowAdam([table], 0.1, 0.0), torch.optim.SparseAdam([weight], lr=0.1)
    for ids in batches:
        gradient = targets[ids].sign() * (0.5 + torch.rand(ids.numel(), 6))  # not near 0, where what stands beside the root counts
        ours.step([(ids, gradient)])
        weight.grad = torch.sparse_coo_tensor(ids[None], gradient, weight.shape, check_invariants=True)
        theirs.step()
    assert torch.allclose(table.weight, weight, rtol=1e-4, atol=1e-5)


def test_kernels():
    random = np.random.default_rng()
    for width in (1, 7, 16, 100):
        tables = [random.standard_normal((40, width)).astype(np.float32) for _ in range(3)]
        tables[2] **= 2
        ids, gradient = random.permutation(40)[:25], random.standard_normal((25, width)).astype(np.float32)
        numbers = (np.float32(0.1), np.float32(0.001)), np.float32(0.01), np.float32(0.3), np.float32(1e-8)
        ours, expected = ([table.copy() for table in tables] for _ in range(2))
        cpu.update(*ours, ids, gradient, *numbers)
        reference.update(*expected, ids, gradient, *numbers)
        for one, other in zip(ours, expected, strict=True):
            assert_same_bytes(one, other)


def test_a_device_does_the_same(problem):
    table, batches, targets = problem
    other = LearntRows(50, 6)
    other.load_state_dict(table.state_dict())
    for each, kernel in ((table, cpu.update), (other, as_a_device)):
        optimizer = RowAdam([each], 0.1, 0.1)
        with mock.patch("penstock.train.rows.update", side_effect=kernel):
            for ids in batches:
                optimizer.step([(ids, targets[ids].sign() * (1 + targets[ids].abs()))])
    assert torch.allclose(table.weight, other.weight, rtol=1e-4, atol=1e-5)


def as_a_device(*arguments):
    *arrays, _, decay, size, eps = arguments
    _update_on_device(*map(torch.from_numpy, arrays), float(decay), float(size), float(eps))


def test_rows_and_gradients_are_those_of_the_nodes(problem):
    table, _, targets = problem
    ids = torch.randperm(50)[:20]
    rows = table(ids)
    assert torch.equal(rows, table.weight[ids])
    (rows * targets[ids]).sum().backward()
    of_ids, gradient = table.take_gradient()
    assert torch.equal(of_ids, ids)
    assert torch.equal(gradient, targets[ids])


def test_other_rows_stay_as_they_are(problem):
    table, batches, targets = problem
    before, read = table.weight.clone(), torch.cat(batches).unique()
    run(table, RowAdam([table], 0.1, 0.5), batches, targets)
    changed = (table.weight != before).any(dim=1)
    assert changed.nonzero().flatten().tolist() == read.tolist()


def test_rows_decay_when_they_are_read():
    table = LearntRows(3, 2)
    table.weight.fill_(1.0)
    optimizer = RowAdam([table], 0.01, 1.0)
    for _ in range(200):
        optimizer.step([(torch.tensor([1]), torch.zeros(1, 2))])
    assert table.weight[1].abs().max() < 0.3
    assert (table.weight[[0, 2]] == 1).all()


def test_it_goes_on_from_a_state(problem):
    table, batches, targets = problem
    other = LearntRows(50, 6)
    ours, theirs = RowAdam([table], 0.1, 0.1), RowAdam([other], 0.1, 0.1)
    run(table, ours, batches[:5], targets)
    other.load_state_dict(table.state_dict())
    theirs.restore([{name: torch.clone(one) if torch.is_tensor(one) else one for name, one in kept.items()} for kept in ours.state()])
    run(table, ours, batches[5:], targets)
    run(other, theirs, batches[5:], targets)
    assert torch.equal(table.weight, other.weight)


def test_without_a_loss_there_is_nothing_to_learn(problem):
    table, _, _ = problem
    assert table.take_gradient() is None
    with torch.no_grad():
        assert not table(torch.arange(4)).requires_grad
    assert table.take_gradient() is None
    assert table(torch.arange(4)).requires_grad
    assert table.take_gradient() is None, "rows that were read, and no loss came to"
    before, optimizer = table.weight.clone(), RowAdam([table], 0.1, 0.0)
    optimizer.step([None])
    assert torch.equal(table.weight, before)
    assert optimizer.state() == [{}]


@pytest.mark.parametrize("change", ["exp_avg", "exp_avg_sq", "step", "double", "flat", "more", "none"])
def test_a_state_of_something_else_is_refused(change, problem):
    table, batches, targets = problem
    optimizer = RowAdam([table], 0.1, 0.0)
    run(table, optimizer, batches, targets)
    state = optimizer.state()
    if change == "more":
        state = [*state, {}]
    elif change == "none":
        state = []
    elif change == "double":
        state[0]["exp_avg"] = state[0]["exp_avg"].double()
    elif change == "flat":
        state[0]["exp_avg"] = torch.zeros(1).expand(50, 6)
    else:
        state[0][change] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"learnt rows|rows were updated"):
        optimizer.restore(state)
