"""A graph and its seeds -> positions of the seeds in the order of a breadth-first traversal of the undirected view.

In: a graph, homogeneous or typed, and seeds of one type, possibly repeated. Out: a permutation of the positions. Invariant: a pure function
of (graph, seeds, root). Components without seeds are not visited; the others one after another, from seeds in ascending order of ids
beginning at the root and going round.

Memory: 5 bytes a node (9 from 2**31 nodes on), and where some edge has no reverse 8 + 4 * PICKED more per edge type into its type.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.breadth_first import cpu as kernels
from penstock.records import Graph, NodeType

PICKED = 4
"""In-neighbours per node and edge type through which a node can be reached from them, where edges have no reverse. With 4, 16 or all of
them the orders of the measured graphs are equally good (docs/design/orders.md)."""


def traverse_seeds(graph: Graph, seed_type: NodeType, seeds: np.ndarray, root: int, *, picked: int = PICKED) -> np.ndarray:
    """Order seeds by a breadth-first traversal.

    Args:
        graph: topology; in-neighbour lists may be memory-mapped.
        seed_type: node type of the seeds.
        seeds: int64[num_seeds], ids in [0, num_nodes of the type); repetitions stay together.
        root: which of the distinct seeds, in ascending order of ids, to begin at.
        picked: see PICKED.
    Returns:
        int64[num_seeds]: positions in `seeds`.
    Cost: O(nodes + edges) of the components with seeds, and one pass over all edges to learn whether they have their reverses.
    """
    firsts = dict(zip(graph.num_nodes, np.cumsum([0, *graph.num_nodes.values()]).tolist(), strict=False))
    num_nodes = sum(graph.num_nodes.values())
    distinct, which = np.unique(seeds, return_inverse=True)
    wanted = distinct + firsts[seed_type]
    marks = np.zeros(num_nodes, dtype=np.uint8)
    marks[wanted] = kernels.WANTED
    id_dtype = np.int32 if num_nodes <= np.iinfo(np.int32).max else np.int64
    indptrs, indices = _arrays(graph)
    ends = np.array([[firsts[src], firsts[dst]] for src, _, dst in graph.adjacency], dtype=np.int64).reshape(-1, 2)
    reached = np.empty(wanted.size, dtype=np.int64)
    if indptrs:
        out_ptr, out_nodes = _outgoing(indptrs, indices, ends, num_nodes, picked, id_dtype)
        queue = np.empty(num_nodes, dtype=id_dtype)
        roots = np.roll(wanted, -root)
        kernels.breadth_first(indptrs, indices, ends, out_ptr, out_nodes, roots, wanted.size, marks, queue, reached)
    else:
        reached[:] = np.roll(wanted, -root)
    rank = np.empty(distinct.size, dtype=np.int64)
    rank[np.searchsorted(wanted, reached)] = np.arange(distinct.size)
    return np.argsort(rank[which], kind="stable")


def is_symmetric(indptrs: tuple[np.ndarray, ...], indices: tuple[np.ndarray, ...], ends: np.ndarray) -> bool:
    """Whether every edge has its reverse, by a sum of hashes over all edges; wrong with probability 2**-64."""
    total = np.uint64(0)
    with np.errstate(over="ignore"):
        for e in range(len(indptrs)):
            total += np.uint64(kernels.sum_asymmetry(indptrs[e], indices[e], ends[e, 0], ends[e, 1]))
    return int(total) == 0


def _arrays(graph: Graph) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return (indptrs, indices) of all edge types as arrays of one kind: views, unless types differ (some with 2**31 nodes or more)."""
    dtype = np.result_type(np.int32, *(csc.indices.dtype for csc in graph.adjacency.values()))

    def read_only(array: np.ndarray, dtype: type | np.dtype) -> np.ndarray:
        view = np.ascontiguousarray(array, dtype=dtype).view(np.ndarray)[:]
        view.flags.writeable = False
        return view

    cscs = graph.adjacency.values()
    return tuple(read_only(csc.indptr, np.int64) for csc in cscs), tuple(read_only(csc.indices, dtype) for csc in cscs)


def _outgoing(indptrs, indices, ends, num_nodes: int, picked: int, id_dtype) -> tuple[np.ndarray, np.ndarray]:
    """Lists of out-neighbours; empty where every edge has its reverse."""
    if is_symmetric(indptrs, indices, ends):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=id_dtype)
    out_ptr = np.zeros(num_nodes + 1, dtype=np.int64)
    for e in range(len(indptrs)):
        kernels.count_outgoing(indptrs[e], indices[e], ends[e, 0], picked, out_ptr[1:])
    np.cumsum(out_ptr, out=out_ptr)
    out_nodes = np.empty(int(out_ptr[-1]), dtype=id_dtype)
    cursor = out_ptr[:-1].copy()
    for e in range(len(indptrs)):
        kernels.place_outgoing(indptrs[e], indices[e], ends[e, 0], ends[e, 1], picked, cursor, out_nodes)
    return out_ptr, out_nodes
