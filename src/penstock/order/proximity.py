"""The proximity-aware order: the seeds of a batch are near each other, and near the seeds of the batches before.

In: a graph and its seeds. Out: an order. Invariant: every position occurs exactly once per epoch, for any batch size and number of ranks; a
batch is a function of (sequences, seed, epoch, index), so that a state is two integers.
Source: BGL (NSDI'23) 3.2.2.

BGL makes several sequences, each a breadth-first traversal from random roots restricted to the train nodes; shifts each circularly by a
random offset in every epoch; and takes a batch from the sequences round-robin. It does not say how a seed that is in all sequences occurs
only once per epoch. Here the seeds are divided among the sequences: one traversal is cut into stretches of equal length. Refused, after
measurement (docs/design/orders.md): a traversal per sequence, each with a random share of the seeds (neighbours are in different shares,
and most of the locality is gone at 16 sequences); a traversal of all seeds per sequence, skipping those already taken (the same locality as
here at the same label error, but an epoch must be replayed from its start, and each sequence takes memory and time).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash

from penstock import rng
from penstock.errors import UsageError
from penstock.order.communities import label_communities, put_together
from penstock.order.grouping import BLOCK
from penstock.order.orders import Order
from penstock.order.shuffling_error import choose_num_sequences, read_classes
from penstock.order.traversal import traverse_seeds
from penstock.order.view import view_undirected
from penstock.records import Graph, NodeType, index_dtype

_SHIFTS, _ROOT = 1 << 16, (1 << 16) + 1
"""Streams of random words; permutations under the same key use the streams below 24."""


class ProximityOrder(Order):
    """Round-robin over sequences of positions, each shifted circularly by a random offset per epoch.

    Args:
        sequences: int32 or int64[num_seeds], the sequences one after another; together they contain every position once.
        offsets: int64[num_sequences + 1], where each begins; from `cut_evenly`.
        seed: of the shifts.

    Cost: memory of the sequences and of one epoch's shifts; time O(batch_size) per batch, and O(num_sequences) more for the first one of an
    epoch.
    """

    def __init__(self, sequences: np.ndarray, offsets: np.ndarray, seed: int) -> None:
        sequences = np.asarray(sequences)
        dtype = index_dtype(sequences.size)
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.num_seeds, self.num_sequences, self.seed = sequences.size, self.offsets.size - 1, seed
        _check(sequences, self.offsets)
        self.sequences = sequences.astype(dtype, copy=False)
        self._lengths = np.diff(self.offsets)
        self._shifts: tuple[int, np.ndarray] | None = None
        self.name = f"proximity, {self.num_sequences} sequences {_digest(self.sequences)}, seed {seed}"

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Return the positions of batch `index`: from place index * batch_size on, in the order in which sequences take turns."""
        place = np.arange(index * batch_size, min((index + 1) * batch_size, self.num_seeds))
        turn, sequence = np.divmod(place, self.num_sequences)
        within = (turn + self.shifts(epoch)[sequence]) % self._lengths[sequence]
        return self.sequences[self.offsets[sequence] + within].astype(np.int64)

    def shifts(self, epoch: int) -> np.ndarray:
        """Return int64[num_sequences]: which element of each sequence comes first in an epoch."""
        known = self._shifts  # read once: other threads may replace it
        if known is None or known[0] != epoch:
            words = rng.random_words(rng.derive_key(self.seed, epoch, rng.ORDER), 0, self.num_sequences, _SHIFTS)
            shifts = rng.below_wide(words[:, 0], words[:, 1], self._lengths.astype(np.uint64)).astype(np.int64)
            self._shifts = known = (epoch, shifts)
        return known[1]


def proximity_order(
    graph: Any,
    seeds: Any,
    labels: np.ndarray | None = None,
    *,
    seed: int,
    batch_size: int,
    num_workers: int = 1,
    num_sequences: int | None = None,
    by_community: bool = False,
) -> ProximityOrder:
    """Prepare the proximity-aware order of the seeds of a graph.

    Args:
        graph: a `Graph`, or an open store, whose labels are then the default.
        seeds: int64[num_seeds] node ids, or (node type, ids); for a store also the name of a part: "train", ("paper", "train").
            They must be the loader's seeds, in the same order.
        labels: of all nodes of the seeds' type: int[num_nodes] (negative: none), float[num_nodes] (NaN: none) or 0/1 [num_nodes, k].
        seed: of the root and the shifts.
        batch_size: of the loader.
        num_workers: number of trainers that take batches of this order in turn.
        num_sequences: None: the smallest number that makes batches as mixed as those of a random order, see `shuffling_error.py`.
            With fewer sequences the seeds of a batch are nearer to each other, and less mixed.
        by_community: first group seeds by community (`communities.py`); this brings them nearer than a traversal. Not in BGL.
    Raises:
        UsageError: seeds, labels or `num_sequences` do not fit the graph.
    Without labels, `num_sequences` is the batch size, so that each seed of a batch is from another stretch of the traversal. On all
    labelled graphs measured, this made batches as mixed as those of a random order; consecutive batches are still near each other.
    """
    graph, node_type, ids, labels = read_seeds(graph, seeds, labels)
    if ids.size == 0:
        raise UsageError("seeds is empty: there is nothing to order; check the split or the ids")
    if num_sequences is not None and not 1 <= num_sequences <= ids.size:
        raise UsageError(f"num_sequences must lie in [1, number of seeds = {ids.size}], got {num_sequences}")
    positions = _order_by_place(graph, node_type, ids, seed, by_community)

    def make(number: int) -> ProximityOrder:
        return ProximityOrder(positions, cut_evenly(positions.size, number), seed)

    if num_sequences is None:
        classes = None if labels is None else read_classes(labels[ids])
        if classes is None:
            num_sequences = min(batch_size, ids.size)
        else:
            num_sequences = choose_num_sequences(make, classes, seed=seed, batch_size=batch_size, num_workers=num_workers)
    return make(num_sequences)


def _order_by_place(graph: Graph, node_type: NodeType, ids: np.ndarray, seed: int, by_community: bool) -> np.ndarray:
    """Return the positions of the seeds; seeds that are near each other follow each other."""
    key, view = rng.derive_key(seed, 0, rng.ORDER), view_undirected(graph)
    word = rng.random_words(key, 0, 1, _ROOT)[0]
    root = int(rng.below_wide(word[0], word[1], np.uint64(_count_distinct(ids, graph.num_nodes[node_type]))))
    positions = traverse_seeds(view, node_type, ids, root)
    if not by_community:
        return positions
    communities, first = label_communities(view), view.first_ids[node_type]
    del view
    of_seeds = np.empty(ids.size, communities.dtype)
    for begin in range(0, ids.size, BLOCK):
        of_seeds[begin : begin + BLOCK] = communities[ids[begin : begin + BLOCK] + first]
    return put_together(positions, of_seeds)


def _count_distinct(ids: np.ndarray, num_ids: int) -> int:
    """Return the number of distinct ids in [0, num_ids); takes num_ids bytes."""
    seen = np.zeros(num_ids, np.bool_)
    seen[ids] = True
    return int(np.count_nonzero(seen))


def _digest(sequences: np.ndarray) -> str:
    """Return 16 hex digits computed from positions as int64, whatever their dtype."""
    state = xxhash.xxh3_64()
    for first in range(0, sequences.size, BLOCK):
        state.update(sequences[first : first + BLOCK].astype(np.int64).view(np.uint8).data)
    return state.hexdigest()


def cut_evenly(num_seeds: int, num_sequences: int) -> np.ndarray:
    """Return int64[num_sequences + 1]: offsets of sequences whose lengths differ by at most one, the longer ones first.

    Sequences that take turns are then used up in the same turn.
    """
    lengths = num_seeds // num_sequences + (np.arange(num_sequences) < num_seeds % num_sequences)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _check(sequences: np.ndarray, offsets: np.ndarray) -> None:
    num_seeds, num_sequences = sequences.size, offsets.size - 1
    if not 1 <= num_sequences <= num_seeds or not np.array_equal(offsets, cut_evenly(num_seeds, num_sequences)):
        raise UsageError(
            f"offsets must be cut_evenly({num_seeds}, number of sequences), got {num_sequences} sequences that are cut differently"
        )
    is_inside = sequences.min() >= 0 and sequences.max() < num_seeds
    if not is_inside or _count_distinct(sequences, num_seeds) < num_seeds:
        raise UsageError(f"sequences must hold every position in [0, {num_seeds}) once")


def read_seeds(graph: Any, seeds: Any, labels: np.ndarray | None) -> tuple[Graph, NodeType, np.ndarray, np.ndarray | None]:
    """Return (graph, node type, int64[n] ids, labels or None) of the arguments of `proximity_order`, checked."""
    store, graph = (None, graph) if isinstance(graph, Graph) else (graph, graph.graph())
    node_type, ids = seeds if isinstance(seeds, tuple) else (None, seeds)
    if node_type is None and len(graph.num_nodes) > 1:
        raise UsageError(f"seeds must name a node type, for instance ('{graph.node_types[0]}', ids); the types are {graph.node_types}")
    node_type = graph.node_types[0] if node_type is None else node_type
    if node_type not in graph.num_nodes:
        raise UsageError(f"seeds: '{node_type}' is not a node type; the node types are {graph.node_types}")
    if isinstance(ids, str):
        if store is None:
            raise UsageError(f"seeds={ids!r} names a part of a store; for a Graph give node ids")
        ids = store.split(ids, None, node_type)
    ids, num_nodes = np.asarray(ids), graph.num_nodes[node_type]
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise UsageError(f"seeds must be a vector of node ids, got {ids.dtype} {list(ids.shape)}")
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= num_nodes):
        bad = np.flatnonzero((ids < 0) | (ids >= num_nodes))
        raise UsageError(f"{bad.size} of {ids.size} seeds lie outside [0, {num_nodes}); first is seeds[{bad[0]}] = {ids[bad[0]]}")
    if labels is None and store is not None and "y" in store.node_fields(node_type):
        labels = store.node_field("y", node_type)
    if labels is not None and len(labels) != num_nodes:
        raise UsageError(f"labels must have a row per node of '{node_type}': {num_nodes}, got {len(labels)}")
    return graph, node_type, ids.astype(np.int64, copy=False), labels
