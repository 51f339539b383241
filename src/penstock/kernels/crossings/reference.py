"""What crosses from one part of a graph to another: edges, and the nodes that they come from. The definition.

In: in-neighbour lists of an edge type, and the part that owns each node. Out: counts per part. An edge belongs to the part of its
destination; it crosses where its source has another owner, and that source is then in the halo of the part.
"""

from __future__ import annotations

import numpy as np


def count_edges(indptr, indices, src_owners, dst_owners, edges, crossing):
    """Add to int64[num_parts] `edges` and `crossing` the edges of each part and those of them that cross.

    Returns:
        Position of the first source that is no node, before which counting stops; -1 where there is none.
    """
    for v, owner in enumerate(dst_owners):
        for i in range(indptr[v], indptr[v + 1]):
            if not 0 <= indices[i] < len(src_owners):
                return i
            edges[owner] += 1
            crossing[owner] += src_owners[indices[i]] != owner
    return -1


def mark_halo(indptr, indices, dst_owners, first_part, marks):
    """Set bit p of uint64[num_src] `marks` where a node is a source of an edge of part `first_part` + p, p < 64."""
    for v, owner in enumerate(dst_owners):
        if first_part <= owner < first_part + 64:
            for u in indices[indptr[v] : indptr[v + 1]]:
                marks[u] |= np.uint64(1 << int(owner - first_part))


def count_marks(marks, owners, first_part, halo):
    """Add to int64[num_parts] `halo` the marked nodes of each part that it does not own."""
    for mark, owner in zip(marks, owners, strict=True):
        for part in range(first_part, min(first_part + 64, halo.size)):
            halo[part] += int(mark) >> (part - first_part) & 1 and owner != part
