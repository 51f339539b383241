"""Where the samples of a loader are drawn: by the device that its batches are for, if that can be, else by the CPU.

In: a plan, a sampler, and a device. Out: where the topology is for it, and why. Invariant: samples are the same, bit for bit, wherever they
are drawn. A device reads neighbour lists out of its own memory (GNNLab) or, over the link, out of pinned memory of the host (UVA).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import BudgetError, NotSupportedError, UsageError, argument
from penstock.feed.maker import BatchMaker
from penstock.plan import Plan
from penstock.records import EdgeType
from penstock.sample.device_graph import on_cpu_only, place_graph, topology_bytes
from penstock.store.budget import format_bytes
from penstock.store.device_memory import look_at_device_memory

SHARE = 1 / 2
"""Of the device's free memory, for the topology: it is placed at the start, and the model and its batches come after it."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Who draws samples.

    Attributes:
        topology: where the device that draws them reads neighbour lists, "device" or "pinned"; "host": the CPU draws them.
        why: in a few words, for reports; empty where there is no device.
    """

    topology: str
    why: str = ""

    @property
    def is_on_device(self) -> bool:
        """Whether a device draws the samples."""
        return self.topology != "host"


def choose_drawing(plan: Plan, maker: BatchMaker) -> Drawing:
    """Choose for a plan: what it says, or the first that can be of the device's memory, pinned memory, and the CPU.

    Raises:
        NotSupportedError: the plan wants the device to sample what it does not.
        BudgetError: the plan wants lists in the device's memory, where they do not fit.
    """
    device, wanted = maker.stage.device, plan.device_topology
    if device is None:
        return Drawing("host")
    if wanted == "host":
        return Drawing("host", "by the CPU, as the plan says")
    reason = _reason_for_cpu(plan, maker)
    if reason is not None and wanted is not None:
        raise NotSupportedError(f"{argument('device_topology', wanted)} samples on the device: {reason}; drop one of them")
    if reason is not None:
        return Drawing("host", f"by the CPU: {reason}")
    if plan.neighbor_policy is not None:
        if wanted == "device":
            raise UsageError(
                f"{argument('device_topology', wanted)} has all lists there: take pinned, or leave {argument('neighbor_policy')} out"
            )
        return Drawing("pinned", f"by {device}, the best lists in its memory, all of them in pinned memory")
    needed, left = sum(topology_bytes(maker.sampler.graph)), look_at_device_memory(device).free
    fits = needed <= SHARE * left
    if wanted == "device" and not fits:
        raise BudgetError(
            f"{argument('device_topology', wanted)}: a topology of {format_bytes(needed)} is more than {SHARE:.0%} of the "
            f"{format_bytes(left)} that {device} has free: take pinned"
        )
    size = format_bytes(needed)
    if wanted == "pinned" or not fits:
        return Drawing("pinned", f"by {device}, a topology of {size} in pinned memory")
    return Drawing("device", f"by {device}, a topology of {size} in its memory")


def draw_on_device(maker: BatchMaker, drawing: Drawing, kept: Mapping[EdgeType, np.ndarray]) -> None:
    """Have the device draw the samples of a maker; `kept`: edge type -> nodes whose lists are on the device while the others are pinned."""
    from penstock.sample.device import DeviceSampler

    device, is_prefix = _device_of(maker), drawing.topology == "pinned" and bool(kept)
    placed = place_graph(maker.sampler.graph, device, drawing.topology, kept if is_prefix else None)
    maker.on_device = DeviceSampler(maker.sampler, placed)


def _device_of(maker: BatchMaker) -> torch.device:
    assert maker.stage.device is not None
    return maker.stage.device


def _reason_for_cpu(plan: Plan, maker: BatchMaker) -> str | None:
    """Why a device cannot draw the samples; None where it can."""
    if maker.subgraph_type == SubgraphType.bidirectional:
        return "subgraph_type='bidirectional' is done on the CPU only"
    if maker.transform_output is not None:
        return "transform_sampler_output is called with samples of the CPU only"
    if not plan.is_sampled_by_device:
        return "no device reads neighbour lists from a disk, a made-up device or threads over maps"
    return on_cpu_only(maker.sampler)
