"""Maps moved into huge pages while they are read: the same bytes at the same place, the same batches; and when nothing is moved."""

import threading
import time

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock.feed import huge_pages as feeding
from penstock.plan import Plan
from penstock.store import huge_pages, ingest
from penstock.store.files import MappedPages
from tests.feed.inputs import digests

NUM_NODES, NUM_EDGES, SEEDS = 200_000, 2_500_000, 640
needs_huge_pages = pytest.mark.skipif(not huge_pages.are_available(), reason="this system gives no huge pages")


@pytest.fixture
def array(tmp_path):
    """An array mapped from a file, which begins and ends in the middle of a huge page."""
    values = np.random.default_rng(0).integers(0, 1 << 62, 5 * huge_pages.HUGE // 8 + 1234)
    np.save(tmp_path / "values.npy", values)
    with open(tmp_path / "values.npy", "rb") as file:
        pages = MappedPages(file.fileno(), 128 + values.nbytes, access=1)
    return np.ndarray(values.shape, values.dtype, pages, 128), values


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    random = np.random.default_rng(1)
    edges = torch.from_numpy(random.integers(0, NUM_NODES, (2, NUM_EDGES)))
    mask = torch.zeros(NUM_NODES, dtype=torch.bool)
    mask[torch.from_numpy(random.permutation(NUM_NODES)[:SEEDS])] = True
    data = Data(x=torch.rand(NUM_NODES, 16), edge_index=edges, train_mask=mask, num_nodes=NUM_NODES)
    return ingest(data, tmp_path_factory.mktemp("huge") / "store", memory="4GiB").path


def make_loader(store, **options):
    return penstock.NeighborLoader(store, [4, 3], input_nodes="train", batch_size=16, shuffle=True, seed=5, num_workers=2, **options)


def settle(loader):
    """Wait for the thread that moves, if there is one."""
    for thread in threading.enumerate():
        if thread.name == "penstock-huge-pages":
            thread.join(60)
    return loader.stats().loaded_bytes


@needs_huge_pages
def test_the_same_bytes_beside_readers(array):
    mapped, values = array
    address, wrong, is_over = mapped.ctypes.data, [], threading.Event()

    def read(seed):
        random = np.random.default_rng(seed)
        while not is_over.is_set():
            rows = random.integers(0, values.size, 10_000)
            if not np.array_equal(mapped[rows], values[rows]):
                wrong.append(seed)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for reader in readers:
        reader.start()
    time.sleep(0.02)
    assert huge_pages.can_move(mapped)
    moved = huge_pages.move_to_huge_pages(mapped)
    is_over.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert moved == 4 * huge_pages.HUGE  # the ends stay
    assert mapped.ctypes.data == address
    assert not mapped.flags.writeable
    assert np.array_equal(mapped, values)
    assert not huge_pages.can_move(mapped)
    assert huge_pages.move_to_huge_pages(mapped) == 0


def test_what_a_driver_knows_is_not_moved(array):
    mapped, _ = array
    huge_pages.keep_in_place(mapped.reshape(-1).view(np.uint8))
    assert not huge_pages.can_move(mapped)
    assert huge_pages.move_to_huge_pages(mapped) == 0
    huge_pages.keep_in_place(np.zeros(3))


def test_what_is_not_wanted_or_refused_stays_a_map(array, monkeypatch):
    mapped, values = array
    assert huge_pages.move_to_huge_pages(mapped, lambda: False) == 0
    mapped.base.is_moved = False
    monkeypatch.setattr(huge_pages, "_replace", lambda *piece: False)
    assert huge_pages.move_to_huge_pages(mapped) == 0
    assert np.array_equal(mapped, values)
    assert not huge_pages.can_move(values)
    assert not huge_pages.can_move(mapped[:100])


@needs_huge_pages
def test_same_batches_while_maps_are_moved(store):
    plain = make_loader(store, plan=Plan(huge_pages=False))
    expected = [digests(plain) for _ in range(2)]
    assert settle(plain) == 0
    loader = make_loader(store)
    assert [digests(loader) for _ in range(2)] == expected
    assert settle(loader) >= 2 * 4 * huge_pages.HUGE  # neighbours and features; row pointers are too small


@needs_huge_pages
def test_it_is_said_that_maps_are_being_moved(store, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(feeding, "move_to_huge_pages", lambda array, goes_on: gate.wait(60) and 1)
    loader = make_loader(store)
    assert loader.is_settled
    digests(loader)
    assert not loader.is_settled
    gate.set()
    settle(loader)
    assert loader.is_settled


@pytest.mark.parametrize("plan", [Plan(features="memory", topology="memory"), Plan(policy="fifo", cache="10%", topology="memory"), "mmap"])
def test_nothing_is_moved_that_is_not_read_as_it_is(store, plan):
    loader = make_loader(store, plan=plan)
    before = loader.stats().loaded_bytes
    digests(loader)
    assert settle(loader) == before


def test_nothing_is_moved_where_memory_is_short(store, monkeypatch):
    monkeypatch.setattr(feeding, "free_bytes", lambda: 8 * 9 * 10**6)
    loader = make_loader(store)
    digests(loader)
    assert settle(loader) == 0


def test_whoever_looks_at_a_few_batches_moves_nothing(store):
    loader = make_loader(store)
    for _ in zip(range(feeding.AFTER_BATCHES - 1), loader, strict=False):
        pass
    assert settle(loader) == 0
