"""Random graphs for tests."""

import numpy as np

from penstock.kernels.build_csc import reference as build
from penstock.records import CSC, EDGE, NODE, Graph


def random_csc(rng, num_src, num_dst, num_edges, *, hub_degree=0, edge_ids=False, dtype=np.int32):
    """In-neighbour lists with random ends; node 0 gets `hub_degree` more."""
    src = rng.integers(0, num_src, num_edges + hub_degree)
    dst = np.concatenate([rng.integers(0, num_dst, num_edges), np.zeros(hub_degree, np.int64)])
    indptr, indices, ids = build.build_csc(src, dst, num_dst)
    return CSC(indptr, indices.astype(dtype), ids.astype(np.int32) if edge_ids else None)


def homogeneous_graph(rng, num_nodes=500, num_edges=4000, **options):
    """One node type, one edge type."""
    return Graph({NODE: num_nodes}, {EDGE: random_csc(rng, num_nodes, num_nodes, num_edges, **options)}, True)


def typed_graph(rng, *, hub_degree=0, num_papers=900):
    """Three node types, one of which no edge enters; four edge types, one without edges."""
    counts, num_written, num_cited = {"author": 60, "paper": num_papers, "venue": 5}, num_papers * 10 // 3, num_papers * 50 // 9
    adjacency = {
        ("author", "writes", "paper"): random_csc(rng, 60, num_papers, num_written, hub_degree=hub_degree),
        ("paper", "by", "author"): random_csc(rng, num_papers, 60, num_written, edge_ids=True),
        ("paper", "cites", "paper"): random_csc(rng, num_papers, num_papers, num_cited, dtype=np.int64),
        ("venue", "prints", "paper"): random_csc(rng, 5, num_papers, 0),
    }
    return Graph(counts, adjacency, False)


def star(degree):
    """A hub (node 0) with `degree` in-neighbours 1..degree."""
    indptr = np.concatenate([[0], np.full(degree + 1, degree)]).astype(np.int64)
    return Graph({NODE: degree + 1}, {EDGE: CSC(indptr, np.arange(1, degree + 1, dtype=np.int32))}, True)


def assert_same_sample(left, right):
    """Equal in every array, byte for byte, and in every list."""
    assert left.num_seeds == right.num_seeds
    assert left.num_nodes_per_hop == right.num_nodes_per_hop
    assert list(left.nodes) == list(right.nodes)
    assert list(left.edges) == list(right.edges)
    assert (left.trees is None) == (right.trees is None)
    for node_type in left.nodes:
        assert_same_bytes(left.nodes[node_type], right.nodes[node_type])
        if left.trees is not None:
            assert_same_bytes(left.trees[node_type], right.trees[node_type])
    for edge_type in left.edges:
        ours, theirs = left.edges[edge_type], right.edges[edge_type]
        assert ours.num_per_hop == theirs.num_per_hop
        for name in ("edge_index", "row_ptr", "positions"):
            assert_same_bytes(getattr(ours, name), getattr(theirs, name))


def assert_same_bytes(left, right):
    """Same dtype, shape and bytes."""
    assert (left.dtype, left.shape) == (right.dtype, right.shape)
    assert left.tobytes() == right.tobytes()


def poisoned(shape, dtype=np.int64):
    """An array full of something, for what writes all of it."""
    return np.frombuffer(b"\xa5" * (int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape).copy()
