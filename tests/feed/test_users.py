"""What users of PyG do with a loader that its own tests do not: stores with objects of their own, batches as data, learned features."""

import time
import warnings
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Data, TensorAttr
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import SamplerOutput
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.transforms import Pad

import penstock
from penstock.errors import InputError, NotSupportedError, UsageError
from penstock.feed import NeighborLoader, buffers
from penstock.feed.buffers import BufferPool
from tests.feed.inputs import homogeneous_data, typed_data


class Shared(MyFeatureStore):
    """Hands out its own attributes, as it may, and is asked by one thread at a time, as it expects."""

    def __init__(self, x):
        super().__init__()
        self.x, self.attributes, self.num_asking, self.most = x, [TensorAttr(group_name=None, attr_name="x")], 0, 0

    def get_all_tensor_attrs(self):
        return self.attributes

    def _get_tensor(self, attr):
        self.num_asking += 1
        self.most = max(self.most, self.num_asking)
        time.sleep(0.002)
        self.num_asking -= 1
        return self.x[attr.index]

    def _get_tensor_size(self, attr):
        return self.x.shape


def graph_store(edge_index, size):
    graph = MyGraphStore()
    graph.put_edge_index(edge_index, edge_type=None, layout="coo", size=size)
    return graph


@pytest.mark.parametrize("is_thread_safe", [False, True])
def test_a_feature_store_keeps_its_attributes(is_thread_safe):
    data = homogeneous_data()
    store = Shared(data.x)
    store.is_thread_safe = is_thread_safe
    for batch in NeighborLoader((store, graph_store(data.edge_index, (300, 300))), [3], torch.arange(300), batch_size=8, num_workers=4):
        assert torch.equal(batch.x, data.x[batch.n_id])
    assert store.attributes[0].index is None or not isinstance(store.attributes[0].index, torch.Tensor)
    assert (store.most == 1) == (not is_thread_safe)


def test_lists_of_a_graph_store_are_looked_at():
    edges = torch.stack([torch.randint(0, 300, (1500,)), torch.randint(0, 100, (1500,))])
    store = Shared(torch.randn(300, 2))
    loader = NeighborLoader((store, graph_store(edges, (300, 100))), [-1], torch.arange(300), batch_size=300)
    assert torch.equal(loader(range(300)).edge_index[1].bincount(minlength=300), edges[1].bincount(minlength=300))
    for row, indptr, message in (
        ([0, 1], [0, 1, 1, 3], "indptr must have num_dst"),
        ([0, 1], [0, 2, 1, 2], "indptr must have num_dst"),
        ([0, 1], [0, 1, 1, 1, 2], "indptr must have num_dst"),
        ([0, 3], [0, 1, 1, 2], "source ids lie outside"),
    ):
        graph = MyGraphStore()
        graph.put_edge_index((torch.tensor(row), torch.tensor(indptr)), edge_type=None, layout="csc", size=(3, 3))
        with pytest.raises(InputError, match=message):
            NeighborLoader((store, graph), [2], torch.arange(3))


def test_a_graph_store_that_has_the_edges_in_two_layouts():
    data = homogeneous_data()
    store, (source, target) = graph_store(data.edge_index, (300, 300)), data.edge_index
    plain = list(NeighborLoader((Shared(data.x), store), [3], torch.arange(300), batch_size=100, seed=0))
    order, indptr = target.argsort(stable=True), torch.zeros(301, dtype=torch.int64)
    indptr[1:] = target.bincount(minlength=300).cumsum(0)
    store.put_edge_index((source[order], indptr), edge_type=None, layout="csc", size=(300, 300))
    for batch, expected in zip(NeighborLoader((Shared(data.x), store), [3], torch.arange(300), batch_size=100, seed=0), plain, strict=True):
        assert torch.equal(batch.n_id, expected.n_id)
        assert torch.equal(batch.edge_index, expected.edge_index)


def test_a_batch_is_data_again():
    data = homogeneous_data()
    batch = next(iter(NeighborLoader(data, [5, 5], batch_size=100)))
    for again in NeighborLoader(batch, [3], batch_size=64):
        source, target = again.edge_index
        assert torch.equal(data.x[again.n_id], again.x)
        assert torch.equal(again.edge_attr[:, 1], again.n_id[target])
        assert torch.equal(again.edge_attr[:, 0], again.n_id[source])
        assert again.row_ptr.numel() == again.batch_size + 1
    typed = next(iter(NeighborLoader(typed_data(), [3, 3], "paper", batch_size=20)))
    assert next(iter(NeighborLoader(typed, [2], "paper", batch_size=5)))["paper"].batch_size == 5
    assert next(iter(NeighborLoader(typed.to_homogeneous(), [2], batch_size=5))).batch_size == 5


@pytest.mark.parametrize("num_workers", [0, 2])
def test_features_that_are_learned_are_those_of_the_step_before(num_workers):
    data = Data(x=torch.nn.Parameter(torch.zeros(64, 1)), edge_index=torch.arange(64).repeat(2, 1))
    loader = NeighborLoader(data, [1], batch_size=8, num_workers=num_workers)
    if num_workers:
        with pytest.raises(UsageError, match="x wants gradients, and threads would read its rows before they are updated"):
            next(iter(loader))
        with torch.no_grad():
            assert sum(batch.batch_size for batch in loader) == 64
        return
    for batch in loader:
        assert torch.equal(batch.x, data.x[batch.n_id])
        data.x.data += 1


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradients_are_recorded_where_the_user_wants_them(mode, num_workers):
    layer = torch.nn.Linear(2, 3)

    def encode(batch):
        batch.z = layer(batch.x)
        return batch

    loader = NeighborLoader(homogeneous_data().apply(lambda x: x.float() if x.is_floating_point() else x), [2], batch_size=300,
                            num_workers=num_workers, transform=encode, filter_per_worker=True)  # fmt: skip
    with mode():
        for batch in (next(iter(loader)), loader([1, 2])):
            assert batch.z.requires_grad == (mode is torch.enable_grad)
            assert not batch.x.is_inference()


def test_memory_that_was_held_once_is_given_back(monkeypatch):
    monkeypatch.setattr(buffers, "SMALLEST_BYTES", 1)
    pool = BufferPool()
    held = [pool.empty(1000 + i, np.uint8) for i in range(200)]
    most = pool.total_bytes
    del held
    for i in range(2 * buffers._LOOKED_AT):
        pool.empty(1000 + i % 200, np.uint8)
    assert pool.total_bytes < most / 50
    num_made, make = [], buffers._Buffer
    monkeypatch.setattr(buffers, "_Buffer", lambda num_bytes: num_made.append(num_bytes) or make(num_bytes))
    for _ in range(2 * buffers._LOOKED_AT):  # what is in use every now and then stays
        del [pool.empty(1000, np.uint8) for _ in range(20)][:]
    assert len(num_made) <= 20


def test_positions_are_whole_numbers():
    loader = NeighborLoader(homogeneous_data(), [2], batch_size=8)
    assert loader(torch.arange(300) < 3).input_id.tolist() == [0, 1, 2]
    assert loader([]).batch_size == 0
    for index in ([1.9], [True, False], torch.tensor([0.5]), ["a"]):
        with pytest.raises(UsageError, match="positions in the set of seeds are whole numbers"):
            loader(index)


def test_a_mask_of_uint8_is_no_list_of_ids():
    data = homogeneous_data()
    mask = (torch.arange(300) < 9).to(torch.uint8)
    for wrong in (mask, mask.numpy()):
        with pytest.raises(UsageError, match="is a mask of uint8"):
            NeighborLoader(data, [2], wrong)
    assert NeighborLoader(data, [2], torch.tensor([1, 0, 1], dtype=torch.uint8))([0]).n_id[0] == 1


def test_batches_of_one_size():
    """By PyG's own transform, for compiled models: the rows of the seeds stay what they were."""
    data, conv, options = homogeneous_data(), SAGEConv(-1, 3), dict(batch_size=100, seed=0)
    for batch, padded in zip(
        NeighborLoader(data, [2], **options), NeighborLoader(data, [2], **options, transform=Pad(301, 401)), strict=True
    ):
        assert (padded.num_nodes, padded.num_edges, padded.batch_size) == (301, 401, 100)
        out, ours = (conv(each.x, each.edge_index)[:100] for each in (batch, padded))
        torch.testing.assert_close(ours, out)


def test_attributes_that_may_be_exchanged():
    data = homogeneous_data()

    def tag(number):
        def transform(batch):
            batch.number = number
            return batch

        return transform

    for in_threads in (False, True):
        loader = NeighborLoader(data, [2], batch_size=100, transform=tag(1), filter_per_worker=in_threads, num_workers=2)
        assert [batch.number for batch in loader] == [1] * 3
        loader.transform = tag(2)
        assert [batch.number for batch in loader] == [2] * 3
        assert loader([0]).number == 2
        assert loader.data is data
        with pytest.raises(AttributeError):
            loader.data = data.clone()
        with pytest.raises(UsageError, match="transform must be a function"):
            loader.transform = 5


def test_what_a_transform_says_of_the_seeds():
    def halve(output):
        ids = output.metadata[0][: output.metadata[0].numel() // 2]
        nothing = torch.empty(0, dtype=torch.int64)
        return SamplerOutput(node=output.node[: ids.numel()], row=nothing, col=nothing, edge=nothing, metadata=(ids, None))

    batches = list(NeighborLoader(homogeneous_data(), [2], batch_size=100, transform_sampler_output=halve))
    assert [batch.batch_size for batch in batches] == [50] * 3
    assert torch.equal(batches[1].input_id, torch.arange(100, 150))
    assert batches[1].num_nodes == 50


def test_fanouts_under_names_of_edge_types():
    data = typed_data()
    named = {"__".join(edge_type): [2] for edge_type in data.edge_types}
    plain = {edge_type: [2] for edge_type in data.edge_types}
    one, other = (next(iter(NeighborLoader(data, fanouts, "paper", batch_size=9, seed=0))) for fanouts in (named, plain))
    assert penstock.digest(one) == penstock.digest(other)


@pytest.mark.parametrize("ids", [list(range(300, 600)), np.arange(300, 600), torch.arange(300, 600, dtype=torch.int32)], ids=type)
def test_input_id_whatever_holds_it(ids):
    batch = next(iter(NeighborLoader(homogeneous_data(), [2], batch_size=9, input_id=ids)))
    assert batch.input_id.tolist() == list(range(300, 309))


def test_an_adjacency_beside_the_edges_is_refused():
    data = homogeneous_data()
    data.adj_t = torch.eye(300).to_sparse()
    with pytest.raises(NotSupportedError, match="adj_t is not supported as input: delete it"):
        NeighborLoader(data, [2])


def test_functions_of_a_class_of_the_users_that_are_not_called():
    class Mine(NeighborLoader):
        def filter_fn(self, out):
            return out

    with pytest.warns(UserWarning, match="Mine.filter_fn is not called by Penstock"):
        Mine(homogeneous_data(), [2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NeighborLoader(homogeneous_data(), [2])


class Watched(Data):
    """A class of the user's that sees what is set."""

    names: ClassVar[list[str]] = []

    def __setattr__(self, name, value):
        Watched.names.append(name)
        super().__setattr__(name, value)


def test_a_class_that_sees_what_is_set():
    """Batches set attributes by it, but for those that it has under a name of ours."""
    data = Watched(x=torch.randn(50, 3), edge_index=torch.randint(50, (2, 300)), n_id=torch.arange(50) * 10)
    loader = penstock.NeighborLoader(data, [3, 2], batch_size=4)
    Watched.names.clear()
    batch = next(iter(loader))
    assert {"edge_index", "row_ptr", "e_id", "num_sampled_nodes", "input_id"} <= set(Watched.names)
    assert "n_id" not in Watched.names
    assert torch.equal(batch.x, data.x[batch.n_id // 10])


def test_a_loader_that_torchs_workers_call():
    """As the `collate_fn` of a DataLoader with worker processes: each pass draws anew, and by torch's seed."""

    def draw():
        torch.manual_seed(5)
        return [[penstock.digest(batch) for batch in batches] for _ in range(2)]

    loader = NeighborLoader(homogeneous_data(), [2, 2], seed=0)
    batches = DataLoader(range(100), batch_size=50, collate_fn=loader, num_workers=2, multiprocessing_context="fork")
    passes = draw()
    assert len({*passes[0], *passes[1]}) == 4
    assert draw() == passes
