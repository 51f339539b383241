"""Layers whose backward pass waits for no device give what PyG's give."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch_geometric.nn import GATConv, GCNConv, GINConv, HGTConv, SAGEConv
from torch_geometric.utils import spmm

import penstock
from penstock.feed import Layer, layers
from penstock.feed.layers import has_weights as says_weights
from penstock.kernels import _triton
from penstock.train import attention, convs
from penstock.train.models import GNN
from penstock.train.rows import LearntRows
from tests.train.stores import make_data

PAIRS = {
    "sage": (convs.Sage, SAGEConv, lambda make: make(4, 3)),
    "gcn": (convs.Gcn, GCNConv, lambda make: make(4, 3, normalize=False, add_self_loops=False)),
    "gin": (convs.Gin, GINConv, lambda make: make(torch.nn.Linear(4, 3), train_eps=True)),
}


def random_matrix(num_rows, num_columns, num_edges, *, has_weights=True):
    """Some rows and columns are empty; some edges are there twice."""
    random = np.random.default_rng()
    ends = np.sort(random.integers(0, max(1, num_rows - 1), num_edges))
    row_ptr = torch.from_numpy(np.searchsorted(ends, np.arange(num_rows + 1)))
    columns = torch.from_numpy(random.integers(0, max(1, num_columns // 2), num_edges))
    return Layer(num_columns, num_rows, row_ptr, columns, columns, None).adj_t(torch.rand(num_edges) if has_weights else None)


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("sizes", [(7, 12, 60), (1, 5, 3), (4, 4, 0)])
def test_sums_by_column(sizes, has_weights):
    matrix, rows = random_matrix(*sizes, has_weights=has_weights), torch.rand(sizes[0], 3)
    assert not sizes[2] or says_weights(matrix) == has_weights
    torch.testing.assert_close(convs.sums_by_column(matrix, rows), torch.sparse.mm(matrix, torch.eye(sizes[1])).T @ rows)


def test_ones_that_were_replaced_by_more_count_as_weights():
    """Which they are: their place is no longer known."""
    few, many = (random_matrix(5, 5, size, has_weights=False) for size in (10, 700_000))
    assert not says_weights(many)
    rows = torch.rand(5, 2)
    torch.testing.assert_close(convs.sums_by_column(few, rows), torch.sparse.mm(few, torch.eye(5)).T @ rows)


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("kind", PAIRS)
def test_gradients_are_those_of_pygs_layers(kind, has_weights, device):
    """On a device they go along the edges."""
    ours, theirs, make = PAIRS[kind]
    (batch,) = penstock.NeighborLoader(make_data(), [4], torch.arange(60), batch_size=60, seed=0)
    [layer] = layers(batch)
    x, weights, found = torch.rand(layer.num_src, 4), torch.rand(layer.sources.numel()), []
    for where, kept in ((_triton.tensor_device(device), ours), (torch.device("cpu"), theirs)):
        torch.manual_seed(0)
        conv, rows = make(kept).to(where), x.to(where).requires_grad_()
        row_ptr, sources = layer.row_ptr.to(where), layer.sources.to(where)
        adjacency = Layer(layer.num_src, layer.num_dst, row_ptr, sources, sources, None).adj_t(weights.to(where) if has_weights else None)
        conv(rows if kind == "gcn" else (rows, rows[: layer.num_dst]), adjacency).square().sum().backward()
        found.append([rows.grad.cpu(), *(each.grad.cpu() for each in conv.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("heads", "size"), [(1, (9, 6)), (2, (9, 6)), (2, None)])
def test_attention_is_that_of_pygs_layer(heads, size, device, monkeypatch):
    """Over edges some of which are self-loops, some twice, and destinations without any; gradients of some edges at a time."""
    monkeypatch.setattr(attention, "_PIECE_BYTES", 100)
    where, random = _triton.tensor_device(device), np.random.default_rng()
    edge_index = torch.from_numpy(np.stack([random.integers(0, 9, 40), random.integers(0, 5, 40)])).to(where)
    edge_index[:, :3] = torch.tensor([2, 2, 4])
    x, found = torch.rand(9, 4), []
    for make in (convs.Gat, GATConv):
        torch.manual_seed(0)
        conv, rows = make(4, 3, heads=heads).to(where), x.to(where).requires_grad_()
        out = conv((rows, rows[:6]), edge_index, size=size)
        out.square().sum().backward()
        found.append([out, rows.grad, *(each.grad for each in conv.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def typed_rows(num_rows, num_edges):
    """A layer of HGT's of PyG's and ours, rows by type, and edges: a relation that no edge of the batch has is there too."""
    types = (["a", "b", "c"], [("a", "r", "b"), ("b", "s", "a"), ("a", "t", "c"), ("c", "u", "a")])
    edges = {edge_type: torch.randint(0, num_rows, (2, num_edges)) for edge_type in types[1][:3]}
    return types, {t: torch.rand(num_rows, 8, requires_grad=True) for t in types[0]}, edges


@pytest.mark.parametrize("is_reversed", [False, True])
def test_hgt_is_that_of_pyg(is_reversed):
    """PyG takes relations in the order of the metadata for granted, if its maps are not told otherwise."""
    found = []
    types, x, edges = typed_rows(9, 40)
    if is_reversed:
        edges = dict(reversed(edges.items()))
    for make in (convs.Hgt, HGTConv):
        torch.manual_seed(0)
        conv = make(8, 8, types, 2)
        conv.k_rel.is_sorted = conv.v_rel.is_sorted = not is_reversed
        out = [rows for rows in conv(x, edges).values() if rows is not None]
        learned = [*conv.parameters(), *x.values()]
        found.append([*out, *torch.autograd.grad(sum(rows.square().sum() for rows in out), learned, materialize_grads=True)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_no_size_depends_on_what_is_in_a_tensor():
    """Who asks a device for one waits for it. torch's fake tensors have sizes and no values."""
    with FakeTensorMode(), torch.device("meta"):  # what is no CPU
        rows, edge_index = torch.rand(9, 4, requires_grad=True), torch.zeros(2, 40, dtype=torch.int64)
        convs.Gat(4, 3, heads=2)((rows, rows[:6]), edge_index, size=(9, 6)).sum().backward()
        with pytest.raises(DynamicOutputShapeException):
            GATConv(4, 3, heads=2)((rows, rows[:6]), edge_index, size=(9, 6))
        types, x, edges = typed_rows(9, 40)
        sum(rows.sum() for rows in convs.Hgt(8, 8, types, 2)(x, edges).values()).backward()
        with pytest.raises(DataDependentOutputException):
            HGTConv(8, 8, types, 2)(x, edges)


def test_a_product_gives_the_gradients_of_torch():
    matrix, x = random_matrix(9, 20, 100), torch.rand(20, 5, requires_grad=True)
    [expected], [found] = (torch.autograd.grad(way(matrix, x).square().sum(), x) for way in (torch.sparse.mm, convs._Product.apply))
    torch.testing.assert_close(found, expected)


def test_means_and_their_gradients_are_those_of_pyg():
    """Some rows and columns have no edge, some edges are there twice."""
    matrix, x = random_matrix(9, 20, 100, has_weights=False), torch.rand(20, 5, requires_grad=True)
    expected, found = (way(matrix, x) for way in (lambda *given: spmm(*given, reduce="mean"), convs.means))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(convs.means(matrix, x.detach()), expected.detach())
    torch.testing.assert_close(*(torch.autograd.grad(values.square().sum(), x) for values in (found, expected)))


@pytest.mark.gpu
@pytest.mark.skipif(not hasattr(torch._C, "_cuda_set_sync_debug_mode"), reason="this torch is not for CUDA, and cannot say who waits")
@pytest.mark.parametrize(("kind", "is_bare"), [*((kind, False) for kind in (*PAIRS, "gat")), ("sage", True)])
def test_a_step_waits_for_nothing(kind, is_bare, device):
    """torch raises an error where the processor waits for the device."""
    data = make_data()
    batch = penstock.NeighborLoader(data, [4, 3], data.train_mask, batch_size=60, seed=0, device=device)(np.arange(60))
    rows = LearntRows(data.num_nodes, 4) if is_bare else None
    model = GNN(kind, [4, 16, 5], rows=rows, dropout=0.5, input_dropout=0.2, heads=1).to(batch.x.device)
    optimizer, degree = torch.optim.Adam(model.parameters(), fused=True), torch.ones(batch.num_nodes, device=batch.x.device)

    def step():
        x = batch.x if model.rows is None else model.rows(batch.n_id)
        loss = F.cross_entropy(model(x, layers(batch), degree), batch.y[:60])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step()  # libraries set themselves up
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
