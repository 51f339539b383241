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
from penstock.errors import NodeIdError, NotSupportedError, UsageError
from penstock.records import Allocator, EdgeType, Graph, NodeType, Sample
from penstock.sample.budget import NumSamples, check_num_samples
from penstock.sample.fanouts import check_fanouts
from penstock.sample.host_run import HostRun
from penstock.sample.layer_wise import check_layer_wise
from penstock.sample.shared import check_shared
from penstock.sample.walks import Walks, check_walks, sampled_graph
from penstock.sample.workspace import Workspace


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
        run = HostRun(self, seeds, moments, key, batch, workspace, allocate)
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
