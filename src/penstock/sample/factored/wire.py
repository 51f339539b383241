"""A sample as bytes: ids and positions in 32 bits where they fit; what follows from the rest is left out.

In: a `Sample`. Out: bytes, in a slot or held for later (`feed/held.py`), and the same sample again, bit for bit. Layout: an int64 header
(its length, hop sizes, sizes of the parts; -1 for what is missing); then parts: ids of all node types, their marks, their trees; then
sources, row pointers and positions of each edge type. Each part begins at a multiple of 8 bytes. Features never travel: the trainer reads
them from its own tiers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.edges import cpu as edge_kernels
from penstock.records import Allocator, Graph, Sample, SampledEdges, index_dtype

_FIXED = 1
"""Numbers before the hop sizes: one, the length of the header."""


def _parts_of(sample: Sample, graph: Graph) -> list[tuple[np.ndarray | None, type]]:
    """The parts: arrays, and their dtypes in the bytes; None for a part that is missing."""
    parts: list[tuple[np.ndarray | None, type]] = [(ids, index_dtype(graph.num_nodes[t])) for t, ids in sample.nodes.items()]
    parts += [(sample.marks.get(t), np.int32) for t in sample.nodes]
    parts += [(trees, index_dtype(sum(sample.num_seeds.values()))) for trees in (sample.trees or {}).values()]
    for edge_type, edges in sample.edges.items():
        parts.append((edges.edge_index[0], index_dtype(sample.nodes[edge_type[0]].size)))
        parts.append((edges.row_ptr, index_dtype(edges.positions.size)))
        parts.append((edges.positions, index_dtype(graph.adjacency[edge_type].num_edges)))
    return parts


class Packed:
    """A sample, ready to be written as bytes.

    Args:
        sample: from a `NeighborSampler`.
        graph: `sampler.sampled`, whose types the sample has.
    """

    def __init__(self, sample: Sample, graph: Graph) -> None:
        parts = _parts_of(sample, graph)
        self._parts = [(values, dtype) for values, dtype in parts if values is not None]
        hops: list[int] = []
        for t in sample.nodes:
            hops += [len(sample.num_nodes_per_hop[t]), *sample.num_nodes_per_hop[t]]
        for edges in sample.edges.values():
            hops += [-1] if edges.num_per_hop is None else [len(edges.num_per_hop), *edges.num_per_hop]
        hops += [-1 if values is None else values.size for values, _ in parts]
        self._header = np.array([_FIXED + len(hops), *hops], np.int64)

    @property
    def num_bytes(self) -> int:
        """Size of the sample as bytes."""
        return self._header.nbytes + sum(_padded(values.size, dtype) for values, dtype in self._parts)

    def write(self, out: np.ndarray) -> None:
        """Write the sample to uint8[num_bytes]."""
        out[: self._header.nbytes] = self._header.view(np.uint8)
        first = self._header.nbytes
        for values, dtype in self._parts:
            num_bytes = values.size * np.dtype(dtype).itemsize
            out[first : first + num_bytes].view(dtype)[:] = values
            first += _padded(values.size, dtype)


def unpack(buffer: np.ndarray, graph: Graph, *, disjoint: bool, allocate: Allocator) -> Sample:
    """Copy a sample from a buffer into memory from `allocate`. The buffer can be reused afterwards.

    Args:
        buffer: uint8[...], written by `Packed.write`.
        graph: as for `Packed`. disjoint: the sample has trees.
    """
    length = int(buffer[:8].view(np.int64)[0])
    header = buffer[: 8 * length].view(np.int64)[_FIXED:].tolist()
    at, first = 0, 8 * length

    def hops() -> list[int] | None:
        nonlocal at
        count = header[at]
        at += 1 + max(count, 0)
        return None if count < 0 else header[at - count : at]

    def stored(dtype: type) -> Any:
        """The next part, as a view of the buffer; None if it is missing."""
        nonlocal at, first
        size, begin = header[at], first
        at, first = at + 1, first + _padded(max(size, 0), dtype)
        return None if size < 0 else buffer[begin : begin + size * np.dtype(dtype).itemsize].view(dtype)

    def part(dtype: type, into: type = np.int64) -> Any:
        values = stored(dtype)
        if values is None:
            return None
        whole = allocate(values.size, into)
        whole[:] = values
        return whole

    nodes_per_hop = {t: hops() or [] for t in graph.num_nodes}
    edges_per_hop = {e: hops() for e in graph.adjacency}
    nodes = {t: part(index_dtype(count)) for t, count in graph.num_nodes.items()}
    marks = {t: slots for t in graph.num_nodes if (slots := part(np.int32, np.int32)) is not None}
    trees = None
    if disjoint:
        dtype = index_dtype(sum(counts[0] for counts in nodes_per_hop.values()))
        trees = {t: part(dtype) for t in graph.num_nodes}
    edges = {}
    for edge_type, csc in graph.adjacency.items():
        sources = stored(index_dtype(nodes[edge_type[0]].size))
        num_edges = sources.size
        rows = allocate(2 * num_edges, np.int64)
        rows[:num_edges] = sources
        row_ptr, positions = part(index_dtype(num_edges)), part(index_dtype(csc.num_edges))
        edge_kernels.fill_columns(row_ptr, rows[num_edges:])
        edges[edge_type] = SampledEdges(rows.reshape(2, num_edges), row_ptr, positions, edges_per_hop[edge_type])
    return Sample(nodes, edges, nodes_per_hop, trees, marks)


def _padded(size: int, dtype: type) -> int:
    return -(-size * np.dtype(dtype).itemsize // 8) * 8
