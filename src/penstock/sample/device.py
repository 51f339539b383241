"""k-hop neighbour sampling over typed graphs, on a device. Same result as `penstock.sample.neighbor`, byte for byte.

In: seeds and their place (seed, epoch, batch); a graph that the device reads. Out: a `DeviceSample`. Invariant: the sample is a pure
function of (graph, seeds, fanouts, seed, epoch, batch), the same as on the CPU. A workspace holds only scratch memory, so any workspace
gives the same sample. This module imports Triton: import it only after `kernels._triton.tensor_device` has checked that Triton works here.

A caller keeps the device busy by asking for the next batch before it waits for this one (`DeviceSampler.ask`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from penstock import rng
from penstock.errors import NotSupportedError
from penstock.kernels.gather_rows.gpu import gather_rows
from penstock.records import EdgeType, NodeType
from penstock.sample.device_compaction import DevicePositions, DeviceTreePositions
from penstock.sample.device_graph import DeviceGraph, on_cpu_only
from penstock.sample.device_run import DeviceRun
from penstock.sample.device_sample import DeviceSample
from penstock.sample.neighbor import NeighborSampler
from penstock.store.tiers.grid import programs_over_link

_NOTHING: Mapping[EdgeType, np.ndarray] = {}


class DeviceSampler:
    """Draws the samples of a `NeighborSampler` on a device.

    Args:
        sampler: uniform, by weight, by time or by shared draws, and not induced.
        graph: its graph, placed where the device reads it.
        is_recorded: from the third batch of a size on, launch all kernels of a batch as one; see `penstock.kernels._recording`.
    Attributes:
        host: the `NeighborSampler`.
        max_programs: most programs that read over the link at the same time.
    Raises:
        NotSupportedError: only the CPU draws such samples.
    """

    def __init__(self, sampler: NeighborSampler, graph: DeviceGraph, *, is_recorded: bool = True) -> None:
        if (reason := on_cpu_only(sampler)) is not None:
            raise NotSupportedError(f"{reason}: sample on the CPU, or leave it out")
        self.host = sampler
        self.graph = graph
        self.max_programs = programs_over_link(graph.device)
        self._is_recorded = is_recorded

    def number_edges(self, edge_type: EdgeType, positions: torch.Tensor) -> torch.Tensor:
        """Return int64[n] on the device: the user's numbers of the edges at int64[n] `positions`."""
        table = self.graph.adjacency[edge_type].edge_ids
        if table is None:
            return positions
        numbers = torch.empty(positions.numel(), dtype=table.dtype, device=self.graph.device)
        gather_rows(table.view(torch.uint8), table.itemsize, positions, numbers.view(torch.uint8), max_programs=self.max_programs)
        return numbers.to(torch.int64)

    def over(self, sampler: NeighborSampler) -> DeviceSampler:
        """Return the `DeviceSampler` of another sampler over the same graph, in the same place."""
        return DeviceSampler(sampler, self.graph, is_recorded=self._is_recorded)

    def workspace(self) -> DeviceWorkspace:
        """Make scratch memory for one more thread."""
        return DeviceWorkspace(self.host.graph.num_nodes, self.graph.device, disjoint=self.host.disjoint)

    def sample(self, seeds: Mapping[NodeType, np.ndarray], **place: Any) -> DeviceSample:
        """Sample the neighbourhood of one batch, on the current stream; arguments as in `ask`.

        A workspace is used on one stream at a time. Before it is used on another stream, that stream must wait for the first.
        """
        return self.ask(seeds, **place).finish()

    def ask(
        self,
        seeds: Mapping[NodeType, np.ndarray],
        *,
        epoch: int,
        batch: int,
        workspace: DeviceWorkspace,
        left_out: Mapping[EdgeType, np.ndarray] = _NOTHING,
        times: Mapping[NodeType, np.ndarray] | None = None,
    ) -> DeviceRun:
        """Launch the kernels of a batch, and return without waiting for the device. It waits only where the host must know a size first.

        `finish` of the returned run waits, and makes the sample. Call it on the same stream; until then, the workspace makes no other
        batch. Arguments as in `NeighborSampler.sample`, and `left_out`: edge type -> int64[2, n], ids of the end nodes of edges to take out
        of the sample.

        One thread with several batches under way launches more than several threads do: these hand over the GIL at every operation of
        torch.
        """
        self.host.check(seeds, batch, times)
        shared = self.host.shared_draws
        key = rng.derive_key(self.host.seed, epoch, rng.SHARED if shared else rng.SAMPLE)
        words = [*key.tolist(), batch // shared if shared else batch]
        run = workspace.run
        if run is not None and run.is_of(self) and run.takes(seeds, left_out):
            run.begin(seeds, words, left_out, times)
            run.ask_again()
        else:
            before, links = ({}, {}) if run is None else (run.room, run.link_room)
            room = {t: max(ids.size, before.get(t, 0)) for t, ids in seeds.items()}
            run = DeviceRun(self, room, {e: max(each.shape[1], links.get(e, 0)) for e, each in left_out.items()}, workspace)
            run.begin(seeds, words, left_out, times)
            run.ask()
            if run.can_be_repeated and self._is_recorded:
                workspace.run = run
        run.ask_for_sizes()
        return run


class DeviceWorkspace:
    """Scratch memory of one sampling thread, on the device."""

    def __init__(self, num_nodes: dict[NodeType, int], device: torch.device, *, disjoint: bool = False) -> None:
        self.tables = {t: DeviceTreePositions(device) if disjoint else DevicePositions(count, device) for t, count in num_nodes.items()}
        self.room = dict.fromkeys(num_nodes, 0)
        """Node type -> most nodes for which a batch so far had to take memory."""
        self.run: DeviceRun | None = None
        """The last run that can be repeated, with room for the largest batches so far."""
        self.most_batch_bytes = 0
        """Most bytes that a batch so far took while it was made."""

    @property
    def num_bytes(self) -> int:
        """Memory of the tables, and the most that a batch in the making took."""
        return sum(table.num_bytes for table in self.tables.values()) + self.most_batch_bytes
