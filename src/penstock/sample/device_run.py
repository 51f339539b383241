"""One batch in the making on a device, and the same again for the next ones; compare `penstock.sample.neighbor`.

In: seeds and their place. Out: a `DeviceSample`. Invariant: what is asked of the device depends on nothing but how many seeds there are.

The processor waits for the device once per batch, when everything is asked for: sizes are the device's to know, memory is taken for what
fanouts allow. So what a batch asks for is written down, and asked for again as one for the next ones. The processor waits once more, and
asks for each kernel by itself, where there is no small bound on the edges of a hop. Damage is told with the sizes; nothing is read through
what is damaged.
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
"""Programs of one warp that take whole lists: so many for each multiprocessor; over the link, for each that saturates it by tiles."""

UNCOUNTED = 1 << 23
"""Up to so many edges, memory is taken for what fanouts allow, in place of waiting to hear how many there are."""


class _Drawn(NamedTuple):
    """Edges of a step, at most m. Attributes: told: int64[3, m], rows and columns of `edge_index`, and positions. neighbors: [m]."""

    told: torch.Tensor
    neighbors: torch.Tensor


class _Result(NamedTuple):
    """What a step gives to the sample: what was drawn, or what of it is not left out; what is not drawn is None.

    Attributes:
        span: int64[2]: edges of the type before, and up to here; the latter is not told where nothing is drawn.
        offsets: int64[b + 1], row pointers; b is at least the size of the frontier.
        told: of `_Drawn`.
    """

    span: torch.Tensor
    offsets: torch.Tensor | None = None
    told: torch.Tensor | None = None


@dataclass(slots=True)
class _Step:
    """A hop over an edge type; what is not drawn is None. Span, offsets: as in `_Result`, of all that is drawn."""

    hop: int
    edge_type: EdgeType
    span: torch.Tensor
    result: _Result
    offsets: torch.Tensor | None = None
    drawn: _Drawn | None = None


class DeviceRun:
    """Batches in the making, one after the other, of up to `room` seeds of each type; compare `penstock.sample.neighbor`.

    Attributes:
        room: see above.
        numbers: int64 on the device, what the host tells of a batch: seeds, how often each came before or, where trees are disjoint, the
            numbers of theirs, the moment of each tree where edges have times, the ends of edges to leave out, the words of the draws, that
            no program has arrived (`kernels/_block_sums.py`), where the numbers of each table begin; and what the device tells of it, by
            the values they start at: marks, ends, what is kept, damage.
        link_room: up to so many edges to leave out of each type; types that are not there have none.
        marks: int64[num_hops + 2] of each node type: nodes[marks[h]:marks[h + 1]] is the frontier of hop h, and marks[h + 2:] grow while
            that hop is drawn. At the end, the last one says how many nodes there are.
        ends: int64[num_hops + 1] of each edge type: edges taken before and after each step that draws.
        kept: the same of those that are not left out.
        status: int64[2] of each step, see `draw.sample_neighbors`.
        nodes, trees: int64 of each node type, ids of the nodes and, where trees are disjoint, which tree each is of.
        known, frontier: at most so many nodes there are, and does the next hop start from, as far as the processor knows.
        can_be_repeated: the processor had to know nothing of the batch; memory was there.
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
        self._staged = torch.zeros(sum(sizes), dtype=torch.int64, device="cpu", pin_memory=is_cuda)  # until the batch is waited for
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
        """Whether it makes the batches of a sampler."""
        return self.host is sampler.host and self.graph is sampler.graph

    def takes(self, seeds: Mapping[NodeType, np.ndarray], left_out: Mapping[EdgeType, np.ndarray]) -> bool:
        """Whether a batch can be made by it."""
        if list(seeds) != list(self.room) or list(left_out) != list(self.link_room):
            return False
        if any(self.workspace.tables[t].numbers is not numbers for t, numbers in self._recorded_tables.items()):
            return False  # they have grown since
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
        """Tell the device of a batch."""
        if self._is_under_way and self._is_heard is not None:  # the one before was left: what it told may be on its way still
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
        """Ask for all hops, and write down what was asked."""
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
        """Ask for the same, for another batch."""
        if self._recording is None:
            self._recording = Recording(self._launches, self.graph.device)
        self._recording.ask()

    def ask_for_sizes(self) -> None:
        """Have what the device tells of the batch sent to the host, behind all that was asked for."""
        self._heard.copy_(self._sizes, non_blocking=True)
        if self._is_heard is not None:
            self._is_heard.record(torch.cuda.current_stream(self.graph.device.index))

    def _add_seeds(self, node_type: NodeType, ids: torch.Tensor, trees: torch.Tensor | None, count: torch.Tensor) -> None:
        """Put nodes first; `trees`: which are theirs, where these are disjoint."""
        table, of_trees = self.workspace.tables[node_type], None
        if self.host.disjoint and trees is not None:
            of_trees = self._trees(node_type, ids.numel(), trees, None)
        compact.add_seeds(ids, count, table.numbers, self.bases[node_type], self.nodes[node_type], of_trees)

    def _trees(self, node_type: NodeType, m: int, known: torch.Tensor, columns: torch.Tensor | None) -> compact.Trees:
        """What m ids of nodes are mapped with where trees are disjoint; known, columns: which tree each id is of."""
        table = self.workspace.tables[node_type]
        assert isinstance(table, DeviceTreePositions)
        return compact.Trees(table.keys, self.num_nodes[node_type], self._empty(m), known, columns, self.trees[node_type])

    def _expand(self, hop: int) -> None:
        """Take one hop, over every edge type."""
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
        """Sample from the lists of a frontier, and number what is found."""
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
        """Memory for programs that take whole lists by shared draws."""
        num_programs = NEAR_TIMES * num_processors(self.graph.device) if far is None else FAR_TIMES * far.max_programs
        held = draw_shared.make_held(num_programs, fanout, self.graph.device)
        self._num_bytes += held.nbytes
        return held

    def _in_time(
        self, csc: DeviceCSC, step: _Step, frontier: tuple[torch.Tensor, torch.Tensor], num_rows: int, fanout: int, status: torch.Tensor
    ) -> InTime | None:
        """What of the lists of a frontier is in time for its trees; None where all of it is."""
        if csc.times is None:
            return None
        (times, by_time), last = csc.times, fanout if self.host.takes_last else -1
        windows = self._empty(2 * num_rows).view(num_rows, 2)
        find_windows(csc.indptr, times, *frontier, self.trees[step.edge_type[2]], self._moments, last, windows, status)
        return InTime(windows, by_time)

    def _leave_out(self, step: _Step, drawn: _Drawn, offsets: torch.Tensor, targets: torch.Tensor) -> _Result:
        """Leave edges out of what a step gives."""
        span, scratch = step.result.span, links_kernels.make_scratch(drawn.neighbors.numel(), self._arrived)
        self._num_bytes += scratch.ranks.nbytes + scratch.blocks.before.nbytes
        left = _Result(span, self._empty(offsets.numel()), self._empty(drawn.told.numel()).view(3, -1))
        links_kernels.leave_out(self._links[step.edge_type], targets, offsets, *drawn, step.span, span, scratch, left.told, left.offsets)
        return left

    def _far(self, frontier: tuple[torch.Tensor, torch.Tensor], num_rows: int, num_nodes: int) -> draw.Far:
        """How lists are read over the link, those near each other together, also where the device remembers all of their pages: reads of a
        few bytes are faster in order there too."""
        order = torch.empty(num_rows, dtype=torch.int32, device=self.graph.device)
        self._num_bytes += order.nbytes
        region_order.order_by_region(frontier[0], num_nodes, order, self._counts, frontier[1])
        return draw.Far(order, self._max_programs)

    def _relabel(self, drawn: _Drawn, step: _Step, src: NodeType) -> None:
        """Number the neighbours of a step."""
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
        """For as many nodes as there can be."""
        room = self.known[node_type]
        if room > self.nodes[node_type].numel():
            self.can_be_repeated = False
            for lists in (self.nodes, self.trees) if self.trees else (self.nodes,):
                before = lists[node_type]
                lists[node_type] = self._empty(room)
                lists[node_type][: before.numel()] = before
            self.workspace.room[node_type] = room

    def _hear(self, hop: int) -> int:
        """Wait, and know all sizes so far. Returns how many edges the last step takes."""
        self.ask_for_sizes()
        marks, counts, _ = self._look()
        self.known = {t: each[hop + 2] for t, each in marks.items()}
        self._found = {t: each[hop + 2] - each[hop + 1] for t, each in marks.items()}
        self._unheard, self.can_be_repeated = 0, False
        return counts[-1]

    def _look(self) -> tuple[dict[NodeType, list[int]], list[int], list[int]]:
        """Wait for the sizes that were asked for. Returns the marks of each node type, the edges of each step, and those that are kept of
        it; raises the error of the first one that has met damage."""
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
        """Put the result together, in memory of its own."""
        marks, drawn, counts = self._look()
        self._is_under_way = False
        self.workspace.most_batch_bytes = max(self.workspace.most_batch_bytes, self._num_bytes)
        edges = {edge_type: self._join(edge_type, marks[edge_type[2]], counts) for edge_type in self.graph.adjacency}
        nodes, trees = ({t: each[: marks[t][-1]].clone() for t, each in lists.items()} for lists in (self.nodes, self.trees))
        nodes_per_hop = {t: [end - begin for begin, end in pairwise(each)] for t, each in marks.items()}
        return DeviceSample(nodes, edges, nodes_per_hop, trees or None, sum(drawn) - sum(counts))

    def _join(self, edge_type: EdgeType, marks: list[int], counts: list[int]) -> DeviceEdges:
        """The steps over an edge type, one after the other."""
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
        return DeviceEdges(told[:2], torch.cat(row_ptr), told[2], per_hop)


def _repetitions(seeds: np.ndarray) -> np.ndarray:
    """int64[n]: how often each seed came before."""
    return np.zeros(seeds.size, np.int64) if are_distinct(seeds) else count_repetitions(seeds)
