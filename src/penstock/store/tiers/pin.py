"""Host memory that a device reads directly: registered with its driver in place, or copied once.

In: arrays, also mapped files. Out: tensors over their bytes. Invariants: the device never writes there; the memory stays allocated and
registered until the last tensor over it is gone and the device has finished its work. Source: UVA.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import BudgetError, TierError
from penstock.kernels import _cuda
from penstock.store.budget import format_bytes
from penstock.store.files import memory_of
from penstock.store.huge_pages import keep_in_place, own_pages
from penstock.store.process_memory import free_bytes, is_in_heap
from penstock.store.tiers.host import is_map
from penstock.threads import finalize_here

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Pinned:
    """Host memory that a device reads.

    Attributes:
        tensor: uint8, over all of it.
        how: how it became readable, in a few words.
        copied_bytes: memory of the copy; 0 if it was registered in place.
    """

    tensor: torch.Tensor
    how: str
    copied_bytes: int = 0


class _Bytes:
    """Owner of a tensor's memory: the array, an object that must live as long (`beside`), and an action for when the last view is gone."""

    def __init__(self, array: np.ndarray, on_end: Callable[[], object] | None = None, beside: object = None) -> None:
        self._array, self._beside = array, beside
        self.first, self.end = array.ctypes.data, array.ctypes.data + array.nbytes
        # declared writable, since torch would warn of every read-only map; kernels only read it
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (array.nbytes,), "data": (array.ctypes.data, False)}
        if on_end is not None:
            finalize_here(self, on_end).atexit = False  # not at exit: an ending process does not need it, and a forked one has no device


_registered: weakref.WeakSet[_Bytes] = weakref.WeakSet()
_held: dict[int, int] = {}
"""First byte -> end of memory that the driver has registered; entries stay slightly longer than the owners in `_registered`."""
_registering = threading.Lock()
_PATIENCE_S = 60.0
SAID_BYTES = 1 << 20
"""Smallest copy that causes a warning, made because the driver refuses to register memory in place."""
OWN_BYTES = 64 << 20
"""Allocations from this size on have pages of their own, unless malloc was told to keep freed memory. Smaller ones share their first and
last page with other memory, and these pages are registered as a whole: then any copy to or from a device whose host memory begins on such a
page and continues beyond it fails with "invalid value"."""


def pin(array: np.ndarray, device: torch.device, name: str) -> Pinned:
    """Make an array readable by a device: in place if the driver registers it, else as a copy.

    Args:
        array: C-contiguous; kept alive by the result.
        device: from `tensor_device`.
        name: for messages.
    Raises:
        BudgetError: the machine has too little memory.
        TierError: the driver refuses the copy too.
    """
    if device.type == "cpu" or array.nbytes == 0:
        return Pinned(_tensor(_Bytes(array)), "read where it lies by the interpreter")
    with _registering:
        return _pin(array, device, name)


def _need_room(num_bytes: int, name: str) -> None:
    if num_bytes > free_bytes():
        raise BudgetError(
            f"{name}: {format_bytes(num_bytes)} that the device is to read must stay in memory, and {format_bytes(free_bytes())} are "
            "free: use the CPU, or a machine with more memory"
        )


def _pin(array: np.ndarray, device: torch.device, name: str) -> Pinned:
    _cuda.make_current(device)
    keep_in_place(array)
    first, end = array.ctypes.data, array.ctypes.data + array.nbytes

    def wait() -> None:  # afterwards the owner of the registration may release it
        _cuda.wait(device)

    _wait_for_ends(first, end)
    around = [owner for owner in _registered if owner.first < end and first < owner.end]
    if around and around[0].first <= first and end <= around[0].end:  # two loaders over one array: registered until both are gone
        return Pinned(_tensor(_Bytes(array, wait, beside=around[0])), "registered before, read where it lies")
    if not _is_near_ours(first, end) and _cuda.is_registered(first, array.nbytes):
        return Pinned(_tensor(_Bytes(array, wait)), "pinned before")
    kind = "map" if is_map(array) else "memory"
    if kind == "map":  # other arrays are in memory already
        _need_room(array.nbytes, name)
    refused = "" if kind == "map" or _has_own_pages(array) else "its pages hold other memory too"
    for flags in _flags_for(array) if not refused else ():
        found = _register(array, device, flags)
        if not isinstance(found, str):
            return Pinned(found, f"registered {kind}, read where it lies")
        refused = refused or found
    _need_room(array.nbytes, name)
    copy = _space(array.nbytes, device)
    if isinstance(copy, str):
        raise TierError(
            f"{name}: the driver registers neither the {kind} ({refused}) nor a copy of {format_bytes(array.nbytes)} ({copy}): see "
            "`ulimit -l`, or use the CPU"
        )
    copy.numpy()[:] = array.reshape(-1).view(np.uint8)
    is_said = array.nbytes >= SAID_BYTES and (kind == "map" or _has_own_pages(array))
    logger.log(
        logging.WARNING if is_said else logging.INFO,
        "%s: the %s is not registered where it lies (%s): copied once into %s of pinned memory",
        *(name, kind, refused, format_bytes(array.nbytes)),
    )
    return Pinned(copy, f"copied into pinned memory, not registered where it lies: {refused}", array.nbytes)


def _flags_for(array: np.ndarray) -> Sequence[int]:
    """Return the flags to try in turn. Read-only first: registering pages of a map for writing would write to the file, or be refused."""
    return (_cuda.READ_ONLY, 0) if is_map(array) or not array.flags.writeable else (0,)


def _space(num_bytes: int, device: torch.device) -> torch.Tensor | str:
    """Return new memory that a device can read, or the reason why there is none."""
    registered = _register(own_pages(num_bytes), device, 0)
    if not isinstance(registered, str):
        return registered
    given = _cuda.allocate(num_bytes, _cuda.PORTABLE | _cuda.MAPPED)
    if isinstance(given, str):
        return f"{registered}; {given}"
    array = np.ctypeslib.as_array(ctypes.cast(given, ctypes.POINTER(ctypes.c_uint8)), shape=(num_bytes,))
    return _tensor(_Bytes(array, lambda: _cuda.free(given, device)))


def _wait_for_ends(first: int, end: int) -> None:
    """Wait while this memory was released by its last owner, but is not unregistered yet."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        owned = {owner.first for owner in _registered}
        if not any(at < end and first < over and at not in owned for at, over in list(_held.items())):
            return
        time.sleep(1e-3)


def _is_near_ours(first: int, end: int) -> bool:
    """Whether we registered some of these pages for another array: the driver, which rounds to pages, then reports these bytes as
    registered."""
    page = mmap.PAGESIZE
    return any(first // page <= (over - 1) // page and at // page <= (end - 1) // page for at, over in list(_held.items()))


def _has_own_pages(array: np.ndarray) -> bool:
    return isinstance(memory_of(array), mmap.mmap) or (array.nbytes >= OWN_BYTES and not is_in_heap(array.ctypes.data))


def _register(array: np.ndarray, device: torch.device, flags: int) -> torch.Tensor | str:
    """Register an array; returns a tensor with whose last view it is unregistered, or the reason why the driver refuses."""
    address = array.ctypes.data
    refused = _cuda.register(address, array.nbytes, _cuda.PORTABLE | _cuda.MAPPED | flags)
    if refused is not None:
        return refused

    def end() -> None:
        try:
            _cuda.unregister(address, device)
        finally:
            _held.pop(address, None)

    _held[address] = address + array.nbytes
    owner = _Bytes(array, end)
    _registered.add(owner)
    return _tensor(owner)


def _tensor(owner: _Bytes) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.asarray(owner))
