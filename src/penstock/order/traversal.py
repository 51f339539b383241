"""A graph and its seeds -> positions of the seeds in the order of a breadth-first traversal of the undirected view.

In: a view, and seeds of one type, possibly repeated. Out: a permutation of the positions. Invariant: a pure function of (graph, seeds,
root). Components without seeds are not visited; the others are visited one after another, starting from seeds in ascending, cyclic order of
ids, beginning at the root.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.breadth_first import cpu as kernels
from penstock.order.grouping import BLOCK, invert
from penstock.order.view import UndirectedView, read_at_random
from penstock.records import NodeType, index_dtype
from penstock.store.progress import told_meanwhile


def traverse_seeds(view: UndirectedView, seed_type: NodeType, seeds: np.ndarray, root: int) -> np.ndarray:
    """Order seeds by a breadth-first traversal.

    Args:
        view: of the graph.
        seed_type: node type of the seeds.
        seeds: int64[num_seeds], ids in [0, num_nodes of the type); repetitions stay together.
        root: index, among the distinct seeds in ascending order of ids, of the seed to start from.
    Returns:
        int32[num_seeds] (int64 from 2**31 nodes or seeds on): positions in `seeds`.
    Cost: O(nodes + edges) of the components with seeds; 5 bytes per node (9 from 2**31 nodes on), 16 per seed if seeds ascend, else 48.
    """
    dtype, first = index_dtype(max(view.num_nodes, seeds.size)), view.first_ids[seed_type]
    if all((np.diff(seeds[begin : begin + BLOCK + 1]) > 0).all() for begin in range(0, seeds.size, BLOCK)):  # seeds ascend
        return _find(seeds, _traverse(view, seeds.astype(dtype) + dtype(first), root), first, dtype)
    distinct, which = np.unique(seeds, return_inverse=True)
    rank = invert(_find(distinct, _traverse(view, distinct.astype(dtype) + dtype(first), root), first, dtype))
    return np.argsort(rank[which], kind="stable").astype(dtype)


def _traverse(view: UndirectedView, wanted: np.ndarray, root: int) -> np.ndarray:
    """Return distinct ascending nodes in the order of the traversal; the input is overwritten."""
    wanted = np.roll(wanted, -root)
    if not view.indptrs:
        return wanted
    marks, queue, reached = np.zeros(view.num_nodes, np.uint8), np.empty(view.num_nodes, view.id_dtype), np.empty_like(wanted)
    marks[wanted] = kernels.WANTED
    with read_at_random(view), told_meanwhile("traversing the graph:", lambda: _share_reached(marks)):
        kernels.breadth_first(*view.arrays, wanted, wanted.size, marks, queue, reached)
    return reached


def _share_reached(marks: np.ndarray) -> float:
    """Estimate the share of the nodes that a traversal has reached."""
    return float(np.mean(marks[:: max(marks.size >> 16, 1)] & kernels.REACHED))


def _find(ascending: np.ndarray, reached: np.ndarray, first_id: int, dtype: type) -> np.ndarray:
    """Return the position of each reached node among the ascending ids of its type."""
    found = np.empty(reached.size, dtype)
    for first in range(0, reached.size, BLOCK):
        found[first : first + BLOCK] = np.searchsorted(ascending, reached[first : first + BLOCK].astype(np.int64) - first_id)
    return found


def traverse_nodes(view: UndirectedView) -> np.ndarray:
    """Order all nodes of all types by a breadth-first traversal from node 0 on; components by their first node.

    Returns:
        int32[num_nodes] (int64 from 2**31 on).
    Cost: 9 bytes per node.
    """
    reached = np.arange(view.num_nodes, dtype=view.id_dtype)
    if view.indptrs and view.num_nodes:
        marks, queue = np.full(view.num_nodes, kernels.WANTED, np.uint8), np.empty(view.num_nodes, view.id_dtype)
        with read_at_random(view), told_meanwhile("traversing the graph:", lambda: _share_reached(marks)):
            kernels.breadth_first(*view.arrays, reached, view.num_nodes, marks, queue, queue)  # all are wanted: the queue is the order
        return queue
    return reached
