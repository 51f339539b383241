"""Which rows of each step later steps read: for the last step the requested nodes, for the one before also their in-neighbours, and so on.

In: a graph, steps, and requested nodes. Out: for each step the nodes for which it is computed. Invariant: a step is computed for all nodes
whose rows the next one reads. The sets are nested, so that one byte per node stores all of them: its distance in hops to a requested node.
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
"""Share of the nodes: if a step needs more, it and all earlier ones are computed for all nodes. Reading the lists of most nodes takes 0.1 s
for 1M nodes with 8 neighbours each, and a layer of width 128 takes 2 s there, so saving a tenth of it already pays for finding the
nodes."""
EDGE_BYTES = 32
"""Approximate bytes per edge of a batch without features: the edge, its number, and its node."""
_FAR = 255


@dataclass(frozen=True, slots=True)
class Needed:
    """The nodes for which each step is computed.

    Attributes:
        wanted: (node type, int64[n]): for the last step, in this order.
        num_nodes: node type -> number of nodes of the graph.
        counts: for each step, node type -> number of nodes, without types that have none.
        hops: for each step, the distance from requested nodes up to which it is computed; None: for all nodes.
        distances: node type -> uint8[num_nodes], hops to a requested node; 255: farther than was searched. Empty if it is not used.
    """

    wanted: tuple[NodeType, np.ndarray]
    num_nodes: dict[NodeType, int]
    counts: list[dict[NodeType, int]]
    hops: list[int | None]
    distances: dict[NodeType, np.ndarray]

    def nodes(self, number: int, node_type: NodeType) -> np.ndarray:
        """Return int64[n]: the nodes of a type for which a step is computed; ascending, except for the last step."""
        if number == len(self.hops) - 1:
            return self.wanted[1]
        hops = self.hops[number]
        return np.arange(self.num_nodes[node_type]) if hops is None else np.flatnonzero(self.distances[node_type] <= hops)

    @property
    def num_rows(self) -> int:
        """Number of rows that all steps together compute."""
        return sum(sum(each.values()) for each in self.counts)

    @property
    def has_all(self) -> bool:
        """Whether all steps but the last are computed for all nodes."""
        return all(hops is None for hops in self.hops[:-1])


def find_needed(base: Input, steps: Sequence[Step], wanted: tuple[NodeType, np.ndarray], num_workers: int = 0) -> Needed:
    """Find the nodes for which each step is computed, by sampling batches of all neighbours, without features.

    For types that are not requested, the last node is always included, so that a batch without nodes of a type still has an array of rows
    for it, of length 0. The last node, since it has the fewest neighbours if nodes are sorted by degree.

    Args:
        base: the graph.
        steps: one per layer; those of class `OfRows` read no neighbours.
        wanted: (node type, int64[n]), distinct, in [0, num_nodes).
        num_workers: as for a loader.
    Raises:
        CorruptStoreError: a neighbour is not a node.
    Cost: a byte per node; each neighbour list is read at most once, and lists of at most `LIMIT` of the nodes. Nothing if more nodes are
    requested, or if there is only one step.
    """
    graph, (target, ids) = base.graph, wanted
    everything = {t: count for t, count in graph.num_nodes.items() if count}
    most = LIMIT * sum(everything.values())
    after = [sum(not isinstance(later, OfRows) for later in steps[number + 1 :]) for number in range(len(steps) - 1)]
    distances: dict[NodeType, np.ndarray] = {}
    known: list[dict[NodeType, int]] = []  # by number of hops
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
    """Mark the neighbours of nodes at distance `hop - 1`. Returns the numbers of nodes within distance `hop` by type; None if more than
    `most` in all."""
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
                new = nodes[each[nodes] == _FAR]  # a node occurs once in a batch
                each[new] = hop
                counts[t] += new.size
            if sum(counts.values()) > most:
                return None
    return counts
