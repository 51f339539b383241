"""Record kernel launches once, then repeat them all by one CUDA graph launch.

In: launches that were made, on memory that stays in place. Out: the same launches again, on what that memory holds by then. Invariant: the
same kernels in the same order. In the interpreter, and if the driver refuses, the kernels are launched one by one.

The graph is built node by node from Triton's compiled kernels. Capturing a stream, as torch does, would be shorter, but does not suit a
thread beside the user's: during a capture, waiting for the device is an error in all threads, and with torch's capture so are random
numbers.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import NotSupportedError, TierError
from penstock.kernels import _cuda
from penstock.kernels._triton import Launch, launch
from penstock.threads import finalize_here

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("penstock")

_WARP = 32


class Recording:
    """Launches that can be repeated.

    Args:
        launches: from `penstock.kernels._triton.written_down`; no launch may depend on other work done between them.
        device: the device that they ran on.
    Attributes:
        why_not: why they are not one graph launch; None if they are.
    """

    def __init__(self, launches: Sequence[Launch], device: torch.device) -> None:
        self._launches, self._device, self._graph = launches, device, None
        self.why_not: str | None = "kernels are interpreted"
        if device.type == "cuda":
            try:
                self._graph, self.why_not = _make_graph(launches, device), None
                finalize_here(self, _cuda.graphs().cuGraphExecDestroy, self._graph)
            except (NotSupportedError, TierError, AttributeError) as error:
                self.why_not = f"{error}"
                logger.warning("%s launches the kernels of each batch one by one, which keeps the processor busy: %s", device, error)

    def ask(self) -> None:
        """Launch all of them on the current stream. They may still run when this object is deleted; the driver finishes them."""
        if self._graph is None:
            for kernel, _, num_programs, arguments, constants in self._launches:
                launch(kernel, num_programs, self._device, *arguments, **constants)
            return
        import torch

        with torch.cuda.device(self._device.index):
            _cuda.check(_cuda.graphs().cuGraphLaunch(self._graph, torch.cuda.current_stream(self._device.index).cuda_stream))


def _make_graph(launches: Sequence[Launch], device: torch.device) -> ctypes.c_void_p:
    import torch

    with torch.cuda.device(device):
        return _cuda.make_graph([_node(each, device) for each in launches])


def _node(made: Launch, device: torch.device) -> _cuda.KernelNode:
    """A launch as Triton's launcher makes it. Kernels that need scratch memory from the launcher are not supported."""
    compiled, metadata = made.compiled, made.compiled.metadata
    if metadata.num_ctas > 1 or getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "profile_scratch_size", 0):
        raise NotSupportedError(f"kernel {metadata.name} needs clusters, or memory to work with")
    names = made.kernel.arg_names[: len(made.arguments)]
    passed = [each for name, each in zip(names, made.arguments, strict=True) if compiled.src.signature[name] != "constexpr"]
    values = [each if isinstance(each, int) else _cuda.device_address(each, device) for each in passed]
    sizes = _cuda.parameter_sizes(compiled.function)
    if len(sizes) < len(values):
        raise NotSupportedError(f"kernel {metadata.name} takes {len(sizes)} parameters, not {len(values)}")
    values += [0] * (len(sizes) - len(values))
    held = [
        ctypes.create_string_buffer((value % (1 << 8 * size)).to_bytes(size, "little"), size)
        for value, size in zip(values, sizes, strict=True)
    ]
    parameters = (ctypes.c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
    node = _cuda.KernelNode(compiled.function, (made.num_programs, 1, 1), (_WARP * metadata.num_warps, 1, 1), metadata.shared, parameters)
    node.held = held, parameters  # must live as long as the node
    return node
