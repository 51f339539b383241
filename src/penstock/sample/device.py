"""k-hop neighbour sampling over typed graphs, on a device. Same result as `penstock.sample.neighbor`, byte for byte.

In: seeds and their place (seed, epoch, batch); a graph that the device reads. Out: a `DeviceSample`. Invariant: the sample is a pure
function of (graph, seeds, fanouts, seed, epoch, batch), the same as on the CPU; a workspace holds scratch memory only and can be any.
Imports Triton, so it is imported after `kernels._triton.tensor_device` has said that this works here.

The processor waits for the device once per hop and edge type, for the numbers of edges and of new nodes, and a second time where there is
no small bound on the edges. Damage is told with these numbers; before they are looked at, nothing is read through what is damaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from penstock import rng
from penstock.errors import NotSupportedError, UsageError
from penstock.kernels.edges import gpu as edge_kernels
from penstock.kernels.gather_rows.gpu import gather_rows
from penstock.kernels.sample_neighbors import gpu as draw
from penstock.records import EdgeType, NodeType, Sample, SampledEdges
from penstock.sample.device_graph import DeviceCSC, DeviceGraph, on_cpu_only
from penstock.sample.device_table import RELABEL_BYTES, DeviceTable
from penstock.sample.neighbor import NeighborSampler, damaged_list, damaged_neighbor
from penstock.store.tiers.grid import programs_over_link
from penstock.store.tiers.pinned import to_device

UNCOUNTED = 1 << 22
"""Up to so many edges of a hop, memory is taken for what the fanout allows, in place of waiting to hear how many there are."""


@dataclass(slots=True)
class DeviceEdges:
    """`penstock.records.SampledEdges`, of tensors."""

    edge_index: torch.Tensor
    row_ptr: torch.Tensor
    positions: torch.Tensor
    num_per_hop: list[int]


@dataclass(slots=True)
class DeviceSample:
    """`penstock.records.Sample`, of tensors on a device; never disjoint."""

    seed_type: NodeType
    num_seeds: int
    nodes: dict[NodeType, torch.Tensor]
    edges: dict[EdgeType, DeviceEdges]
    num_nodes_per_hop: dict[NodeType, list[int]]
    trees: None = None

    def to_host(self) -> Sample:
        """The same in memory of the host, as arrays."""
        nodes = {t: ids.cpu().numpy() for t, ids in self.nodes.items()}
        edges = {
            e: SampledEdges(each.edge_index.cpu().numpy(), each.row_ptr.cpu().numpy(), each.positions.cpu().numpy(), each.num_per_hop)
            for e, each in self.edges.items()
        }
        return Sample(self.seed_type, self.num_seeds, nodes, edges, self.num_nodes_per_hop)


class DeviceSampler:
    """A sampler's work, done by a device.

    Args:
        sampler: whose samples are wanted; uniform, and neither disjoint nor induced.
        graph: its graph, where the device reads it.
    """

    def __init__(self, sampler: NeighborSampler, graph: DeviceGraph) -> None:
        if (reason := on_cpu_only(sampler)) is not None:
            raise NotSupportedError(f"{reason}: sample on the CPU, or leave it out")
        self.host, self.graph, self._max_programs = sampler, graph, programs_over_link(graph.device)

    def number_edges(self, edge_type: EdgeType, positions: torch.Tensor) -> torch.Tensor:
        """Return int64[n]: the user's numbers of the edges at int64[n] `positions`."""
        table = self.graph.adjacency[edge_type].edge_ids
        if table is None:
            return positions
        numbers = torch.empty(positions.numel(), dtype=table.dtype, device=self.graph.device)
        gather_rows(table.view(torch.uint8), table.itemsize, positions, numbers.view(torch.uint8), max_programs=self._max_programs)
        return numbers.to(torch.int64)

    def workspace(self) -> DeviceWorkspace:
        """Make the scratch memory of one more thread."""
        return DeviceWorkspace(self.host.graph.num_nodes, self.graph.device)

    def sample(self, seed_type: NodeType, seeds: np.ndarray, *, epoch: int, batch: int, workspace: DeviceWorkspace) -> DeviceSample:
        """Sample the neighbourhood of one batch, on the current stream; arguments as in `NeighborSampler.sample`."""
        if batch >= rng.MAX_BATCHES:
            raise UsageError(f"batch index {batch} is beyond {rng.MAX_BATCHES - 1}")
        self.host.check_seeds(seed_type, seeds)
        run = _Run(self, seed_type, seeds, rng.derive_key(self.host.seed, epoch, rng.SAMPLE).tolist(), batch, workspace)
        for hop in range(self.host.num_hops):
            run.expand(hop)
        return run.finish()


class DeviceWorkspace:
    """Scratch memory of one sampling thread."""

    def __init__(self, num_nodes: dict[NodeType, int], device: torch.device) -> None:
        self.tables = {t: DeviceTable(count, device) for t, count in num_nodes.items()}
        self.hints: dict[object, int] = {}
        self.status = torch.empty(2, dtype=torch.int64, device=device)
        self.most_scratch_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Memory that it takes: tables, and at most, while it draws, the batch in the making and what is drawn of one hop."""
        tables = sum(table.num_bytes for table in self.tables.values()) + self.status.nbytes
        return tables + self.status.itemsize * sum(self.hints.values()) + self.most_scratch_bytes

    def note_scratch(self, num_bytes: int) -> None:
        """Something of so many bytes is in use beside the tables, for a while."""
        self.most_scratch_bytes = max(self.most_scratch_bytes, num_bytes)


class _Growing:
    """A vector of int64 that grows; `values` is the part in use. Starts at the size that the batch before needed."""

    __slots__ = ("_hints", "_most", "_name", "size", "whole")

    def __init__(self, name: object, device: torch.device, hints: dict[object, int]) -> None:
        self._name, self._hints, self._most, self.size = name, hints, 0, 0
        self.whole = torch.empty(hints.get(name, 0), dtype=torch.int64, device=device)

    def room(self, extra: int) -> torch.Tensor:
        """Return the `extra` elements after those in use."""
        needed = self.size + extra
        self._most = max(self._most, needed)
        if needed > self.whole.numel():
            grown = self.whole.new_empty(max(needed, self.whole.numel() + self.whole.numel() // 4))
            grown[: self.size] = self.values
            self.whole = grown
        return self.whole[self.size : needed]

    @property
    def values(self) -> torch.Tensor:
        """The elements in use."""
        return self.whole[: self.size]

    def finish(self) -> torch.Tensor:
        """Return the elements in use, and remember how many there was room for."""
        self._hints[self._name] = max(self._hints.get(self._name, 0), self._most + self._most // 16)
        return self.values


class _Run:
    """One batch in the making; compare `penstock.sample.neighbor`."""

    def __init__(self, sampler: DeviceSampler, seed_type: NodeType, seeds: np.ndarray, key, batch: int, workspace: DeviceWorkspace) -> None:
        self.host, self.graph, self.seed_type, self.num_seeds = sampler.host, sampler.graph, seed_type, seeds.size
        self.key, self.batch, self.workspace, self.num_nodes = key, batch, workspace, sampler.host.graph.num_nodes
        device, hints, adjacency = self.graph.device, workspace.hints, self.graph.adjacency
        self.nodes = {t: _Growing(t, device, hints) for t in self.num_nodes}
        self.rows = {e: _Growing((e, "row"), device, hints) for e in adjacency}
        self.positions = {e: _Growing((e, "position"), device, hints) for e in adjacency}
        self.row_ptr = {e: _Growing((e, "row_ptr"), device, hints) for e in adjacency}
        self.edges_per_hop: dict[EdgeType, list[int]] = {e: [] for e in adjacency}
        for row_ptr in self.row_ptr.values():
            row_ptr.room(1).zero_()
            row_ptr.size = 1
        self._begin = dict.fromkeys(self.num_nodes, 0)
        ids = to_device(np.array(seeds, dtype=np.int64), device)
        known = self.nodes[seed_type]
        for node_type, table in workspace.tables.items():
            table.add_seeds(ids if node_type == seed_type else ids[:0], self.nodes[node_type].room(seeds.size))
        known.size = seeds.size
        self._copies = edge_kernels.count_repetitions(ids)
        self.nodes_per_hop = {t: [known.size] for t, known in self.nodes.items()}

    def expand(self, hop: int) -> None:
        """Take one hop, over every edge type."""
        end = {t: known.size for t, known in self.nodes.items()}
        for number, (edge_type, csc) in enumerate(self.graph.adjacency.items()):
            dst = edge_type[2]
            frontier = self.nodes[dst].values[self._begin[dst] : end[dst]]
            copies = self._copies if hop == 0 and dst == self.seed_type else None
            self._expand_edge_type(number, edge_type, csc, hop, frontier, copies)
        self._begin = end
        for t, known in self.nodes.items():
            self.nodes_per_hop[t].append(known.size - end[t])

    def _expand_edge_type(self, number: int, edge_type: EdgeType, csc: DeviceCSC, hop: int, frontier: torch.Tensor, copies: Any) -> None:
        row_ptr, fanout, num_rows = self.row_ptr[edge_type], self.host.fanouts[edge_type][hop], frontier.numel()
        row_ptr.room(num_rows)
        offsets = row_ptr.whole[row_ptr.size - 1 : row_ptr.size + num_rows]
        row_ptr.size += num_rows
        count = 0
        if num_rows and fanout:
            count = self._take(edge_type, csc, frontier, fanout, (hop, number, copies), offsets)
        else:
            offsets[1:] = offsets[0]
        self.rows[edge_type].size += count
        self.positions[edge_type].size += count
        self.edges_per_hop[edge_type].append(count)

    def _take(self, edge_type: EdgeType, csc: DeviceCSC, frontier: torch.Tensor, fanout: int, place, offsets: torch.Tensor) -> int:
        """Sample from the lists of a frontier, and number what is found. Returns how many edges came."""
        replace, taken, known = self.host.replace, self.positions[edge_type], self.nodes[edge_type[0]]
        status = self.workspace.status.fill_(draw.CLEAN)
        draw.count_neighbors(csc.indptr, csc.num_edges, frontier, fanout, replace, offsets, status)
        most = frontier.numel() * fanout
        if not 0 <= fanout <= draw.TILE_FANOUT or most > UNCOUNTED:
            end, bad_list = torch.cat([offsets[-1:], status[:1]]).tolist()
            self._check_list(edge_type, csc, frontier, bad_list)
            most = end - taken.size
            if most == 0:
                return 0
        num_src, (hop, number, copies), positions = self.num_nodes[edge_type[0]], place, taken.room(most)
        neighbors = torch.full((most,), -1, dtype=csc.indices.dtype, device=self.graph.device)
        draw.sample_neighbors(
            csc.indptr, csc.indices, num_src, frontier, fanout, replace, self.key, self.batch, hop, number, copies, offsets, positions,
            neighbors, status, csc.kept,
        )  # fmt: skip
        self.workspace.note_scratch(neighbors.nbytes + RELABEL_BYTES * most)
        known.room(most)
        num_new = self.workspace.tables[edge_type[0]].relabel(neighbors, known.size, known.whole, self.rows[edge_type].room(most))
        end, num_new, bad_list, bad = torch.cat([offsets[-1:], num_new, status]).tolist()
        self._check_list(edge_type, csc, frontier, bad_list)
        if bad != draw.CLEAN:
            raise damaged_neighbor(edge_type, num_src, int(positions[bad]), int(neighbors[bad]))
        known.size += num_new
        return end - taken.size

    def _check_list(self, edge_type: EdgeType, csc: DeviceCSC, frontier: torch.Tensor, bad: int) -> None:
        if bad != draw.CLEAN:
            raise damaged_list(edge_type, int(frontier[bad]), csc.num_edges)

    def finish(self) -> DeviceSample:
        """Put the result together."""
        edges = {}
        for edge_type in self.graph.adjacency:
            row_ptr, rows = self.row_ptr[edge_type].finish(), self.rows[edge_type]
            num_edges = rows.size
            edge_kernels.fill_columns(row_ptr, rows.room(num_edges))
            rows.size += num_edges
            edge_index = rows.finish().reshape(2, num_edges)
            edges[edge_type] = DeviceEdges(edge_index, row_ptr, self.positions[edge_type].finish(), self.edges_per_hop[edge_type])
        nodes = {t: known.finish() for t, known in self.nodes.items()}
        return DeviceSample(self.seed_type, self.num_seeds, nodes, edges, self.nodes_per_hop)
