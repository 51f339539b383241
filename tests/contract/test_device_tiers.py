"""Tiers that a device reads keep the contract of tiers; what is their own: how memory of the host becomes readable, and updates."""

import ctypes
import gc
import logging
import mmap
import os
import threading
import types
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from penstock.errors import BudgetError, InputError, TierError
from penstock.kernels import _cuda, _triton
from penstock.kernels.region_order import gpu as region_order
from penstock.store.huge_pages import copy_to_own_pages
from penstock.store.tiers import DeviceTier, PinnedTier, pinned
from penstock.store.tiers import pin as pinning
from penstock.store.tiers.host import row_bytes_of
from tests.contract.tiers import POISON, TierContract
from tests.devices import DEVICES


class OnDevice(TierContract):
    num_reads = 4  # the interpreter takes its time

    @pytest.fixture(autouse=True, params=DEVICES)
    def _reader(self, request):
        self.reader = _triton.tensor_device(request.param)

    def empty(self, num_bytes):
        return torch.full((num_bytes,), POISON, dtype=torch.uint8, device=self.reader)

    def as_array(self, out):
        return out.cpu().numpy()

    def submitting(self):
        """On a stream of its own."""
        if self.reader.type == "cpu":
            return nullcontext()
        stream = torch.cuda.Stream(self.reader)
        stream.wait_stream(torch.cuda.current_stream(self.reader))
        return torch.cuda.stream(stream)


class TestPinnedTier(OnDevice):
    def make(self, arrays):
        return PinnedTier(arrays, self.reader)

    def test_it_says_how_it_is_read(self, arrays):
        assert "read by" in self.make(arrays).describe()
        with pytest.raises(InputError, match=r"equally many rows, got \[3, 4\]"):
            self.make([np.zeros(3), np.zeros(4)])
        with pytest.raises(InputError, match="contiguous"):
            self.make([np.zeros((4, 4))[:, ::2]])


class TestSingleNumbersOnTheDevice(OnDevice):
    """Beside rows in memory of the host."""

    def make(self, arrays):
        return PinnedTier(arrays, self.reader, small_bytes=sum(array.nbytes for array in arrays))

    def test_which_lie_there(self):
        labels, rows, mask = np.arange(50), np.arange(100.0).reshape(50, 2), np.arange(50) % 3 == 0
        for small_bytes, on_device in ((0, []), (400, [0]), (449, [0]), (450, [0, 2]), (1 << 20, [0, 2])):
            tier = PinnedTier([labels, rows, mask], self.reader, small_bytes=small_bytes)
            assert tier.device_bytes == sum([400, 800, 50][number] for number in on_device)
            assert [number for number, how in enumerate(tier.how) if "its memory" in how] == on_device
            if self.reader.type == "cuda":
                assert [number for number, buffer in enumerate(tier.buffers) if buffer.is_cuda] == on_device

    def test_their_size_asks_for_no_order(self, monkeypatch):
        monkeypatch.setattr(pinned, "REACH_BYTES", 100)
        monkeypatch.setattr(pinned, "LEAST_ROWS", 2)
        arrays, rows = [np.arange(50), np.zeros((50, 2), np.uint8)], torch.arange(50, device=self.reader)
        assert self.make(arrays).order_of(rows) is None
        assert PinnedTier(arrays, self.reader).order_of(rows) is not None

    def test_pieces(self, monkeypatch):
        monkeypatch.setattr(pinned, "PIECE_BYTES", 64)
        [copied] = self.make([np.arange(50)]).buffers
        assert (copied.cpu().numpy().view(np.int64) == np.arange(50)).all()


class TestPinnedTierByRegion(TestPinnedTier):
    """As a large table is read."""

    @pytest.fixture(autouse=True)
    def _large(self, monkeypatch):
        monkeypatch.setattr(pinned, "REACH_BYTES", 0)
        monkeypatch.setattr(pinned, "LEAST_ROWS", 2)

    def test_rows_that_are_many_and_far_are_read_in_order(self, arrays, monkeypatch):
        tier, rows = self.make(arrays), torch.arange(49, -1, -1, device=self.reader)
        monkeypatch.setattr(region_order, "REGIONS", 8)  # of up to 8 rows
        order = tier.order_of(rows).tolist()
        assert sorted(order) == list(range(50))
        assert [(49 - place) >> 3 for place in order] == sorted(row >> 3 for row in range(50))
        assert tier.order_of(rows[:1]) is None
        assert tier.order_of(rows, 1) is None
        assert tier.order_of(rows, 2) is not None
        monkeypatch.setattr(pinned, "REACH_BYTES", max(array.nbytes for array in arrays))
        assert tier.order_of(rows) is None


class TestPinnedMaps(OnDevice):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def make(self, arrays):
        for number, array in enumerate(arrays):
            np.save(self.folder / f"{number}.npy", array)
        return PinnedTier([np.load(self.folder / f"{number}.npy", mmap_mode="r") for number in range(len(arrays))], self.reader)


class TestDeviceTier(OnDevice):
    @pytest.fixture(autouse=True)
    def _device(self, _reader):
        self.rows_are_on = str(self.reader)

    def make(self, arrays):
        tier = DeviceTier(len(arrays[0]), [row_bytes_of(array) for array in arrays], self.reader, "device")
        for table, array in zip(tier.buffers, arrays, strict=True):
            table.copy_(torch.from_numpy(array.reshape(-1).view(np.uint8)))
        return tier

    def test_write(self, arrays):
        tier = self.make(arrays)
        sources = [torch.from_numpy(array.reshape(-1).view(np.uint8)).to(self.reader) for array in arrays]
        tier.write(np.array([7, 3]), sources, np.array([20, 21]))
        tier.write(torch.tensor([9], device=self.reader), sources, torch.tensor([7], device=self.reader))
        expected = [array.copy() for array in arrays]
        for array, before in zip(expected, arrays, strict=True):
            array[[7, 3, 9]] = before[[20, 21, 7]]
        self.read(tier, expected, np.arange(50), np.arange(50), 50)

    def test_its_memory_is_counted(self, arrays):
        assert self.make(arrays).resident_bytes == sum(array.nbytes for array in arrays)


class Driver:
    """Plays a driver that registers what it is told to."""

    def __init__(self, monkeypatch, refuses):
        self.refuses, self.registered, self.waited = refuses, {}, []
        monkeypatch.setattr(_cuda, "make_current", lambda device: None)
        monkeypatch.setattr(_cuda, "register", self.register)
        monkeypatch.setattr(_cuda, "unregister", lambda address, device: self.registered.pop(address))
        monkeypatch.setattr(_cuda, "wait", self.waited.append)
        monkeypatch.setattr(_cuda, "is_registered", lambda address, num_bytes: False)
        monkeypatch.setattr(pinning, "OWN_BYTES", 0)
        monkeypatch.setattr(pinning, "is_in_heap", lambda address: False)

    def register(self, address, num_bytes, flags):
        if self.refuses(flags):
            return "operation not supported (CUDA error 801)"
        self.registered[address] = num_bytes, flags
        return None


CUDA: Any = torch.device("cuda", 0)


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(600, dtype=np.float32).reshape(100, 6))
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def test_maps_are_registered_read_only_where_they_lie(mapped, monkeypatch):
    driver = Driver(monkeypatch, lambda flags: False)
    found = pinning.pin(mapped, CUDA, "x")
    assert found.how == "registered map, read where it lies"
    assert found.copied_bytes == 0
    assert driver.registered == {mapped.ctypes.data: (2400, 1 | 2 | 8)}
    view = found.tensor[5:]
    del found
    gc.collect()
    assert driver.registered  # as long as anything looks at it
    del view
    gc.collect()
    assert not driver.registered
    owned = np.arange(10)
    assert pinning.pin(owned, CUDA, "x").how == "registered memory, read where it lies"


def test_an_array_is_registered_once_and_as_long_as_anybody_reads_it(monkeypatch):
    driver, array = Driver(monkeypatch, lambda flags: False), np.arange(1000)
    first, second, part = (pinning.pin(one, CUDA, "x") for one in (array, array, array[10:20]))
    assert (second.how, part.how) == ("registered before, read where it lies",) * 2
    assert part.tensor.numpy().tobytes() == array[10:20].tobytes()
    del first, second
    gc.collect()
    assert len(driver.registered) == 1
    whole = np.arange(2000)
    half = pinning.pin(whole[:1000], CUDA, "x")
    assert half.how == "registered memory, read where it lies"
    del part
    gc.collect()
    assert list(driver.registered) == [whole.ctypes.data]


def test_memory_of_others_is_let_go_when_the_device_has_done_with_it(monkeypatch):
    """They may use it again at once."""
    driver, other, array = Driver(monkeypatch, lambda flags: False), torch.device("cuda", 1), np.arange(1000)
    first, second = pinning.pin(array, CUDA, "x"), pinning.pin(array, other, "x")
    del second
    assert driver.waited == [other]
    assert list(driver.registered) == [array.ctypes.data]
    del first
    monkeypatch.setattr(_cuda, "is_registered", lambda address, num_bytes: True)
    found = pinning.pin(array, CUDA, "x")
    assert (found.how, driver.registered, driver.waited) == ("pinned before", {}, [other])
    del found
    assert driver.waited == [other, CUDA]


def test_a_forked_child_lets_go_of_nothing(monkeypatch):
    """It has no device to wait for; torch would raise there."""
    driver = Driver(monkeypatch, lambda flags: False)
    found = pinning.pin(np.arange(1000), CUDA, "x")
    pid = os.fork()
    if pid == 0:
        del found
        os._exit(len(driver.registered))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    del found
    assert not driver.registered


def test_memory_on_a_page_that_is_registered_for_another_array_is_not_pinned(monkeypatch):
    """By a driver that rounds to pages it looks so, and is not for longer than the other array."""
    driver, pages = Driver(monkeypatch, lambda flags: False), np.frombuffer(mmap.mmap(-1, 2 * mmap.PAGESIZE), np.uint8)

    def is_registered(address, num_bytes):
        ends = [(at // mmap.PAGESIZE, (at + size - 1) // mmap.PAGESIZE) for at, (size, _) in driver.registered.items()]
        return any(low <= address // mmap.PAGESIZE and (address + num_bytes - 1) // mmap.PAGESIZE <= high for low, high in ends)

    def register(address, num_bytes, flags):
        return "already registered" if is_registered(address, num_bytes) else driver.register(address, num_bytes, flags)

    monkeypatch.setattr(_cuda, "is_registered", is_registered)
    monkeypatch.setattr(_cuda, "register", register)
    ours, beside, other = pinning.pin(pages[:100], CUDA, "x"), pages[200:300], pages[mmap.PAGESIZE :]
    assert "copied into pinned memory" in pinning.pin(beside, CUDA, "x").how
    driver.registered[other.ctypes.data] = other.size, 0  # by others
    assert pinning.pin(other, CUDA, "x").how == "pinned before"
    assert ours.how == "registered map, read where it lies"


def test_memory_that_is_just_let_go_is_registered_anew(monkeypatch):
    """By another thread, which waits for the device: until it is over, the memory looks pinned, and is not for long."""
    driver, array, began, may_end = Driver(monkeypatch, lambda flags: False), np.arange(1000), threading.Event(), threading.Event()
    monkeypatch.setattr(_cuda, "unregister", lambda address, device: (began.set(), may_end.wait(10), driver.registered.pop(address)))
    monkeypatch.setattr(_cuda, "is_registered", lambda address, num_bytes: address in driver.registered)
    held = [pinning.pin(array, CUDA, "x")]
    ending = threading.Thread(target=held.clear)
    ending.start()
    assert began.wait(10)
    threading.Timer(0.2, may_end.set).start()
    found = pinning.pin(array, CUDA, "x")
    ending.join()
    assert found.how == "registered memory, read where it lies"
    assert list(driver.registered) == [array.ctypes.data]


def test_only_what_is_registered_as_a_whole_is_registered(monkeypatch):
    ranges = {1000: (900, 200)}

    def attribute(found, which, address):
        if address not in ranges:
            return 1
        ctypes.cast(found, ctypes.POINTER(ctypes.c_uint64))[0] = ranges[address][which - 11]
        return 0

    monkeypatch.setattr(_cuda, "driver", lambda: types.SimpleNamespace(cuPointerGetAttribute=attribute))
    assert _cuda.is_registered(1000, 100)
    assert not _cuda.is_registered(1000, 101)
    assert not _cuda.is_registered(2000, 1)


def test_a_refused_map_is_copied_and_said_so(mapped, monkeypatch, caplog):
    asked = []
    driver = Driver(monkeypatch, lambda flags: len(asked) < 2 and not asked.append(flags))
    monkeypatch.setattr(pinning, "SAID_BYTES", 2400)
    with caplog.at_level(logging.WARNING, "penstock"):
        found = pinning.pin(mapped, CUDA, "features")
    assert "features: the map is not registered where it lies (operation not supported" in caplog.text
    assert asked == [1 | 2 | 8, 1 | 2], "read-only first: pages of a file are not to be written"
    assert found.copied_bytes == 2400
    assert "copied into pinned memory" in found.how
    assert found.tensor.numpy().tobytes() == mapped.tobytes()
    assert list(driver.registered) == [found.tensor.data_ptr()]


def test_where_nothing_is_registered_the_driver_gives_memory(mapped, monkeypatch):
    space, freed = np.zeros(2400, np.uint8), []
    Driver(monkeypatch, lambda flags: True)
    monkeypatch.setattr(_cuda, "allocate", lambda num_bytes, flags: space.ctypes.data)
    monkeypatch.setattr(_cuda, "free", lambda address, device: freed.append(address))
    found = pinning.pin(mapped, CUDA, "features")
    assert found.tensor.data_ptr() == space.ctypes.data
    assert space.tobytes() == mapped.tobytes()
    view = found.tensor[5:]
    del found
    assert not freed
    del view
    assert freed == [space.ctypes.data]


@pytest.mark.parametrize("why", ["small", "in the heap"])
def test_what_shares_its_pages_is_copied_without_a_word(why, monkeypatch, caplog):
    """Registered, its pages would make copies of what lies beside it fail."""
    driver, array = Driver(monkeypatch, lambda flags: False), np.arange(1 << 18)
    if why == "small":
        monkeypatch.setattr(pinning, "OWN_BYTES", array.nbytes + 1)
    else:
        monkeypatch.setattr(pinning, "is_in_heap", lambda address: address == array.ctypes.data)
    with caplog.at_level(logging.WARNING, "penstock"):
        found = pinning.pin(array, CUDA, "x")
    assert found.how == "copied into pinned memory, not registered where it lies: its pages hold other memory too"
    assert found.copied_bytes == array.nbytes
    assert found.tensor.numpy().tobytes() == array.tobytes()
    assert list(driver.registered) == [found.tensor.data_ptr()]
    assert found.tensor.data_ptr() % mmap.PAGESIZE == 0
    assert pinning.pin(copy_to_own_pages(array), CUDA, "x").how == "registered memory, read where it lies"
    assert not caplog.text


def test_small_copies_are_not_worth_a_warning(mapped, monkeypatch, caplog):
    asked = []
    Driver(monkeypatch, lambda flags: len(asked) < 2 and not asked.append(flags))
    with caplog.at_level(logging.WARNING, "penstock"):
        assert "copied into pinned memory" in pinning.pin(mapped, CUDA, "features").how
    assert not caplog.text


def test_what_cannot_be_is_refused(mapped, monkeypatch):
    Driver(monkeypatch, lambda flags: True)
    monkeypatch.setattr(_cuda, "allocate", lambda num_bytes, flags: "out of memory (CUDA error 2)")
    with pytest.raises(TierError, match=r"features: the driver registers neither the map \(.*\) nor a copy of 2 KiB .*ulimit -l"):
        pinning.pin(mapped, CUDA, "features")
    monkeypatch.setattr(pinning, "free_bytes", lambda: 1000)
    for array in (mapped, np.array(mapped)):  # a copy would need room too
        with pytest.raises(BudgetError, match=r"features: 2 KiB that the device is to read must stay in memory, and 1000 B are free"):
            pinning.pin(array, CUDA, "features")


def test_what_is_in_memory_needs_no_more_of_it(mapped, monkeypatch):
    Driver(monkeypatch, lambda flags: False)
    monkeypatch.setattr(pinning, "free_bytes", lambda: 1000)
    array = np.array(mapped)
    first, second = (pinning.pin(array, CUDA, "x") for _ in range(2))
    assert (first.how, second.how) == ("registered memory, read where it lies", "registered before, read where it lies")


def test_memory_that_no_device_reads(monkeypatch):
    """What a kernel says of a tensor of the host that is neither pinned nor registered."""

    def attribute(found, which, address):
        return 1

    def text(code, out):
        out._obj.value = b"invalid argument"

    monkeypatch.setattr(_cuda, "driver", lambda: types.SimpleNamespace(cuPointerGetAttribute=attribute, cuGetErrorString=text))
    with pytest.raises(
        TierError, match=r"cuda:0 cannot read memory of cpu that is not pinned or registered: invalid argument \(CUDA error 1\)"
    ):
        _cuda.device_address(torch.zeros(4), CUDA)


def test_a_thread_that_has_asked_nothing_of_the_device_yet(monkeypatch):
    current = []

    def attribute(found, which, address):
        ctypes.cast(found, ctypes.POINTER(ctypes.c_uint64))[0] = address + 7
        return 0 if current else 201

    monkeypatch.setattr(_cuda, "driver", lambda: types.SimpleNamespace(cuPointerGetAttribute=attribute))
    monkeypatch.setattr(_cuda, "make_current", current.append)
    tensor = torch.zeros(4)
    assert _cuda.device_address(tensor, CUDA) == tensor.data_ptr() + 7
    assert current == [CUDA]


def test_a_device_that_is_full(monkeypatch):
    def full(*shape, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(BudgetError, match=r"cache: 98 KiB of rows do not fit on cpu; give a smaller device_cache"):
        DeviceTier(1000, [100], torch.device("cpu"), "cache")
