"""PyG objects as sources."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from tests.pyg import Data, HeteroData
from tests.tables import check_table, read_all

from penstock.errors import InputError, UsageError
from penstock.records import EDGE, NODE
from penstock.sources import open_source
from penstock.store import ingest

EDGE_INDEX = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 0, 0, 1]])


def test_every_kind_of_attribute(caplog):
    data = Data(
        x=torch.randn(4, 3, requires_grad=True),
        edge_index=EDGE_INDEX,
        edge_attr=torch.randn(5, 2),
        edge_weight=torch.rand(5),
        time=torch.arange(5),
        y=torch.tensor([0, 1, -1, 2]),
        pos=torch.randn(4, 2),
        train_mask=torch.tensor([True, False, True, False]),
        test_mask=torch.tensor([False, True, False, False]),
        name="toy",
        age=torch.zeros(3),
        titles=["a", "b", "c", "d"],
        kinds=("a", "b", "c", "d", "e"),
    )
    source = open_source(data)
    assert source.is_homogeneous
    nodes, edges = source.nodes[NODE], check_table(source.edges[EDGE].table)
    assert nodes.num_nodes == 4
    columns = check_table(nodes.table)
    assert set(columns) == {"x", "y", "pos"}
    np.testing.assert_array_equal(columns["x"], data.x.detach().numpy())
    np.testing.assert_array_equal(np.stack([edges["src"], edges["dst"]]), EDGE_INDEX.numpy())
    assert set(edges) == {"src", "dst", "x", "weight", "time"}
    np.testing.assert_array_equal(edges["x"], data.edge_attr.numpy())
    np.testing.assert_array_equal(edges["weight"], data.edge_weight.numpy())
    split = source.splits[NODE]["default"]
    assert {part: ids.tolist() for part, ids in split.items()} == {"train": [0, 2], "test": [1]}
    assert source.provenance["left_out"] == ["name", "age", "titles", "kinds"]
    (record,) = caplog.records
    assert record.getMessage().startswith("Data: left out, ")
    assert record.getMessage().endswith(": name, age, titles, kinds")


def test_views_not_copies():
    data = Data(x=torch.zeros(4, 3), edge_index=EDGE_INDEX)
    chunk = next(open_source(data).nodes[NODE].table.chunks(10))
    data.x[2, 1] = 7
    assert chunk.columns["x"][2, 1] == 7


def test_several_splits_in_masks():
    data = Data(edge_index=EDGE_INDEX, num_nodes=4, train_mask=torch.tensor([[1, 0], [0, 1], [0, 0], [1, 1]]).bool())
    splits = open_source(data).splits[NODE]
    assert {name: parts["train"].tolist() for name, parts in splits.items()} == {"0": [0, 3], "1": [1, 3]}


def test_a_view_of_negated_numbers():
    part = torch.tensor([[1 + 2j], [3 - 4j]]).conj().imag  # torch negates them when they are read
    data = Data(x=part, edge_index=torch.tensor([[0], [1]]))
    np.testing.assert_array_equal(read_all(open_source(data).nodes[NODE].table)["x"], [[-2], [4]])


def test_bfloat16_is_said_to_be():
    data = Data(x=torch.tensor([[1.0, -2.5], [0.0, 3.0]]).bfloat16(), edge_index=torch.tensor([[0], [1]]))
    table = open_source(data).nodes[NODE].table
    assert table.columns["x"].is_bfloat16
    bits = read_all(table)["x"].astype(np.uint32) << 16
    np.testing.assert_array_equal(bits.view(np.float32), [[1.0, -2.5], [0.0, 3.0]])


SPARSE = {
    "coo": {"layout": torch.sparse_coo},
    "csr": {"layout": torch.sparse_csr},
    "csc": {"layout": torch.sparse_csc},
    "bsr": {"layout": torch.sparse_bsr, "blocksize": (2, 3)},
    "hybrid": {"sparse_dim": 1},
}


@pytest.mark.parametrize(("layout", "dtype"), [*((name, "float32") for name in SPARSE), ("coo", "bfloat16"), ("csr", "bfloat16")])
def test_sparse_features(layout, dtype):
    dense = torch.tensor([[0.0, 1, 0], [0, 0, 0], [2, 0, 3], [0, 4, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = dense.to(getattr(torch, dtype)).to_sparse(**SPARSE[layout])
        source = open_source(Data(x=x, y=torch.arange(4), edge_index=EDGE_INDEX))
    columns = check_table(source.nodes[NODE].table)
    np.testing.assert_array_equal(columns["x"], dense.numpy())
    np.testing.assert_array_equal(columns["y"], np.arange(4))


def test_transposed_adjacency():
    weights = torch.tensor([[0.0, 5, 0], [0, 0, 6], [7, 0, 0]])
    source = open_source(Data(adj_t=weights.to_sparse(), num_nodes=3))
    edges = read_all(source.edges[EDGE].table)
    assert sorted(zip(edges["src"], edges["dst"], edges["weight"], strict=True)) == [(0, 2, 7), (1, 0, 5), (2, 1, 6)]


def test_nodes_are_counted_as_pyg_counts_them():
    assert open_source(Data(edge_index=EDGE_INDEX)).nodes[NODE].num_nodes == 4
    assert open_source(Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=3)).nodes[NODE].num_nodes == 3


def hetero():
    data = HeteroData()
    data["paper"].x = torch.randn(3, 2)
    data["paper"].train_mask = torch.tensor([True, False, False])
    data["author"].num_nodes = 5
    data["author", "writes", "paper"].edge_index = torch.tensor([[4, 0], [2, 1]])
    data["author", "writes", "paper"].edge_attr = torch.randn(2, 1)
    data["paper", "cites", "paper"].edge_index = torch.empty(2, 0, dtype=torch.long)
    data["venue", "prints", "paper"].edge_index = torch.tensor([[1], [2]])
    return data


@pytest.mark.parametrize("count", [torch.tensor(6), np.int64(6)], ids=type)
def test_a_number_of_nodes_that_is_no_int(tmp_path, count):
    data = HeteroData()
    data["a"].num_nodes = count
    data["a", "to", "a"].edge_index = EDGE_INDEX
    assert ingest(data, tmp_path / "typed").num_nodes == {"a": 6}
    assert ingest(Data(edge_index=EDGE_INDEX, num_nodes=count), tmp_path / "plain").num_nodes == {NODE: 6}


def test_typed():
    source = open_source(hetero())
    assert not source.is_homogeneous
    assert {name: nodes.num_nodes for name, nodes in source.nodes.items()} == {"paper": 3, "author": 5, "venue": None}
    assert list(source.edges) == [("author", "writes", "paper"), ("paper", "cites", "paper"), ("venue", "prints", "paper")]
    edges = read_all(source.edges["author", "writes", "paper"].table)
    np.testing.assert_array_equal(edges["src"], [4, 0])
    assert edges["x"].shape == (2, 1)
    assert source.splits == {"paper": {"default": {"train": np.array([0])}}}


def test_what_is_left_out_of_a_typed_graph(caplog):
    data = hetero()
    data["paper"].titles, data["author"].age, data.license = ["a", "b", "c"], torch.zeros(4), "by"
    data["author", "writes", "paper"].order = torch.zeros(3)
    source = open_source(data)
    assert source.provenance["left_out"] == ["license", "paper.titles", "author.age", "author__writes__paper.order"]
    assert "HeteroData: left out, for these are no tensors with a row for each node or edge: license, paper.titles, " in caplog.text


def test_columns_are_no_rows():
    """Of names with "index" PyG counts columns, and here there may be as many rows too: of nodes, of edges, and of links of a split."""
    data = Data(
        edge_index=EDGE_INDEX[:, :2], x=torch.zeros(3, 1), edge_label=torch.ones(2), edge_label_index=torch.tensor([[1, 2], [0, 1]])
    )
    data.face, data.part_index = torch.arange(9).view(3, 3), torch.arange(3)
    source = open_source(data)
    assert source.provenance["left_out"] == ["edge_label_index", "face"]
    assert set(source.nodes[NODE].table.columns) == {"x", "part_index"}
    assert set(source.edges[EDGE].table.columns) == {"src", "dst", "edge_label"}
    data = HeteroData()
    data["a"].num_nodes = 4
    data["a", "to", "a"].edge_index = data["a", "to", "a"].edge_label_index = EDGE_INDEX
    assert open_source(data).provenance["left_out"] == ["a__to__a.edge_label_index"]


def test_nothing_is_left_out(caplog):
    assert open_source(hetero()).provenance["left_out"] == []
    assert not caplog.records


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Data(x=torch.zeros(3, 1)), "neither edge_index nor adj_t"),
        (Data(edge_index=torch.zeros(3, 2), num_nodes=3), r"edge_index has shape \[3, 2\] and dtype float32"),
        (Data(edge_index=EDGE_INDEX, y=torch.zeros(9)), r"Data.y has shape \[9\] for 4 nodes; set num_nodes, or remove it"),
        (Data(edge_index=EDGE_INDEX, y=torch.zeros(9), num_nodes=4), r"\[9\] for 4 nodes \(num_nodes\); expected \[4\], one row for each"),
        (Data(edge_index=EDGE_INDEX, x=torch.zeros(4, 1), y=torch.zeros(9, 2)), r"\[9, 2\] for 4 nodes; expected \[4, 2\], one row"),
        (
            Data(edge_index=EDGE_INDEX, x=torch.zeros(4, 1), y=torch.tensor(3)),
            r"Data.y has shape \[\] for 4 nodes; expected \[4\], one row",
        ),
        (
            Data(edge_index=EDGE_INDEX, x=torch.zeros(4, 1), train_mask=torch.zeros(9).bool()),
            r"train_mask has shape \[9\] for 4 nodes; exp",
        ),
        (Data(edge_index=EDGE_INDEX, num_nodes=4, test_mask=torch.tensor([0, 3])), r"test_mask .* dtype int64; expected a boolean mask"),
        (Data(edge_index=EDGE_INDEX, edge_attr=torch.zeros(3, 2)), r"edge_attr has shape \[3, 2\] for 5 edges; expected \[5, 2\], one"),
        (Data(edge_index=EDGE_INDEX, num_nodes=4, edge_weight=torch.zeros(4)), r"edge_weight has shape \[4\] for 5 edges; expected"),
        (Data(edge_weight=torch.zeros(4), edge_index=EDGE_INDEX, num_nodes=9), r"edge_weight has shape \[4\] for 5 edges; expected"),
        (
            Data(edge_index=EDGE_INDEX, edge_weight=[1.0] * 5),
            "edge_weight is of type list; expected a tensor, one row for each of the edges",
        ),
        (Data(edge_index=EDGE_INDEX, x=[[1.0]] * 4), "Data.x is of type list; expected a tensor, one row for each of the nodes"),
        (Data(edge_index=EDGE_INDEX, train_mask=torch.zeros(4), num_nodes=4), "dtype float32; expected bool"),
        (Data(edge_index=EDGE_INDEX, x=torch.zeros(4, 2, dtype=torch.complex64)), "holds complex64; fields are numbers"),
        (Data(edge_index=EDGE_INDEX, x=torch.zeros(4, 2).to(torch.float8_e5m2)), "Data.x holds float8_e5m2; fields are numbers"),
        (Data(edge_index=EDGE_INDEX, num_nodes=4, kind=torch.eye(5).to_sparse()), "Data.kind holds sparse_coo; fields are numbers"),
    ],
)
def test_bad_objects(data, message):
    with pytest.raises((InputError, UsageError), match=message):
        open_source(data)


def test_options_are_refused():
    with pytest.raises(UsageError, match="a PyG object has no option 'src'; it has none"):
        open_source(Data(edge_index=EDGE_INDEX), src="a")


def test_neither_torch_nor_pyg_is_needed_to_import():
    code = "import sys, penstock.sources, penstock.sources.generate; sys.exit('torch' in sys.modules or 'torch_geometric' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("names", [("weight", "edge_weight"), ("edge_attr", "x")])
def test_two_attributes_of_one_name(names):
    data = HeteroData()
    data["a"].num_nodes = 4
    data["a", "to", "a"].edge_index = EDGE_INDEX
    for name in names:
        data["a", "to", "a"][name] = torch.rand(5)
    with pytest.raises(
        InputError, match=f"{names[0]} and {names[1]} would both be the field '(weight|x)' of the edges: remove or rename one"
    ):
        open_source(data)


def test_a_mask_of_no_nodes(tmp_path):
    data = HeteroData()
    for node_type, count in (("a", 6), ("b", 0)):
        data[node_type].x, data[node_type].train_mask = torch.randn(count, 2), torch.ones(count, dtype=torch.bool)
    data["a", "r", "a"].edge_index = torch.randint(0, 6, (2, 20))
    data["b", "s", "a"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    store = ingest(data, tmp_path / "store")
    assert [store.split("train", node_type=t).size for t in ("a", "b")] == [6, 0]


def test_an_attribute_called_like_an_end():
    data = Data(edge_index=EDGE_INDEX, num_nodes=4, dst=torch.zeros(EDGE_INDEX.shape[1], dtype=torch.int64))
    with pytest.raises(InputError, match="the ends of the edges and dst would both be the field 'dst' of the edges"):
        open_source(data)
