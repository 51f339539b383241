"""Shared by all device kernels: whether Triton is installed, where tensors must be, and launches from any thread.

Nothing is imported before it is needed: `gpu.py` files import Triton at their top, and callers import these files after `tensor_device`.
Invariant: if `TRITON_INTERPRET=1` is set before the first such import, kernels run in Triton's interpreter on CPU tensors; tests without a
device use this.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import NotSupportedError, UsageError, argument

if TYPE_CHECKING:
    import torch

_one_at_a_time = threading.Lock()
"""Serialises launches: the interpreter keeps its state in module globals. On a device a launch takes microseconds, except the first, which
compiles."""

_notes = threading.local()


class Launch(NamedTuple):
    """A launch that was made.

    Attributes:
        kernel: the Triton function. compiled: the compiled kernel; None in the interpreter.
        num_programs, arguments, constants: as given to `launch`.
    """

    kernel: Any
    compiled: Any
    num_programs: int
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


def is_installed() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "on", "true", "yes", "y")


def tensor_device(device: Any = "cuda") -> torch.device:
    """Return the device on which kernels need their tensors: the device that the user named, or the CPU under the interpreter.

    Args:
        device: "cuda", "cuda:1", or a `torch.device`.
    Raises:
        UsageError: `device` is not the name of a device, or this machine has no CUDA device of this number.
        NotSupportedError: the device is not a CUDA device, or kernels cannot run on this machine; the message says what is missing.
    """
    import torch

    try:
        named = torch.device(device)
    except (RuntimeError, TypeError):
        raise UsageError(f"{argument('device')} must be cpu, cuda or cuda:0, cuda:1, ...; got {device!r}") from None
    asked = argument("device", str(device))
    if named.type != "cuda":
        raise NotSupportedError(f"{asked} is not supported: kernels are for cuda, everything else for cpu")
    needs = f"{asked} needs"
    if not is_installed():
        raise NotSupportedError(f"{needs} Triton, which is not installed: pip install 'penstock[gpu]'; or use the CPU")
    if is_interpreted():
        return torch.device("cpu")
    if not torch.backends.cuda.is_built():
        raise NotSupportedError(
            f"{needs} a torch built for CUDA, and this one is {torch.__version__}: see `penstock doctor`, or use the CPU"
        )
    if not torch.cuda.is_available():
        raise NotSupportedError(f"{needs} a GPU, and torch finds none: see `penstock doctor`, or use the CPU")
    if named.index is not None and named.index >= torch.cuda.device_count():
        raise UsageError(f"{asked} is not there: this machine has {torch.cuda.device_count()} of them, from cuda:0")
    return torch.device("cuda", torch.cuda.current_device() if named.index is None else named.index)


def cdiv(count: int, size: int) -> int:
    """Return ceil(count / size). `triton.cdiv`, made for kernels, takes microseconds on the host."""
    return -(-count // size)


def launch(kernel: Any, num_programs: int, device: torch.device, *arguments: Any, **constants: Any) -> None:
    """Run a kernel on `device` (see `tensor_device`), on its current stream; from any thread. With no programs it does nothing."""
    if num_programs < 1:
        return
    with _one_at_a_time:
        if device.type == "cpu":
            compiled = kernel[(num_programs,)](*arguments, **constants)
        else:
            import torch

            # our kernels count and copy; Triton 3.9 warns if `enable_fp_fusion` is not given
            with torch.cuda.device(device.index):
                compiled = kernel[(num_programs,)](*arguments, **constants, enable_fp_fusion=False)
    if (launches := getattr(_notes, "launches", None)) is not None:
        launches.append(Launch(kernel, compiled, num_programs, arguments, constants))


@contextmanager
def written_down() -> Iterator[list[Launch]]:
    """Yield a list that receives this thread's launches within the context."""
    _notes.launches = launches = []
    try:
        yield launches
    finally:
        _notes.launches = None
