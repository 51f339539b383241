"""`weight_attr`: PyG's meaning over Data, HeteroData, stores and paths; what is refused. See also `test_ways.py`."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import penstock
from penstock.errors import InputError, MissingFieldError, NotSupportedError, StateError
from penstock.feed import NeighborLoader
from penstock.feed.inputs import ArrayInput
from penstock.records import EDGE
from penstock.store import ingest
from tests.feed.inputs import check_homogeneous, check_typed, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[3, 2], batch_size=32, seed=5)


def weighted_data(**options):
    """Every third edge has weight 0, the others powers of ten."""
    data = homogeneous_data(**options)
    numbers = torch.arange(3000)
    data.edge_weight = torch.where(numbers % 3 == 0, 0.0, 10.0 ** (numbers % 7 - 3))
    return data


def weighted_types():
    """Weights for two of three edge types."""
    data = typed_data()
    for edge_type in data.edge_types[:2]:
        data[edge_type].edge_weight = torch.arange(900) % 2 * 1.0
    return data


@pytest.mark.parametrize("is_sorted", [False, True])
def test_data(is_sorted):
    data = weighted_data(is_sorted=is_sorted)
    loader = NeighborLoader(data, **OPTIONS, weight_attr="edge_weight")
    for batch in loader:
        assert torch.equal(batch.edge_weight, data.edge_weight[batch.e_id])
        assert (batch.edge_weight > 0).all()
    assert loader.stats().weight_bytes == 8 * 3000 + 4 * (3000 // 8 + 1)


def test_only_quotients_count_and_equal_weights_are_uniform():
    data = weighted_data()
    alone = [batch.e_id.tolist() for batch in NeighborLoader(data, **OPTIONS, weight_attr="edge_weight")]
    for factor in (torch.tensor(2.0**60), torch.tensor(2.0**-60, dtype=torch.float64)):
        data.other = data.edge_weight * factor
        assert [batch.e_id.tolist() for batch in NeighborLoader(data, **OPTIONS, weight_attr="other")] == alone
    data.ones = torch.ones(3000, dtype=torch.int64)
    counts = np.zeros(3000)
    whole = Data(num_nodes=2, edge_index=torch.tensor([[0] * 3000, [1] * 3000]), ones=data.ones)
    loader = NeighborLoader(whole, [30], input_nodes=torch.tensor([1]), weight_attr="ones", seed=0)
    for _ in range(300):
        counts[next(iter(loader)).e_id] += 1
    assert counts.sum() == 9000
    assert counts.max() < 16


def test_hetero_data():
    data = weighted_types()
    seeds = ("paper", data["paper"].train_mask)
    loader = NeighborLoader(data, [-1, 2], input_nodes=seeds, weight_attr="edge_weight", batch_size=40, seed=0)
    plain = NeighborLoader(data, [-1, 2], input_nodes=seeds, batch_size=40, seed=0)
    prints = data.edge_types[2]
    for batch, without in zip(loader, plain, strict=True):
        check_typed(batch, data)
        for edge_type in data.edge_types[:2]:
            assert (batch[edge_type].e_id % 2 == 1).all()
        assert torch.equal(
            batch[prints].e_id[: batch[prints].num_sampled_edges[0]], without[prints].e_id[: without[prints].num_sampled_edges[0]]
        )
    assert loader.stats().weight_bytes == 2 * (8 * 900 + 4 * (900 // 8 + 1))


@pytest.mark.parametrize("name", ["edge_weight", "weight"])
def test_stores_and_paths_and_arrays(name, tmp_path):
    data = weighted_data()
    del data.title
    store = ingest(data, tmp_path / "store", memory="4GiB", edge_ids=True)
    expected = [(batch.n_id.tolist(), batch.e_id.tolist()) for batch in NeighborLoader(data, **OPTIONS, weight_attr="edge_weight")]
    arrays = ArrayInput(store.graph(), {}, {edge_type: {"weight": store.edge_field("weight", edge_type)} for edge_type in store.edge_types})
    for source in (store, store.path, arrays):
        loader = NeighborLoader(source, **OPTIONS, weight_attr=name)
        assert [(batch.n_id.tolist(), batch.e_id.tolist()) for batch in loader] == expected
    half = data.clone()
    half.edge_weight = (torch.arange(3000) % 5).to(torch.bfloat16)
    expected = [batch.n_id.tolist() for batch in NeighborLoader(half, **OPTIONS, weight_attr="edge_weight")]
    store = ingest(half, tmp_path / "half", memory="4GiB")
    arrays = ArrayInput(store.graph(), {}, {EDGE: {"weight": store.edge_field("weight", EDGE)}}, is_bfloat16=lambda key, name: True)
    for source in (store, arrays):
        assert [batch.n_id.tolist() for batch in NeighborLoader(source, **OPTIONS, weight_attr=name)] == expected


def test_a_state_of_other_weights_is_refused():
    data, options = weighted_data(), dict(OPTIONS, weight_attr="edge_weight", shuffle=True)
    state = NeighborLoader(data, **options).state_dict()
    data.edge_weight[1] += 1
    with pytest.raises(StateError, match=r"edges of node/to/node: .* by weight"):
        NeighborLoader(data, **options).load_state_dict(state)


@pytest.mark.parametrize(
    "plan", [penstock.Plan(neighbor_policy="presample", neighbor_cache="30%"), penstock.Plan(topology="memory")], ids=str
)
def test_weights_stay_where_lists_go(plan, tmp_path):
    data = weighted_data()
    del data.title
    loader = NeighborLoader(ingest(data, tmp_path / "store", memory="4GiB"), **OPTIONS, weight_attr="weight", plan=plan)
    list(loader)
    assert loader.stats().weight_bytes > 8 * 3000


@pytest.mark.parametrize(
    "mode", [dict(disjoint=True), dict(replace=True), dict(subgraph_type="bidirectional"), dict(subgraph_type="induced")]
)
def test_modes(mode):
    data = weighted_data()
    for batch in NeighborLoader(data, **OPTIONS, **mode, weight_attr="edge_weight"):
        if mode.get("subgraph_type") != "bidirectional":
            check_homogeneous(batch, data)
        if mode.get("subgraph_type") != "induced":
            assert (batch.edge_weight > 0).all()


def test_zero_is_never_drawn_and_the_rest_is_as_in_pyg():
    """PyG takes edges of weight 0 where it takes a whole list, and fills up with them; see docs/compat.md."""
    data = Data(num_nodes=7, edge_index=torch.stack([torch.arange(1, 7), torch.zeros(6, dtype=torch.int64)]))
    data.edge_weight = torch.tensor([0.0, 1, 0, 3, 0, 0])
    for fanout in (2, 3, 6, -1):
        batch = next(iter(NeighborLoader(data, [fanout], input_nodes=torch.tensor([0]), weight_attr="edge_weight")))
        assert sorted(batch.e_id.tolist()) == [1, 3]
        assert sorted(batch.n_id.tolist()) == [0, 2, 4]
    data.edge_weight = torch.zeros(6)
    for replace in (False, True):
        batch = next(iter(NeighborLoader(data, [3], input_nodes=torch.tensor([0]), weight_attr="edge_weight", replace=replace)))
        assert batch.e_id.numel() == 0


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_bad_weights_are_refused_with_the_edge(value, tmp_path):
    data = weighted_data()
    data.edge_weight[1234] = value
    source, target = data.edge_index[:, 1234].tolist()
    with pytest.raises(
        InputError, match=rf"edge_weight is {value:g} at edge 1234 \(from {source} to {target}\): weights are finite, and 0"
    ):
        NeighborLoader(data, **OPTIONS, weight_attr="edge_weight")
    typed = weighted_types()
    typed["paper", "by", "author"].edge_weight[7] = value
    with pytest.raises(InputError, match=r"edge_weight of \('paper', 'by', 'author'\) is .* at edge 7 "):
        NeighborLoader(typed, [2], input_nodes="paper", weight_attr="edge_weight")


@pytest.mark.filterwarnings("ignore:.* has .* entries for")
def test_bad_names_and_shapes_are_refused(tmp_path):
    data = weighted_data()
    with pytest.raises(MissingFieldError, match=r"Data: edges have no field 'nope' to weigh them by; they have 'edge_attr', 'edge_weight'"):
        NeighborLoader(data, **OPTIONS, weight_attr="nope")
    with pytest.raises(InputError, match=r"edge_attr must be one number per edge, \[3000\]; got int64 \[3000, 3\]"):
        NeighborLoader(data, **OPTIONS, weight_attr="edge_attr")
    data.edge_weight = data.edge_weight[:-1]
    with pytest.raises(InputError, match=r"edge_weight must be one number per edge, \[3000\]; got float32 \[2999\]"):
        NeighborLoader(data, **OPTIONS, weight_attr="edge_weight")
    store = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")
    with pytest.raises(MissingFieldError, match="store: edges have no field 'edge_weight' to weigh them by; they have 'x'"):
        NeighborLoader(store, **OPTIONS, weight_attr="edge_weight")
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.zeros(2, 1), group_name=None, attr_name="x", index=None)
    graph.put_edge_index(torch.tensor([[0, 1], [1, 0]]), edge_type=None, layout="coo", size=(2, 2))
    with pytest.raises(NotSupportedError, match="weights are read from Data, HeteroData and stores only"):
        NeighborLoader((features, graph), [1], input_nodes=torch.tensor([0]), weight_attr="edge_weight")


def test_types_without_edges_have_no_weights_either():
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 3, 3
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2], [0, 0, 0]])
    data["a", "to", "b"].edge_weight = torch.tensor([0, 5, 0])
    data["b", "to", "a"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    data["b", "to", "a"].edge_weight = torch.empty(0)
    batch = next(iter(NeighborLoader(data, [1, 1], input_nodes=("b", torch.tensor([0])), weight_attr="edge_weight")))
    assert batch["a"].n_id.tolist() == [1]
