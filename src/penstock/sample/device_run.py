"""Makes one batch on a device, and repeats the same launches for later batches; compare `penstock.sample.neighbor`.

In: seeds and their place. Out: a `DeviceSample`. Invariant: unless the host must know a size, the launches depend only on the number of
seeds; all else about a batch is data in device memory.

The host waits for the device once per batch, after all launches. Only the device knows actual sizes; the host allocates the most that
fanouts allow. So the launches of a batch are recorded, and later batches launch them again as one. Where a hop has no small bound on its
edges, the host waits for its size, too, and launches each kernel by itself. Damage of the graph is reported with the sizes; kernels never
follow damaged values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from penstock.errors import damaged_list, damaged_neighbor
from penstock.kernels._device_lists import CLEAN, InTime
from penstock.kernels._recording import Recording
from penstock.kernels._triton import written_down
from penstock.kernels.edges.cpu import are_distinct, count_repetitions
from penstock.kernels.links import gpu as links_kernels
from penstock.kernels.region_order import gpu as region_order
from penstock.kernels.relabel import gpu as compact
from penstock.kernels.sample_neighbors import gpu as draw
from penstock.kernels.sample_shared import gpu as draw_shared
from penstock.kernels.sample_weighted import gpu as draw_weighted
from penstock.kernels.time_windows.gpu import find_windows
from penstock.records import EdgeType, NodeType
from penstock.sample.device_compaction import DeviceTreePositions
from penstock.sample.device_graph import DeviceCSC
from penstock.sample.device_sample import DeviceEdges, DeviceSample
from penstock.store.tiers.grid import num_processors

if TYPE_CHECKING:
    from penstock.sample.device import DeviceSampler, DeviceWorkspace

NEAR_TIMES, FAR_TIMES = 16, 8
"""Shared draws read whole lists by programs of one warp: NEAR_TIMES programs per multiprocessor; over the link, FAR_TIMES times as many as
saturate it when they read tiles."""

UNCOUNTED = 1 << 23
"""Up to this many edges, the host allocates the most that fanouts allow. Beyond, it waits for the actual number."""


class _Drawn(NamedTuple):
    """Edges of a step, at most m. Attributes: told: int64[3, m], the two rows of `edge_index`, and positions. neighbors: indices.dtype[m],
    global ids."""

    told: torch.Tensor
    neighbors: torch.Tensor


class _Result(NamedTuple):
    """What a step adds to the sample: the drawn edges, without those to leave out. Attributes are None if the step draws nothing.

    Attributes:
        span: int64[2]: number of edges of the type before this step, and after it; the latter is not written if nothing is drawn.
        offsets: int64[b + 1], row pointers; b is at least the size of the frontier.
        told: as in `_Drawn`.
    """

    span: torch.Tensor
    offsets: torch.Tensor | None = None
    told: torch.Tensor | None = None


@dataclass(slots=True)
class _Step:
    """A hop over one edge type. `span`, `offsets`: as in `_Result`, but of all drawn edges. Attributes are None if it draws nothing."""

    hop: int
    edge_type: EdgeType
    span: torch.Tensor
    result: _Result
    offsets: torch.Tensor | None = None
    drawn: _Drawn | None = None


class DeviceRun:
    """Makes batches of up to `room` seeds per type, one after the other; compare `penstock.sample.neighbor`.

    Attributes:
        room: node type -> most seeds of a batch.
        link_room: edge type -> most edges to leave out; edges of other types are not left out.
        numbers: int64[...] on the device, in two parts. The host writes the first part: seeds; their copy numbers or, with disjoint trees,
            the numbers of their trees; with times, the time of each tree; the end nodes of edges to leave out; the words of the draws (key
            and batch); a 0 for `kernels/_block_sums.py`; the base of each table. The device writes the second part, from start values of
            the host: marks, ends, kept, status.
        marks: node type -> int64[num_hops + 2]: nodes[marks[h]:marks[h + 1]] is the frontier of hop h. marks[h + 2:] grow while that hop is
            drawn. At the end, the last mark is the number of nodes.
        ends: edge type -> int64[num_hops + 1]: number of edges before and after each step that draws.
        kept: the same, without the edges to leave out.
        status: int64[num_steps, 2], see `draw.sample_neighbors`.
        nodes, trees: node type -> int64: ids of the nodes; with disjoint trees, the tree of each node.
        known, frontier: node type -> the host's upper bound for the number of nodes, and for the size of the next frontier.
        can_be_repeated: the host did not have to wait for a size or to enlarge memory in the middle of the batch.
    """

    def __init__(
        self, sampler: DeviceSampler, room: dict[NodeType, int], link_room: dict[EdgeType, int], workspace: DeviceWorkspace
    ) -> None:
        self.host = sampler.host
        self.graph = sampler.graph
        self.workspace = workspace
        self.room = room
        self.link_room = link_room
        self._max_programs = sampler.max_programs
        self.num_nodes, num_hops, most = sampler.host.graph.num_nodes, sampler.host.num_hops, sum(room.values())
        types, edge_types = list(self.num_nodes), list(self.graph.adjacency)
        tables, rounds, steps = len(types), num_hops + 1, len(edge_types) * num_hops
        told = [most, most, most * self.host.is_temporal, 2 * sum(link_room.values()), 3, 1, tables]
        sizes = [*told, tables * (rounds + 1), len(edge_types) * rounds, len(link_room) * rounds, 2 * steps]
        is_cuda = self.graph.device.type == "cuda"
        self._staged = torch.zeros(sum(sizes), dtype=torch.int64, device="cpu", pin_memory=is_cuda)  # in use until the batch is over
        self._told = self._staged.numpy()
        self._told_parts = np.split(self._told, np.cumsum(sizes)[:-1])
        self._told_parts[-1][:] = CLEAN
        self._num_bytes, self._unheard, self.can_be_repeated = 0, 0, True
        self.numbers, self._counts = self._empty(self._told.size), region_order.make_counts(self.graph.device)
        seeds, copies, self._moments, links, self._words, self._arrived, bases, marks, ends, kept, status = self.numbers.split(sizes)
        self._seeds, self._copies = (dict(zip(room, each.split(list(room.values())), strict=True)) for each in (seeds, copies))
        self._links = dict(zip(link_room, (each.view(2, -1) for each in links.split([2 * r for r in link_room.values()])), strict=True))
        self._sizes, self.status = self.numbers[sum(told) :], status.view(-1, 2)
        self._heard = torch.empty(self._sizes.numel(), dtype=torch.int64, device="cpu", pin_memory=is_cuda)
        self._is_heard = torch.cuda.Event() if is_cuda else None
        self.bases = dict(zip(types, bases.split(1), strict=True))
        self.marks = dict(zip(types, marks.view(len(types), -1), strict=True))
        self.ends = dict(zip(edge_types, ends.view(len(edge_types), -1), strict=True))
        self.kept = self.ends | dict(zip(link_room, kept.view(-1, rounds), strict=True))
        self.known = {t: room.get(t, 0) for t in types}
        self.needed, self.frontier = dict(self.known), dict(self.known)
        self.nodes = {t: self._empty(max(workspace.room[t], self.known[t])) for t in types}
        self.trees = {t: self._empty(each.numel()) for t, each in self.nodes.items()} if self.host.disjoint else {}
        self._most = {t: count * max(1, most if self.host.disjoint else 1) for t, count in self.num_nodes.items()}
        self.steps: list[_Step] = []
        self._is_under_way = False
        self._num_drawn = dict.fromkeys(edge_types, 0)
        self._recording: Recording | None = None
        self._recorded_tables: dict[NodeType, torch.Tensor] = {}

    def _empty(self, size: int) -> torch.Tensor:
        self._num_bytes += 8 * size
        return torch.empty(size, dtype=torch.int64, device=self.graph.device)

    def is_of(self, sampler: DeviceSampler) -> bool:
        """Whether this run makes batches of a sampler."""
        return self.host is sampler.host and self.graph is sampler.graph

    def takes(self, seeds: Mapping[NodeType, np.ndarray], left_out: Mapping[EdgeType, np.ndarray]) -> bool:
        """Whether this run can make a batch: its types are the same, and it has room."""
        if list(seeds) != list(self.room) or list(left_out) != list(self.link_room):
            return False
        if any(self.workspace.tables[t].numbers is not numbers for t, numbers in self._recorded_tables.items()):
            return False  # tables have been replaced since, by larger ones
        return all(ids.size <= self.room[t] for t, ids in seeds.items()) and all(
            each.shape[1] <= self.link_room[e] for e, each in left_out.items()
        )

    def begin(
        self,
        seeds: Mapping[NodeType, np.ndarray],
        words: list[int],
        left_out: Mapping[EdgeType, np.ndarray],
        times: Mapping[NodeType, np.ndarray] | None,
    ) -> None:
        """Copy the inputs of a batch to the device."""
        if self._is_under_way and self._is_heard is not None:  # the batch before was abandoned: its copies may still be under way
            torch.cuda.current_stream(self.graph.device.index).synchronize()
        self._is_under_way = True
        ids, copies, moments, links, place, _, bases, marks, *_ = self._told_parts
        marks, types, first, num_trees = marks.reshape(len(self.num_nodes), -1), list(self.num_nodes), 0, 0
        for seed_type, given in seeds.items():
            part = slice(first, first + given.size)
            copies[part] = num_trees + np.arange(given.size) if self.host.disjoint else _repetitions(given)
            ids[part], marks[types.index(seed_type), 1:] = given, given.size
            if times is not None and moments.size:
                moments[num_trees : num_trees + given.size] = times[seed_type]
            first += self.room[seed_type]
            num_trees += given.size
        ordered = [links_kernels.in_order(each, self.link_room[e]).reshape(-1) for e, each in left_out.items()]
        links[:] = np.concatenate([links[:0], *ordered])
        place[:] = words
        bases[:] = [self.workspace.tables[t].begin(needed, self.known[t]) for t, needed in self.needed.items()]
        self.numbers.copy_(self._staged, non_blocking=True)

    def ask(self) -> None:
        """Launch the kernels of all hops, and record the launches."""
        with written_down() as self._launches:
            for table in self.workspace.tables.values():
                if isinstance(table, DeviceTreePositions):
                    compact.forget(table.keys)
            for seed_type, ids in self._seeds.items():
                self._add_seeds(seed_type, ids, self._copies[seed_type], self.marks[seed_type][1:])
            for hop in range(self.host.num_hops):
                self._expand(hop)
        self._recorded_tables = {t: table.numbers for t, table in self.workspace.tables.items()}

    def ask_again(self) -> None:
        """Repeat the launches, for another batch."""
        if self._recording is None:
            self._recording = Recording(self._launches, self.graph.device)
        self._recording.ask()

    def ask_for_sizes(self) -> None:
        """Copy what the device reports about the batch to the host, after all launches."""
        self._heard.copy_(self._sizes, non_blocking=True)
        if self._is_heard is not None:
            self._is_heard.record(torch.cuda.current_stream(self.graph.device.index))

    def _add_seeds(self, node_type: NodeType, ids: torch.Tensor, trees: torch.Tensor | None, count: torch.Tensor) -> None:
        """Put nodes first; `trees`: int64, the tree of each node, if trees are disjoint."""
        table, of_trees = self.workspace.tables[node_type], None
        if self.host.disjoint and trees is not None:
            of_trees = self._trees(node_type, ids.numel(), trees, None)
        compact.add_seeds(ids, count, table.numbers, self.bases[node_type], self.nodes[node_type], of_trees)

    def _trees(self, node_type: NodeType, m: int, known: torch.Tensor, columns: torch.Tensor | None) -> compact.Trees:
        """What disjoint trees need to map m node ids to positions; `known`, `columns`: the tree of each id, see `compact.Trees`."""
        table = self.workspace.tables[node_type]
        assert isinstance(table, DeviceTreePositions)
        return compact.Trees(table.keys, self.num_nodes[node_type], self._empty(m), known, columns, self.trees[node_type])

    def _expand(self, hop: int) -> None:
        """Expand the frontier of a hop over every edge type."""
        self._found = dict.fromkeys(self.num_nodes, 0)
        for number, (edge_type, csc) in enumerate(self.graph.adjacency.items()):
            num_rows, fanout, drawn = self.frontier[edge_type[2]], self.host.fanouts[edge_type][hop], self._num_drawn[edge_type]
            if num_rows:
                span, kept = (ends[edge_type][drawn : drawn + 2] for ends in (self.ends, self.kept))
                self.steps.append(step := _Step(hop, edge_type, span, _Result(kept)))
                if fanout:
                    self._num_drawn[edge_type] += 1
                    self._take(step, csc, num_rows, fanout, number)
        self.frontier = {t: min(found, self._most[t]) for t, found in self._found.items()}

    def _take(self, step: _Step, csc: DeviceCSC, num_rows: int, fanout: int, number: int) -> None:
        """Sample from the lists of a frontier, and relabel the neighbours."""
        hop, (src, _, dst), replace = step.hop, step.edge_type, self.host.replace
        frontier, status = (self.nodes[dst], self.marks[dst][hop : hop + 2]), self.status[len(self.steps) - 1]
        step.offsets, counted = self._empty(num_rows + 1), draw.make_counted(num_rows, self._arrived)
        self._num_bytes += counted.within.nbytes + counted.blocks.before.nbytes
        in_time = self._in_time(csc, step, frontier, num_rows, fanout, status)
        drawable = None if csc.weights is None else csc.weights.drawable
        draw.count_neighbors(csc.indptr, csc.num_edges, *frontier, step.span, fanout, replace, counted, status, drawable, in_time)
        most = num_rows * fanout
        self._unheard += most
        if not 0 <= fanout <= draw.TILE_FANOUT or self._unheard > UNCOUNTED:
            most = self._hear(hop)
        is_shared = self.host.shared_draws > 0 and fanout > 0
        is_far = csc.is_far and (is_shared or 0 <= fanout <= draw.TILE_FANOUT)
        far = self._far(frontier, num_rows, self.num_nodes[dst]) if is_far else None
        neighbors = torch.empty(most, dtype=csc.indices.dtype, device=self.graph.device)
        step.drawn = drawn = _Drawn(self._empty(3 * most).view(3, most), neighbors)
        step.result = step.result._replace(offsets=step.offsets, told=drawn.told)
        _, columns, positions = drawn.told
        copies = self.trees[dst] if self.host.disjoint else self._copies.get(dst) if hop == 0 else None
        sample = partial(draw.sample_neighbors, in_time=in_time)
        if csc.weights is not None:
            sample = partial(draw_weighted.sample_neighbors, csc.weights)
        if is_shared:
            sample, number = partial(draw_shared.sample_neighbors, csc.repeats, self._held(fanout, far)), self.host.graph.first_from(src)
        sample(
            csc.indptr, csc.indices, self.num_nodes[src], *frontier, fanout, replace, self._words, hop, number, copies,
            counted, step.offsets, positions, columns, neighbors, status, csc.kept, far,
        )  # fmt: skip
        self._relabel(drawn, step, src)
        if step.edge_type in self._links:
            step.result = self._leave_out(step, drawn, step.offsets, frontier[0])

    def _held(self, fanout: int, far: draw.Far | None) -> torch.Tensor:
        """Memory for programs that read whole lists for shared draws."""
        num_programs = NEAR_TIMES * num_processors(self.graph.device) if far is None else FAR_TIMES * far.max_programs
        held = draw_shared.make_held(num_programs, fanout, self.graph.device)
        self._num_bytes += held.nbytes
        return held

    def _in_time(
        self, csc: DeviceCSC, step: _Step, frontier: tuple[torch.Tensor, torch.Tensor], num_rows: int, fanout: int, status: torch.Tensor
    ) -> InTime | None:
        """The parts of a frontier's lists that are in time for its trees; None: edges have no times."""
        if csc.times is None:
            return None
        (times, by_time), last = csc.times, fanout if self.host.takes_last else -1
        windows = self._empty(2 * num_rows).view(num_rows, 2)
        find_windows(csc.indptr, times, *frontier, self.trees[step.edge_type[2]], self._moments, self.host.reach, last, windows, status)
        return InTime(windows, by_time)

    def _leave_out(self, step: _Step, drawn: _Drawn, offsets: torch.Tensor, targets: torch.Tensor) -> _Result:
        """Leave edges out of a step's result."""
        span, scratch = step.result.span, links_kernels.make_scratch(drawn.neighbors.numel(), self._arrived)
        self._num_bytes += scratch.ranks.nbytes + scratch.blocks.before.nbytes
        left = _Result(span, self._empty(offsets.numel()), self._empty(drawn.told.numel()).view(3, -1))
        links_kernels.leave_out(self._links[step.edge_type], targets, offsets, *drawn, step.span, span, scratch, left.told, left.offsets)
        return left

    def _far(self, frontier: tuple[torch.Tensor, torch.Tensor], num_rows: int, num_nodes: int) -> draw.Far:
        """How lists are read over the link: those near each other together. Reads of a few bytes are faster in this order, even if the
        device holds the address translation of all pages."""
        order = torch.empty(num_rows, dtype=torch.int32, device=self.graph.device)
        self._num_bytes += order.nbytes
        region_order.order_by_region(frontier[0], num_nodes, order, self._counts, frontier[1])
        return draw.Far(order, self._max_programs)

    def _relabel(self, drawn: _Drawn, step: _Step, src: NodeType) -> None:
        """Map the neighbours of a step to positions."""
        table = self.workspace.tables[src]
        most = drawn.neighbors.numel()
        known = self.known[src]
        dst = step.edge_type[2]
        scratch = compact.make_scratch(most, self._arrived)
        self._num_bytes += drawn.neighbors.nbytes + scratch.first.nbytes + scratch.ranks.nbytes + scratch.blocks.before.nbytes
        self.needed[src] = max(self.needed[src], known + most)
        self.known[src] = min(known + most, self._most[src] + self.room.get(src, 0))
        self._found[src] += most
        self._make_room(src)
        ids, counter = self.nodes[src], self.marks[src][step.hop + 2 :]
        if table.reserve(known + most, self.known[src]):
            self.can_be_repeated = False
            self.bases[src].fill_(table.base)
            self._add_seeds(src, ids[:known], self.trees[src] if self.host.disjoint else None, counter)
        others = list(self.graph.adjacency)
        is_last = step.hop == self.host.num_hops - 1 and not any(e[0] == src for e in others[others.index(step.edge_type) + 1 :])
        compact.relabel(
            drawn.neighbors, step.span, table.numbers, self.bases[src], counter, ids, drawn.told[0], scratch, is_last=is_last,
            trees=self._trees(src, most, self.trees[dst], drawn.told[1]) if self.host.disjoint else None,
        )  # fmt: skip

    def _make_room(self, node_type: NodeType) -> None:
        """Allocate for the most nodes that there can be."""
        room = self.known[node_type]
        if room > self.nodes[node_type].numel():
            self.can_be_repeated = False
            for lists in (self.nodes, self.trees) if self.trees else (self.nodes,):
                before = lists[node_type]
                lists[node_type] = self._empty(room)
                lists[node_type][: before.numel()] = before
            self.workspace.room[node_type] = room

    def _hear(self, hop: int) -> int:
        """Wait for the device, and learn all sizes so far. Returns the number of edges of the last step."""
        self.ask_for_sizes()
        marks, counts, _ = self._look()
        self.known = {t: each[hop + 2] for t, each in marks.items()}
        self._found = {t: each[hop + 2] - each[hop + 1] for t, each in marks.items()}
        self._unheard, self.can_be_repeated = 0, False
        return counts[-1]

    def _look(self) -> tuple[dict[NodeType, list[int]], list[int], list[int]]:
        """Wait for the sizes. Returns (marks of each node type, number of drawn edges of each step, the same without those left out).
        Raises CorruptStoreError for the first step that met damage."""
        if self._is_heard is not None:
            self._is_heard.synchronize()
        heard = iter(self._heard.tolist())
        marks = {t: list(islice(heard, each.numel())) for t, each in self.marks.items()}
        ends = {e: list(islice(heard, each.numel())) for e, each in self.ends.items()}
        kept = ends | {e: list(islice(heard, self.kept[e].numel())) for e in self.link_room}
        drawn, counts, kept_counts = dict.fromkeys(ends, 0), [], []
        for step, bad_list, bad in zip(self.steps, heard, heard, strict=False):
            src, _, dst = step.edge_type
            if bad_list != CLEAN:
                node = int(self.nodes[dst][marks[dst][step.hop] + bad_list])
                raise damaged_list(step.edge_type, node, self.graph.adjacency[step.edge_type].num_edges)
            if bad != CLEAN and step.drawn is not None:
                place, neighbor = int(step.drawn.told[2, bad]), int(step.drawn.neighbors[bad])
                raise damaged_neighbor(step.edge_type, self.num_nodes[src], place, neighbor)
            at, is_drawn = drawn[step.edge_type], step.offsets is not None
            for told, found in ((ends, counts), (kept, kept_counts)):
                found.append(told[step.edge_type][at + 1] - told[step.edge_type][at] if is_drawn else 0)
            drawn[step.edge_type] = at + is_drawn
        return marks, counts, kept_counts

    def finish(self) -> DeviceSample:
        """Wait, and put the result together, in newly allocated memory. Raises CorruptStoreError."""
        marks, drawn, counts = self._look()
        self._is_under_way = False
        self.workspace.most_batch_bytes = max(self.workspace.most_batch_bytes, self._num_bytes)
        edges = {edge_type: self._join(edge_type, marks[edge_type[2]], counts) for edge_type in self.graph.adjacency}
        nodes, trees = ({t: each[: marks[t][-1]].clone() for t, each in lists.items()} for lists in (self.nodes, self.trees))
        nodes_per_hop = {t: [end - begin for begin, end in pairwise(each)] for t, each in marks.items()}
        return DeviceSample(nodes, edges, nodes_per_hop, trees or None, sum(drawn) - sum(counts))

    def _join(self, edge_type: EdgeType, marks: list[int], counts: list[int]) -> DeviceEdges:
        """Join the steps over an edge type."""
        per_hop, parts = [0] * self.host.num_hops, []
        row_ptr = [self.ends[edge_type][:1]]
        for step, count in zip(self.steps, counts, strict=True):
            if step.edge_type == edge_type:
                num_rows, (span, offsets, told) = marks[step.hop + 1] - marks[step.hop], step.result
                row_ptr.append(span[:1].expand(num_rows) if offsets is None else offsets[1 : num_rows + 1])
                per_hop[step.hop] = count
                if told is not None:
                    parts.append(told[:, :count])
        told = torch.cat(parts, dim=1) if parts else self.numbers.new_empty((3, 0))
        # `data` has its own count of writes: writing to the numbers of edges is not writing to their ends (`feed/layers.py`)
        return DeviceEdges(told[:2], torch.cat(row_ptr), told.data[2], per_hop)


def _repetitions(seeds: np.ndarray) -> np.ndarray:
    """int64[n]: how often each seed came before."""
    return np.zeros(seeds.size, np.int64) if are_distinct(seeds) else count_repetitions(seeds)
