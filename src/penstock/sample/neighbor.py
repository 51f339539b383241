"""k-hop neighbour sampling over typed graphs, by CPU kernels. Same result as `penstock.sample.reference`, byte for byte.

In: seeds and their place (seed, epoch, batch). Out: a `Sample`. Invariant: the sample is a pure function of (graph, seeds, fanouts,
seed, epoch, batch). A workspace holds only scratch memory, so any workspace gives the same sample. Each thread has its own; kernels run
without the GIL.

The rule is PyG's: a hop expands each node of its frontier (the nodes first seen in the hop before) once, over every edge type that ends in
the node's type.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from penstock import rng
from penstock.errors import NodeIdError, NotSupportedError, UsageError, damaged_neighbor
from penstock.kernels.edges import cpu as edge_kernels
from penstock.kernels.sample_layer import cpu as layer_kernels
from penstock.kernels.sample_neighbors import cpu as draw
from penstock.kernels.sample_shared import cpu as shared
from penstock.records import CSC, Allocator, EdgeType, Graph, NodeType, Sample, SampledEdges, check_neighbors
from penstock.sample.budget import Budget, NumSamples, check_num_samples
from penstock.sample.draws import Draw, Frontier, check_counts, draw_positions
from penstock.sample.fanouts import check_fanouts
from penstock.sample.layer_wise import check_layer_wise, choose
from penstock.sample.shared import PIECE, check_shared, pieces
from penstock.sample.walks import Walks, check_walks, sample_walks, sampled_graph
from penstock.sample.workspace import Growing, Workspace


class NeighborSampler:
    """k-hop neighbour sampling, in one of these ways: uniform; by weight, for edge types with weights (`penstock.sample.weights`); by time,
    among the edges that are not later than the seed (`penstock.sample.times`); with shared draws (`penstock.sample.shared`); layer-wise, a
    number of nodes for all lists of a hop together (`penstock.sample.layer_wise`); by random walks (`penstock.sample.walks`); a number of
    nodes of each type, as in HGT (`penstock.sample.budget`).

    Args:
        graph: the graph to sample from.
        num_neighbors: fanout of each hop, element 0 next to the seeds, -1 = all; one list for all edge types, or one per edge type.
        replace: draw with replacement.
        disjoint: every seed gets its own tree; nodes are shared only within a tree. Always so where edges have times.
        induced: return all edges among the sampled nodes, not only the sampled edges. Without hops: among the seeds.
        takes_last: where edges have times, take the latest edges in time instead of drawing among them.
        reach: how much earlier than the time given to `sample` an edge may be, where edges have times; -1: as early as it likes.
        shared_draws: number of consecutive batches whose lists share the random numbers of a hop; 0: each list has its own.
        walks: neighbours are the nodes that these walks visit most; None: neighbours are drawn from lists.
        layer_wise: `num_neighbors` counts the new nodes of a hop per edge type, not the neighbours of each list.
        num_samples: how many nodes each hop adds of each type: one list for all, or one per node type, -1 = all; `num_neighbors` then does
            not count, and no edges belong to hops: `induced` gives those among the nodes. None: hops are as above.
        seed: of all randomness, in [0, 2**64).
    Raises:
        UsageError: a value that is not allowed, or two ways that exclude each other.
        NotSupportedError: two ways that are not supported together.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        *,
        replace: bool = False,
        disjoint: bool = False,
        induced: bool = False,
        takes_last: bool = False,
        reach: int = -1,
        shared_draws: int = 0,
        walks: Walks | None = None,
        layer_wise: bool = False,
        num_samples: NumSamples | None = None,
        seed: int = 0,
    ) -> None:
        self.is_temporal = any(csc.timed is not None for csc in graph.adjacency.values())
        if induced and self.is_temporal:
            raise UsageError("sampling by time has no induced subgraphs, which would hold later edges: take subgraph_type='directional'")
        if self.is_temporal and any(csc.sums is not None for csc in graph.adjacency.values()):
            raise NotSupportedError("sampling by time and by weight at once is not supported (nor by PyG): leave out one of them")
        if shared_draws:
            check_shared(graph, replace=replace, disjoint=disjoint)
        if layer_wise:
            check_layer_wise(graph, replace=replace, disjoint=disjoint, shared_draws=shared_draws)
        if walks is not None:
            walks = check_walks(graph, walks, replace=replace, induced=induced, shared_draws=shared_draws, layer_wise=layer_wise)
        self.num_samples = None
        if num_samples is not None:
            others = {"replace": replace, "disjoint": disjoint, "walks": walks, "shared_draws": shared_draws, "layer_wise": layer_wise}
            self.num_samples = check_num_samples(graph, num_samples, others)
            num_neighbors = [-1] * len(next(iter(self.num_samples.values())))
        self.graph = graph
        self.walks = walks
        self.takes_last = takes_last
        self.reach = reach
        self.shared_draws = shared_draws
        self.layer_wise = layer_wise
        self.fanouts = check_fanouts(self.sampled, num_neighbors, are_hops_needed=not induced)
        self.num_hops = len(next(iter(self.fanouts.values()), []))
        self.replace = replace
        self.disjoint = disjoint or self.is_temporal
        self.induced = induced
        self.seed = seed

    def over(self, graph: Graph) -> NeighborSampler:
        """The same sampler; `graph` is the same graph, read from another place (see `penstock.sample.lists`)."""
        moved = copy.copy(self)
        moved.graph = graph
        return moved

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that make this sampler over a graph."""
        names = list(signature(NeighborSampler).parameters)[2:]
        return {"num_neighbors": self.fanouts} | {name: getattr(self, name) for name in names}

    @property
    def sampled(self) -> Graph:
        """The graph that defines the edge types of a sample. For walks it has one edge type, whose edges are in no list."""
        return self.graph if self.walks is None else sampled_graph(self.graph, self.walks)

    @property
    def reads_whole_lists(self) -> bool:
        """Whether lists are read as a whole, whatever is taken of them."""
        return bool(self.shared_draws or self.layer_wise or self.num_samples)

    def workspace(self) -> Workspace:
        """Make scratch memory for one more thread."""
        return Workspace(self.graph, disjoint=self.disjoint)

    def sample(
        self,
        seeds: Mapping[NodeType, np.ndarray],
        *,
        epoch: int,
        batch: int,
        workspace: Workspace,
        times: Mapping[NodeType, np.ndarray] | None = None,
        allocate: Allocator = np.empty,
    ) -> Sample:
        """Sample the neighbourhood of one batch.

        Args:
            seeds: node type -> int64[n] global ids. A repeated seed is kept and expanded each time. Disjoint trees are numbered in the
                order of the types here.
            epoch, batch: place in the run. The epoch goes into the random key, the batch index into the counter.
            workspace: of this thread.
            times: node type -> int64[n], the time of each seed; no edge of its tree is later. Required where edges have times.
            allocate: allocates the arrays of the result.
        Returns:
            A `Sample`: nodes of each type in the order in which they are seen, seeds first; sampled edges by batch positions. All int64.
        Raises:
            NodeIdError: a seed is not a node of its type.
            UsageError: an unknown node type; a batch index of 2**32 or more; disjoint trees of more than 2**20 seeds; missing times.
            CorruptStoreError: a damaged list. NotSupportedError: a list longer than draws reach.
        """
        self.check(seeds, batch, times)
        moments = None if times is None else np.concatenate([times[t] for t in seeds])
        key = rng.derive_key(self.seed, epoch, self._domain)
        run = _Run(self, seeds, moments, key, batch, workspace, allocate)
        try:
            for hop in range(self.num_hops):
                run.expand(hop)
            return run.finish()
        finally:
            for node_type, table in workspace.tables.items():  # if a list could not be read, a table holds candidates too
                table.finish(max(run.num_known(node_type), workspace.layer.ids.size))

    @property
    def _domain(self) -> int:
        """Of random keys."""
        if self.num_samples:
            return rng.BUDGET
        return rng.WALK if self.walks else rng.LAYER if self.layer_wise else rng.SHARED if self.shared_draws else rng.SAMPLE

    def check(self, seeds: Mapping[NodeType, np.ndarray], batch: int, times: Mapping[NodeType, np.ndarray] | None = None) -> None:
        """Check the arguments of `sample`. Raises the same errors for them."""
        if batch >= rng.MAX_BATCHES:
            raise UsageError(f"batch index {batch} is beyond {rng.MAX_BATCHES - 1}")
        if self.disjoint and (num_seeds := sum(ids.size for ids in seeds.values())) > rng.MAX_COPIES:
            raise UsageError(f"disjoint sampling takes at most {rng.MAX_COPIES} seeds a batch, got {num_seeds}")
        if self.is_temporal and (times is None or any(t not in times or times[t].shape != ids.shape for t, ids in seeds.items())):
            raise UsageError("edges have times: sample(..., times=) takes one for each seed")
        for seed_type, ids in seeds.items():
            check_ids(self.graph, seed_type, ids)


def check_ids(graph: Graph, node_type: NodeType, ids: np.ndarray, *, are_looked_up: bool = False) -> None:
    """Raise NodeIdError unless all int64[n] `ids` are nodes of the type, UsageError if there is no such type. `are_looked_up`: ids were
    looked up from the user's ids; -1 means that one is unknown."""
    if node_type not in graph.num_nodes:
        raise UsageError(f"'{node_type}' is not a node type; the node types are {graph.node_types}")
    num_nodes = graph.num_nodes[node_type]
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= num_nodes):
        bad = np.flatnonzero((ids < 0) | (ids >= num_nodes))
        raise NodeIdError(
            f"{bad.size} of {ids.size} seeds lie outside [0, {num_nodes}), the ids of node type '{node_type}'; first is "
            f"seeds[{bad[0]}] = {ids[bad[0]]}"
            + ("; -1 is what store.find returns for unknown ids" if are_looked_up and ids[bad[0]] == -1 else "")
        )


class _Run:
    """One batch in the making."""

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
