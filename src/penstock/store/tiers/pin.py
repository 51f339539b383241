"""Memory of the host that a device reads by itself: registered with its driver where it lies, or copied once.

In: arrays, mapped files among them. Out: tensors over their bytes. Invariants: the device writes nothing there; memory stays what it is,
and registered, until the last tensor over it is gone and the device has done all that was asked of it. Source: UVA.
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
from penstock.store.huge_pages import OwnPages, keep_in_place, own_pages
from penstock.store.process_memory import free_bytes, is_in_heap
from penstock.threads import finalize_here

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Pinned:
    """Memory of the host that a device reads.

    Attributes:
        tensor: uint8 over all of it.
        how: in a few words.
        copied_bytes: memory that it takes beyond what was there.
    """

    tensor: torch.Tensor
    how: str
    copied_bytes: int = 0


class _Bytes:
    """Owner of the memory of a tensor: the array, what else must live as long, and what is to be done when the last view is gone."""

    def __init__(self, array: np.ndarray, on_end: Callable[[], object] | None = None, beside: object = None) -> None:
        self._array, self._beside = array, beside
        self.first, self.end = array.ctypes.data, array.ctypes.data + array.nbytes
        # said to be writable, or torch would warn of every map: kernels only read it
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (array.nbytes,), "data": (array.ctypes.data, False)}
        if on_end is not None:
            finalize_here(self, on_end).atexit = False  # a process that ends needs nothing of it, and a forked one has no device


_registered: weakref.WeakSet[_Bytes] = weakref.WeakSet()
_held: dict[int, int] = {}
"""First byte -> end of what the driver has registered: a while longer than anybody is in `_registered`."""
_registering = threading.Lock()
_PATIENCE_S = 60.0
SAID_BYTES = 1 << 20
"""Of a copy that the user is told of, where the driver refuses what is there."""
OWN_BYTES = 64 << 20
"""Memory from here on has pages to itself, until a training has told malloc to keep what is freed. Smaller pieces share those at their
ends, which are registered as a whole: a copy to or from a device whose memory begins on such a page and goes on beyond it, whoever asks
for it, is an invalid value to the driver."""


def pin(array: np.ndarray, device: torch.device, name: str) -> Pinned:
    """Make an array readable by a device: where it lies if the driver takes it, else in a copy.

    Args:
        array: C-contiguous; kept alive by the result.
        device: from `tensor_device`.
        name: for messages.
    Raises:
        BudgetError: a machine with too little memory for it.
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

    def wait() -> None:  # whoever registered it may let go of it then
        _cuda.wait(device)

    _wait_for_ends(first, end)
    around = [owner for owner in _registered if owner.first < end and first < owner.end]
    if around and around[0].first <= first and end <= around[0].end:  # two loaders over one array: it stays registered for both
        return Pinned(_tensor(_Bytes(array, wait, beside=around[0])), "registered before, read where it lies")
    if not _is_near_ours(first, end) and _cuda.is_registered(first, array.nbytes):
        return Pinned(_tensor(_Bytes(array, wait)), "pinned before")
    kind = "map" if _is_map(array) else "memory"
    if kind == "map":  # anything else has its memory already
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
    """What is tried, one after the other. A driver that wants to write to the pages of a map would have the file written, or is refused."""
    return (_cuda.READ_ONLY, 0) if _is_map(array) or not array.flags.writeable else (0,)


def _space(num_bytes: int, device: torch.device) -> torch.Tensor | str:
    """Memory that a device reads; or why there is none."""
    registered = _register(own_pages(num_bytes), device, 0)
    if not isinstance(registered, str):
        return registered
    given = _cuda.allocate(num_bytes, _cuda.PORTABLE | _cuda.MAPPED)
    if isinstance(given, str):
        return f"{registered}; {given}"
    array = np.ctypeslib.as_array(ctypes.cast(given, ctypes.POINTER(ctypes.c_uint8)), shape=(num_bytes,))
    return _tensor(_Bytes(array, lambda: _cuda.free(given, device)))


def _wait_for_ends(first: int, end: int) -> None:
    """Wait where somebody has let go of this memory, and the driver not yet."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        owned = {owner.first for owner in _registered}
        if not any(at < end and first < over and at not in owned for at, over in list(_held.items())):
            return
        time.sleep(1e-3)


def _is_near_ours(first: int, end: int) -> bool:
    """Whether some of the pages are registered by us, for another array: a driver that rounds to pages calls these bytes registered too."""
    page = mmap.PAGESIZE
    return any(first // page <= (over - 1) // page and at // page <= (end - 1) // page for at, over in list(_held.items()))


def _is_map(array: np.ndarray) -> bool:
    return isinstance(owner := memory_of(array), mmap.mmap) and not isinstance(owner, OwnPages)


def _has_own_pages(array: np.ndarray) -> bool:
    return isinstance(memory_of(array), mmap.mmap) or (array.nbytes >= OWN_BYTES and not is_in_heap(array.ctypes.data))


def _register(array: np.ndarray, device: torch.device, flags: int) -> torch.Tensor | str:
    """A tensor over registered memory, which is let go with its last view; or why the driver refuses."""
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
