"""Times by all ways that data has them: names, widths, stores, pairs; and what is refused."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from penstock.errors import InputError, MissingFieldError, NotSupportedError, UsageError
from penstock.feed import NeighborLoader
from penstock.feed.inputs import ArrayInput
from penstock.records import EDGE
from penstock.store import ingest
from tests.feed.inputs import homogeneous_data
from tests.feed.test_times import OF_EDGES, OPTIONS, options_of, timed_data, timed_types
from tests.graphs import typed_graph


@pytest.mark.parametrize("level", ["node", "edge"])
def test_stores_paths_and_arrays(level, tmp_path):
    data, options = timed_data(level), options_of(level)
    del data.title
    store = ingest(data, tmp_path / "store", memory="4GiB", edge_ids=True)
    expected = [(batch.n_id.tolist(), batch.e_id.tolist()) for batch in NeighborLoader(data, **options)]
    nodes = {t: {name: store.node_field(name, t) for name in store.node_fields(t)} for t in store.node_types}
    edges = {
        e: {"time" if name == "edge_time" else name: store.edge_field(name, e) for name in store.edge_fields(e)} for e in store.edge_types
    }
    arrays = ArrayInput(store.graph(), nodes, edges)
    for source, name in ((store, None), (store.path, None), (arrays, None), (arrays, "time")):
        loader = NeighborLoader(source, **{**options, "time_attr": name or options["time_attr"]})
        assert [(batch.n_id.tolist(), batch.e_id.tolist()) for batch in loader] == expected


@pytest.mark.parametrize("level", ["node", "edge"])
def test_pairs_of_pyg(level):
    """Lists are in another order there: all that is in time is compared."""
    data, features, graph = timed_types(level), MyFeatureStore(), MyGraphStore()
    for store in data.node_stores if level == "node" else data.edge_stores[:2]:
        if "x" in store or level == "edge":
            name, count = ("time", store.num_nodes) if level == "node" else ("edge_time", store.num_edges)
            store[name] = torch.randperm(count, generator=torch.Generator().manual_seed(4)) % (200 if level == "node" else 1000)
            features.put_tensor(store[name], group_name=store._key, attr_name=name, index=None)
    for node_type in data.node_types:
        features.put_tensor(torch.zeros(data[node_type].num_nodes), group_name=node_type, attr_name="other", index=None)
    for edge_type in data.edge_types:
        size = data[edge_type[0]].num_nodes, data[edge_type[2]].num_nodes
        graph.put_edge_index(data[edge_type].edge_index, edge_type=edge_type, layout="coo", size=size)
    options = dict(num_neighbors=[-1, -1], batch_size=32, time_attr=name, input_time=torch.arange(500) * 2, input_nodes="paper")
    for batch, expected in zip(NeighborLoader((features, graph), **options), NeighborLoader(data, **options), strict=True):
        assert torch.equal(batch["paper"].seed_time, expected["paper"].seed_time)
        for node_type in data.node_types:
            found, known = (zip(each[node_type].batch.tolist(), each[node_type].n_id.tolist(), strict=True) for each in (batch, expected))
            assert sorted(found) == sorted(known)


def test_pairs_of_one_type():
    """By PyG's rule "time" is of nodes, and other names of edges."""
    data, features, graph = timed_data(), MyFeatureStore(), MyGraphStore()
    data.time = torch.randperm(300)
    features.put_tensor(data.time, group_name=None, attr_name="time", index=None)
    features.put_tensor(torch.arange(3000), group_name=None, attr_name="when", index=None)
    graph.put_edge_index(data.edge_index, edge_type=None, layout="coo", size=(300, 300))
    ours = NeighborLoader((features, graph), input_nodes=torch.arange(300), **options_of("node"))
    maker = NeighborLoader(data, **options_of("node")).engine.maker
    assert np.array_equal(ours.engine.maker.sampler.graph.adjacency[EDGE].times, maker.sampler.graph.adjacency[EDGE].times)
    by_edges = {**OF_EDGES, "time_attr": "when", "input_nodes": torch.arange(300)}
    assert NeighborLoader((features, graph), **by_edges).engine.maker.sampler.graph.adjacency[EDGE].times.max() == 2999
    with pytest.raises(MissingFieldError, match="MyFeatureStore: neither nodes nor edges have a field 'then'"):
        NeighborLoader((features, graph), **{**by_edges, "time_attr": "then"})


def test_wide_and_narrow_times():
    data, wide = timed_data(), timed_data()
    wide.time = (data.time - 1500) << 40
    data.time = data.time.int() - 1500
    for batch, of_wide in zip(*(NeighborLoader(each, **options_of("node")) for each in (data, wide)), strict=True):
        assert batch.seed_time.dtype == of_wide.seed_time.dtype == torch.int64
        assert torch.equal(batch.seed_time << 40, of_wide.seed_time)
        assert torch.equal(batch.e_id, of_wide.e_id)
    moments = torch.arange(300) << 33
    loader = NeighborLoader(wide, **options_of("node"), input_time=moments)
    assert torch.equal(torch.cat([batch.seed_time for batch in loader]), moments)


def test_as_many_edges_as_nodes():
    """Then PyG goes by the name."""
    data = Data(num_nodes=4, edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
    data.time, data.edge_time = torch.tensor([0, 9, 0, 9]), torch.tensor([9, 0, 9, 0])
    by_nodes = next(iter(NeighborLoader(data, [1], time_attr="time", input_time=torch.full((4,), 5), batch_size=4)))
    assert by_nodes.e_id.tolist() == [0, 2]
    by_edges = next(iter(NeighborLoader(data, [1], time_attr="edge_time", input_time=torch.full((4,), 5), batch_size=4)))
    assert by_edges.e_id.tolist() == [3, 1]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"time_attr": "nope"}, MissingFieldError, "Data: neither nodes nor edges have a field 'nope' with times"),
        ({"time_attr": "half"}, InputError, r"half must be one whole number per node, int \[300\]; got float32 \[300\]: count seconds"),
        (
            {"time_attr": "edge_attr", "input_time": None},
            InputError,
            r"edge_attr must be one whole number per edge, int \[3000\]; got int64",
        ),
        (
            {"time_attr": "edge_time"},
            UsageError,
            "give input_time, the time of each seed: seeds are of type 'node', which has no 'edge_time'",
        ),
        (
            {"input_time": torch.arange(299)},
            UsageError,
            r"input_time must be one whole number per input node, int \[300\]; got int64 \[299\]$",
        ),
        (
            {"input_time": torch.rand(300)},
            UsageError,
            r"input_time must be one whole number per input node, .* got float32 \[300\]: count seconds",
        ),
        (
            {"time_attr": None, "input_time": torch.arange(300)},
            UsageError,
            "input_time needs time_attr, the attribute that says when nodes or edges came",
        ),
        ({"input_time": np.full(300, 2**64 - 1, np.uint64)}, UsageError, "input_time goes up to 18446744073709551615, beyond int64"),
        ({"input_time": [[1], [2, 3]]}, InputError, "input_time is no array of numbers"),
        ({"input_time": torch.zeros(300, dtype=torch.bfloat16)}, UsageError, "one whole number per input node, .* got float32"),
        ({"input_time": torch.zeros(300, requires_grad=True)}, UsageError, "one whole number per input node, .* got float32"),
        ({"input_time": torch.zeros(300, dtype=torch.int64).to_sparse()}, InputError, "input_time is torch.sparse_coo: .* dense"),
        ({"time_attr": ["time"]}, UsageError, "time_attr must be the name of an attribute, got list"),
        ({"temporal_strategy": "first"}, UsageError, "temporal_strategy must be one of uniform, last; got 'first'"),
        ({"subgraph_type": "induced"}, UsageError, "no induced subgraphs, which would hold later edges"),
        ({"weight_attr": "edge_weight"}, NotSupportedError, "by time and by weight at once is not supported"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_refused(changes, error, message):
    data = timed_data()
    data.edge_time, data.edge_weight = torch.arange(3000), torch.ones(3000)
    with pytest.raises(error, match=message):
        NeighborLoader(data, **{**options_of("node"), **changes})


def test_fields_that_are_no_whole_numbers_are_refused_in_stores(tmp_path):
    """Also bfloat16, whose bits would pass for them."""
    data = homogeneous_data()
    del data.title
    store = ingest(data, tmp_path / "store", memory="4GiB")
    with pytest.raises(InputError, match=r"store: half is bfloat16: times are whole numbers"):
        NeighborLoader(store, **OPTIONS, time_attr="half")
    with pytest.raises(MissingFieldError, match=r"store: neither nodes nor edges have a field 'edge_time' with times"):
        NeighborLoader(store, **OPTIONS, time_attr="edge_time")


def test_names_in_stores():
    """Of each type by itself: `edge_time`, or where there is none, `time`; which alone means the nodes', where they have it."""
    graph, ends = typed_graph(np.random.default_rng(0)), {"writes": "edge_time", "by": "time"}
    edges = {e: {ends[e[1]]: np.full(graph.adjacency[e].num_edges, 100)} for e in graph.adjacency if e[1] in ends}
    nodes = {"paper": {"time": np.arange(900)}}
    given = dict(num_neighbors=[-1, -1], input_nodes=("author", np.arange(60)), batch_size=60)
    batch = next(iter(NeighborLoader(ArrayInput(graph, nodes, edges), **given, time_attr="edge_time", input_time=np.zeros(60, int))))
    assert all(batch[e].num_edges == 0 for e in edges)
    given |= {"input_nodes": ("paper", np.arange(60))}
    batch = next(iter(NeighborLoader(ArrayInput(graph, nodes, edges), **given, time_attr="time")))
    assert batch["paper"].seed_time.tolist() == list(range(60))
    assert batch["author", "writes", "paper"].num_edges > 0, "100 is not their time"
    halves = ArrayInput(graph, {"paper": {"time": np.zeros(900, np.uint16)}}, is_bfloat16=lambda key, name: name == "time")
    with pytest.raises(InputError, match="the graph: time is bfloat16: times are whole numbers"):
        NeighborLoader(halves, **given, time_attr="time")


def test_times_that_no_edge_has():
    """Trees are disjoint in any case, as in PyG; induced ones have no edge that could be later."""
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes, data["b"].time = 5, 4, torch.arange(4)
    data["a", "x", "b"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    batch = next(iter(NeighborLoader(data, [2], input_nodes="b", time_attr="time", batch_size=4)))
    assert batch["b"].batch.tolist() == [0, 1, 2, 3]
    assert batch["a", "x", "b"].num_edges == 3
    induced = next(iter(NeighborLoader(data, [1], input_nodes="b", time_attr="time", batch_size=4, subgraph_type="induced")))
    assert induced["b"].batch.tolist() == [0, 1, 2, 3]
    assert induced["a"].num_nodes == induced["a", "x", "b"].num_edges == 2


def test_times_of_edges_that_are_not_there():
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.zeros(2, 1), group_name="a", attr_name="x", index=None)
    graph.put_edge_index(torch.tensor([[0, 1], [1, 0]]), edge_type=("a", "to", "a"), layout="coo", size=(2, 2))
    features.put_tensor(torch.zeros(7, dtype=torch.int64), group_name=("a", "by", "b"), attr_name="when", index=None)
    with pytest.raises(InputError, match=r"when of \('a', 'by', 'b'\): the graph has no such edges"):
        NeighborLoader((features, graph), [1], input_nodes=("a", torch.tensor([0])), time_attr="when", input_time=[0])


def test_nodes_and_edges_of_one_name():
    data = HeteroData()
    data["a"].num_nodes, data["a"].time = 3, torch.arange(3)
    data["a", "to", "a"].edge_index, data["a", "to", "a"].time = torch.tensor([[0, 1], [1, 2]]), torch.arange(2)
    with pytest.raises(UsageError, match="time_attr='time': both nodes and edges have it"):
        NeighborLoader(data, [1], input_nodes="a", time_attr="time")
