"""The real graphs, read through the sources and with NumPy alone."""

import numpy as np
import pytest
from tests.tables import check_table, edges_of, read_all

from penstock.errors import InputError
from penstock.records import EDGE, NODE
from penstock.sources import open_source
from penstock.store import ingest

NAMES = [
    *("cora", "citeseer", "citation_dblp", "amazon_computers", "coauthor_cs", "facebook_pages", "nell", "tolokers"),
    *("blogcatalog_multilabel", "ogbn_arxiv_nofeat", "ego_twitter", "cit_hepph", "web_cnr2000", "soc_slashdot0902", "coauth_dblp2010"),
]
HETERO = ["hetero_dblp", "hetero_aminer", "hetero_freebase_movie"]
CLASS_COUNTS = {"nell": 210, "facebook_pages": 4, "cora": None}


def load(folder, name):
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def dense_sample(arrays, stem, rows):
    """Rows of a feature matrix, by a plain loop over the CSR triplet."""
    if stem in arrays:
        return arrays[stem][rows]
    out = np.zeros((len(rows), arrays[f"{stem}_shape"][1]), np.float32)
    for i, row in enumerate(rows):
        for place in range(arrays[f"{stem}_indptr"][row], arrays[f"{stem}_indptr"][row + 1]):
            out[i, arrays[f"{stem}_indices"][place]] = arrays[f"{stem}_data"][place] if f"{stem}_data" in arrays else 1
    return out


def check_features(table, arrays, stem, num_nodes):
    rows = np.unique(np.random.default_rng(0).integers(0, num_nodes, 50))
    total, found = 0.0, []
    for chunk in table.chunks(500, ("x",)):
        x = chunk.columns["x"]
        total += float(x.sum(dtype=np.float64))
        mine = rows[(rows >= chunk.first_row) & (rows < chunk.first_row + len(x))]
        found.append(x[mine - chunk.first_row])
    np.testing.assert_array_equal(np.concatenate(found), dense_sample(arrays, stem, rows))
    values = arrays.get(stem, arrays.get(f"{stem}_data"))
    expected = len(arrays[f"{stem}_indices"]) if values is None else values.sum(dtype=np.float64)
    assert total == pytest.approx(expected)


@pytest.mark.parametrize("name", NAMES)
def test_one_graph(real_graphs, name):
    arrays, source = load(real_graphs, name), open_source(real_graphs / f"{name}.npz")
    num_nodes = int(arrays["num_nodes"])
    assert source.is_homogeneous
    assert not source.mapped
    assert source.nodes[NODE].num_nodes == num_nodes
    assert source.nodes[NODE].num_classes == (len(arrays["class_names"]) if "class_names" in arrays else CLASS_COUNTS.get(name))
    np.testing.assert_array_equal(edges_of(source), arrays["edge_index"])
    table = source.nodes[NODE].table
    if "x" in arrays or "x_indptr" in arrays:
        check_features(table, arrays, "x", num_nodes)
    fields = [key for key in ("y", "y_multi", "node_year", "node_month", "is_entity") if key in arrays]
    if fields:
        columns = read_all(table, names=tuple("y" if key == "y_multi" else key for key in fields))
        for key in fields:
            np.testing.assert_array_equal(columns["y" if key == "y_multi" else key], arrays[key])
    masks = {part: arrays[f"{part}_mask"].reshape(num_nodes, -1) for part in ("train", "val", "test") if f"{part}_mask" in arrays}
    num_splits = next(iter(masks.values())).shape[1] if masks else 0
    names = [] if not masks else ["default"] if num_splits == 1 else [str(i) for i in range(num_splits)]
    splits = source.splits.get(NODE, {})
    assert list(splits) == names
    for i, split in enumerate(names):
        assert set(splits[split]) == set(masks)
        for part, mask in masks.items():
            np.testing.assert_array_equal(splits[split][part], np.flatnonzero(mask[:, i]))


@pytest.mark.parametrize("name", HETERO)
def test_typed(real_graphs, name):
    arrays, source = load(real_graphs, name), open_source(real_graphs / f"{name}.npz")
    assert not source.is_homogeneous
    assert list(source.nodes) == arrays["node_types"].tolist()
    assert [nodes.num_nodes for nodes in source.nodes.values()] == arrays["num_nodes"].tolist()
    assert ["__".join(edge_type) for edge_type in source.edges] == arrays["edge_types"].tolist()
    for edge_type in source.edges:
        np.testing.assert_array_equal(edges_of(source, edge_type), arrays[f"edge_index__{'__'.join(edge_type)}"])
    for node_type, nodes in source.nodes.items():
        if f"x__{node_type}_indptr" in arrays:
            check_features(nodes.table, arrays, f"x__{node_type}", nodes.num_nodes)
    target = str(arrays["target_type"])
    np.testing.assert_array_equal(read_all(source.nodes[target].table, names=("y",))["y"], arrays[f"y__{target}"])
    assert list(source.splits) == [target]
    assert list(source.splits[target]) == ["20", "40", "60"]
    for split, parts in source.splits[target].items():
        for part, ids in parts.items():
            np.testing.assert_array_equal(ids, np.sort(arrays[f"{part}_idx_{split}"]))


@pytest.mark.parametrize("name", ["kg_fb15k237", "kg_codex_m"])
def test_knowledge_graph(real_graphs, name):
    arrays, source = load(real_graphs, name), open_source(real_graphs / f"{name}.npz")
    columns = read_all(source.edges[EDGE].table)
    np.testing.assert_array_equal(np.stack([columns["src"], columns["edge_type"], columns["dst"]], axis=1), arrays["train_triples"])
    assert source.nodes[NODE].num_nodes == arrays["num_nodes"]
    if "entity_types_indptr" in arrays:
        check_features(source.nodes[NODE].table, arrays, "entity_types", int(arrays["num_nodes"]))


def test_interactions(real_graphs):
    arrays, source = load(real_graphs, "interact_gowalla"), open_source(real_graphs / "interact_gowalla.npz")
    np.testing.assert_array_equal(edges_of(source, ("user", "interacts", "item")), arrays["train_edge_index"])
    assert (source.nodes["user"].num_nodes, source.nodes["item"].num_nodes) == (29858, 40981)


def test_small_graphs(real_graphs):
    arrays, source = load(real_graphs, "graphs_nci1"), open_source(real_graphs / "graphs_nci1.npz")
    np.testing.assert_array_equal(edges_of(source), arrays["edge_index"])
    columns = read_all(source.nodes[NODE].table)
    np.testing.assert_array_equal(columns["x"].argmax(1), arrays["node_label"])
    assert (columns["x"].sum(1) == 1).all()
    for node in (0, 1000, 122746):
        graph = np.searchsorted(arrays["graph_ptr"], node, side="right") - 1
        assert columns["graph"][node] == graph
        assert columns["y_graph"][node] == arrays["y_graph"][graph]


def test_chunks_do_not_show(real_graphs):
    source = open_source(real_graphs / "cora.npz")
    check_table(source.nodes[NODE].table, (1, 7, 1000))
    check_table(source.edges[EDGE].table, (7, 1000))


def small(tmp_path, save=np.savez_compressed, **changes):
    arrays = {
        "edge_index": np.array([[0, 1, 2], [1, 2, 0]], np.int32),
        "num_nodes": np.int64(3),
        "x": np.eye(3, 4, dtype=np.float16),
        "y": np.array([0, 1, -1]),
        "train_mask": np.array([True, False, False]),
        "edge_weight": np.array([1.0, 2, 3]),
    }
    arrays |= changes
    save(tmp_path / "g.npz", **{key: value for key, value in arrays.items() if value is not None})
    return tmp_path / "g.npz"


def read_both(path):
    source = open_source(path)
    return read_all(source.nodes[NODE].table), read_all(source.edges[EDGE].table)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_stored_and_deflated_in_both_orders(tmp_path, save, order):
    rng = np.random.default_rng(0)
    x, edges = rng.standard_normal((3, 5)).astype(">f4"), rng.integers(0, 3, (2, 101))
    path = small(tmp_path, save, x=np.array(x, order=order), edge_index=np.array(edges, order=order), edge_weight=None)
    source = open_source(path)
    np.testing.assert_array_equal(edges_of(source), edges)
    columns = check_table(source.nodes[NODE].table)
    assert columns["x"].dtype == np.float32
    np.testing.assert_array_equal(columns["x"], x)
    check_table(source.edges[EDGE].table)


@pytest.mark.parametrize("kind", ["float32", "int16", "bool"])
def test_sparse_rows_that_name_a_column_twice(tmp_path, kind):
    """Values at one place add up, as in SciPy and in torch."""
    sparse = {"indptr": [0, 3, 3, 4], "indices": np.array([1, 0, 1, 0], np.uint64), "data": np.array([5, 1, 7, 2]).astype(kind)}
    path = small(tmp_path, x=None, x_shape=np.array([3, 2]), **{f"x_{name}": np.asarray(values) for name, values in sparse.items()})
    x = read_all(open_source(path).nodes[NODE].table)["x"]
    np.testing.assert_array_equal(x, np.array([[1, 12], [0, 0], [2, 0]]).astype(kind), strict=True)


def test_fields_of_a_small_archive(tmp_path):
    source = open_source(str(small(tmp_path, node_time=np.arange(3))))
    assert source.nodes[NODE].table.columns["x"].dtype == np.float16
    assert list(source.nodes[NODE].table.columns) == ["x", "node_time", "y"]
    np.testing.assert_array_equal(read_all(source.edges[EDGE].table)["weight"], [1, 2, 3])
    assert source.provenance["files"] == ["g.npz"]


EDGES = np.array([[0, 1, 2, 0], [1, 2, 0, 2]])


@pytest.mark.parametrize("num_nodes", [3, 4])
def test_fields_of_edges(tmp_path, num_nodes):
    arrays = {"edge_attr": np.eye(4, 2), "edge_time": np.arange(4), "edge_weight": np.ones(4)}
    path = small(tmp_path, edge_index=EDGES, num_nodes=num_nodes, x=None, y=None, train_mask=None, **arrays)
    source = open_source(path)
    columns = read_all(source.edges[EDGE].table)
    assert list(columns) == ["src", "dst", "weight", "x", "edge_time"]
    np.testing.assert_array_equal(columns["x"], arrays["edge_attr"])
    assert source.nodes[NODE].table is None


def test_fields_are_told_apart_by_their_rows(tmp_path):
    source = open_source(small(tmp_path, edge_index=EDGES, edge_weight=None, time=np.arange(4), edge_count=np.arange(3)))
    assert list(source.edges[EDGE].table.columns) == ["src", "dst", "time"]
    assert list(source.nodes[NODE].table.columns) == ["x", "edge_count", "y"]


def test_what_nobody_takes_is_named(tmp_path, caplog):
    path = small(tmp_path, names=np.array(["a", "b", "c"]), edge_label_index=np.zeros((2, 9), int), x_more=np.zeros((3, 2)), directed=1)
    source = open_source(path)
    assert source.provenance["left_out"] == ["edge_label_index", "names"]
    assert "g.npz: left out, for this layout has no place for such names and shapes: edge_label_index, names" in caplog.text
    assert "x_more" in source.nodes[NODE].table.columns
    caplog.clear()
    assert open_source(small(tmp_path)).provenance["left_out"] == []
    assert caplog.text == ""


def test_masks_of_one_column_belong_to_every_split(tmp_path):
    several = np.array([[True, False], [False, True], [False, False]])
    for alone in (np.array([False, False, True]), np.array([[False], [False], [True]])):
        splits = open_source(small(tmp_path, train_mask=several, val_mask=several[::-1], test_mask=alone)).splits[NODE]
        assert {name: {part: ids.tolist() for part, ids in parts.items()} for name, parts in splits.items()} == {
            "0": {"train": [0], "val": [2], "test": [2]},
            "1": {"train": [1], "val": [1], "test": [2]},
        }


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_features_of_one_column_stay_a_matrix(tmp_path, save, order):
    column = np.arange(3.0)[:, None]
    path = small(tmp_path, save, x=np.asarray(column, order=order), y=column.astype(int), edge_attr=column, edge_weight=column)
    source = open_source(path)
    nodes, edges = check_table(source.nodes[NODE].table), check_table(source.edges[EDGE].table)
    assert [nodes[name].shape for name in ("x", "y")] == [(3, 1), (3,)]
    assert [edges[name].shape for name in ("x", "weight")] == [(3, 1), (3,)]
    np.testing.assert_array_equal(nodes["x"], column)


def test_splits_by_indices(tmp_path):
    source = open_source(small(tmp_path, train_mask=None, train_idx=np.array([2, 0]), val_idx=np.array([1]), test_idx_20=np.array([1])))
    assert {name: list(parts) for name, parts in source.splits[NODE].items()} == {"default": ["train", "val"], "20": ["test"]}
    assert source.splits[NODE]["default"]["train"].tolist() == [0, 2]


def typed(tmp_path, **changes):
    arrays = {
        "node_types": np.array(["u", "i"]),
        "edge_types": np.array(["u__b__i"]),
        "num_nodes": np.array([3, 2]),
        "edge_index__u__b__i": np.array([[0, 1], [1, 0]]),
        "target_type": np.array("u"),
    }
    arrays |= changes
    np.savez(tmp_path / "t.npz", **{key: value for key, value in arrays.items() if value is not None})
    return tmp_path / "t.npz"


def test_fields_and_splits_of_types(tmp_path):
    path = typed(
        tmp_path,
        time__u=np.arange(3),
        x__u=np.eye(3),
        y__i=np.arange(2),
        edge_time__u__b__i=np.arange(2),
        edge_attr__u__b__i=np.eye(2),
        train_idx=np.array([2]),
        val_idx=np.array([0]),
        train_mask__i=np.array([True, False]),
        test_idx_20__i=np.array([1]),
        time__who=np.arange(3),
    )
    source = open_source(path)
    assert list(source.nodes["u"].table.columns) == ["x", "time"]
    assert list(source.nodes["i"].table.columns) == ["y"]
    assert list(source.edges["u", "b", "i"].table.columns) == ["src", "dst", "edge_time", "x"]
    splits = {kind: {name: list(parts) for name, parts in found.items()} for kind, found in source.splits.items()}
    assert splits == {"u": {"default": ["train", "val"]}, "i": {"default": ["train"], "20": ["test"]}}
    assert source.provenance["left_out"] == ["time__who"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_nodes": np.array([3])}, r"num_nodes: has shape \[1\] and dtype int64; expected 2 whole numbers"),
        ({"num_nodes": np.array([3.0, 2])}, "dtype float64; expected 2 whole numbers"),
        ({"num_nodes": np.array([3, -2])}, "holds -2"),
        ({"node_types": np.array([1, 2])}, "node_types: .*expected a list of names"),
        ({"target_type": np.array("z")}, "target_type: 'z' is no node type; they are u, i"),
        ({"time__u": np.arange(2)}, "t.npz:time__u has 2 rows for 3 nodes"),
        ({"time__u__b__i": np.arange(3)}, "time__u__b__i has 3 rows and"),
    ],
)
def test_bad_typed_archives(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        open_source(typed(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_nodes": np.array([3, 4])}, r"num_nodes: has shape \[2\] and dtype int64; expected one whole number"),
        ({"num_nodes": 6.7}, "num_nodes: .*float64; expected one whole number"),
        ({"weight": np.ones(4), "edge_index": EDGES, "edge_weight": np.ones(4)}, "edge_weight and weight would both be 'weight'"),
        ({"src": np.ones(4), "edge_index": EDGES, "edge_weight": None}, "edge_index and src would both be 'src'"),
        ({"train_idx": np.array([0])}, "split 'default' is given by masks and by train_idx: remove one"),
        ({"y_multi": np.eye(3)}, "y and y_multi would both be the labels"),
        ({"edge_attr": np.eye(2)}, "edge_attr has 2 rows and"),
        ({"x": None, "x_indptr": np.zeros(4), "x_indices": np.zeros(0, int), "x_shape": np.array([3, 4])}, "x_indptr: .*whole numbers"),
        ({"x": None, "x_indptr": np.zeros(4, int), "x_indices": np.zeros(0, int), "x_shape": np.array([3])}, "expected 2 whole numbers"),
        ({"edge_index": None}, "no graph that is known here; its keys are edge_weight, num_nodes"),
        ({"num_nodes": None}, "has no array 'num_nodes'"),
        (
            {"edge_index": np.zeros((3, 2), np.int64)},
            r"g.npz:edge_index: has shape \[3, 2\]; an edge_index has shape \[2, number of edges\]",
        ),
        ({"edge_index": np.zeros((2, 3))}, "edge_index: holds float64; node ids are integers"),
        ({"x": np.zeros((4, 2))}, "g.npz:x has 4 rows for 3 nodes"),
        ({"x": np.array([{}, {}, {}])}, "holds Python objects"),
        ({"x": np.array(["a", "b", "c"])}, "g.npz:x: holds <U1; fields are numbers"),
        ({"y": np.zeros(4, int)}, r"g.npz:y: labels have shape \[4\] for 3 nodes"),
        ({"y": np.zeros((3, 2, 2), int)}, r"g.npz:y: labels have shape \[3, 2, 2\] for 3 nodes"),
        ({"train_mask": np.zeros(2, bool)}, r"the train mask has shape \[2\]"),
        ({"train_mask": np.zeros(3, int)}, r"the train mask has shape \[3\] and dtype int64; expected bool\[3\]"),
        (
            {"train_mask": np.zeros((3, 2), bool), "val_mask": np.zeros((3, 4), bool)},
            r"the train mask has shape \[3, 2\] and dtype bool; expected bool\[3\] or bool\[3, 4\]",
        ),
        ({"edge_weight": np.ones(2)}, "edge_weight has 2 rows and .*edge_index has 3"),
        (
            {"x": None, "x_indptr": np.array([0, 1, 2, 3]), "x_indices": np.array([0, 9, 0]), "x_shape": np.array([3, 4])},
            "column 9, outside",
        ),
        ({"x": None, "x_indptr": np.array([0, 2, 1, 3]), "x_indices": np.zeros(3, int), "x_shape": np.array([3, 4])}, "row 1: row offsets"),
        ({"x": None, "x_indptr": np.array([0, 1, 2]), "x_indices": np.zeros(2, int), "x_shape": np.array([3, 4])}, "3 entries for 3 rows"),
        ({"x": None, "x_indptr": np.array([0, 1, 2, 3])}, "has no array 'x_indices'"),
    ],
)
def test_bad_archives(tmp_path, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        read_both(small(tmp_path, **changes))
    assert "\n" not in str(caught.value)


def test_a_field_that_a_store_does_not_hold(tmp_path):
    with pytest.raises(InputError, match=r"g\.npz: field 'time' is float64; times must be integers"):
        ingest(small(tmp_path, time=np.zeros(3)), tmp_path / "store")


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.95])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_truncated_archive(tmp_path, save, cut):
    path = small(tmp_path, save)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * cut)])
    with pytest.raises(InputError, match="damaged"):
        open_source(path)


def test_a_mask_of_any_number_of_splits_over_nothing(tmp_path):
    mask = np.lib.stride_tricks.as_strided(np.zeros(1, np.bool_), (0, 10**14))
    with pytest.raises(InputError, match=r"the train mask has shape \[0, 100000000000000\] and dtype bool"):
        open_source(small(tmp_path, np.savez, train_mask=mask))


def test_text_of_what_are_no_letters(tmp_path):
    names = np.array(["a", "b"])
    names.view(np.uint32)[1] = 0x7FFFFFFF
    with pytest.raises(InputError, match=r"g\.npz:class_names: damaged, it holds text of what are no letters"):
        open_source(small(tmp_path, class_names=names))


def test_flipped_byte_in_an_archive(tmp_path):
    path = small(tmp_path, x=np.random.default_rng(0).standard_normal((3, 2000)))
    data = bytearray(path.read_bytes())
    data[data.index(b"x.npy") + 20_000] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged archive"):
        read_all(open_source(path).nodes[NODE].table)
