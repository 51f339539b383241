"""k-hop neighbour sampling over typed graphs, on a device. Same result as `penstock.sample.neighbor`, byte for byte.

In: seeds and their place (seed, epoch, batch); a graph that the device reads. Out: a `DeviceSample`. Invariant: the sample is a pure
function of (graph, seeds, fanouts, seed, epoch, batch), the same as on the CPU; a workspace holds scratch memory only and can be any.
Imports Triton, so it is imported after `kernels._triton.tensor_device` has said that this works here.

The processor waits for the device twice per hop and edge type: for the number of edges, which memory is asked for, and for the number of
new nodes. Damage is told with these numbers, and nothing is read through a damaged one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from penstock import rng
from penstock.errors import NotSupportedError, UsageError
from penstock.kernels.edges import gpu as edge_kernels
from penstock.kernels.sample_neighbors import gpu as draw
from penstock.records import EdgeType, NodeType, Sample, SampledEdges
from penstock.sample.device_graph import DeviceCSC, DeviceGraph
from penstock.sample.device_table import DeviceTable
from penstock.sample.neighbor import NeighborSampler, damaged_list, damaged_neighbor


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
        for is_asked, what in ((sampler.disjoint, "disjoint=True"), (sampler.induced, "subgraph_type='induced'")):
            if is_asked:
                raise NotSupportedError(f"{what} is done on the CPU only: sample on the CPU, or leave it out")
        self.host, self.graph = sampler, graph

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

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return sum(table.num_bytes for table in self.tables.values()) + self.status.nbytes


class _Growing:
    """A vector of int64 that grows; `values` is the part in use. Starts at the size that the batch before needed."""

    __slots__ = ("_hints", "_name", "size", "whole")

    def __init__(self, name: object, device: torch.device, hints: dict[object, int]) -> None:
        self._name, self._hints, self.size = name, hints, 0
        self.whole = torch.empty(hints.get(name, 0), dtype=torch.int64, device=device)

    def room(self, extra: int) -> torch.Tensor:
        """Return the `extra` elements after those in use."""
        needed = self.size + extra
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
        """Return the elements in use, and remember how many they were."""
        self._hints[self._name] = max(self._hints.get(self._name, 0), self.size + self.size // 16)
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
        ids = torch.from_numpy(np.array(seeds, dtype=np.int64)).to(device)
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
        rows, positions, row_ptr = self.rows[edge_type], self.positions[edge_type], self.row_ptr[edge_type]
        num_rows = frontier.numel()
        row_ptr.room(num_rows)
        offsets = row_ptr.whole[row_ptr.size - 1 : row_ptr.size + num_rows]
        status = self.workspace.status.fill_(draw.CLEAN)
        count = self._count(edge_type, csc, hop, frontier, offsets, status)
        if count:
            taken, known = positions.room(count), self.nodes[edge_type[0]]
            neighbors, num_src = torch.empty(count, dtype=csc.indices.dtype, device=self.graph.device), self.num_nodes[edge_type[0]]
            draw.sample_neighbors(
                csc.indptr, csc.indices, num_src, frontier, self.host.fanouts[edge_type][hop], self.host.replace, self.key, self.batch, hop,
                number, copies, offsets, taken, neighbors, status, csc.kept,
            )  # fmt: skip
            known.room(count)
            num_new = self.workspace.tables[edge_type[0]].relabel(neighbors, known.size, known.whole, rows.room(count))
            num_new, bad = torch.cat([num_new, status[1:]]).tolist()
            if bad != draw.CLEAN:
                raise damaged_neighbor(edge_type, num_src, int(taken[bad]), int(neighbors[bad]))
            known.size += num_new
        rows.size += count
        positions.size += count
        row_ptr.size += num_rows
        self.edges_per_hop[edge_type].append(count)

    def _count(self, edge_type: EdgeType, csc: DeviceCSC, hop: int, frontier: torch.Tensor, offsets: torch.Tensor, status) -> int:
        """Fill row offsets; returns how many edges will come."""
        fanout = self.host.fanouts[edge_type][hop]
        if frontier.numel() == 0 or fanout == 0:
            offsets[1:] = offsets[0]
            return 0
        draw.count_neighbors(csc.indptr, csc.num_edges, frontier, fanout, self.host.replace, offsets, status)
        end, bad = torch.cat([offsets[-1:], status[:1]]).tolist()
        if bad != draw.CLEAN:
            raise damaged_list(edge_type, int(frontier[bad]), csc.num_edges)
        return end - self.positions[edge_type].size

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
