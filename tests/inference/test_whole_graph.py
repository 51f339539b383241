"""`penstock.infer` gives what the model gives over the whole graph, whatever holds the graph and the rows."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, PNA, EdgeCNN, GraphSAGE, HeteroConv, SAGEConv

import penstock
from penstock.errors import BudgetError, StateError, UsageError
from penstock.inference import OfRows
from penstock.inference.pyg_models import Degrees
from penstock.records import EDGE
from penstock.study import LayoutSettings, lay_out
from tests.endings import run
from tests.feed.frames import Frame
from tests.train.stores import make_data, make_store, make_typed_data

NUM_NODES = 300


@pytest.fixture(params=[False, True], ids=["plain", "loops"])
def data(request):
    """A directed graph with isolated nodes, edges that come twice and, or not, loops, some of them twice."""
    generator = torch.Generator().manual_seed(1)
    edge_index = torch.randint(0, NUM_NODES - 20, (2, 1500), generator=generator)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    edge_index = torch.cat([edge_index, edge_index[:, :100]], dim=1)
    if request.param:
        loops = torch.arange(0, NUM_NODES, 3).repeat(2, 1)
        edge_index = torch.cat([edge_index, loops, loops[:, :10]], dim=1)
    return Data(x=torch.randn(NUM_NODES, 6, generator=generator), edge_index=edge_index)


SIZES = {"in_channels": 6, "hidden_channels": 8, "num_layers": 3}
MODELS = {
    "sage": lambda: GraphSAGE(**SIZES, out_channels=4),
    "sage_max": lambda: GraphSAGE(**SIZES, out_channels=4, aggr="max", project=True, normalize=True),
    "sage_lists": lambda: GraphSAGE(**SIZES, out_channels=4, aggr=["mean", "std"]),
    "sage_last": lambda: GraphSAGE(**SIZES, out_channels=4, jk="last", norm="batch_norm", act_first=True),
    "sage_hidden": lambda: GraphSAGE(**SIZES, norm=nn.LayerNorm(8), act=None),
    "gcn": lambda: GCN(**SIZES, out_channels=4),
    "gcn_improved": lambda: GCN(**SIZES, out_channels=4, improved=True, bias=False),
    "gcn_without_loops": lambda: GCN(**SIZES, out_channels=4, add_self_loops=False, norm="layer_norm", norm_kwargs={"mode": "node"}),
    "gcn_sums": lambda: GCN(**SIZES, out_channels=4, normalize=False),
    "gin": lambda: GIN(**SIZES, out_channels=4, norm="batch_norm", train_eps=True),
    "gat": lambda: GAT(**SIZES, out_channels=4, heads=2, act="elu"),
    "gat_v2": lambda: GAT(**SIZES, out_channels=4, heads=2, v2=True, jk="last"),
    "gat_without_loops": lambda: GAT(**SIZES, out_channels=4, add_self_loops=False),
    "pna": lambda: PNA(
        **SIZES, out_channels=4, aggregators=["mean", "max"], scalers=["identity", "amplification"], deg=torch.tensor([5, 9, 30, 7])
    ),
    "edge": lambda: EdgeCNN(**SIZES, out_channels=4),
}


def make_model(name):
    torch.manual_seed(0)
    model = MODELS[name]()
    for weights in model.parameters():  # biases begin as zeros
        weights.data += 0.1 * torch.randn(weights.shape)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    return model


def over_whole_graph(model, data):
    with torch.no_grad():
        return model.eval()(data.x, data.edge_index)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_pyg(name, data):
    model = make_model(name)
    expected = over_whole_graph(model, data)
    model.train()
    model.convs[0].eval()
    out = penstock.infer(model, data, batch_size=37, num_workers=2)
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert model.training
    assert not model.convs[0].training, "each part is again as it was"
    assert model.convs[1].training


def test_layers_whose_code_was_written_for_others():
    """PyG writes it once, for the first layer of a class."""
    ended = run(
        "-c",
        "import numpy as np, torch, penstock; from torch_geometric.data import Data; from torch_geometric.nn import GraphSAGE\n"
        "GraphSAGE(6, 8, 2, aggr=['mean', 'std']); model = GraphSAGE(6, 8, 2).eval()\n"
        "data = Data(x=torch.randn(50, 6), edge_index=torch.randint(0, 50, (2, 200)))\n"
        "rows = penstock.infer(model, data); print(np.abs(rows - model(data.x, data.edge_index).detach().numpy()).max() < 1e-5)",
    )
    assert ended.code == 0, ended.output
    assert ended.output.strip().endswith("True")


@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_double_precision(name, data):
    model = make_model(name).double()
    data.x = data.x.double()
    out = penstock.infer(model, data)
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, over_whole_graph(model, data).numpy(), rtol=1e-10)


@pytest.mark.parametrize("plan", [None, "pagraph", "ginex", penstock.Plan(host_memory="3GiB")], ids=str)
@pytest.mark.parametrize("is_file", [False, True])
def test_stores_and_plans(plan, is_file, data, tmp_path):
    store, model = penstock.ingest(data, tmp_path / "store"), make_model("gcn")
    needs_files = plan == "ginex" or isinstance(plan, penstock.Plan)
    out = tmp_path / "rows.npy" if is_file else None
    if needs_files and not is_file:
        with pytest.raises(UsageError, match="reads rows from files"):
            penstock.infer(model, store, plan=plan)
        return
    rows = penstock.infer(model, store, plan=plan, batch_size=50, out=out)
    assert np.array_equal(rows, penstock.infer(model, data, batch_size=50)), "tiers do not change a bit"
    np.testing.assert_allclose(rows, over_whole_graph(model, data).numpy(), rtol=1e-4, atol=1e-5)
    if is_file:
        assert np.array_equal(np.load(out), rows)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.npy", "store"]


def test_plans_and_splits_reach_the_loaders(data, tmp_path):
    with pytest.raises(UsageError, match="are in memory"):
        penstock.infer(make_model("sage"), data, plan="ginex", out=tmp_path / "rows.npy")
    store = make_store(tmp_path / "store")
    model = GraphSAGE(4, 8, 2)
    for part in ("train", "test"):
        rows = penstock.infer(model, store, input_nodes=part, split="default")
        assert np.array_equal(rows, penstock.infer(model, store)[store.split(part)])


def test_rows_that_a_container_has_no_room_for(data, tmp_path, monkeypatch):
    model = make_model("sage")
    expected = penstock.infer(model, data)
    few = penstock.infer(model, data, input_nodes=torch.tensor([3, 9]))
    monkeypatch.setattr("penstock.store.budget.free_in_container", lambda: 1000)
    with pytest.raises(
        BudgetError, match=r"^a layer whose rows are kept in memory takes .* KiB, and .* has 1000 B left: give out, a file$"
    ):
        penstock.infer(model, data)
    assert np.array_equal(penstock.infer(model, data, out=tmp_path / "rows.npy"), expected)
    # of few nodes most rows are never written, and take no memory
    assert np.array_equal(penstock.infer(model, data, input_nodes=torch.tensor([3, 9])), few)


def test_features_that_are_packed_for_a_disk(tmp_path):
    """Later layers read other rows than those."""
    store = make_store(tmp_path / "store")
    lay_out(store.path, LayoutSettings(by="hotness", num_neighbors=(3,), batch_size=50))
    model, plan = GraphSAGE(4, 4, 3), penstock.Plan(features="disk")
    rows = penstock.infer(model, penstock.open(store.path), plan=plan, out=tmp_path / "rows.npy", batch_size=50)
    assert np.array_equal(rows, penstock.infer(model, make_data(), batch_size=50))


@pytest.mark.parametrize("is_first", [False, True])
def test_layers_that_give_nothing_for_some(is_first, tmp_path):
    data = make_typed_data()
    layers = [lambda batch: {"paper": batch["paper"].x} if (batch["paper"].n_id[0] < 100) != is_first else {}]
    for out in (None, tmp_path / "rows.npy"):
        with pytest.raises(UsageError, match="rows for some batches of 'paper' and nothing for others"):
            penstock.infer(nn.Identity(), data, layers, input_nodes="paper", batch_size=50, out=out)


@pytest.mark.parametrize("given", ["ids", "mask"])
def test_some_nodes(given, data):
    model, chosen = make_model("sage"), torch.tensor([5, 299, 0, 17])
    if given == "mask":
        mask = torch.zeros(NUM_NODES, dtype=torch.bool)
        mask[chosen] = True
        rows, chosen = penstock.infer(model, data, input_nodes=mask), chosen.sort().values
    else:
        rows = penstock.infer(model, data, input_nodes=chosen)
    np.testing.assert_allclose(rows, over_whole_graph(model, data)[chosen].numpy(), rtol=1e-4, atol=1e-5)


class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.conv, self.head = nn.Linear(6, 5), SAGEConv(5, 7), nn.Linear(7, 3)

    def forward(self, x, edge_index):
        return self.head(self.conv(self.encoder(x).relu(), edge_index).relu())

    def layers(self):
        return [
            OfRows(lambda batch: self.encoder(batch.x).relu()),
            lambda batch: self.conv(batch.x, batch.edge_index).relu(),
            OfRows(lambda batch: self.head(batch.x)),
        ]


def test_layers_of_a_users_model(data):
    torch.manual_seed(0)
    model, told = Mine(), []
    rows = penstock.infer(model, data, model.layers(), batch_size=64, progress=lambda done, total: told.append((done, total)))
    np.testing.assert_allclose(rows, over_whole_graph(model, data).numpy(), rtol=1e-4, atol=1e-5)
    assert told[-1] == (900, 900)
    assert len(told) == 15


def test_layers_see_the_fields_of_the_graph(data):
    """Weights of edges, and what else nodes have."""
    data.edge_attr, data.bonus = torch.rand(data.num_edges, 1), torch.rand(NUM_NODES, 6)
    seen = []

    def layer(batch):
        seen.append(set(batch.keys()))
        messages = batch.edge_attr * (batch.x + batch.bonus)[batch.edge_index[0]]
        return torch.zeros(batch.num_nodes, 6).index_add_(0, batch.edge_index[1], messages)

    rows = penstock.infer(nn.Identity(), data, [layer, layer])
    expected = data.x
    for _ in range(2):
        messages = data.edge_attr * (expected + data.bonus)[data.edge_index[0]]
        expected = torch.zeros(NUM_NODES, 6).index_add_(0, data.edge_index[1], messages)
    np.testing.assert_allclose(rows, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert all({"edge_attr", "bonus", "n_id", "e_id"} <= keys for keys in seen)


class Ended(Exception):
    pass


def end_halfway(done, total):
    if 2 * done > total:
        raise Ended


@pytest.mark.parametrize("kind", ["frame", "sparse", "bfloat16", "conjugated"])
def test_it_goes_on_over_the_same_fields_only(kind, tmp_path):
    """Also if they are no arrays, such as columns of frames and types that NumPy lacks."""
    rows = torch.randn(NUM_NODES, 6)
    make = {
        "frame": lambda x: Frame({"numerical": x}),
        "sparse": torch.Tensor.to_sparse,
        "bfloat16": lambda x: x.bfloat16().t().contiguous().t(),
        "conjugated": lambda x: x.to(torch.complex64).conj(),
    }[kind]
    read = {
        "frame": lambda tf: tf.feat_dict["numerical"],
        "sparse": torch.Tensor.to_dense,
        "bfloat16": torch.Tensor.float,
        "conjugated": torch.real,
    }[kind]
    edge_index = torch.randint(0, NUM_NODES, (2, 900))
    conv, out = SAGEConv(6, 4), tmp_path / "rows.npy"
    layers = [OfRows(lambda batch: read(batch.tf)), lambda batch: conv(batch.x, batch.edge_index)]
    given, other = (Data(tf=make(x), edge_index=edge_index, num_nodes=NUM_NODES) for x in (rows, rows + 1))
    how = dict(layers=layers, batch_size=50, out=out)
    with pytest.raises(Ended):
        penstock.infer(conv, given, **how, progress=end_halfway)
    with pytest.raises(StateError, match=r"another inference \(graph differ\)"):
        penstock.infer(conv, other, **how)
    with torch.no_grad():
        expected = conv(read(given.tf), edge_index)
    np.testing.assert_allclose(penstock.infer(conv, given, **how), expected.numpy(), rtol=1e-4, atol=1e-5)


class Typed(nn.Module):
    """Two layers; no edges enter venues after the first, which have nothing then, as in HeteroConv."""

    def __init__(self, edge_types):
        super().__init__()
        self.convs = nn.ModuleList(HeteroConv({e: SAGEConv((-1, -1), 6) for e in edge_types}, aggr="sum") for _ in range(2))

    def forward(self, x, edges):
        for i in range(2):
            x = self.layer(i, x, edges)
        return x

    def layer(self, i, x, edges):
        known = {e: pairs for e, pairs in edges.items() if e[0] in x and e[2] in x}
        return {t: rows.relu() for t, rows in self.convs[i](x, known).items()}


@pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")
@pytest.mark.parametrize("is_file", [False, True])
def test_typed_graphs(is_file, tmp_path):
    data = make_typed_data()
    data["venue"].x = torch.randn(7, 2)
    data["nobody"].x = torch.randn(0, 2)
    torch.manual_seed(0)
    model = Typed(data.edge_types)
    with torch.no_grad():
        expected = model(data.x_dict, data.edge_index_dict)
    layers = [lambda batch, i=i: model.layer(i, batch.x_dict, batch.edge_index_dict) for i in range(2)]
    for node_type in expected:
        out = tmp_path / f"{node_type}.npy" if is_file else None
        rows = penstock.infer(model, data, layers, input_nodes=node_type, batch_size=41, out=out)
        np.testing.assert_allclose(rows, expected[node_type].numpy(), rtol=1e-4, atol=1e-5)
    rows = penstock.infer(model, data, layers, input_nodes=("paper", torch.tensor([7, 3])))
    np.testing.assert_allclose(rows, expected["paper"][[7, 3]].numpy(), rtol=1e-4, atol=1e-5)


def test_a_graph_without_edges():
    data = Data(x=torch.randn(9, 6), edge_index=torch.empty(2, 0, dtype=torch.long))
    model = make_model("gcn")
    np.testing.assert_allclose(penstock.infer(model, data), over_whole_graph(model, data).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32, torch.uint8])
def test_features_of_any_type(dtype, data):
    data.x = (10 * data.x.abs()).to(dtype)
    model, whole = make_model("sage"), Data(x=data.x.float(), edge_index=data.edge_index)
    np.testing.assert_allclose(penstock.infer(model, data), over_whole_graph(model, whole).numpy(), rtol=1e-4, atol=1e-4)


def test_rows_of_bfloat16_are_given_as_float32(data):
    model = nn.Identity()
    rows = penstock.infer(model, data, [lambda batch: batch.x.bfloat16()])
    assert np.array_equal(rows, data.x.bfloat16().float().numpy())


def test_degrees_of_long_and_short_lists(data, monkeypatch):
    """Counted in blocks, of which one may be shorter than a list."""
    csc = penstock.NeighborLoader(data, [-1]).engine.maker.source.graph.adjacency[EDGE]
    whole = Degrees.of(csc)
    monkeypatch.setattr("penstock.inference.pyg_models._BLOCK", 3)
    some = Degrees.of(csc)
    assert torch.equal(whole.others, some.others)
    assert torch.equal(whole.loops, some.loops)
    assert whole.others.sum() + whole.loops.sum() == data.num_edges
