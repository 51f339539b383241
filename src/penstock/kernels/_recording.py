"""Launches that are asked for again and again: written down once, then asked for as one, a graph of CUDA's.

In: launches that were made, over memory that stays. Out: the same again, over whatever lies there by then. Invariant: the same kernels in
the same order. In the interpreter, and where the driver refuses, each is launched again by itself.

Nodes are given to the driver one by one, made from what Triton compiled. To capture a stream, as torch does, would be shorter, and is
nothing for a thread beside the user's: while a capture lasts, waiting for the device is an error for all threads, and so are, with torch's
own, random numbers.
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
    """Launches to be made again.

    Args:
        launches: from `penstock.kernels._triton.written_down`, with nothing between them that the last ones depend on.
        device: where they were made.
    Attributes:
        why_not: why the device does not take them as one; None where it does.
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
        """Ask the current stream for all of them. They may be under way still when this is let go: the driver goes on with them."""
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
    """A launch as Triton's launcher makes it: what is passed, and none of the memory that kernels may ask for to work with."""
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
    node.held = held, parameters  # as long as the node
    return node
