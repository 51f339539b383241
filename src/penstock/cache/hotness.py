"""Hotness from the graph alone: one number per node of a type, and the content of a static cache by any such numbers.

In: a graph, or the user's own numbers. Out: numbers[num_nodes] of one node type, larger = hotter. Invariant: pure functions, so that hosts
agree without communication. In typed graphs a node is counted over all edge types of which it is a source, since a row is read when its
node is drawn as a source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from penstock import rng
from penstock.cache.ranking import rank
from penstock.errors import InputError, UsageError
from penstock.kernels.cache_lookup.cpu import lies_inside
from penstock.kernels.placement import cpu as placement
from penstock.records import EdgeType, Graph, NodeType, check_neighbors

CHUNK = 1 << 20
"""Edges read at a time."""

BLOCK = 1 << 18
"""Nodes per piece, so that temporary arrays need not be as long as the graph."""
_HOTNESS_STREAM = 1


def blocks(num_nodes: int) -> Iterator[slice]:
    """Yield slices of at most BLOCK nodes that together cover all nodes."""
    for first in range(0, num_nodes, BLOCK):
        yield slice(first, min(first + BLOCK, num_nodes))


def check_hotness(hotness: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return the user's hotness as it is, or raise InputError: a number per node, all finite."""
    hotness = np.asarray(hotness)
    if hotness.shape != (num_nodes,) or hotness.dtype.kind not in "iufb":
        raise InputError(f"hotness is one number per node, [{num_nodes}]; got {hotness.dtype} {list(hotness.shape)}")
    if hotness.dtype.kind == "f" and not np.isfinite(hotness).all():
        bad = np.flatnonzero(~np.isfinite(hotness))
        raise InputError(f"hotness is finite; {bad.size} of {num_nodes} numbers are not, first is hotness[{bad[0]}] = {hotness[bad[0]]}")
    return hotness


def plan_static(hotness: np.ndarray, capacity: int) -> np.ndarray:
    """Choose what a static cache keeps.

    Args:
        hotness: float or int[num_nodes].
        capacity: rows; more than the number of nodes means all.
    Returns:
        int64[min(capacity, num_nodes)]: the hottest nodes, best first; ties by id.
    """
    hotness = check_hotness(hotness, np.size(hotness))
    if capacity < 0:
        raise UsageError(f"capacity is the number of rows to keep, 0 or more; got {capacity}")
    capacity = min(capacity, hotness.size)
    plan, count = np.empty(capacity, dtype=np.int64), 0
    for ids in rank([hotness]) if capacity else ():
        taken = ids[: capacity - count]
        plan[count : count + taken.size] = taken
        count += taken.size
        if count == capacity:
            break
    return plan


def random_hotness(num_nodes: int, seed: int) -> np.ndarray:
    """Return float64[num_nodes], uniform in [0, 1): the baseline that a hotness should beat."""
    key, hotness = rng.derive_key(seed, 0, rng.PRESAMPLE), np.empty(num_nodes)
    for block in blocks(num_nodes):  # each block begins with the first of four words
        count = block.stop - block.start
        words = rng.random_words(key, block.start // 4, -(-count // 4), _HOTNESS_STREAM)
        hotness[block] = words.reshape(-1)[:count] * 2.0**-32
    return hotness


def degree_hotness(graph: Graph, node_type: NodeType) -> np.ndarray:
    """Return uint32[num_nodes] (int64 from 2**32 edges on): out-degrees (PaGraph 3.1). One pass over the edges."""
    if node_type in graph.out_degrees:
        return graph.out_degrees[node_type]
    edges = {e: csc for e, csc in graph.adjacency.items() if e[0] == node_type}
    is_narrow = sum(csc.num_edges for csc in edges.values()) < 1 << 32
    counts = np.zeros(_num_nodes(graph, node_type), dtype=np.uint32 if is_narrow else np.int64)
    for edge_type, csc in edges.items():
        for chunk in _chunks(edge_type, csc.indices, counts.size):
            placement.count_keys(chunk, 0, counts)
    return counts


def in_out_ratio(graph: Graph, node_type: NodeType) -> np.ndarray:
    """Return float32[num_nodes]: out-neighbours / in-neighbours, how often a list is read relative to its length (AliGraph; Ginex 3.2).

    All lists of a node, of all edge types, count together; see `list_ratio` for those of one edge type.
    """
    pointers = [csc.indptr for edge_type, csc in graph.adjacency.items() if edge_type[2] == node_type]
    degree = degree_hotness(graph, node_type)
    is_ours = degree.itemsize == 4 and degree.flags.writeable  # ours to modify, not mapped from a partition's file
    return list_ratio(degree, pointers, out=degree.view(np.float32) if is_ours else None)


def list_ratio(reads: np.ndarray, pointers: Sequence[np.ndarray], out: np.ndarray | None = None) -> np.ndarray:
    """Return float32[n]: how often each neighbour list is read, counted or estimated, per edge in it.

    Args:
        reads: number[n], reads of each list.
        pointers: row pointers int64[n + 1], of one edge type or of several whose lists count together.
        out: float32[n], receives the result; may be the memory of `reads` itself.
    A node without in-neighbours counts as having one, so that no number is infinite; its list takes no space anyway.
    """
    ratio = np.empty(reads.size, np.float32) if out is None else out
    for block in blocks(reads.size):
        lengths = sum((np.diff(indptr[block.start : block.stop + 1]) for indptr in pointers), np.zeros(block.stop - block.start, np.int64))
        ratio[block] = reads[block] / np.maximum(lengths, 1)
    return ratio


def _num_nodes(graph: Graph, node_type: NodeType) -> int:
    if node_type not in graph.num_nodes:
        raise UsageError(f"'{node_type}' is not a node type; the node types are {graph.node_types}")
    return graph.num_nodes[node_type]


def _chunks(edge_type: EdgeType, indices: np.ndarray, num_nodes: int) -> Iterator[np.ndarray]:
    """Yield int64[<= CHUNK] sources, checked."""
    for first in range(0, indices.size, CHUNK):
        chunk = indices[first : first + CHUNK].astype(np.int64)
        if not lies_inside(chunk, num_nodes):
            check_neighbors(edge_type, num_nodes, range(first, first + chunk.size), chunk)
        yield chunk
