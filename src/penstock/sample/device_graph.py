"""Places a graph where a device can read it: in device memory, in pinned host memory, or in pinned host memory with the best lists on the
device.

In: the arrays of a `Graph`. Out: tensors. Invariant: the same neighbours at the same positions in every place.
Source: pinned memory, UVA; a prefix on the device over pinned lists, DUCATI (the layout of `penstock.sample.lists.PrefixLists`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from penstock.errors import UsageError, argument
from penstock.kernels.running_sums.cpu import count_drawable
from penstock.kernels.sample_shared import cpu as shared
from penstock.records import CSC, EdgeType, Graph, index_dtype
from penstock.sample.lists import PrefixLists
from penstock.store.tiers import HostTier
from penstock.store.tiers.pin import pin
from penstock.store.tiers.pinned import copy_to_device

if TYPE_CHECKING:
    from penstock.kernels._device_lists import Kept
    from penstock.kernels.sample_weighted.gpu import Weights
    from penstock.sample.device import DeviceSampler
    from penstock.sample.neighbor import NeighborSampler

MAX_FANOUT_BY_WEIGHT, MAX_FANOUT_SHARED = 1024, 256
"""Largest fanouts on a device; only the CPU draws more. By weight, each draw takes a lane; with shared draws, the neighbours held so far
take registers."""

PLACES = ("device", "pinned")
"""Places of neighbour lists."""


class Times(NamedTuple):
    """Times of edges, see `penstock.records.CSC`. Attributes: times: int32 or int64[num_edges]. by_time: int32 or int64[num_edges], or
    None."""

    times: torch.Tensor
    by_time: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class DeviceCSC:
    """In-neighbour lists of one edge type as tensors that a device reads; see `penstock.records.CSC`.

    Attributes:
        indptr: int64[num_dst + 1]. indices: int32 or int64[num_edges].
        kept: lists kept on the device although `indices` is in host memory; None: no lists.
        edge_ids: int32 or int64[num_edges], the user's numbers of the edges; None: their positions.
        is_far: `indices` is in host memory.
        weights: running sums of weights; None: all edges have the same probability.
        times: times of edges; None: edges have no times.
        repeats: uint8 or wider [num_edges], how often each neighbour came before in its list; None: no neighbour comes twice, or shared
            draws are not used.
    `edge_ids`, the sums of `weights`, `times` and `repeats` are in the same place as `indices`.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    kept: Kept | None = None
    edge_ids: torch.Tensor | None = None
    is_far: bool = False
    weights: Weights | None = None
    times: Times | None = None
    repeats: torch.Tensor | None = None

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.indices.numel()


@dataclass(frozen=True, slots=True)
class DeviceGraph:
    """The topology that a sampler on a device reads.

    Attributes:
        device: its kernels read the topology.
        adjacency: edge type -> lists, in the order of the graph.
        device_bytes: bytes in device memory. pinned_bytes: bytes in host memory, pinned.
    """

    device: torch.device
    adjacency: dict[EdgeType, DeviceCSC]
    device_bytes: int
    pinned_bytes: int


def place_graph(
    graph: Graph,
    device: torch.device,
    topology: str = "device",
    kept: Mapping[EdgeType, np.ndarray] | None = None,
    *,
    for_shared_draws: bool = False,
) -> DeviceGraph:
    """Place a graph where a device reads it.

    Args:
        graph: arrays in memory or mapped; each is read once, sums of weights twice.
        device: from `penstock.kernels._triton.tensor_device`.
        topology: place of the neighbours, "device" or "pinned". Pinned arrays stay where they are if the driver allows it (see
            `penstock.store.tiers.pin`), else they are copied. `indptr` is always on the device.
        kept: edge type -> int64 ids of the nodes whose lists are on the device too, best first; only for topology="pinned".
        for_shared_draws: also find out which neighbours come more than once in a list. This reads all lists twice more.
    Raises:
        UsageError: an unknown place, or `kept` with topology="device".
    """
    if topology not in PLACES:
        raise UsageError(f"{argument('topology')} on a device must be one of {PLACES}, got {topology!r}")
    if kept and topology == "device":
        raise UsageError(f"{argument('topology', 'device')} has all lists on the device: there are none left to keep; take 'pinned'")
    how = device, topology, for_shared_draws
    adjacency = {e: _place(e, csc, None if kept is None else kept.get(e), *how) for e, csc in graph.adjacency.items()}
    others = sum(tensor.nbytes for csc in adjacency.values() for tensor in csc.kept or ())
    repeats = sum(csc.repeats.nbytes for csc in adjacency.values() if csc.repeats is not None)
    size = topology_bytes(graph)
    near, far = (size.all + repeats, 0) if topology == "device" else (size.offsets, size.lists + size.values + repeats)
    return DeviceGraph(device, adjacency, near + others, far)


def device_sampler(
    sampler: NeighborSampler, device: torch.device, topology: str = "device", kept: Mapping[EdgeType, np.ndarray] | None = None
) -> DeviceSampler:
    """Place the graph of a sampler, and return a `DeviceSampler` over it; arguments as in `place_graph`."""
    from penstock.sample.device import DeviceSampler

    placed = place_graph(sampler.graph, device, topology, kept, for_shared_draws=sampler.shared_draws > 0)
    return DeviceSampler(sampler, placed)


def on_cpu_only(sampler: NeighborSampler) -> str | None:
    """Return why only the CPU can draw the samples of a sampler, for a message; None: a device can."""
    by_cpu = {"subgraph_type='induced'": sampler.induced, "sampling by walks": sampler.walks is not None}
    by_cpu |= {"layer_wise=True": sampler.layer_wise, "sampling by num_samples": bool(sampler.num_samples)}
    for what, is_asked in by_cpu.items():
        if is_asked:
            return f"{what} is done on the CPU only"
    by_weight = [sampler.fanouts[e] for e, csc in sampler.graph.adjacency.items() if csc.sums is not None]
    shared = list(sampler.fanouts.values()) if sampler.shared_draws else []
    for how, fanouts, bound in (("weight", by_weight, MAX_FANOUT_BY_WEIGHT), ("shared_draws", shared, MAX_FANOUT_SHARED)):
        if (most := max((max(each, default=0) for each in fanouts), default=0)) > bound:
            return f"a fanout of {most} by {how} is done on the CPU only, those up to {bound} and -1 by a device"
    return None


class TopologyBytes(NamedTuple):
    """Bytes of a topology that a device reads.

    Attributes:
        offsets: `indptr`, and with weights the number of drawable edges of each list; always on the device.
        lists: neighbours, and the user's numbers of the edges.
        values: running sums of weights, or times and the order by time; and repeats. They are in the place of the lists. In host memory
            they exist in any case.
    """

    offsets: int
    lists: int
    values: int

    @property
    def all(self) -> int:
        """The sum."""
        return sum(self)


def topology_bytes(graph: Graph, *, for_shared_draws: bool = False) -> TopologyBytes:
    """Return the bytes of a graph. `for_shared_draws`: with repeats, estimated at one byte an edge."""
    all_csc = graph.adjacency.values()
    offsets = sum(csc.indptr.nbytes for csc in all_csc)
    offsets += sum(csc.num_dst * np.dtype(index_dtype(csc.num_edges)).itemsize for csc in all_csc if csc.sums is not None)
    lists = sum(csc.indices.nbytes + (0 if csc.edge_ids is None else csc.edge_ids.nbytes) for csc in all_csc)
    values = sum(each.nbytes for csc in all_csc for each in (csc.sums, csc.times, csc.by_time) if each is not None)
    values += sum(csc.num_edges for csc in all_csc) if for_shared_draws else 0
    return TopologyBytes(offsets, lists, values)


def _place(
    edge_type: EdgeType, csc: CSC, chosen: np.ndarray | None, device: torch.device, topology: str, for_shared_draws: bool
) -> DeviceCSC:
    def far(array: np.ndarray) -> torch.Tensor:
        if topology == "device":
            return copy_to_device(array, device)
        return pin(np.asarray(array), device, "/".join(edge_type)).tensor.view(_dtype(array))

    kept = None
    if chosen is not None and chosen.size:
        from penstock.kernels._device_lists import Kept

        kept = Kept(*(copy_to_device(array, device) for array in PrefixLists(csc, chosen, HostTier([csc.indices])).arrays))
    weights = None
    if csc.sums is not None:
        from penstock.kernels.sample_weighted.gpu import Weights

        drawable = np.empty(csc.num_dst, index_dtype(csc.num_edges))
        count_drawable(csc.indptr, csc.sums, drawable)
        weights = Weights(far(csc.sums), copy_to_device(drawable, device))
    return DeviceCSC(
        copy_to_device(csc.indptr, device),
        far(csc.indices),
        kept,
        None if csc.edge_ids is None else far(csc.edge_ids),
        topology != "device",
        weights,
        None if csc.times is None else Times(far(csc.times), None if csc.by_time is None else far(csc.by_time)),
        far(repeats) if for_shared_draws and (repeats := _repeats(csc)) is not None else None,
    )


def _repeats(csc: CSC) -> np.ndarray | None:
    """int[num_edges], as narrow as possible: how often each neighbour came before in its list; None: no list has a neighbour twice."""
    longest = min(int(np.diff(csc.indptr).max(initial=1)), max(1, csc.num_edges))  # a damaged `indptr` may give any length
    scratch = np.empty(longest, np.uint64), np.empty(longest, np.uint32), np.zeros(shared.table_size(longest), np.int32)
    most = int(shared.count_repeats(csc.indptr, csc.indices, *scratch, np.empty(0, np.int8)))
    if most == 0:
        return None
    found = np.zeros(csc.num_edges, np.min_scalar_type(-most - 1))
    shared.count_repeats(csc.indptr, csc.indices, *scratch, found)
    return found


def _dtype(array: np.ndarray) -> torch.dtype:
    return torch.from_numpy(np.empty(0, array.dtype)).dtype
