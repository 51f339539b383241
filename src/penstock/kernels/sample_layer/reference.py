"""One hop of layer-wise sampling over one edge type: the definition.

In: the nodes to expand, their in-neighbour lists, and the nodes that the batch already has. Out: the sampled positions in `indices`, node
after node, ascending per node. Invariant: the edges into the hop are visited in a uniformly random order until `fanout` new nodes are met:
successive sampling without replacement, with probability proportional to a node's edges into the hop. All edges from these nodes and from
the nodes that the batch already has are sampled.
Source: LADIES, Zou et al., NeurIPS 2019, with matrix entries 0 and 1, and counting new nodes only; FastGCN, Chen et al., ICLR 2018.
"""

from __future__ import annotations

import numpy as np

from penstock import rng


def number_edges(node, degree, *, key, batch, hop, edge_type):
    """Return uint64[degree]: the random number of each edge of a list, which sorts the edges. A block of Philox gives two numbers."""
    c0, c1, c2, _ = rng.sample_counter(node, edge_type, hop, batch, 0)
    w0, w1, w2, w3 = rng.philox(c0, c1, c2, np.arange((degree + 1) // 2, dtype=np.uint64), key[0], key[1])
    return np.stack([w0 << np.uint64(32) | w1, w2 << np.uint64(32) | w3], axis=1).reshape(-1)[:degree]


def sample_neighbors(indptr, indices, nodes, *, fanout, key, batch, hop, edge_type, known):
    """Sample in-neighbours of `nodes` together.

    Args:
        indptr: int64[num_dst + 1]. indices: int32 or int64[num_edges]. Together a CSC: the in-neighbours of v are
            `indices[indptr[v]:indptr[v + 1]]`.
        nodes: int64[n], ids of destination nodes, in range. A repeated node has the same edges each time, with the same numbers.
        fanout: how many new nodes to take, at least 0; if there are no more, all nodes and all edges are taken.
        key: uint64[2], from `rng.derive_key`.
        batch, hop, edge_type: integers that go into the counter.
        known: set of the ids of source nodes that the batch already has.
    Returns:
        (row_ptr int64[n + 1], positions int64[m], neighbors int64[m]): the sampled edges of nodes[i] are at row_ptr[i]:row_ptr[i + 1];
        `neighbors` is `indices[positions]`.
    """
    spans = [(int(indptr[node]), int(indptr[node + 1])) for node in nodes]
    first = {}  # new node -> the smallest number of its edges; in first-seen order
    for node, (start, end) in zip(nodes, spans, strict=True):
        numbers = number_edges(node, end - start, key=key, batch=batch, hop=hop, edge_type=edge_type)
        for neighbor, number in zip(indices[start:end].tolist(), numbers.tolist(), strict=True):
            if neighbor not in known:
                first[neighbor] = min(number, first.get(neighbor, number))
    taken = known | set(sorted(first, key=first.__getitem__)[:fanout])  # stable: of equal numbers (practically never), the first seen
    row_ptr, positions = [0], []
    for start, end in spans:
        positions += [position for position in range(start, end) if int(indices[position]) in taken]
        row_ptr.append(len(positions))
    positions = np.array(positions, dtype=np.int64)
    return np.array(row_ptr, dtype=np.int64), positions, indices[positions].astype(np.int64)
