"""The undirected view of a graph: neighbours in both directions, over one id space, in memory linear in the number of nodes.

In: a graph of in-neighbour lists, homogeneous or typed. Out: views of these lists, and lists of some out-neighbours if edges have no
reverse. Invariant: no edge is copied except into the lists of out-neighbours: at most `PICKED` per destination node and edge type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import damaged_neighbor
from penstock.kernels.breadth_first import cpu as kernels
from penstock.records import Graph, NodeType, index_dtype
from penstock.store.process_memory import free_bytes
from penstock.store.tiers import advise_in_order, advise_random

PICKED = 4
"""If edges have no reverse, this many in-neighbours per node and edge type get the node as an out-neighbour. On a citation graph, 1, 4, 16
and all in-neighbours gave orders of equal locality (docs/design/orders.md)."""


@dataclass(frozen=True, slots=True)
class UndirectedView:
    """A graph in the form that the kernels `breadth_first` and `label_communities` need.

    Attributes:
        num_nodes: of all types together, numbered type after type in one id space.
        first_ids: node type -> its first id in that space.
        indptrs, indices: arrays of each edge type, read-only, all indptrs of one dtype and all indices of one.
        firsts: int64[num_edge_types, 2]: first id of the source and of the destination type.
        out_ptr, out_nodes: lists of out-neighbours; empty if every edge has its reverse.
    """

    num_nodes: int
    first_ids: dict[NodeType, int]
    indptrs: tuple[np.ndarray, ...]
    indices: tuple[np.ndarray, ...]
    firsts: np.ndarray
    out_ptr: np.ndarray
    out_nodes: np.ndarray

    @property
    def id_dtype(self) -> type:
        """The smallest dtype for ids."""
        return index_dtype(self.num_nodes)

    @property
    def arrays(self) -> tuple:
        """The leading arguments of the kernels."""
        return self.indptrs, self.indices, self.firsts, self.out_ptr, self.out_nodes


def view_undirected(graph: Graph) -> UndirectedView:
    """Prepare the undirected view.

    Args:
        graph: topology; its arrays may be memory-mapped.
    Raises:
        CorruptStoreError: a damaged list. NotSupportedError: a partition.
    Cost: one pass over all edges. Memory if some edge has no reverse: 4 bytes per node, and up to 4 * PICKED per node and edge type.
    """
    graph.check_lists()
    starts = np.cumsum([0, *graph.num_nodes.values()]).tolist()
    first_ids, num_nodes = dict(zip(graph.num_nodes, starts, strict=False)), starts[-1]
    firsts = np.array([[first_ids[src], first_ids[dst]] for src, _, dst in graph.adjacency], dtype=np.int64).reshape(-1, 2)
    dtype = np.result_type(np.int32, *(csc.indices.dtype for csc in graph.adjacency.values()))  # dtypes may differ, from 2**31 nodes on
    indptrs = tuple(_read_only(csc.indptr, np.int64) for csc in graph.adjacency.values())
    indices = tuple(_read_only(csc.all_indices("an order by proximity or community"), dtype) for csc in graph.adjacency.values())
    nothing = np.empty(0, dtype=index_dtype(PICKED * sum(csc.num_dst for csc in graph.adjacency.values())))
    view = UndirectedView(num_nodes, first_ids, indptrs, indices, firsts, nothing, np.empty(0, dtype=np.int32))
    return view if _is_symmetric(view, graph) else _with_outgoing(view)


def _is_symmetric(view: UndirectedView, graph: Graph) -> bool:
    """Whether every edge has its reverse, by a sum of hashes over all edges; wrong with probability 2**-64. Raises CorruptStoreError if a
    source is not a node, since kernels that use the view write at these indices."""
    total = 0
    for edge_type, indptr, indices, (first_src, first_dst) in zip(graph.adjacency, view.indptrs, view.indices, view.firsts, strict=True):
        num_src = graph.num_nodes[edge_type[0]]
        asymmetry, bad = kernels.sum_asymmetry(indptr, indices, num_src, first_src, first_dst)
        if bad >= 0:
            raise damaged_neighbor(edge_type, num_src, bad, int(indices[bad]))
        total += int(asymmetry)
    return total % (1 << 64) == 0


def _with_outgoing(view: UndirectedView) -> UndirectedView:
    lists = list(zip(view.indptrs, view.indices, view.firsts, strict=True))
    # two more entries than nodes: the beginning of node v is at v + 1 until all edges are placed
    ends = np.zeros(view.num_nodes + 2, dtype=view.out_ptr.dtype)
    for indptr, indices, (first_src, _) in lists:
        kernels.count_outgoing(indptr, indices, first_src, PICKED, ends[2:])
    np.cumsum(ends, out=ends, dtype=ends.dtype)
    out_nodes, cursor = np.empty(int(ends[-1]), dtype=view.id_dtype), ends[1:-1]
    for indptr, indices, (first_src, first_dst) in lists:
        kernels.place_outgoing(indptr, indices, first_src, first_dst, PICKED, cursor, out_nodes)
    return replace(view, out_ptr=ends[:-1], out_nodes=out_nodes)


def _read_only(array: np.ndarray, dtype: type | np.dtype) -> np.ndarray:
    """Return a read-only view: kernels take tuples of arrays of one type, and memory maps are read-only."""
    view = np.ascontiguousarray(array, dtype=dtype).view(np.ndarray)[:]
    view.flags.writeable = False
    return view


@contextmanager
def read_at_random(view: UndirectedView) -> Iterator[None]:
    """Within the block, turn off read-ahead for files larger than memory: lists are read at random, and little of them would stay."""
    files = [array for array in view.indices if array.nbytes > free_bytes() // 2 and advise_random(array)]
    try:
        yield
    finally:
        for array in files:
            advise_in_order(array)
