"""HGT's sampling: a hop adds a fixed number of nodes of each type, for all lists of all edge types together.

In: the nodes of a hop, and their lists. Out: the next nodes of the batch. Invariant: a node outside the batch has a score, the sum over its
edges into the batch of 1 / (length of the list that the edge is in); a seed that is repeated counts as often. Those that a hop adds are
drawn in proportion to the squares of scores, by successive sampling without replacement. The choice is a pure function of (graph, seeds,
numbers of nodes, seed, epoch, batch).
Source: HGSampling of Hu et al., Heterogeneous Graph Transformer, WWW 2020. See `docs/design/layer_wise.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from penstock import rng
from penstock.errors import NotSupportedError, UsageError
from penstock.records import CSC, EdgeType, Graph, NodeType
from penstock.sample.compaction import DirectTable, HashTable
from penstock.sample.draws import Draw, Frontier, draw_positions
from penstock.sample.fanouts import whole_numbers
from penstock.sample.weights import Weights, weigh
from penstock.sample.workspace import Growing, Scratch

NumSamples = Sequence[int] | Mapping[NodeType, Sequence[int]]

_SCORES: EdgeType = ("node", "scores", "batch")
"""Names candidates as if they were a neighbour list, for messages that cannot come."""


def check_num_samples(graph: Graph, num_samples: NumSamples, others: Mapping[str, object]) -> dict[NodeType, tuple[int, ...]]:
    """Return node type -> numbers of nodes, one per hop, all of the same length.

    Args:
        num_samples: one list for all node types, or one per node type; -1: all candidates.
        others: name -> value of arguments that exclude it.
    Raises:
        UsageError: numbers that are not allowed, or an argument that excludes them. NotSupportedError: edges have weights or times.
    """
    if isinstance(num_samples, Mapping):
        missing = [t for t in graph.num_nodes if t not in num_samples]
        if unknown := [t for t in num_samples if t not in graph.num_nodes]:
            raise UsageError(f"num_samples: {unknown[0]!r} is not a node type of this graph; the node types are {graph.node_types}")
        if missing:
            raise UsageError(f"num_samples: none given for {missing[0]!r}; the node types are {graph.node_types}")
        found = {t: whole_numbers("num_samples", num_samples[t]) for t in graph.num_nodes}
    else:
        found = dict.fromkeys(graph.num_nodes, whole_numbers("num_samples", num_samples))
    lengths = sorted({len(counts) for counts in found.values()})
    if len(lengths) > 1 or not 1 <= lengths[0] <= rng.MAX_HOPS:
        raise UsageError(f"num_samples needs 1 to {rng.MAX_HOPS} hops, the same number for all node types; got lists of {lengths} elements")
    if min(map(min, found.values())) < -1 or max(map(max, found.values())) > rng.MAX_DRAWS // 2:
        raise UsageError(f"num_samples must lie in [-1, {rng.MAX_DRAWS // 2}], -1 = all candidates; got {num_samples}")
    for name, value in others.items():
        if value:
            raise UsageError(f"num_samples chooses nodes for all lists together, and cannot be combined with {name}: leave out one of them")
    if any(csc.sums is not None or csc.timed is not None for csc in graph.adjacency.values()):
        raise NotSupportedError("num_samples chooses nodes by their edges into the batch, not by weight or time: leave out one of them")
    return found


class Budget:
    """The candidates for one batch: nodes outside it that have edges into it, by node type, with their scores.

    Args:
        nodes: the nodes that begin the batch; they are in the tables.
        hints: see `Growing`.
    Attributes:
        ids: int64, per node type: the nodes of the batch, then the candidates in the order in which they were first seen.
    """

    def __init__(self, nodes: Mapping[NodeType, np.ndarray], hints: dict[object, int]) -> None:
        self.ids = {t: Growing((t, "candidates"), np.int64, np.empty, hints) for t in nodes}
        self._scores = {t: Growing((t, "scores"), np.float64, np.empty, hints) for t in nodes}
        self._num_nodes = {t: ids.size for t, ids in nodes.items()}
        for t, ids in nodes.items():
            self.ids[t].room(ids.size)[: ids.size] = ids
            self.ids[t].size = ids.size

    def credit(self, node_type: NodeType, table: DirectTable | HashTable, neighbors: np.ndarray, degrees: np.ndarray) -> None:
        """Add to the scores of neighbours that are not in the batch. `neighbors`: whole lists of these lengths, one after the other."""
        ids, scores, known = self.ids[node_type], self._scores[node_type], self._num_nodes[node_type]
        ids.room(neighbors.size)
        places = np.empty(neighbors.size, np.int64)
        ids.size = table.relabel(neighbors, neighbors.size, ids.size, ids.whole, places)
        num_new = ids.size - known - scores.size
        scores.room(num_new)[:num_new] = 0.0
        scores.size += num_new
        shares, is_outside = np.repeat(1.0 / np.maximum(degrees, 1), degrees), places >= known
        np.add.at(scores.values, places[is_outside] - known, shares[is_outside])  # one by one, in this order: so are its roundings

    def spend(
        self, node_type: NodeType, table: DirectTable | HashTable, count: int, place: tuple[np.ndarray, int, int, int], scratch: Scratch
    ) -> np.ndarray:
        """Draw the next nodes of a type: return int64[at most count], which are candidates no more. `place`: (key, batch, hop, number of
        the node type)."""
        ids, scores, known = self.ids[node_type], self._scores[node_type], self._num_nodes[node_type]
        if not scores.size or not count:
            return ids.values[:0]
        lists = weigh(_SCORES, CSC(np.array([0, scores.size]), ids.values[known:]), Weights(scores.values * scores.values))
        draw = partial(draw_positions, _SCORES, lists, 0, Draw(count, False, False, -1, *place), Frontier(np.zeros(1, np.int64)))
        drawn, _, _ = draw(scratch, np.zeros(2, np.int64), partial(np.empty, dtype=np.int64), are_read=False)
        is_left = np.ones(scores.size, bool)
        is_left[drawn] = False
        chosen, left = ids.values[known:][drawn], ids.values[known:][is_left]
        ids.values[known:] = np.concatenate([chosen, left])
        scores.values[: left.size] = scores.values[is_left]
        scores.size, self._num_nodes[node_type] = left.size, known + chosen.size
        table.finish(ids.size)
        table.add_seeds(ids.values, ids.values)
        return chosen

    def close(self, tables: Mapping[NodeType, DirectTable | HashTable]) -> None:
        """Forget the candidates: the tables have the nodes of the batch alone."""
        for node_type, table in tables.items():
            nodes = self.ids[node_type].values[: self._num_nodes[node_type]]
            table.finish(self.ids[node_type].finish().size)
            table.add_seeds(nodes, nodes)
