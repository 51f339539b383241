"""Learnt rows that several processes share: each reads, sends and keeps what one that had all of them would, byte for byte.

Processes are played by threads.
"""

import numpy as np
import pytest
import torch

from penstock.kernels import _triton
from penstock.partition.book import make_book
from penstock.train import rows as learnt
from penstock.train.division import Division
from penstock.train.rows import LearntRows, RowAdam
from penstock.train.shared_rows import SharedRows
from tests.graphs import assert_same_bytes
from tests.partitions import together
from tests.ranks import Meeting, Threads


@pytest.fixture(params=["in turns", "by parts"])
def division(request):
    random = np.random.default_rng()
    num_nodes = int(random.integers(1, 200))
    if request.param == "in turns":
        return Division(num_nodes, random.permutation(random.integers(1, 5)).tolist())
    num_parts, num_turns = random.integers(1, 4, 2).tolist()
    owners = random.integers(0, random.integers(1, num_parts + 1), num_nodes)  # parts may be empty
    return Division(num_nodes, random.permutation(num_parts * num_turns).tolist(), make_book(owners, num_parts))


def test_each_row_is_with_one(division):
    everyone = range(len(division.numbers))
    nodes = [division.nodes_of(number) for number in everyone]
    assert sorted(np.concatenate(nodes).tolist()) == list(range(division.num_nodes))
    for number, its_nodes in zip(everyone, nodes, strict=True):
        assert len(its_nodes) == division.num_rows(number)
        owners, rows = division.find(its_nodes)
        assert (owners == number).all()
        assert rows.tolist() == list(range(len(its_nodes)))
        if division.book is not None:
            assert (division.book.owners(its_nodes) == division.numbers.index(number) % division.book.num_parts).all()


@pytest.mark.parametrize(("num_nodes", "width"), [(1, 1), (3, 5), (40, 7), (500, 3), (194, 3), (640, 4)])
def test_shares_begin_as_all_rows_do(num_nodes, width, monkeypatch):
    monkeypatch.setattr(learnt, "_DRAWN", 64)
    nodes = np.flatnonzero(np.random.default_rng().random(num_nodes) < 0.4)
    torch.manual_seed(7)
    whole, after = LearntRows(num_nodes, width), torch.get_rng_state()
    torch.manual_seed(7)
    share = LearntRows(num_nodes, width, nodes)
    assert torch.equal(share.weight, whole.weight[torch.from_numpy(nodes)])
    assert torch.equal(torch.get_rng_state(), after)


class Steps:
    """What processes do of a random training, and what one does that has all rows."""

    def __init__(self, division):
        random = np.random.default_rng()
        self.division, self.num_ranks, num_nodes = division, len(division.numbers), division.num_nodes
        self.whole = LearntRows(num_nodes, 5)
        self.start = self.whole.weight.clone()
        self.targets = torch.randn(num_nodes, 5)
        self.steps = [
            [
                {
                    "ids": torch.from_numpy(random.permutation(num_nodes)[: random.integers(0, num_nodes + 1)]),
                    "num_seeds": int(random.integers(1, 9)),
                    "is_learnt": bool(random.random() < 0.7),  # or no loss comes to the table
                }
                for _ in range(self.num_ranks)
            ]
            for _ in range(5)
        ]

    def alone(self):
        """Sums over processes in their order, as `ranks.py` had them when each process had all rows."""
        optimizer = RowAdam([self.whole], 0.1, 0.01)
        for step in self.steps:
            total = sum(one["num_seeds"] for one in step)
            gradients = []
            for one in step:
                gradients.append((one["ids"], self._gradient(one, self.whole(one["ids"]))))
                self.whole.take_gradient()
            ids = torch.cat([ids for ids, gradient in gradients if gradient is not None] or [torch.empty(0, dtype=torch.int64)]).unique()
            sums = torch.zeros_like(self.whole.weight)
            for one, (its, gradient) in zip(step, gradients, strict=True):
                if gradient is not None:
                    sums.index_add_(0, its, gradient * one["num_seeds"])
            any_learnt = any(gradient is not None for _, gradient in gradients)
            optimizer.step([(ids, sums[ids] / torch.tensor(float(total))) if any_learnt else None])
        return optimizer.state()[0]

    def shared(self, number, meeting, folder, where):
        """One process; what it has in the end, as whole tables where number 0 is, and as shares that were spread again."""
        ranks = Threads(number, self.num_ranks, meeting)
        nodes = torch.from_numpy(self.division.nodes_of(number))
        table = LearntRows(self.division.num_nodes, 5, nodes.numpy()).to(where)
        with torch.no_grad():
            table.weight.copy_(self.start[nodes])
        targets = self.targets.to(where)
        shared, optimizer = SharedRows(table, self.division, ranks), RowAdam([table], 0.1, 0.01)
        for step in self.steps:
            one = step[number]
            ids, total = one["ids"].to(where), torch.tensor(float(sum(each["num_seeds"] for each in step)), device=where)
            rows = shared.read(ids)
            if one["is_learnt"] and ids.numel():
                ((rows - targets[ids]) ** 2).sum().backward()
            optimizer.step([shared.take_gradient(one["num_seeds"], total)])
            with torch.no_grad():
                assert not shared.read(ids).requires_grad
        tables = {"weight": table.weight.detach(), **{k: v for k, v in optimizer.state()[0].items() if torch.is_tensor(v)}}
        whole = {name: shared.collect(each, folder) for name, each in tables.items()}
        for name, each in tables.items():
            assert torch.equal(shared.spread(whole[name] if number == 0 else None), each.cpu())
        return whole, optimizer.state()[0].get("step"), shared.everywhere()

    def _gradient(self, one, rows):
        if not (one["is_learnt"] and one["ids"].numel()):
            return None
        ((rows - self.targets[one["ids"]]) ** 2).sum().backward()
        return rows.grad


@pytest.mark.parametrize("in_file", [False, True])
def test_all_steps_are_those_of_one_that_has_all_rows(division, in_file, tmp_path, monkeypatch):
    if in_file:
        monkeypatch.setattr("penstock.train.shared_rows._COLLECTED_BYTES", 0)
    monkeypatch.setattr("penstock.train.shared_rows._SLICE_BYTES", 100)
    steps = Steps(division)
    meeting = Meeting(steps.num_ranks)
    with torch.autograd.set_multithreading_enabled(False):
        found = together(steps.num_ranks, lambda number: steps.shared(number, meeting, tmp_path, torch.device("cpu")))
        expected = steps.alone()
    (whole, count, _), *others = found
    assert count == expected.get("step")
    assert {other for _, other, _ in others} <= {count}
    for *_, everywhere in found:
        assert torch.equal(everywhere, steps.whole.weight)
    assert_same_bytes(whole["weight"].numpy(), steps.whole.weight.numpy())
    for name in whole.keys() - {"weight"}:
        assert_same_bytes(whole[name].numpy(), expected[name].numpy())
    for tables, *_ in others:
        assert all(each.shape == (0, 5) for each in tables.values())
    assert list(tmp_path.iterdir()) == []


def test_a_device_does_the_same(division, device, tmp_path):
    """But for the last bits of what is learnt."""
    where, steps = _triton.tensor_device(device), Steps(division)
    meeting = Meeting(steps.num_ranks)
    with torch.autograd.set_multithreading_enabled(False):
        (whole, *_, everywhere), *_ = together(steps.num_ranks, lambda number: steps.shared(number, meeting, tmp_path, where))
        steps.alone()
    assert everywhere.device.type == where.type
    assert torch.equal(everywhere.cpu(), whole["weight"])
    assert torch.allclose(whole["weight"], steps.whole.weight, rtol=1e-3, atol=1e-4)
