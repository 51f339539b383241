"""Edges whose ends are no nodes, left out: what is stored is what remains, by the numbers of the rows in the input."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_store_build import LIMITS
from tests.stores import ChunkedTable, assert_edges, budget, build, expected_edges, homogeneous

import penstock
from penstock.cli import run
from penstock.errors import InputError, NodeIdError
from penstock.records import EDGE
from penstock.sources.source import EdgeTable, NodeTable, Source
from penstock.store import check


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 3, 200]),
    LIMITS.filter(lambda limits: limits.bucket_bytes >= 200),
    st.booleans(),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["keep", "drop"]),
    st.booleans(),
    st.sampled_from(["numbers", "int", "string"]),
    st.sampled_from([1, 8, 100]),
)
def test_what_remains_equals_the_definition(seed, num_edges, limits, undirected, duplicates, self_loops, knows_length, ids, chunk_rows):
    random = np.random.default_rng(seed)
    num_nodes = int(random.integers(1, 40))
    src, dst = random.integers(-1 if ids == "numbers" else 0, num_nodes + 4, (2, num_edges))
    fields = {"weight": random.random(num_edges).astype(np.float32), "time": random.integers(0, 100, num_edges)}
    names = random.permutation(num_nodes + 4) * 7 - 50
    if ids == "string":
        names = pa.array([f"é{name}" for name in names])
    columns = {"src": src, "dst": dst} if ids == "numbers" else {"src": names.take(src), "dst": names.take(dst)}
    source = homogeneous(
        columns | fields,
        num_nodes if ids == "numbers" else None,
        node_columns=None if ids == "numbers" else {"id": names[:num_nodes]},
        mapped=ids != "numbers",
        chunk_rows=chunk_rows,
        knows_length=knows_length,
    )
    options = dict(undirected=undirected, duplicates=duplicates, self_loops=self_loops)
    keep = (src >= 0) & (src < num_nodes) & (dst >= 0) & (dst < num_nodes)
    kept = {name: values[keep] for name, values in fields.items()}
    indptr, expected = expected_edges(src[keep], dst[keep], kept, num_nodes, **options)
    expected["edge_id"] = np.flatnonzero(keep)[expected["edge_id"]]
    with tempfile.TemporaryDirectory() as folder:
        store, _ = build(source, Path(folder) / "store", limits, the_budget=budget(chunk_rows * 64), dangling="drop", **options)
        assert store.num_nodes == {"node": num_nodes}
        assert_edges(store, EDGE, indptr, expected)
        assert store.manifest.provenance["dangling"] == {"node-to-node": np.count_nonzero(~keep)}
        assert check(store.path, deep=True).is_ok


def test_each_type_is_counted(tmp_path, capsys):
    kinds = {("u", "buys", "i"): ([0, 1, 2], [0, 5, 0]), ("i", "of", "u"): ([0, 1], [1, 1])}
    source = Source(
        nodes={"u": NodeTable(node_type="u", num_nodes=2), "i": NodeTable(node_type="i")},
        edges={
            kind: EdgeTable(edge_type=kind, table=ChunkedTable({"src": np.array(src), "dst": np.array(dst)}))
            for kind, (src, dst) in kinds.items()
        },
        is_homogeneous=False,
    )
    store = penstock.ingest(source, tmp_path / "store", dangling="drop", undirected=True)
    assert store.manifest.provenance["dangling"] == {"u-buys-i": 1, "i-of-u": 0, "i-rev_buys-u": 1, "u-rev_of-i": 0}
    assert store.num_nodes == {"u": 2, "i": 6}
    assert run(["info", str(tmp_path / "store")]) == 0
    assert "left out of edges u-buys-i: 1 that end at no node" in capsys.readouterr().out


def test_ids_are_checked_where_the_edges_alone_tell_how_many_nodes_there_are(tmp_path):
    with pytest.raises(NodeIdError, match="'dst' is -1"):
        build(homogeneous({"src": np.array([0]), "dst": np.array([-1])}), tmp_path / "store", dangling="drop")


def test_without_the_option_they_are_refused_and_nothing_is_recorded(tmp_path):
    source = homogeneous({"src": np.array([0, 1]), "dst": np.array([1, 2])}, 2)
    with pytest.raises(InputError, match=r"line 3: 'dst' is 2, .*leave such edges out \(dangling='drop'\)"):
        build(source, tmp_path / "store")
    store, _ = build(homogeneous({"src": np.array([0]), "dst": np.array([1])}, 2), tmp_path / "store")
    assert "dangling" not in store.manifest.provenance
