"""Which rows of each step later ones read: those of the nodes that are wanted, of these and their in-neighbours, and so on backwards.

In: a graph, steps, and wanted nodes. Out: for each step the nodes that it is computed for. Invariant: whatever a step reads for its nodes,
the step before is computed for. The sets are nested, so that a byte a node holds all of them: how many hops it is from a wanted node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.feed import NeighborLoader
from penstock.feed.inputs import Input
from penstock.inference.steps import OfRows, Step, WithRows, num_nodes_by_bytes
from penstock.plan import Plan
from penstock.records import NodeType

LIMIT = 9 / 10
"""Of the nodes: where more would be read of a step, it and those before are computed for all. Reading the lists of most nodes takes 0.1 s
for 1M nodes with 8 neighbours each, and a layer of width 128 takes 2 s there: already a tenth less of it pays for looking."""
EDGE_BYTES = 32
"""Of a batch without features, about: its edges, their numbers, and their nodes."""
_FAR = 255


@dataclass(frozen=True, slots=True)
class Needed:
    """The nodes that each step is computed for.

    Attributes:
        wanted: (node type, int64[n]): of the last step, in this order.
        num_nodes: node type -> count, of the graph.
        counts: of each step, node type -> nodes; of types that have some.
        hops: of each step, how far from wanted nodes it is computed; None: for all nodes.
        distances: node type -> uint8[num_nodes], hops from a wanted node, 255: farther than was looked; empty where nobody asks.
    """

    wanted: tuple[NodeType, np.ndarray]
    num_nodes: dict[NodeType, int]
    counts: list[dict[NodeType, int]]
    hops: list[int | None]
    distances: dict[NodeType, np.ndarray]

    def nodes(self, number: int, node_type: NodeType) -> np.ndarray:
        """int64[n]: the nodes of a type that a step is computed for; they ascend, but for the last step."""
        if number == len(self.hops) - 1:
            return self.wanted[1]
        hops = self.hops[number]
        return np.arange(self.num_nodes[node_type]) if hops is None else np.flatnonzero(self.distances[node_type] <= hops)

    @property
    def num_rows(self) -> int:
        """Rows that all steps together compute."""
        return sum(sum(each.values()) for each in self.counts)

    @property
    def has_all(self) -> bool:
        """Whether all steps but the last are computed for all nodes."""
        return all(hops is None for hops in self.hops[:-1])


def find_needed(base: Input, steps: Sequence[Step], wanted: tuple[NodeType, np.ndarray], num_workers: int = 0) -> Needed:
    """Find the nodes that each step is computed for, by batches of their neighbours, without features.

    Of types that are not wanted the last node is always there: a batch without nodes of a type then has rows of it all the same, none in
    number. The last, for in a graph that is ordered by degree it reads least.

    Args:
        base: the graph.
        steps: one for each layer; those that are `OfRows` read no neighbours.
        wanted: (node type, int64[n]), distinct, in [0, num_nodes).
        num_workers: as of a loader.
    Raises:
        CorruptStoreError: a neighbour that is no node.
    Cost: a byte a node; each neighbour list is read once at most, those of `LIMIT` of the nodes at most. Nothing where more are wanted, or
    where there is one step.
    """
    graph, (target, ids) = base.graph, wanted
    everything = {t: count for t, count in graph.num_nodes.items() if count}
    most = LIMIT * sum(everything.values())
    after = [sum(not isinstance(later, OfRows) for later in steps[number + 1 :]) for number in range(len(steps) - 1)]
    distances: dict[NodeType, np.ndarray] = {}
    known: list[dict[NodeType, int]] = []  # of each number of hops
    if after and ids.size <= most:
        distances = {t: np.full(count, _FAR, np.uint8) for t, count in everything.items()}
        for t, each in distances.items():
            each[ids if t == target else -1] = 0
        known.append({t: ids.size if t == target else 1 for t in everything})
        for hop in range(1, min(max(after), _FAR - 1) + 1):
            counts = _go_on(base, hop, distances, known[-1], most, num_workers)
            if counts is None:
                break
            known.append(counts)
    hops = [hop if hop < len(known) else None for hop in after]
    counts = [everything if hop is None else known[hop] for hop in hops]
    return Needed(wanted, graph.num_nodes, [*counts, {target: ids.size}], [*hops, 0], distances)


def _go_on(
    base: Input, hop: int, distances: dict[NodeType, np.ndarray], counts: dict[NodeType, int], most: float, num_workers: int
) -> dict[NodeType, int] | None:
    """Mark the neighbours of what is `hop - 1` away. Returns how many of each type are `hop` away at most; None: beyond `most` in all."""
    source, counts = WithRows(base, None, ()), dict(counts)
    row_bytes = dict.fromkeys(base.graph.num_nodes, EDGE_BYTES)
    for node_type in distances:
        ids = np.flatnonzero(distances[node_type] == hop - 1)
        if not ids.size:
            continue
        is_homogeneous = base.graph.is_homogeneous
        for batch in NeighborLoader(
            source, [-1], input_nodes=ids if is_homogeneous else (node_type, ids), num_workers=num_workers, seed=0,
            batch_size=num_nodes_by_bytes(base.graph, row_bytes, node_type), plan=Plan(huge_pages=False),
        ):  # fmt: skip
            for t, each in distances.items():
                nodes = (batch if is_homogeneous else batch[t]).n_id.numpy()
                new = nodes[each[nodes] == _FAR]  # a node comes once in a batch
                each[new] = hop
                counts[t] += new.size
            if sum(counts.values()) > most:
                return None
    return counts
