"""Count the edges that cross from one part of a graph to another, and the halo nodes that they come from: the definition.

In: in-neighbour lists of an edge type, and the part that owns each node. Out: counts per part. An edge belongs to the part of its
destination. It crosses if its source has another owner; then the source is in the part's halo.
"""

from __future__ import annotations

import numpy as np


def count_edges(indptr, indices, src_owners, dst_owners, edges, crossing):
    """Add the number of edges of each part to int64[num_parts] `edges`, and the number of its crossing edges to `crossing`.

    Returns:
        Position of the first source that is out of range, where counting stops; -1 if there is none.
    """
    for v, owner in enumerate(dst_owners):
        for i in range(indptr[v], indptr[v + 1]):
            if not 0 <= indices[i] < len(src_owners):
                return i
            edges[owner] += 1
            crossing[owner] += src_owners[indices[i]] != owner
    return -1


def mark_halo(indptr, indices, dst_owners, first_part, marks):
    """Set bit p of each of uint64[num_src] `marks` whose node is the source of an edge of part `first_part` + p, p < 64."""
    for v, owner in enumerate(dst_owners):
        if first_part <= owner < first_part + 64:
            for u in indices[indptr[v] : indptr[v + 1]]:
                marks[u] |= np.uint64(1 << int(owner - first_part))


def count_marks(marks, owners, first_part, halo):
    """Add to int64[num_parts] `halo` the number of nodes that are marked for a part but not owned by it."""
    for mark, owner in zip(marks, owners, strict=True):
        for part in range(first_part, min(first_part + 64, halo.size)):
            halo[part] += int(mark) >> (part - first_part) & 1 and owner != part
