"""What docs/moving.md says: layers of PyG's compute what DGL's documentation says of its own, and the loader is called as it says.

DGL is not here: its formulas are written out over dense matrices, with the weights of PyG's layer.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import leaky_relu
from torch_geometric.nn import GATConv, GCNConv, GINConv, HeteroConv, RGCNConv, SAGEConv
from torch_geometric.utils import add_self_loops

import penstock

PAGE = Path(__file__).parents[1] / "docs" / "moving.md"
NUM_NODES, IN, OUT, HEADS, RELATIONS = 12, 5, 4, 3, 2


@pytest.fixture
def edges():
    """Distinct edges without loops, some nodes without any, and x."""
    torch.manual_seed(0)
    pairs = torch.randperm(NUM_NODES * (NUM_NODES - 2))[:40]
    edge_index = torch.stack([pairs % NUM_NODES, pairs // NUM_NODES])
    return edge_index[:, edge_index[0] != edge_index[1]], torch.randn(NUM_NODES, IN)


def dense(edge_index, values=None):
    """The matrix whose row of a node holds its in-edges."""
    matrix = torch.zeros(NUM_NODES, NUM_NODES)
    matrix[edge_index[1], edge_index[0]] = 1.0 if values is None else values
    return matrix


def same(rows, expected):
    torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-5)


def test_graph_conv(edges):
    edge_index, x = edges
    adjacency = dense(edge_index)
    outdeg, indeg = adjacency.sum(0).clamp(min=1), adjacency.sum(1).clamp(min=1)
    both = GCNConv(IN, OUT, normalize=False)
    weight = (outdeg[edge_index[0]] * indeg[edge_index[1]]) ** -0.5
    scaled = indeg[:, None] ** -0.5 * (adjacency @ (outdeg[:, None] ** -0.5 * x))
    same(both(x, edge_index, weight), scaled @ both.lin.weight.T + both.bias)
    right, none = SAGEConv(IN, OUT, root_weight=False), SAGEConv(IN, OUT, root_weight=False, aggr="sum")
    same(right(x, edge_index), right.lin_l(adjacency @ x / indeg[:, None]))
    same(none(x, edge_index), none.lin_l(adjacency @ x))
    assert not torch.allclose(GCNConv(IN, OUT)(x, edge_index), both(x, edge_index, weight))


def test_sage_conv(edges):
    edge_index, x = edges
    adjacency = dense(edge_index)
    degrees = adjacency.sum(1, keepdim=True)
    mean = SAGEConv(IN, OUT)
    same(mean(x, edge_index), mean.lin_r(x) + mean.lin_l(adjacency @ x / degrees.clamp(min=1)))
    pool = SAGEConv(IN, OUT, aggr="max", project=True)
    mapped = pool.lin(x).relu()
    largest = (adjacency[:, :, None] * mapped[None]).amax(1)  # rows are not negative, and 0 where a node has no edges
    same(pool(x, edge_index), pool.lin_r(x) + pool.lin_l(largest))
    gcn = SAGEConv(IN, OUT, root_weight=False)
    same(gcn(x, add_self_loops(edge_index, num_nodes=NUM_NODES)[0]), gcn.lin_l((adjacency @ x + x) / (degrees + 1)))


def test_gat_conv(edges):
    edge_index, x = edges
    conv = GATConv(IN, OUT, HEADS, add_self_loops=False)
    mapped = conv.lin(x).view(NUM_NODES, HEADS, OUT)
    scores = leaky_relu((mapped * conv.att_src).sum(-1)[None] + (mapped * conv.att_dst).sum(-1)[:, None], 0.2)  # [to, from, head]
    shares = scores.masked_fill(dense(edge_index)[:, :, None] == 0, -torch.inf).softmax(1).nan_to_num()
    rows = torch.einsum("tfh,fho->tho", shares, mapped)
    same(conv(x, edge_index), rows.flatten(1) + conv.bias)
    mean = GATConv(IN, OUT, HEADS, add_self_loops=False, concat=False)
    mean.load_state_dict(conv.state_dict() | {"bias": torch.zeros(OUT)})
    same(mean(x, edge_index), rows.mean(1))


def test_gin_conv(edges):
    edge_index, x = edges
    mlp = torch.nn.Linear(IN, OUT)
    same(GINConv(mlp)(x, edge_index), mlp(x + dense(edge_index) @ x))


def test_rel_graph_conv(edges):
    edge_index, x = edges
    kind = torch.arange(edge_index.shape[1]) % RELATIONS
    conv = RGCNConv(IN, OUT, RELATIONS, num_bases=2, aggr="sum")
    weights = torch.einsum("rb,bio->rio", conv.comp, conv.weight)
    sums = sum(dense(edge_index[:, kind == r]) @ x @ weights[r] for r in range(RELATIONS))
    same(conv(x, edge_index, kind), sums + x @ conv.root + conv.bias)


def test_hetero_graph_conv(edges):
    edge_index, x = edges
    parts = {("a", kind, "a"): edge_index[:, i::2] for i, kind in enumerate(("likes", "knows"))}
    convs = {edge_type: SAGEConv(IN, OUT, root_weight=False) for edge_type in parts}
    rows = HeteroConv(convs, aggr="sum")({"a": x}, parts)["a"]
    same(rows, sum(convs[edge_type](x, part) for edge_type, part in parts.items()))


def test_links_of_the_page(tmp_path, monkeypatch):
    """Its example runs over sets as GraphBolt has them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    likes = np.stack([rng.integers(0, 30, 200), rng.integers(0, 20, 200)])
    np.save("likes.npy", likes)
    np.save("back.npy", likes[::-1].copy())
    edges = {"user__likes__item": "likes.npy", "item__rev_likes__user": "back.npy"}
    store = penstock.ingest({"nodes": {"user": {"num_nodes": 30}, "item": {"num_nodes": 20}}, "edges": edges}, "store")
    np.save("data/train-seeds.npy", likes.T[:100])
    pairs = np.concatenate([likes.T[100:104], np.stack([likes[0, 100:104].repeat(2), rng.integers(0, 20, 8)], axis=1)])
    for name, array in {"seeds": pairs, "labels": np.repeat([1.0, 0.0], [4, 8]), "indexes": np.r_[0:4, np.arange(4).repeat(2)]}.items():
        np.save(f"data/test-{name}.npy", array)
    example, of_ogb = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    around = {"torch": torch, "np": np, "penstock": penstock, "store": store}
    exec(example, around)
    batch, kind = around["batch"], around["likes"]
    found = torch.stack([batch[end].n_id[row] for end, row in zip(kind[::2], batch[kind].edge_label_index, strict=True)])
    assert found.T.tolist() == pairs.tolist()
    assert batch[kind].edge_label.tolist() == [1] * 4 + [0] * 8
    assert around["scored"].tolist() == [0, 1, 2, 3, 0, 0, 1, 1, 2, 2, 3, 3]
    drawn = next(iter(around["loader"]))
    assert drawn[kind].edge_label.sum() == 100
    assert drawn[kind].edge_label.numel() == 200
    splits = {part: {"edge": likes.T[first : first + 9]} for first, part in ((0, "train"), (100, "valid"), (150, "test"))}
    exec(of_ogb, {"np": np, "LinkPropPredDataset": lambda name: SimpleNamespace(get_edge_split=lambda: splits)})
    penstock.hold_out(store, "links", edge_type=kind, val="valid.npy", test="test.npy")
    assert penstock.open("links").links("test").T.tolist() == splits["test"]["edge"].tolist()


def test_files_of_the_page(tmp_path, monkeypatch):
    """Descriptions of DistDGL's chunks and of IGB's arrays, and a DGLGraph by way of an archive."""
    monkeypatch.chdir(tmp_path)
    edges = np.random.default_rng(0).integers(0, 6, (2, 20))
    for i, part in enumerate(np.array_split(edges, 2, axis=1), start=1):
        np.savetxt(f"writes-{i}.csv", part.T, fmt="%d", delimiter=" ")
        np.save(f"feat-{i}.npy", np.full((3, 2), float(i)))
    np.save("edge_index.npy", edges.T)
    description = {
        "nodes": {"paper": {"num_nodes": 6, "fields": {"x": ["feat-1.npy", "feat-2.npy"]}}},
        "edges": {
            "paper__writes__paper": {"files": ["writes-1.csv", "writes-2.csv"], "delimiter": " "},
            "paper__cites__paper": "edge_index.npy",
        },
    }
    store = penstock.ingest(description, "store")
    for edge_type in store.edge_types:
        assert sorted(map(tuple, store.edge_index(edge_type).T.tolist())) == sorted(map(tuple, edges.T.tolist()))
    assert store.node_field("x", "paper")[:, 0].tolist() == [1, 1, 1, 2, 2, 2]
    arrays = {"x": torch.ones(6, 2), "y": torch.zeros(6, dtype=torch.int64), "train_mask": torch.arange(6) < 3}
    np.savez("g.npz", num_nodes=6, edge_index=torch.from_numpy(edges), **arrays)
    assert penstock.ingest("g.npz", "plain").split("train").tolist() == [0, 1, 2]
