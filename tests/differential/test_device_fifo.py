"""FIFO as a device decides it, against the policy of the host: changes, and the directory after each, byte for byte. Marked `gpu` it runs
on one."""

import numpy as np
import pytest
import torch

from penstock.cache import FIFO, fifo, fifo_device
from penstock.cache.fifo_device import DeviceFIFO
from penstock.errors import NodeIdError, UsageError
from penstock.kernels.cache_fifo import gpu
from tests.devices import on_device
from tests.graphs import assert_same_bytes


@pytest.fixture
def device(reader):
    return reader


@pytest.fixture
def small_blocks(monkeypatch):
    """Many programs, and tiles, for few ids."""
    monkeypatch.setattr(gpu, "BLOCK", 32)
    monkeypatch.setattr(gpu, "TILE", 16)


def random_batches(random, num_nodes, count):
    """Of distinct ids, of any size: skewed; in a circle, as they come in or from the newest on; and rows that come in between."""
    chances = random.permutation(1.0 / np.arange(1, num_nodes + 1) ** random.choice([0.0, 0.8]))
    for _ in range(count):
        size, first = int(random.integers(0, num_nodes + 1)), int(random.integers(num_nodes))
        circle = (first + np.arange(size)) % num_nodes
        yield [
            random.choice(num_nodes, size, replace=False, p=chances / chances.sum()),
            circle,
            circle[::-1].copy(),
            np.concatenate([circle[::2], random.permutation(circle[1::2])]),
        ][random.integers(4)]


def compare(random, num_nodes, capacity, device, *, num_batches=6, num_filled=0):
    """Ask both for the same."""
    ours, theirs = DeviceFIFO(num_nodes, capacity, device), FIFO(num_nodes, capacity)
    filled = random.permutation(num_nodes)[:num_filled]
    for policy in (ours, theirs):
        policy.fill(filled)
    assert_same_bytes(ours.slots, theirs.slots)
    for ids in random_batches(random, num_nodes, num_batches):
        change, expected = ours.access(ids), theirs.access(ids)
        assert int(ours._state.cursor[1]) <= fifo_device.MAX_NUMBER
        assert_same_bytes(change.hit_slots, expected.hit_slots)
        assert_same_bytes(change.inserted, expected.inserted)
        assert_same_bytes(change.into, expected.into)
        assert_same_bytes(ours.slots, theirs.slots)
    return ours, theirs


@pytest.mark.parametrize("num_nodes", [1, 40, 300])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95, 1.0, 1.2])
@pytest.mark.usefixtures("small_blocks")
def test_same_changes(num_nodes, share, device):
    random = np.random.default_rng([num_nodes, int(100 * share)])
    for num_filled in (0, num_nodes // 3, num_nodes):
        ours, theirs = compare(random, num_nodes, int(share * num_nodes), device, num_filled=num_filled)
        assert_same_bytes(ours._numbers.cpu().numpy(), theirs._directory)


@pytest.mark.parametrize("seed", range(3))
def test_same_changes_in_large_batches(seed, device):
    """By whole blocks and tiles."""
    compare(np.random.default_rng(seed), 4000, [700, 2500, 3900][seed], device, num_batches=4, num_filled=2000)


@pytest.mark.usefixtures("small_blocks")
def test_rows_are_counted_anew(device, monkeypatch):
    """When the host, which only knows how many may have come, says so: at other times than the policy of the host, and nothing differs."""
    random, counted = np.random.default_rng(0), []
    for module in (fifo, fifo_device):
        monkeypatch.setattr(module, "MAX_NUMBER", 100)
    count_anew = gpu.count_anew
    monkeypatch.setattr(gpu, "count_anew", lambda *given: counted.append(given) or count_anew(*given))
    for capacity in (1, 10, 39, 40):
        ours, _ = compare(random, 40, capacity, device, num_batches=30, num_filled=capacity // 2)
        assert int(ours._state.cursor[1]) <= 100
    assert len(counted) > 20


@pytest.mark.parametrize("num_filled", [0, 95])
def test_rows_that_all_come_anew_are_counted_in_time(num_filled, device, monkeypatch):
    """Batch after batch misses whole, in a circle longer than the cache."""
    monkeypatch.setattr(fifo_device, "MAX_NUMBER", 140)
    ours, theirs = DeviceFIFO(200, 95, device), FIFO(200, 95)
    for policy in (ours, theirs):
        policy.fill(np.arange(num_filled))
    for number in range(40):
        ids = (95 + number * 45 + np.arange(45)) % 200
        assert_same_bytes(ours.access(ids).into, theirs.access(ids).into)
        assert int(ours._state.cursor[1]) <= 140


def test_it_is_used_in_every_mode(device, monkeypatch):
    monkeypatch.setattr(fifo_device, "MAX_NUMBER", 30)
    with torch.inference_mode():
        ours = DeviceFIFO(40, 9, device)
    theirs = FIFO(40, 9)
    for ids in (np.arange(20), np.arange(15, 40)):
        assert_same_bytes(ours.access(ids).into, theirs.access(ids).into)


def test_numbers_near_their_end(device):
    """As after billions of rows."""
    ours, theirs, random = DeviceFIFO(300, 200, device), FIFO(300, 200), np.random.default_rng(0)
    far = fifo.MAX_NUMBER - 700
    for policy in (ours, theirs):
        policy.fill(np.arange(200))
    ours._numbers[:200] += far
    ours._state.cursor[1] += far
    ours._most_come += far
    theirs._directory[:200] += far
    theirs._cursor[1] += far
    for ids in random_batches(random, 300, 12):
        change, expected = ours.access(ids), theirs.access(ids)
        for name in ("hit_slots", "inserted", "into"):
            assert_same_bytes(getattr(change, name), getattr(expected, name))
        assert_same_bytes(ours.slots, theirs.slots)
    assert int(ours._state.cursor[1]) < 5000


def test_ids_anywhere_in_memory_and_nothing_beside_them_is_written(device):
    random = np.random.default_rng(0)
    ids = random.permutation(90)
    for first in (0, 1, 3):
        hit_slots, into = torch.full((2, 80), -7, dtype=torch.int32, device=device)
        numbers, state = torch.full((90,), -1, dtype=torch.int32, device=device), gpu.make_state(device)
        gpu.access(on_device(ids, device)[first:][:60], numbers, 70, state, hit_slots[first:][:60], into[first:][:60])
        for found in (hit_slots, into):
            assert (found[:first] == -7).all()
            assert (found[first + 60 :] == -7).all()
        assert (hit_slots[first:][:60] == -1).all()
        assert into[first:][:60].tolist() == list(range(69, 9, -1))
        assert numbers[on_device(ids, device)[first:][:60]].tolist() == list(range(60))
        assert [each.tolist() for each in state] == [[10, 60], [0, 0, 60, 10], [0, 60], [0]]


@pytest.mark.usefixtures("small_blocks")
def test_it_begins_again_in_the_same_memory(device):
    random = np.random.default_rng(0)
    ours, _ = compare(random, 40, 30, device)
    again, theirs = ours.emptied(), FIFO(40, 30)
    assert again._numbers is ours._numbers
    filled = random.permutation(40)
    for policy in (again, theirs):
        policy.fill(filled)
    for ids in random_batches(random, 40, 6):
        assert_same_bytes(again.access(ids).into, theirs.access(ids).into)
        assert_same_bytes(again.slots, theirs.slots)


def test_what_every_policy_refuses(device):
    policy = DeviceFIFO(7, 3, device)
    with pytest.raises(NodeIdError, match=r"ids\[1\] = 7"):
        policy.access(np.array([1, 7]))
    with pytest.raises(UsageError, match="initial content"):
        policy.access(np.array([1])) and policy.fill(np.array([1]))
    with pytest.raises(UsageError, match="capacity"):
        DeviceFIFO(7, -1, device)
    assert (policy.state_bytes, policy.device_bytes) == (0, 28)
    assert DeviceFIFO(0, 5, device).access(np.empty(0, np.int64)).inserted.size == 0
