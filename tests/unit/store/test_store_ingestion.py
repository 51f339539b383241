"""Options, forecasts, progress, provenance, and sources whose parts do not fit together."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from tests.stores import ROOMY, ChunkedTable, assert_edges, budget, build, expected_edges, homogeneous

from penstock.errors import BudgetError, InputError, NodeIdError, StoreError, UsageError
from penstock.records import EDGE, NODE
from penstock.sources.source import Chunk, EdgeTable, NodeTable, Source
from penstock.store import forecast, generate, ingest
from penstock.store.ingestion.build import Limits

ENDS = {"src": np.array([0, 1, 2]), "dst": np.array([1, 2, 0])}


class Recorder:
    """Keeps what progress says."""

    def __init__(self):
        self.notes, self.stages, self._open = [], {}, None

    def note(self, message):
        self.notes.append(message)

    def begin(self, stage, total, unit):
        assert self._open is None
        self._open = stage
        self.stages[stage] = [total, 0]

    def advance(self, amount):
        self.stages[self._open][1] += amount

    def end(self):
        self._open = None


def typed(nodes, edges):
    return Source(
        nodes={name: NodeTable(node_type=name, num_nodes=count) for name, count in nodes.items()},
        edges={kind: EdgeTable(edge_type=kind, table=ChunkedTable(columns)) for kind, columns in edges.items()},
        is_homogeneous=False,
    )


def test_progress_and_provenance(tmp_path):
    progress = Recorder()
    source = homogeneous(ENDS, node_columns={"x": np.zeros((3, 2))})
    source.provenance = {"kind": "test"}
    store = ingest(source, tmp_path / "store", memory="4GiB", progress=progress, undirected=True)
    assert progress.stages == {
        "write nodes node": [3, 3],
        "count edges node-to->node": [3, 3],
        "place edges node-to->node": [3, 3],
    }
    assert "at most 4.0 GiB, the bound of the whole process: " in progress.notes[0]
    provenance = json.loads((store.path / "manifest.json").read_text())["provenance"]
    assert provenance["source"] == {"kind": "test"}
    assert provenance["options"]["undirected"] is True
    assert set(provenance) == {"created", "penstock", "options", "source"}


def test_forecast_of_edges_through_the_disk():
    rows = 50_000_000
    table = ChunkedTable({"src": np.zeros(1, np.int64), "dst": np.zeros(1, np.int64)})
    table.num_rows = rows
    source = Source(
        nodes={NODE: NodeTable(node_type=NODE, num_nodes=1000)}, edges={EDGE: EdgeTable(edge_type=EDGE, table=table)}, is_homogeneous=True
    )
    roomy, tight = forecast(source, memory="64GiB"), forecast(source, memory="4GiB")
    assert (roomy.spills, roomy.scratch_bytes, roomy.num_edges, roomy.disk_bytes) == (False, 0, rows, rows * 4 + 8000)
    assert "placed in memory" in str(roomy)
    wide = forecast(source, memory="64GiB", undirected=True, edge_ids=True)
    assert wide.disk_bytes == 2 * rows * 8 + 8000
    assert tight.memory_bytes == 4 << 30
    table.num_rows = 10**10
    huge = forecast(source, memory="4GiB")
    assert huge.spills
    assert huge.scratch_bytes == 10**10 * 8
    assert "placed through the disk, in buckets" in str(huge)
    table.num_rows = None
    assert "how many rows they have only reading tells" in str(forecast(source, memory="4GiB"))


def test_forecast_of_a_length_that_only_reading_tells(tmp_path):
    path = tmp_path / "edges.csv"
    ends = np.random.default_rng(0).integers(100_000, 1_000_000, (2, 300_000))
    pyarrow.csv.write_csv(pa.table({"src": ends[0], "dst": ends[1]}), path)
    told = forecast(str(path), memory="64GiB", undirected=True)
    assert told.is_about
    assert told.unknown == ()
    assert told.num_edges == pytest.approx(600_000, rel=0.02)
    assert told.disk_bytes == pytest.approx(600_000 * 4 + 300_000 // 16 * 8, rel=0.02)
    assert "about 600,000 edges, placed in memory" in str(told)
    assert 0.02 < told.seconds < 2


def test_forecast_takes_the_arguments_of_ingest(tmp_path):
    """Columns and splits as well as rules."""
    pyarrow.csv.write_csv(pa.table({"w": [0.5, 1.0, 2.0], "from": [0, 1, 2], "to": [1, 2, 0]}), tmp_path / "edges.csv")
    options = dict(src="from", dst="to", edge_fields={"weight": "w"}, num_nodes=3, undirected=True, memory="64GiB")
    told, made = forecast(tmp_path / "edges.csv", **options), ingest(tmp_path / "edges.csv", tmp_path / "store", **options)
    assert told.num_edges == pytest.approx(sum(made.num_edges.values()), rel=0.5)
    assert told.disk_bytes >= made.num_bytes / 2
    with pytest.raises(UsageError, match="duplicates must be 'keep' or 'drop'"):
        forecast(tmp_path / "edges.csv", **options, duplicates="often")


def test_forecast_does_not_refuse_a_disk_by_an_estimate(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1))
    with pytest.raises(StoreError, match="and the disk has 1 B free"):
        ingest(homogeneous(ENDS, 3), tmp_path / "known")
    progress = Recorder()
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,2\n2,0\n")
    ingest(tmp_path / "edges.csv", tmp_path / "guessed", progress=progress)
    assert "warning: the disk may not suffice: about" in progress.notes[1]


@pytest.mark.parametrize("memory", ["1MiB", 1000, "0"])
def test_too_little_memory(tmp_path, memory):
    with pytest.raises(BudgetError, match=r"of memory is too little: .* are held already \+ .* = .* at least"):
        ingest(homogeneous(ENDS), tmp_path / "store", memory=memory)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory", ["much", "-1GiB", "", "1.2.3GB", "5 apples"])
def test_unreadable_memory(tmp_path, memory):
    with pytest.raises(UsageError, match="as a number of bytes: write for instance 768MiB"):
        ingest(homogeneous(ENDS), tmp_path / "store", memory=memory)


@pytest.mark.parametrize("options", [{"duplicates": "yes"}, {"self_loops": "add"}, {"feature_dtype": "float8"}])
def test_options_that_do_not_exist(tmp_path, options):
    with pytest.raises(UsageError, match=f"{next(iter(options))} must be"):
        ingest(homogeneous(ENDS), tmp_path / "store", **options)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ({"src": [0, 1], "dst": [1, 3]}, r"edges.csv, line 3: 'dst' is 3, node ids must lie in \[0, 3\) \(1 of the 2 ids around do not\)"),
        ({"src": [0, -1], "dst": [1, 1]}, r"edges.csv, line 3: 'src' is -1, node ids must lie in \[0, 3\)"),
    ],
)
def test_ids_out_of_range(tmp_path, ends, message):
    source = homogeneous({name: np.array(ids) for name, ids in ends.items()}, 3)
    with pytest.raises(NodeIdError, match=message):
        build(source, tmp_path / "store")


def test_ids_that_should_be_mapped(tmp_path):
    for ids in (np.array([0, 2**40]), np.array([0, 2**64 - 1], np.uint64), np.array([0, -1])):
        with pytest.raises(
            NodeIdError, match=r"line 3: 'src' is .* must lie in \[0, 1099511627776\) .* Are these ids\? Then number .* \(ids='int'\)\."
        ):
            build(homogeneous({"src": ids, "dst": np.array([0, 0])}), tmp_path / "store")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"src": np.zeros(2, np.int64)}, "there is no column 'dst'; it has src"),
        ({"src": np.zeros(2), "dst": np.zeros(2, np.int64)}, "'src' must be a column of integers, got float64"),
        ({"src": np.zeros((2, 2), np.int64), "dst": np.zeros(2, np.int64)}, r"'src' must be a column of integers, got int64 \[2\]"),
        ({**ENDS, "indices": np.zeros(3)}, "a field cannot be called 'indices'"),
        ({**ENDS, "weight": np.array([1, np.nan, 1])}, "line 3: field 'weight' is nan"),
    ],
)
def test_edge_tables_that_do_not_fit(tmp_path, columns, message):
    with pytest.raises(InputError, match=message):
        build(homogeneous(columns), tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_sources_whose_parts_do_not_fit(tmp_path):
    cases = [
        (typed({}, {}), "the source has no nodes"),
        (typed({"a": 0}, {}), "the source has no nodes"),
        (typed({"a": 1}, {("a", "to", "b"): ENDS}), "name the node type 'b', there are a"),
        (homogeneous(ENDS, 5, node_columns={"x": np.zeros(3)}), "there are 3 rows for 5 nodes"),
        (homogeneous(ENDS, node_columns={"id_rows": np.zeros(3)}), "a field cannot be called 'id_rows'"),
        (homogeneous(ENDS, node_columns={"name": np.array(["a", "b", "c"])}), "field 'name' holds <U1"),
    ]
    wrong = homogeneous(ENDS)
    wrong.nodes["other"] = NodeTable(node_type="other")
    cases.append((wrong, "a homogeneous graph has one node type and one edge type, this has 2 and 1"))
    unknown = homogeneous(ENDS)
    unknown.mapped = frozenset(["ghost"])
    cases.append((unknown, "there is no node type 'ghost' to map or split"))
    for source, message in cases:
        with pytest.raises(InputError, match=message):
            build(source, tmp_path / "store")


def test_tables_that_change_while_they_are_read(tmp_path):
    source = homogeneous(ENDS)
    table = source.edges[EDGE].table
    table.num_rows = table._length = 3
    true_chunks = table.chunks
    table.chunks = lambda *arguments: (chunk for chunk in list(true_chunks(*arguments))[:0])
    with pytest.raises(InputError, match=r"announced 3 rows and delivered 0: did the file change?"):
        build(source, tmp_path / "store")


@pytest.mark.parametrize(("times", "found"), [(0, "0"), (2, "more than 3")])
@pytest.mark.parametrize(
    "limits", [ROOMY, Limits(in_memory_bytes=0, bucket_bytes=1 << 20, piece_bytes=1 << 10, histogram_cells=4)], ids=["in memory", "spilled"]
)
def test_tables_that_change_between_two_readings(times, found, limits, tmp_path):
    source = homogeneous(ENDS)
    table, readings = source.edges[EDGE].table, []
    true_chunks = table.chunks

    def chunks(*arguments):
        readings.append(arguments)
        return (chunk for _ in range(1 if len(readings) == 1 else times) for chunk in true_chunks(*arguments))

    table.chunks = chunks
    with pytest.raises(InputError, match=f"delivered 3 rows, and {found} when they were read again: did the file change"):
        build(source, tmp_path / "store", limits)
    assert len(readings) == 2


def test_chunks_whose_columns_differ_in_length():
    with pytest.raises(InputError, match=r"equally many rows, got {'src': 3, 'dst': 3, 'weight': 2}"):
        Chunk(0, {"src": np.arange(3), "dst": np.arange(3), "weight": np.ones(2)})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"train": [0, 3]}, r"part 'train': 1 of 2 node numbers lie outside \[0, 3\); first is 3 in row 1"),
        ({"train": [-1]}, "outside"),
        ({"train": [0, 1, 0]}, "part 'train': node 0 occurs more than once"),
        ({"train": [0, 1], "val": [1]}, r"split 'default' of node: node 1 is in 'train' and in 'val' \(1 nodes are\)"),
        ({"train": [0.5]}, r"part 'train': has shape \[1\] and dtype float64; a part of a split is a list of node numbers"),
        ({"train": [[0]]}, r"has shape \[1, 1\] and dtype int64; a part of a split is a list"),
    ],
)
def test_splits_that_cannot_be(tmp_path, parts, message):
    source = homogeneous(ENDS, 3, splits={"default": {part: np.array(ids) for part, ids in parts.items()}})
    with pytest.raises(InputError, match=message):
        build(source, tmp_path / "store")


def test_empty_parts_and_graphs_without_edges(tmp_path):
    nothing = np.empty(0, np.int64)
    source = homogeneous({"src": nothing, "dst": nothing, "weight": np.empty(0)}, 4, splits={"default": {"train": nothing}})
    store, _ = build(source, tmp_path / "store", undirected=True, duplicates="drop", self_loops="drop")
    assert store.csc().indptr.tolist() == [0] * 5
    assert store.csc().indices.size == store.edge_field("weight").size == store.split("train").size == 0


def test_counts_that_only_the_edges_tell(tmp_path):
    """The number of nodes of a type is settled by all edge types together, after some lists were written."""
    edges = {
        ("a", "to", "b"): {"src": np.array([0]), "dst": np.array([1])},
        ("b", "to", "b"): {"src": np.array([7]), "dst": np.array([2])},
        ("b", "to", "a"): {"src": np.array([0]), "dst": np.array([3])},
    }
    for limits in (ROOMY, Limits(in_memory_bytes=0, bucket_bytes=40, piece_bytes=1, histogram_cells=2)):
        store, _ = build(typed({"a": None, "b": None, "c": 2}, edges), tmp_path / "store", limits, overwrite=True)
        assert dict(store.num_nodes) == {"a": 4, "b": 8, "c": 2}
        for kind, columns in edges.items():
            assert_edges(store, kind, *expected_edges(columns["src"], columns["dst"], {}, store.num_nodes[kind[2]]))


def test_reverse_types(tmp_path):
    edges = {("a", "to", "b"): {**ENDS, "weight": np.array([5.0, 6.0, 7.0])}, ("b", "rev_to", "a"): ENDS}
    with pytest.raises(UsageError, match=r"undirected would add edges of type \('b', 'rev_to', 'a'\), which the source has already"):
        build(typed({"a": 3, "b": 3}, edges), tmp_path / "store", undirected=True)
    edges.popitem()
    store, _ = build(typed({"a": 3, "b": 3}, edges), tmp_path / "store", undirected=True)
    assert store.edge_field("weight", ("b", "rev_to", "a")).tolist() == [5, 6, 7]


def test_duplicates_need_a_bit_per_source(tmp_path):
    source = typed({"a": 10_000, "b": 50}, {("a", "to", "b"): {"src": np.arange(300), "dst": np.arange(300) % 50}})
    limits = Limits(in_memory_bytes=100, bucket_bytes=1000, piece_bytes=100, histogram_cells=16)
    with pytest.raises(BudgetError, match="dropping duplicates takes one bit per source node"):
        build(source, tmp_path / "store", limits, duplicates="drop")


def test_generate_and_expand(tmp_path):
    base = generate("rmat", tmp_path / "base", num_nodes=64, num_edges=500, feature_dim=3, num_classes=4, undirected=True)
    assert base.num_edges[EDGE] >= 500
    big = generate("kronecker", tmp_path / "big", base=tmp_path / "base", num_copies=3, seed=1)
    assert big.num_nodes[NODE] == 192
    np.testing.assert_array_equal(big.node_field("x")[:64], base.node_field("x"))
    with pytest.raises(UsageError, match="rmat"):
        generate("moebius", tmp_path / "other")


def test_large_ids_and_many_nodes(tmp_path):
    """More nodes than fit in memory as exact degrees, few edges: only ranges of destinations are counted."""
    src, dst = np.array([5, 99_999, 5]), np.array([70_000, 3, 70_000])
    limits = Limits(in_memory_bytes=1000, bucket_bytes=100_000, piece_bytes=1000, histogram_cells=16)
    store, paths = build(homogeneous({"src": src, "dst": dst}, 100_000), tmp_path / "store", limits, the_budget=budget())
    assert "spill" in paths[EDGE]
    assert_edges(store, EDGE, *expected_edges(src, dst, {}, 100_000))
