"""Where the samples of a loader are drawn: by the device that its batches are for, if that can be, else by the CPU.

In: a plan, a sampler, and a device. Out: where the topology is for it, and why. Invariant: samples are the same, bit for bit, wherever they
are drawn. A device reads neighbour lists out of its own memory (GNNLab) or, over the link, out of pinned memory of the host (UVA).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import BudgetError, NotSupportedError, UsageError, argument
from penstock.feed.maker import BatchMaker
from penstock.plan import Plan
from penstock.records import EdgeType
from penstock.sample import NeighborSampler
from penstock.sample.device_graph import TopologyBytes, device_sampler, on_cpu_only, topology_bytes
from penstock.store.budget import format_bytes, parse_bytes
from penstock.store.device_memory import look_at_device_memory
from penstock.store.process_memory import free_bytes, resident_bytes_outside

if TYPE_CHECKING:
    from penstock.sample.device import DeviceSampler

SHARE = 1 / 2
"""Of the device's free memory, for the topology: it is placed at the start, and the model and its batches come after it."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Who draws the samples, and why.

    Attributes:
        topology: where a device that draws them reads neighbour lists: "device" or "pinned"; "host": the CPU draws them.
        why: the reason in a few words, for reports; empty without a device.
    """

    topology: str
    why: str = ""

    @property
    def is_on_device(self) -> bool:
        """Whether a device draws the samples."""
        return self.topology != "host"


class Placement:
    """A graph placed where a device reads it, for samplers of that graph: at the first need, and again only for other kept lists.

    Args:
        device, topology: see `penstock.sample.device_graph.place_graph`.
    """

    def __init__(self, device: torch.device, topology: str) -> None:
        self._device, self._topology = device, topology
        self._before: DeviceSampler | None = None

    def draw(self, sampler: NeighborSampler, kept: Mapping[EdgeType, np.ndarray] | None = None) -> DeviceSampler:
        """Return the device's sampler that draws the samples of `sampler`. `kept`: edge type -> nodes whose lists are on the device."""
        if self._before is not None and not kept:
            return self._before.over(sampler)
        self._before = None  # its memory first
        ours = device_sampler(sampler, self._device, self._topology, kept)
        self._before = None if kept else ours
        return ours


def choose_drawing(plan: Plan, maker: BatchMaker) -> Drawing:
    """Choose as the plan says, or else the first possible of: the device with its own memory, with pinned memory, the CPU.

    Raises:
        NotSupportedError: the plan wants the device to sample what it does not.
        BudgetError: the plan wants lists in the device's memory, where they do not fit.
    """
    device, wanted = maker.delivery.device, plan.device_topology
    if device is None:
        return Drawing("host")
    if wanted == "host":
        return Drawing("host", "by the CPU, as the plan says")
    reason = _reason_for_cpu(plan, maker)
    if reason is not None and wanted is not None:
        raise NotSupportedError(f"{argument('device_topology', wanted)} samples on the device: {reason}; drop one of them")
    if reason is not None:
        return Drawing("host", f"by the CPU: {reason}")
    place = wanted or _first_with_room(plan, maker, device)
    size = format_bytes(_size_of(maker).all)
    if place == "device":
        _check_device(plan, maker, device)
        return Drawing(place, f"by {device}, a topology of {size} in its memory")
    if place == "pinned":
        best = "" if plan.neighbor_policy is None else ", the best lists in its own"
        return Drawing(place, f"by {device}, a topology of {size} in pinned memory{best}")
    return Drawing(place, f"by the CPU: a topology of {size} fits neither {device} nor the free memory of the host")


def _first_with_room(plan: Plan, maker: BatchMaker, device: torch.device) -> str:
    """Where there is room for the lists; with a policy for lists, they are pinned, and the kept ones lie on the device."""
    size = _size_of(maker)
    left = _device_room(device)
    if size.all <= left and plan.neighbor_policy is None:
        return "device"
    room = free_bytes()
    if plan.host_memory is not None:  # half of what a budget leaves
        room = min(room, SHARE * (parse_bytes(plan.host_memory) - resident_bytes_outside(".npy")))
    is_mapped = maker.source.is_mapped  # arrays in memory need no more of it
    return "pinned" if size.offsets <= left and (not is_mapped or size.lists <= room) else "host"


def _size_of(maker: BatchMaker) -> TopologyBytes:
    return topology_bytes(maker.sampler.graph, for_shared_draws=maker.sampler.shared_draws > 0)


def _device_room(device: torch.device) -> float:
    """Memory of the device that the topology may take."""
    return SHARE * look_at_device_memory(device).free


def _check_device(plan: Plan, maker: BatchMaker, device: torch.device) -> None:
    """Raise unless the device takes all lists."""
    named, needed, free = argument("device_topology", "device"), _size_of(maker).all, look_at_device_memory(device).free
    if plan.neighbor_policy is not None:
        raise UsageError(f"{named} has all lists there: take pinned, or leave {argument('neighbor_policy')} out")
    if needed > SHARE * free:
        raise BudgetError(
            f"{named}: a topology of {format_bytes(needed)} is more than {SHARE:.0%} of the {format_bytes(free)} that {device} has free: "
            "take pinned"
        )


def _reason_for_cpu(plan: Plan, maker: BatchMaker) -> str | None:
    """Why a device cannot draw the samples; None where it can."""
    if maker.subgraph_type == SubgraphType.bidirectional:
        return "subgraph_type='bidirectional' is done on the CPU only"
    if maker.transform_output is not None:
        return "transform_sampler_output is called with samples of the CPU only"
    if maker.sampler.graph.is_partitioned:
        return "neighbour lists are with the processes of a partition"
    if not plan.is_sampled_by_device:
        return "no device reads neighbour lists from a disk, a made-up device or threads over maps"
    return on_cpu_only(maker.sampler)
