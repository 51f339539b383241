"""Makes one batch on the CPU, hop by hop; compare `penstock.sample.device_run`.

In: a sampler, seeds, and scratch memory of the thread. Out: a `Sample`. Invariant: as of `penstock.sample.neighbor`. A list that cannot be
read leaves nothing behind: the sampler empties the tables, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from penstock import rng
from penstock.errors import damaged_neighbor
from penstock.kernels.edges import cpu as edge_kernels
from penstock.kernels.sample_layer import cpu as layer_kernels
from penstock.kernels.sample_neighbors import cpu as draw
from penstock.kernels.sample_shared import cpu as shared
from penstock.records import CSC, Allocator, EdgeType, NodeType, Sample, SampledEdges, check_neighbors
from penstock.sample.budget import Budget
from penstock.sample.draws import Draw, Frontier, check_counts, draw_positions
from penstock.sample.layer_wise import choose
from penstock.sample.shared import PIECE, pieces
from penstock.sample.walks import sample_walks
from penstock.sample.workspace import Growing, Workspace

if TYPE_CHECKING:
    from penstock.sample.neighbor import NeighborSampler


class HostRun:
    """One batch in the making.

    Args:
        sampler, seeds, times, batch, workspace, allocate: of `NeighborSampler.sample`; times for all seeds, one after the other.
        key: uint64[2], of the random generator.
    Attributes:
        nodes, nodes_per_hop: of the sample so far.
    """

    def __init__(self, sampler: NeighborSampler, seeds, times, key, batch, workspace: Workspace, allocate: Allocator) -> None:
        self.sampler, self.graph, self._times = sampler, sampler.graph, times
        self.key, self.batch, self.workspace = key, batch, workspace
        hints, of_samples = workspace.hints, sampler.sampled
        self.nodes = {t: Growing(t, np.int64, allocate, hints) for t in self.graph.num_nodes}
        self.rows = {e: Growing((e, "row"), np.int64, allocate, hints) for e in of_samples.adjacency}
        self.positions = {e: Growing((e, "position"), np.int64, allocate, hints) for e in of_samples.adjacency}
        self.row_ptr = {e: Growing((e, "row_ptr"), np.int64, allocate, hints) for e in of_samples.adjacency}
        self.edges_per_hop: dict[EdgeType, list[int]] = {e: [] for e in of_samples.adjacency}
        for row_ptr in self.row_ptr.values():
            row_ptr.room(1)[0] = 0
            row_ptr.size = 1
        self._begin = dict.fromkeys(self.graph.num_nodes, 0)
        self._copies, num_trees = {}, 0
        for seed_type, ids in seeds.items():
            self._copies[seed_type] = self._add_seeds(seed_type, ids, num_trees)
            num_trees += ids.size
        self.nodes_per_hop = {t: [known.size] for t, known in self.nodes.items()}
        self._budget = Budget({t: known.values for t, known in self.nodes.items()}, hints) if sampler.num_samples else None

    def num_known(self, node_type: NodeType) -> int:
        """How many nodes the table of a type may have: those of the batch, and candidates."""
        return max(self.nodes[node_type].size, self._budget.ids[node_type].size if self._budget is not None else 0)

    def _add_seeds(self, seed_type: NodeType, seeds: np.ndarray, first_tree: int) -> np.ndarray | None:
        """Put the seeds first. Returns the copy number of each seed (how often it came before), or None if all are distinct."""
        nodes = self.nodes[seed_type]
        keys = np.ascontiguousarray(seeds, dtype=np.int64)
        if self.sampler.disjoint:
            keys = keys + np.arange(first_tree, first_tree + keys.size) * self.graph.num_nodes[seed_type]
        repeated = self.workspace.tables[seed_type].add_seeds(keys, nodes.room(keys.size))
        nodes.size = keys.size
        return edge_kernels.count_repetitions(keys) if repeated else None

    def expand(self, hop: int) -> None:
        """Find the nodes of the next hop."""
        end = {t: known.size for t, known in self.nodes.items()}
        if self._budget is not None:
            self._spend(self._budget, hop, end)
        else:
            self._expand_lists(hop, end)
        self._begin = end
        for t, known in self.nodes.items():
            self.nodes_per_hop[t].append(known.size - end[t])

    def _spend(self, budget: Budget, hop: int, end: Mapping[NodeType, int]) -> None:
        """Credit the neighbours of a hop's nodes, for all edge types; then take the next nodes of each type."""
        tables = self.workspace.tables
        for edge_type, csc in self.graph.adjacency.items():
            src, _, dst = edge_type
            frontier = self.nodes[dst].values[self._begin[dst] : end[dst]]
            count, longest = draw.count_neighbors(csc.indptr, csc.num_edges, frontier, -1, False)
            check_counts(edge_type, csc, frontier, -1, count, longest, rng.MAX_DEGREE)
            begins = np.concatenate([[0], np.cumsum(csc.degrees(frontier))])
            for first, last in pieces(begins, PIECE):
                here = begins[first : last + 1]
                budget.credit(src, tables[src], self._read_whole(edge_type, csc, frontier[first:last], here), np.diff(here))
        for number, (node_type, counts) in enumerate((self.sampler.num_samples or {}).items()):
            place, nodes = (self.key, self.batch, hop, number), self.nodes[node_type]
            chosen = budget.spend(node_type, tables[node_type], counts[hop], place, self.workspace)
            nodes.room(chosen.size)[: chosen.size] = chosen
            nodes.size += chosen.size

    def _expand_lists(self, hop: int, end: Mapping[NodeType, int]) -> None:
        """Expand the frontier of a hop over every edge type."""
        for number, (edge_type, csc) in enumerate(self.sampler.sampled.adjacency.items()):
            dst = edge_type[2]
            if self._begin[dst] == end[dst]:
                self.edges_per_hop[edge_type].append(0)
                continue
            frontier = self.nodes[dst].values[self._begin[dst] : end[dst]]
            copies = self._copies.get(dst) if hop == 0 else None
            trees = None
            if self.sampler.disjoint:
                trees, frontier = np.divmod(frontier, self.graph.num_nodes[dst])
                copies = trees
            self._expand_edge_type(number, edge_type, csc, hop, frontier, copies, trees)

    def _expand_edge_type(self, number: int, edge_type: EdgeType, csc: CSC, hop: int, frontier, copies, trees) -> None:
        rows = self.rows[edge_type]
        positions = self.positions[edge_type]
        row_ptr = self.row_ptr[edge_type]
        nodes = self.nodes[edge_type[0]]
        row_ptr.room(frontier.size)
        offsets = row_ptr.whole[row_ptr.size - 1 :]
        fanout = self.sampler.fanouts[edge_type][hop]
        if self.sampler.layer_wise and fanout > 0:
            count = self._take_together(edge_type, csc, frontier, fanout, (self.key, self.batch, hop, number), offsets)
        else:
            neighbors, count = self._draw(edge_type, csc, frontier, fanout, (hop, number, copies), offsets, positions.room)
            if trees is not None:
                neighbors = neighbors[:count] + np.repeat(trees, np.diff(offsets[: frontier.size + 1])) * self.graph.num_nodes[edge_type[0]]
            nodes.room(count)
            nodes.size = self.workspace.tables[edge_type[0]].relabel(neighbors, count, nodes.size, nodes.whole, rows.room(count))
        rows.size += count
        positions.size += count
        row_ptr.size += frontier.size
        self.edges_per_hop[edge_type].append(count)

    def _draw(self, edge_type: EdgeType, csc: CSC, frontier, fanout: int, place, offsets, make_room) -> tuple[np.ndarray, int]:
        """Draw neighbours of a frontier. Returns (scratch with their ids, their number); fills row offsets and positions."""
        sampler, num_src, (hop, number, copies) = self.sampler, self.graph.num_nodes[edge_type[0]], place
        if sampler.walks is not None:
            where = self.key, self.batch, hop
            return sample_walks(self.graph, sampler.walks, frontier, copies, fanout, where, self.workspace, offsets, make_room)
        if sampler.shared_draws and fanout > 0:
            return self._draw_shared(edge_type, csc, frontier, fanout, hop, offsets, make_room)
        lists = Frontier(frontier, copies, None if csc.timed is None else self._times[copies])
        how = Draw(fanout, sampler.replace, sampler.takes_last, sampler.reach, self.key, self.batch, hop, number)
        if csc.draws is not None:
            positions, taken = csc.draws.draw(how, lists, offsets, make_room), 0
            neighbors = self.workspace.neighbors(positions.size, csc.indices.dtype)[: positions.size]
        else:
            positions, neighbors, taken = draw_positions(
                edge_type, csc, num_src, how, lists, self.workspace, offsets, make_room, are_read=csc.lists is None
            )
        self._look_up(edge_type, csc, frontier, offsets, positions, neighbors, taken)
        return neighbors, positions.size

    def _draw_shared(self, edge_type: EdgeType, csc: CSC, frontier, fanout: int, hop: int, offsets, make_room) -> tuple[np.ndarray, int]:
        """The same with shared draws. Reads whole lists; where they are not in `indices`, some lists at a time."""
        num_src, source = self.graph.num_nodes[edge_type[0]], self.graph.first_from(edge_type[0])
        count, longest = draw.count_neighbors(csc.indptr, csc.num_edges, frontier, fanout, False)
        check_counts(edge_type, csc, frontier, fanout, count, longest, shared.MAX_DEGREE)
        neighbors, positions = self.workspace.neighbors(count, csc.indices.dtype), make_room(count)
        place = self.key, self.batch // self.sampler.shared_draws, hop, source
        scratch = self.workspace.shared_scratch(edge_type, csc.num_dst, longest)

        def choose(lists, begins, first: int, last: int) -> None:
            out = offsets[first:], positions[(at := int(offsets[first] - offsets[0])) :], neighbors[at:]
            bad = shared.sample_neighbors(csc.indptr, lists, begins, num_src, frontier[first:last], fanout, *place, *scratch, *out)
            if bad >= 0:
                raise damaged_neighbor(edge_type, num_src, bad, int(csc.indices[bad]))

        if csc.lists is None:
            choose(csc.indices, None, 0, frontier.size)
            return neighbors, count
        begins = np.concatenate([[0], np.cumsum(csc.degrees(frontier))])
        for first, last in pieces(begins, PIECE):
            here = begins[first : last + 1]
            choose(self._read_whole(edge_type, csc, frontier[first:last], here), here, first, last)
        return neighbors, count

    def _take_together(self, edge_type: EdgeType, csc: CSC, frontier, fanout: int, place: tuple, offsets) -> int:
        """Layer-wise: take `fanout` new nodes for all lists of a hop together. Reads whole lists, some at a time. Returns the number of
        edges; fills row offsets, rows and positions."""
        rows, positions, nodes = self.rows[edge_type], self.positions[edge_type], self.nodes[edge_type[0]]
        count, longest = draw.count_neighbors(csc.indptr, csc.num_edges, frontier, -1, False)
        check_counts(edge_type, csc, frontier, fanout, count, longest, rng.MAX_DEGREE)
        table, layer, known = self.workspace.tables[edge_type[0]], self.workspace.layer, nodes.size
        layer.begin(nodes.values, count)
        ids, begins = layer.ids, np.concatenate([[0], np.cumsum(csc.degrees(frontier))])
        for first, last in pieces(begins, PIECE):
            here = begins[first : last + 1]
            neighbors = self._read_whole(edge_type, csc, frontier[first:last], here)
            ids.room(neighbors.size)
            ids.size = table.relabel(neighbors, neighbors.size, ids.size, ids.whole, layer.sources[here[0] : here[-1]])
        num_seen, taken = ids.size, choose(layer, csc.indptr, frontier, fanout, place, longest, known)
        if ids.size < num_seen:
            table.finish(num_seen)
            table.add_seeds(ids.values, ids.values)  # the nodes that are kept, at their positions
        layer_kernels.take(csc.indptr, frontier, layer.sources, offsets, rows.room(taken + 1), positions.room(taken + 1))
        nodes.room(ids.size - known)[: ids.size - known] = ids.values[known:]
        nodes.size = ids.size
        return taken

    def _read_whole(self, edge_type: EdgeType, csc: CSC, frontier, begins) -> np.ndarray:
        """Read all neighbours of the frontier. `begins`: int64[n + 1] row offsets, as of a draw; the list of frontier[i] begins at
        begins[i] - begins[0]."""
        neighbors, positions = (np.empty(begins[-1] - begins[0], dtype) for dtype in (csc.indices.dtype, np.int64))
        taken = draw.sample_neighbors(
            csc.indptr, csc.indices if csc.lists is None else None, self.graph.num_nodes[edge_type[0]], frontier, -1, False, self.key,
            0, 0, 0, None, *self.workspace.tile, self.workspace.bitmap(0), begins, positions, neighbors,
        )  # fmt: skip
        self._look_up(edge_type, csc, frontier, begins, positions, neighbors, taken)
        return neighbors

    def _look_up(self, edge_type: EdgeType, csc: CSC, frontier, offsets, positions, neighbors, taken: int) -> None:
        """Read the neighbours at the drawn positions, unless the draw has read them. Raises CorruptStoreError if one is not a node."""
        num_src = self.graph.num_nodes[edge_type[0]]
        if csc.lists is not None and positions.size:
            csc.lists.read(frontier, offsets[: frontier.size + 1], positions, neighbors)
        if csc.lists is not None or taken < 0:
            check_neighbors(edge_type, num_src, positions, neighbors)

    def finish(self) -> Sample:
        """Put the result together."""
        edges = {}
        if self._budget is not None:
            self._budget.close(self.workspace.tables)
        for edge_type, csc in self.sampler.sampled.adjacency.items():
            if self.sampler.induced:
                self._induce(edge_type, csc)
            row_ptr = self.row_ptr[edge_type].finish()
            positions = self.positions[edge_type].finish()
            edge_index = self._with_columns(self.rows[edge_type], row_ptr)
            per_hop = None if self.sampler.induced else self.edges_per_hop[edge_type]
            edges[edge_type] = SampledEdges(edge_index, row_ptr, positions, per_hop)
        nodes = {t: known.finish() for t, known in self.nodes.items()}
        trees = None
        if self.sampler.disjoint:
            split = {t: np.divmod(keys, max(self.graph.num_nodes[t], 1)) for t, keys in nodes.items()}
            trees, nodes = {t: tree for t, (tree, _) in split.items()}, {t: node for t, (_, node) in split.items()}
        return Sample(nodes, edges, self.nodes_per_hop, trees)

    def _with_columns(self, rows: Growing, row_ptr: np.ndarray) -> np.ndarray:
        """Return int64[2, num_edges]: the sources in `rows`, and the destinations, which follow from the row pointers."""
        num_edges = rows.size
        edge_kernels.fill_columns(row_ptr, rows.room(num_edges))
        rows.size += num_edges
        return rows.finish().reshape(2, num_edges)

    def _induce(self, edge_type: EdgeType, csc: CSC) -> None:
        """Replace the sampled edges of one type by all edges among the sampled nodes, or those of a tree: read the whole lists of these
        nodes, some at a time, and keep the sources that are in the batch. Edges of weight 0 are among them, too."""
        nodes, trees, table = self.nodes[edge_type[2]].values, None, self.workspace.tables[edge_type[0]]
        if self.sampler.disjoint:
            trees, nodes = np.divmod(nodes, max(csc.num_dst, 1))
        rows, positions, row_ptr = self.rows[edge_type], self.positions[edge_type], self.row_ptr[edge_type]
        rows.size, positions.size, row_ptr.size = 0, 0, 1
        count, longest = draw.count_neighbors(csc.indptr, csc.num_edges, nodes, -1, False)
        check_counts(edge_type, csc, nodes, -1, count, longest, rng.MAX_DEGREE)
        begins = np.concatenate([[0], np.cumsum(csc.degrees(nodes))])
        for first, last in pieces(begins, PIECE):
            neighbors = self._read_whole(edge_type, csc, nodes[first:last], begins[first : last + 1])
            if trees is not None:
                neighbors = neighbors + np.repeat(trees[first:last], np.diff(begins[first : last + 1])) * self.graph.num_nodes[edge_type[0]]
            sources = np.empty(neighbors.size, np.int64)
            table.lookup(neighbors, neighbors.size, sources)
            taken = int(np.count_nonzero(sources >= 0))
            row_ptr.room(last - first)
            offsets = row_ptr.whole[row_ptr.size - 1 :]
            layer_kernels.take(csc.indptr, nodes[first:last], sources, offsets, rows.room(taken + 1), positions.room(taken + 1))
            rows.size, positions.size, row_ptr.size = rows.size + taken, positions.size + taken, row_ptr.size + last - first
