"""Random graphs through every path of the builder equal the NumPy definition; random ids through every path of the mapping too."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import event, given
from hypothesis import strategies as st

from penstock.records import EDGE, NODE
from penstock.sources.source import EdgeTable, NodeTable, Source
from penstock.store import check
from penstock.store.ingestion.build import Limits
from tests.stores import ChunkedTable, assert_edges, budget, build, expected_edges, homogeneous

LIMITS = st.builds(
    Limits,
    in_memory_bytes=st.sampled_from([0, 300, 2000, 1 << 30]),
    bucket_bytes=st.sampled_from([40, 200, 1000, 1 << 20]),
    piece_bytes=st.sampled_from([1, 100, 1 << 16]),
    histogram_cells=st.sampled_from([2, 5, 64, 1 << 16]),
)


@st.composite
def edge_lists(draw):
    """(num_nodes, src, dst): often with hubs, repetitions, self-loops, nodes without edges, no edges at all."""
    num_nodes = draw(st.integers(1, 60))
    num_edges = draw(st.sampled_from([0, 1, 3, 40, 300]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    src, dst = random.integers(0, num_nodes, (2, num_edges))
    if draw(st.booleans()):
        dst[random.random(num_edges) < 0.6] = random.integers(0, num_nodes)
    return num_nodes, src, dst


@given(
    edge_lists(),
    LIMITS,
    st.booleans(),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["keep", "drop"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 8, 100]),
    st.sampled_from([(), ("weight",), ("weight", "x", "time")]),
)
def test_edges_equal_the_definition(edges, limits, undirected, duplicates, self_loops, knows_nodes, knows_length, chunk_rows, names):
    num_nodes, src, dst = edges
    random = np.random.default_rng(src.size)
    fields = {
        "weight": random.random(src.size).astype(np.float32),
        "x": random.random((src.size, 2, 3)).astype(np.float16),
        "time": random.integers(0, 100, src.size),
    }
    fields = {name: fields[name] for name in names}
    if not knows_nodes:
        num_nodes = int(max(src.max(initial=0), dst.max(initial=0))) + 1
        if src.size == 0:
            return
    if duplicates == "drop" and limits.bucket_bytes < 200:
        return
    source = homogeneous(
        {"src": src, "dst": dst, **fields}, num_nodes if knows_nodes else None, chunk_rows=chunk_rows, knows_length=knows_length
    )
    options = dict(undirected=undirected, duplicates=duplicates, self_loops=self_loops)
    with tempfile.TemporaryDirectory() as folder:
        store, paths = build(source, Path(folder) / "store", limits, the_budget=budget(chunk_bytes=chunk_rows * 64), **options)
        for path in paths[EDGE]:
            event(path)
        assert store.num_nodes == {NODE: num_nodes}
        assert_edges(store, EDGE, *expected_edges(src, dst, fields, num_nodes, **options))
        assert check(store.path, deep=True).is_ok


@given(edge_lists(), LIMITS, st.booleans())
def test_edges_between_two_types(edges, limits, undirected):
    num_dst, src, dst = edges
    num_src = int(src.max(initial=0)) + 3
    kind = ("a", "to", "b")
    source = Source(
        nodes={"a": NodeTable(node_type="a", num_nodes=num_src), "b": NodeTable(node_type="b", num_nodes=num_dst)},
        edges={kind: EdgeTable(edge_type=kind, table=ChunkedTable({"src": src, "dst": dst}))},
        is_homogeneous=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        store, _ = build(source, Path(folder) / "store", limits, undirected=undirected, self_loops="drop", edge_ids=True)
        assert_edges(store, kind, *expected_edges(src, dst, {}, num_dst, one_type=False))
        assert store.edge_types == [kind, *([("b", "rev_to", "a")] if undirected else [])]
        if undirected:
            assert_edges(store, ("b", "rev_to", "a"), *expected_edges(dst, src, {}, num_src, one_type=False))


def random_ids(random, count, kind):
    if kind == "int":
        return np.unique(random.integers(-(2**63), 2**63 - 1, count))
    alphabet = np.array(list("ab\u00e9\u4e16 0"))
    return sorted({"".join(random.choice(alphabet, int(random.integers(0, 12)))) for _ in range(count)}, key=str.encode)


@given(edge_lists(), st.sampled_from(["int", "string", "large_string"]), st.booleans(), st.sampled_from([80, 600, 1 << 20]))
def test_mapped_ids_come_back(edges, kind, has_table, work_bytes):
    _, src, dst = edges
    random = np.random.default_rng(src.size)
    ids = random_ids(random, 60, "int" if kind == "int" else "string")
    src, dst = src % len(ids), dst % len(ids)
    if kind == "int":
        column = lambda rows: ids[rows]  # noqa: E731
    else:
        type_ = pa.string() if kind == "string" else pa.large_string()
        column = lambda rows: pa.array([ids[row] for row in rows], type=type_)  # noqa: E731
    order = random.permutation(len(ids))
    if not has_table and src.size == 0:
        return
    used = order if has_table else np.unique(np.concatenate([src, dst]))
    node_columns = {"id": column(order), "x": order.astype(np.float32)} if has_table else None
    source = homogeneous({"src": column(src), "dst": column(dst)}, node_columns=node_columns, mapped=True)
    dense = np.full(len(ids), -1)
    dense[used] = np.arange(used.size)
    with tempfile.TemporaryDirectory() as folder:
        store, _ = build(source, Path(folder) / "store", the_budget=budget(chunk_bytes=500, work_bytes=work_bytes))
        assert store.num_nodes[NODE] == used.size
        assert_edges(store, EDGE, *expected_edges(dense[src], dense[dst], {}, used.size))
        expected_ids = [ids[row] for row in used]
        assert list(store.original_ids(np.arange(used.size), NODE)) == expected_ids
        np.testing.assert_array_equal(store.find(expected_ids, NODE), np.arange(used.size))
        assert store.find(["no such id"] if kind != "int" else [7], NODE).tolist() == [-1]
        if has_table:
            np.testing.assert_array_equal(store.node_field("x", NODE), order)
        assert check(store.path, deep=True).is_ok
