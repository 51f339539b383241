"""Edges of a randomised Kronecker product of a small graph and a large one: the definition.

Every node u of the large graph has one copy (i, u) = i * num_nodes + u for each node i of the small graph. An edge u -> v becomes the edges
(i, u) -> (j, v), each kept with the probability of (i, j). The draw depends on the two nodes and the two copies, not on the direction, so a
symmetric graph stays symmetric if the probabilities are symmetric.
Source: Belletti et al. 2019 (arXiv:1901.08910), blocks of a Kronecker product with random dropout.
"""

from __future__ import annotations

import numpy as np

from penstock import rng

CERTAIN = 1 << 32


def kronecker_edges(sources, destinations, num_nodes, thresholds, key):
    """Expand edges.

    Args:
        sources, destinations: int64[n], edges of the large graph.
        num_nodes: number of nodes of the large graph, at most 2**40.
        thresholds: uint64[k, k], symmetric: an edge between copies i and j is kept if a random word is below thresholds[i, j]; 2**32 keeps
            all.
        key: uint64[2].
    Returns:
        (sources int64[m], destinations int64[m]): edge by edge, the kept copies (i, j) in the order of i, then j, where i is the copy of
        the smaller node id and j that of the larger. For a self-loop, (i, j) and (j, i) are kept together.
    """
    num_copies = len(thresholds)
    out = []
    for u, v in zip(map(int, sources), map(int, destinations), strict=True):
        low, high = min(u, v), max(u, v)
        c0, c1, c2 = (np.uint64(word) for word in (low & 0xFFFFFFFF, high & 0xFFFFFFFF, low >> 32 | high >> 32 << 8))
        for i in range(num_copies):
            for j in range(i if u == v else 0, num_copies):
                place = i * num_copies + j
                words = rng.philox(c0, c1, c2, np.uint64(place // 4), key[0], key[1])
                if words[place % 4] < thresholds[i][j]:
                    first, second = i * num_nodes + low, j * num_nodes + high
                    out.append((first, second) if u <= v else (second, first))
                    if u == v and i != j:
                        out.append((second, first))
    edges = np.array(out, dtype=np.int64).reshape(-1, 2)
    return edges[:, 0], edges[:, 1]
