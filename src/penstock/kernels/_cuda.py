"""Calls to the CUDA driver: host memory that a device reads, graphs of kernels, streams. Nothing is imported from CUDA.

These calls go to the driver's library, not to the runtime: an error there is not left behind for torch to find at its next launch.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from penstock.errors import TierError

if TYPE_CHECKING:
    import torch

PORTABLE, MAPPED, READ_ONLY = 1, 2, 8
_DEVICE_POINTER, _RANGE_START, _RANGE_SIZE = 3, 11, 12  # CU_POINTER_ATTRIBUTE_DEVICE_POINTER, _RANGE_START_ADDR, _RANGE_SIZE
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_NUM_STREAMS = 32
"""Streams of a device and a priority that torch has. It gives them out in turn: the 33rd is the first one again."""
_own_streams: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Handle -> stream, from `own_stream`, while somebody has it."""


@functools.cache
def driver() -> Any:
    """The driver's library; OSError if there is none."""
    library = ctypes.CDLL("libcuda.so.1")
    library.cuMemHostRegister_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    library.cuMemHostUnregister.argtypes = library.cuMemFreeHost.argtypes = [ctypes.c_void_p]
    library.cuMemHostAlloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    library.cuPointerGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    library.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    return library


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, the first version: a launch as a node of a graph."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("parameters", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
    )


@functools.cache
def graphs() -> Any:
    """The driver's library, with the signatures of the graph functions set; AttributeError if it is too old to have them."""
    library, pointer = driver(), ctypes.c_void_p
    library.cuFuncGetParamInfo.argtypes = [pointer, ctypes.c_size_t, pointer, pointer]
    library.cuGraphCreate.argtypes = [pointer, ctypes.c_uint]
    library.cuGraphAddKernelNode.argtypes = [pointer, pointer, pointer, ctypes.c_size_t, pointer]
    library.cuGraphInstantiateWithFlags.argtypes = [pointer, pointer, ctypes.c_ulonglong]
    library.cuGraphLaunch.argtypes = [pointer, pointer]
    library.cuGraphDestroy.argtypes = library.cuGraphExecDestroy.argtypes = [pointer]
    return library


def parameter_sizes(function: int) -> list[int]:
    """Bytes of each parameter of a loaded kernel."""
    sizes, offset, size = [], ctypes.c_size_t(), ctypes.c_size_t()
    while graphs().cuFuncGetParamInfo(function, len(sizes), ctypes.byref(offset), ctypes.byref(size)) == 0:
        sizes.append(size.value)
    return sizes


def make_graph(nodes: Sequence[KernelNode]) -> ctypes.c_void_p:
    """Make a graph that runs kernels one after another, on the device whose context is current. Their parameters are copied.

    Raises:
        TierError: the driver refuses.
    """
    library, graph, made, before = graphs(), ctypes.c_void_p(), ctypes.c_void_p(), None
    check(library.cuGraphCreate(ctypes.byref(graph), 0))
    try:
        for each in nodes:
            node = ctypes.c_void_p()
            after = None if before is None else ctypes.byref(before)
            check(library.cuGraphAddKernelNode(ctypes.byref(node), graph, after, int(before is not None), ctypes.byref(each)))
            before = node
        check(library.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, 0))
    finally:
        library.cuGraphDestroy(graph)
    return made


def check(code: int) -> None:
    """Raise TierError with the driver's message if `code` is an error."""
    if (error := _error(code)) is not None:
        raise TierError(error)


def make_current(device: torch.device) -> None:
    """Make torch's context on a device current in this thread; the driver's calls need one."""
    import torch

    with torch.cuda.device(device):
        torch.zeros(1, device=device)


def identity(device: torch.device) -> str | None:
    """Return an identity of a device that is the same in all processes; None for the CPU, and for a device that is not visible here."""
    import torch

    if device.type != "cuda" or device.index >= torch.cuda.device_count():
        return None
    return str(torch.cuda.get_device_properties(device).uuid)


def own_stream(device: torch.device, priority: int = 0) -> torch.cuda.Stream:
    """Return a stream that no other caller of this function has, as long as torch has one left.

    On one stream, two loaders only wait for each other. But a step that is recorded on the stream of a loader would have the loader's work
    in its recording.
    """
    import torch

    stream = torch.cuda.Stream(device, priority=priority)
    for _ in range(_NUM_STREAMS):
        if stream.cuda_stream not in _own_streams:
            break
        stream = torch.cuda.Stream(device, priority=priority)
    _own_streams[stream.cuda_stream] = stream
    return stream


@contextmanager
def _on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    import torch

    with torch.cuda.device(stream.device_index), torch.cuda.stream(stream):
        yield


def on_stream(stream: torch.cuda.Stream | None) -> AbstractContextManager[None]:
    """Within, this thread's work for a device goes to `stream`; None: no change.

    The device of the stream is made current first: at the end, torch returns to the device that was current, in a new thread the first one,
    and allocates a context there if the process has none. For None, torch would look for a device.
    """
    return nullcontext() if stream is None else _on_stream(stream)


def register(address: int, num_bytes: int, flags: int) -> str | None:
    """Pin host pages and map them for the devices. Returns None, or why the driver refuses."""
    return _error(driver().cuMemHostRegister_v2(address, num_bytes, flags))


def is_registered(address: int, num_bytes: int) -> bool:
    """Whether all of some host memory is already pinned or registered; torch's `is_pinned` checks the first byte only."""
    start, size = ctypes.c_uint64(), ctypes.c_uint64()
    for found, what in ((start, _RANGE_START), (size, _RANGE_SIZE)):
        if driver().cuPointerGetAttribute(ctypes.addressof(found), what, address) != 0:
            return False
    return start.value <= address and address + num_bytes <= start.value + size.value


def wait(device: torch.device) -> None:
    """Wait until a device has done all its work."""
    import torch

    torch.cuda.synchronize(device)


def unregister(address: int, device: torch.device) -> None:
    """Undo `register`, after the device has done all its work: it might be reading there."""
    wait(device)
    driver().cuMemHostUnregister(address)


def allocate(num_bytes: int, flags: int) -> int | str:
    """Allocate host memory that the devices can read. Returns its address, or why the driver refuses."""
    address = ctypes.c_void_p()
    refused = _error(driver().cuMemHostAlloc(ctypes.byref(address), num_bytes, flags))
    return refused or address.value or "the driver gives no memory"


def free(address: int, device: torch.device) -> None:
    """Undo `allocate`, after the device has done all its work."""
    wait(device)
    driver().cuMemFreeHost(address)


def device_address(tensor: torch.Tensor, device: torch.device) -> int:
    """The address at which a device finds the first byte of a tensor: one of its own, or a pinned or registered one of the host.

    Raises:
        TierError: the device cannot read it.
    """
    address = tensor.data_ptr()
    if tensor.device == device or tensor.numel() == 0:  # under the interpreter, the device is the CPU
        return address
    found = ctypes.c_uint64()
    code = driver().cuPointerGetAttribute(ctypes.addressof(found), _DEVICE_POINTER, address)
    if code == _NO_CONTEXT:  # a new thread that has not used the device yet
        make_current(device)
        code = driver().cuPointerGetAttribute(ctypes.addressof(found), _DEVICE_POINTER, address)
    error = _error(code)
    if error is not None:
        raise TierError(f"{device} cannot read memory of {tensor.device} that is not pinned or registered: {error}")
    return int(found.value)


def _error(code: int) -> str | None:
    if code == 0:
        return None
    text = ctypes.c_char_p()
    driver().cuGetErrorString(code, ctypes.byref(text))
    return (text.value or b"unknown error").decode() + f" (CUDA error {code})"
