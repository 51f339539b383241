"""k-hop neighbour sampling over typed graphs, on a device. Same result as `penstock.sample.neighbor`, byte for byte.

In: seeds and their place (seed, epoch, batch); a graph that the device reads. Out: a `DeviceSample`. Invariant: the sample is a pure
function of (graph, seeds, fanouts, seed, epoch, batch), the same as on the CPU; a workspace holds scratch memory only and can be any.
Imports Triton, so it is imported after `kernels._triton.tensor_device` has said that this works here.

The processor waits for the device once per batch, when everything is asked for: sizes are the device's to know, memory is taken for what
fanouts allow. It waits once more where there is no small bound on the edges of a hop. Damage is told with the sizes; nothing is read
through what is damaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from penstock import rng
from penstock.errors import NotSupportedError, UsageError
from penstock.kernels.edges import gpu as edge_kernels
from penstock.kernels.edges.cpu import count_repetitions
from penstock.kernels.gather_rows.gpu import gather_rows
from penstock.kernels.sample_neighbors import gpu as draw
from penstock.records import EdgeType, NodeType, Sample, SampledEdges
from penstock.sample.device_graph import DeviceCSC, DeviceGraph, on_cpu_only
from penstock.sample.device_table import DeviceTable
from penstock.sample.neighbor import NeighborSampler, damaged_list, damaged_neighbor
from penstock.store.tiers.grid import programs_over_link
from penstock.store.tiers.pinned import to_device

UNCOUNTED = 1 << 22
"""Up to so many edges, memory is taken for what fanouts allow, in place of waiting to hear how many there are."""


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
        self.room = dict.fromkeys(num_nodes, 0)
        """Nodes that the largest batch so far could have had."""
        self.most_batch_bytes = 0
        """What the largest batch so far took while it was made."""

    @property
    def num_bytes(self) -> int:
        """Memory that it takes: tables, and at most, while it draws, the batch in the making."""
        return sum(table.num_bytes for table in self.tables.values()) + self.most_batch_bytes


@dataclass(slots=True)
class _Step:
    """A hop over an edge type; what is not drawn is None."""

    hop: int
    edge_type: EdgeType
    before: torch.Tensor
    """int64[1]: edges of the type that were taken before."""
    offsets: torch.Tensor | None = None
    """int64[b + 1], row pointers; b is at least the size of the frontier."""
    rows: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    neighbors: torch.Tensor | None = None

    @property
    def end(self) -> torch.Tensor:
        """int64[1]: edges of the type that were taken up to here."""
        return self.before if self.offsets is None else self.offsets[-1:]


class _Run:
    """One batch in the making; compare `penstock.sample.neighbor`.

    Attributes:
        marks: int64[num_hops + 2] of each node type, on the device: nodes[marks[h]:marks[h + 1]] is the frontier of hop h, and
            marks[h + 2:] grow while that hop is drawn. At the end, the last one says how many nodes there are.
        known, frontier: at most so many nodes there are, and does the next hop start from, as far as the processor knows.
    """

    def __init__(self, sampler: DeviceSampler, seed_type: NodeType, seeds: np.ndarray, key, batch: int, workspace: DeviceWorkspace) -> None:
        self.host, self.graph, self.seed_type, self.num_seeds = sampler.host, sampler.graph, seed_type, seeds.size
        self.key, self.batch, self.workspace, self.num_nodes = key, batch, workspace, sampler.host.graph.num_nodes
        device, num_marks, types = self.graph.device, self.host.num_hops + 2, list(self.num_nodes)
        marks = np.zeros((len(types), num_marks), np.int64)
        marks[types.index(seed_type), 1:] = seeds.size
        numbers = to_device(np.concatenate([seeds, _repetitions(seeds), marks.reshape(-1)]), device)  # one copy for all
        ids, self._copies, self._all_marks = numbers.split([seeds.size, seeds.size, marks.size])
        self.marks = dict(zip(types, self._all_marks.view(marks.shape), strict=True))
        self._none = self.marks[seed_type][:1]
        self.known = {t: seeds.size if t == seed_type else 0 for t in types}
        self.frontier = dict(self.known)
        self._num_bytes, self._unheard = numbers.nbytes, 0
        self.nodes = {t: self._empty(max(workspace.room[t], self.known[t])) for t in types}
        for t, table in workspace.tables.items():
            table.add_seeds(ids if t == seed_type else ids[:0], self.nodes[t])
        self.steps: list[_Step] = []
        self._ends = dict.fromkeys(self.graph.adjacency, self._none)
        self._status = torch.full((self.host.num_hops * len(self._ends), 2), draw.CLEAN, device=device)

    def _empty(self, size: int) -> torch.Tensor:
        self._num_bytes += 8 * size
        return torch.empty(size, dtype=torch.int64, device=self.graph.device)

    def expand(self, hop: int) -> None:
        """Take one hop, over every edge type."""
        self._found = dict.fromkeys(self.num_nodes, 0)
        for number, (edge_type, csc) in enumerate(self.graph.adjacency.items()):
            num_rows, fanout = self.frontier[edge_type[2]], self.host.fanouts[edge_type][hop]
            if num_rows:
                step = _Step(hop, edge_type, self._ends[edge_type])
                self.steps.append(step)
                if fanout:
                    self._take(step, csc, num_rows, fanout, number)
                self._ends[edge_type] = step.end
        self.frontier = {t: min(found, self.num_nodes[t]) for t, found in self._found.items()}

    def _take(self, step: _Step, csc: DeviceCSC, num_rows: int, fanout: int, number: int) -> None:
        """Sample from the lists of a frontier, and number what is found."""
        hop, (src, _, dst), replace = step.hop, step.edge_type, self.host.replace
        frontier, status = (self.nodes[dst], self.marks[dst][hop : hop + 2]), self._status[len(self.steps) - 1]
        step.offsets = self._empty(num_rows + 1)
        draw.count_neighbors(csc.indptr, csc.num_edges, *frontier, step.before, fanout, replace, step.offsets, status)
        most = num_rows * fanout
        self._unheard += most
        if not 0 <= fanout <= draw.TILE_FANOUT or self._unheard > UNCOUNTED:
            most = self._hear(hop)
            if most == 0:
                return
        step.positions, step.rows = self._empty(most), self._empty(most)
        step.neighbors = torch.full((most,), -1, dtype=csc.indices.dtype, device=self.graph.device)
        copies = self._copies if hop == 0 and dst == self.seed_type else None
        draw.sample_neighbors(
            csc.indptr, csc.indices, self.num_nodes[src], *frontier, fanout, replace, self.key, self.batch, hop, number, copies,
            step.offsets, step.positions, step.neighbors, status, csc.kept,
        )  # fmt: skip
        self._num_bytes += step.neighbors.nbytes + 8 * most  # the latter to map ids
        known = self.known[src]
        self.known[src] = min(known + most, self.num_nodes[src] + self.num_seeds)
        self._found[src] += most
        self._make_room(src)
        self.workspace.tables[src].relabel(step.neighbors, self.marks[src][hop + 2 :], known, self.nodes[src], step.rows)

    def _make_room(self, node_type: NodeType) -> None:
        """For as many nodes as there can be."""
        room, nodes = self.known[node_type], self.nodes[node_type]
        if room > nodes.numel():
            self.nodes[node_type] = self._empty(room)
            self.nodes[node_type][: nodes.numel()] = nodes
            self.workspace.room[node_type] = room

    def _hear(self, hop: int) -> int:
        """Wait, and know all sizes so far. Returns how many edges the last step takes."""
        marks, counts = self._look()
        self.known = {t: each[hop + 2] for t, each in marks.items()}
        self._found = {t: each[hop + 2] - each[hop + 1] for t, each in marks.items()}
        self._unheard = 0
        return counts[-1]

    def _look(self) -> tuple[dict[NodeType, list[int]], list[int]]:
        """Wait for the device. Returns the marks of each node type, and the edges of each step; raises the error of the first one that has
        met damage."""
        numbers = torch.cat([self._all_marks, self._status[: len(self.steps)].reshape(-1), *(step.end for step in self.steps)]).tolist()
        per_type, begin = self.host.num_hops + 2, self._all_marks.numel()
        marks = {t: numbers[i * per_type : (i + 1) * per_type] for i, t in enumerate(self.num_nodes)}
        ends, counts = dict.fromkeys(self.graph.adjacency, 0), []
        for i, step in enumerate(self.steps):
            bad_list, bad, end = *numbers[begin + 2 * i : begin + 2 * i + 2], numbers[begin + 2 * len(self.steps) + i]
            src, _, dst = step.edge_type
            if bad_list != draw.CLEAN:
                node = int(self.nodes[dst][marks[dst][step.hop] + bad_list])
                raise damaged_list(step.edge_type, node, self.graph.adjacency[step.edge_type].num_edges)
            if bad != draw.CLEAN:
                place, neighbor = (int(each[bad]) for each in (step.positions, step.neighbors) if each is not None)
                raise damaged_neighbor(step.edge_type, self.num_nodes[src], place, neighbor)
            counts.append(end - ends[step.edge_type])
            ends[step.edge_type] = end
        return marks, counts

    def finish(self) -> DeviceSample:
        """Put the result together."""
        marks, counts = self._look()
        self.workspace.most_batch_bytes = max(self.workspace.most_batch_bytes, self._num_bytes)
        edges = {edge_type: self._join(edge_type, marks[edge_type[2]], counts) for edge_type in self.graph.adjacency}
        nodes = {t: self.nodes[t][: each[-1]] for t, each in marks.items()}
        nodes_per_hop = {t: [end - begin for begin, end in pairwise(each)] for t, each in marks.items()}
        return DeviceSample(self.seed_type, self.num_seeds, nodes, edges, nodes_per_hop)

    def _join(self, edge_type: EdgeType, marks: list[int], counts: list[int]) -> DeviceEdges:
        """The steps over an edge type, one after the other."""
        none, per_hop = self._none[:0], [0] * self.host.num_hops
        row_ptr, rows, positions = [self._none], [none], [none]
        for step, count in zip(self.steps, counts, strict=True):
            if step.edge_type == edge_type:
                num_rows = marks[step.hop + 1] - marks[step.hop]
                row_ptr.append(step.before.expand(num_rows) if step.offsets is None else step.offsets[1 : num_rows + 1])
                rows.append(none if step.rows is None else step.rows[:count])
                positions.append(none if step.positions is None else step.positions[:count])
                per_hop[step.hop] = count
        joined, edge_index = torch.cat(row_ptr), none.new_empty((2, sum(per_hop)))
        torch.cat(rows, out=edge_index[0])
        edge_kernels.fill_columns(joined, edge_index[1])
        return DeviceEdges(edge_index, joined, torch.cat(positions), per_hop)


def _repetitions(seeds: np.ndarray) -> np.ndarray:
    """int64[n]: how often each seed came before."""
    ordered = np.sort(seeds)
    return count_repetitions(seeds) if (ordered[1:] == ordered[:-1]).any() else np.zeros(seeds.size, np.int64)
