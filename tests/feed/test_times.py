"""`time_attr`: PyG's meaning over Data, HeteroData, pairs, stores and paths; state, plans, threads and processes as without it."""

import json

import numpy as np
import pytest
import torch
from scipy import stats
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import penstock
from penstock.cache.presample import reads_again
from penstock.errors import InputError, MissingFieldError, NotSupportedError, StateError, UsageError
from penstock.feed import NeighborLoader
from penstock.feed.factored import FactoredLoader
from penstock.feed.fit.profile import take_profile
from penstock.feed.inputs import ArrayInput
from penstock.feed.setup.choices import workload_of
from penstock.records import EDGE, NODE
from penstock.sample.device_graph import on_cpu_only
from penstock.store import ingest
from tests.feed.inputs import check_homogeneous, check_typed, digests, homogeneous_data, typed_data
from tests.graphs import typed_graph

OPTIONS = dict(num_neighbors=[3, 2], batch_size=32, seed=5)
OF_EDGES = dict(OPTIONS, time_attr="edge_time", input_time=torch.arange(300) * 10)


def timed_data(level="node", **options):
    """Times from 0 to 2,999, in no order."""
    data, random = homogeneous_data(**options), torch.Generator().manual_seed(3)
    if level == "node":
        data.time = torch.randint(0, 3000, (300,), generator=random)
    else:
        data.edge_time = torch.randperm(3000, generator=random)
    return data


def options_of(level):
    return OF_EDGES if level == "edge" else dict(OPTIONS, time_attr="time")


def times_of_edges(batch):
    """When each edge of a batch came."""
    return batch.edge_time if "edge_time" in batch else batch.time[batch.edge_index[0]]


def assert_in_time(batch):
    """No edge is later than the seed of its tree, and none leaves it."""
    source, target = batch.edge_index
    assert (times_of_edges(batch) <= batch.seed_time[batch.batch[target]]).all()
    assert torch.equal(batch.batch[source], batch.batch[target])


@pytest.mark.parametrize("level", ["node", "edge"])
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_data(num_workers, is_sorted, level):
    data, options = timed_data(level, is_sorted=is_sorted), options_of(level)
    loader = NeighborLoader(data, **options, num_workers=num_workers)
    for batch in loader:
        check_homogeneous(batch, data)
        assert_in_time(batch)
        seeds = batch.n_id[: batch.batch_size]
        assert torch.equal(batch.seed_time, data.time[seeds] if level == "node" else 10 * seeds)
    assert loader.stats().time_bytes == 8 * 3000
    assert digests(NeighborLoader(data, **options, temporal_strategy="last")) != digests(loader)
    assert digests(NeighborLoader(data, **options)) == digests(NeighborLoader(data, **options, disjoint=True, num_workers=num_workers))


def test_last_takes_the_latest():
    """Of each list; of equal times those that come later in it, as PyG's stable sort has them."""
    data = Data(num_nodes=9, edge_index=torch.stack([torch.arange(1, 9), torch.zeros(8, dtype=torch.int64)]))
    data.edge_time = torch.tensor([5, 1, 3, 3, 9, 3, 2, 7])
    for moment, expected in ((0, []), (1, [1]), (2, [1, 6]), (3, [2, 3, 5]), (4, [2, 3, 5]), (7, [5, 0, 7]), (100, [0, 7, 4])):
        given = dict(input_nodes=[0], time_attr="edge_time", input_time=torch.tensor([moment]), temporal_strategy="last")
        batch = next(iter(NeighborLoader(data, [3], **given)))
        assert batch.e_id.tolist() == expected
        drawn = next(iter(NeighborLoader(data, [40], replace=True, seed=1, **given)))  # with replacement, among the latest 40: all of them
        assert set(drawn.e_id.tolist()) == set((data.edge_time <= moment).nonzero().view(-1).tolist())


def test_uniform_among_those_in_time():
    """Chi-square over the 30 of 50 edges that are in time; the others never come."""
    data = Data(num_nodes=51, edge_index=torch.stack([torch.arange(1, 51), torch.zeros(50, dtype=torch.int64)]))
    data.edge_time = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    seeds = torch.zeros(4000, dtype=torch.int64)
    given = dict(input_nodes=seeds, input_time=torch.full((4000,), 29), time_attr="edge_time", batch_size=4000)
    batch = next(iter(NeighborLoader(data, [6], **given, seed=0)))
    counts = np.bincount(batch.edge_time, minlength=50)
    assert not counts[30:].any()
    statistic = ((counts[:30] - 800) ** 2 / 800).sum() * 29 / (30 - 6)
    assert stats.chi2.sf(statistic, 29) > 1e-3


def test_all_that_is_in_time_by_another_way():
    """Whole neighbourhoods, by a search that knows nothing of samplers."""
    data, seeds = timed_data("edge"), torch.tensor([7, 7, 120, 3])
    moments = torch.tensor([2900, 40, 1500, 0])
    batch = next(iter(NeighborLoader(data, [-1, -1], input_nodes=seeds, input_time=moments, time_attr="edge_time", batch_size=4)))
    for tree, (seed, moment) in enumerate(zip(seeds.tolist(), moments.tolist(), strict=True)):
        reached, edges = {seed}, set()
        frontier = {seed}
        for _ in range(2):
            found = [
                (number, source)
                for number, (source, target) in enumerate(data.edge_index.t().tolist())
                if target in frontier and data.edge_time[number] <= moment
            ]
            edges |= {number for number, _ in found}
            frontier = {source for _, source in found} - reached
            reached |= frontier
        assert set(batch.n_id[batch.batch == tree].tolist()) == reached
        assert set(batch.e_id[batch.batch[batch.edge_index[1]] == tree].tolist()) == edges


def timed_types(level):
    """Papers have times, or two of three edge types have."""
    data, random = typed_data(), torch.Generator().manual_seed(3)
    if level == "node":
        data["paper"].time = torch.randint(0, 100, (500,), generator=random)
    else:
        for edge_type in data.edge_types[:2]:
            data[edge_type].edge_time = torch.randint(0, 100, (900,), generator=random)
    return data


@pytest.mark.parametrize("level", ["node", "edge"])
def test_hetero_data(level):
    """Types without times are always there."""
    data, (_, by, prints) = timed_types(level), typed_data().edge_types
    moments = torch.arange(200) // 2 if level == "edge" else None
    given = dict(input_nodes=("paper", data["paper"].train_mask), input_time=moments, batch_size=40, seed=0)
    loader = NeighborLoader(data, [-1, 3], time_attr="time" if level == "node" else "edge_time", **given)
    whole = NeighborLoader(data, [-1, 3], disjoint=True, **{**given, "input_time": None})
    for batch, without in zip(loader, whole, strict=True):
        check_typed(batch, data)
        papers = batch["paper"]
        expected = moments[papers.n_id[:40]] if level == "edge" else data["paper"].time[papers.n_id[:40]]
        assert torch.equal(papers.seed_time, expected)
        for edge_type in data.edge_types:
            trees = batch[edge_type[2]].batch[batch[edge_type].edge_index[1]]
            if level == "edge" and edge_type != prints:
                assert (batch[edge_type].edge_time <= papers.seed_time[trees]).all()
            if level == "node" and edge_type == by:
                assert (papers.time[batch[edge_type].edge_index[0]] <= papers.seed_time[trees]).all()
        first = batch[prints].num_sampled_edges[0]
        assert torch.equal(batch[prints].e_id[:first], without[prints].e_id[: without[prints].num_sampled_edges[0]])
    assert loader.stats().time_bytes == {"node": 8 * 900, "edge": 2 * 8 * 900}[level]
    seeds = ("author", None)
    with pytest.raises(UsageError, match="give input_time, when each seed looks at the graph: seeds are of type 'author', which has no"):
        NeighborLoader(data, [2], input_nodes=seeds, time_attr="time" if level == "node" else "edge_time")


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
    maker = NeighborLoader(data, **options_of("node"))._maker
    assert np.array_equal(ours._maker.sampler.graph.adjacency[EDGE].times, maker.sampler.graph.adjacency[EDGE].times)
    by_edges = {**OF_EDGES, "time_attr": "when", "input_nodes": torch.arange(300)}
    assert NeighborLoader((features, graph), **by_edges)._maker.sampler.graph.adjacency[EDGE].times.max() == 2999
    with pytest.raises(MissingFieldError, match="MyFeatureStore: neither nodes nor edges have a field 'then'"):
        NeighborLoader((features, graph), **{**by_edges, "time_attr": "then"})


@pytest.mark.parametrize("level", ["node", "edge"])
@pytest.mark.parametrize("plan", [None, penstock.Plan(policy="presample", cache="20%")])
def test_state_at_every_batch(plan, level):
    data = timed_data(level)
    options = dict(options_of(level), shuffle=True)
    whole = digests(NeighborLoader(data, **options))
    loader = NeighborLoader(data, **options, plan=plan, num_workers=2)
    iterator = iter(loader)
    for index in range(len(loader)):
        other = NeighborLoader(data, **options)
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert digests(other) == whole[index:]
        next(iterator)
    state = loader.state_dict()
    assert penstock.digest(loader(epoch=0, batch=3)) == whole[3]
    if level == "edge":  # the same times in each list, of other edges
        swapped, pair = data.clone(), (data.edge_index[1] == data.edge_index[1, 0]).nonzero()[:2, 0]
        swapped.edge_time[pair] = data.edge_time[pair.flip(0)]
        with pytest.raises(StateError, match=r"edges of node/to/node: .* by time"):
            NeighborLoader(swapped, **options).load_state_dict(state)
    for change, differs in (
        ({"time_attr": None, "input_time": None}, r"edges of node/to/node: .* by time"),
        ({"temporal_strategy": "last"}, "temporal_strategy: 'uniform' then, 'last' now"),
        ({"input_time": torch.arange(300)}, "input_time"),
    ):
        with pytest.raises(StateError, match=differs):
            NeighborLoader(data, **{**options, **change}).load_state_dict(state)


@pytest.mark.parametrize(
    "plan",
    [
        penstock.Plan(topology="disk", neighbor_policy="presample", neighbor_cache="30%"),
        penstock.Plan(topology="memory", policy="degree", cache="10%"),
        penstock.Plan(policy="belady", cache="10%", neighbor_policy="ratio", neighbor_cache="20%", neighbor_layout="prefix"),
        penstock.Plan(policy="presample", cache="20%", presample_batches=3),
        penstock.Plan(host_memory="100GiB"),
        "ginex",
        "ducati",
    ],
    ids=str,
)
def test_plans_do_not_matter(plan, tmp_path):
    data = timed_data("edge")
    del data.title
    store = ingest(data, tmp_path / "store", memory="4GiB")
    expected = digests(NeighborLoader(store, **OF_EDGES))
    loader = NeighborLoader(store, **OF_EDGES, plan=plan, num_workers=2)
    assert digests(loader) == expected
    assert loader.stats().time_bytes == 8 * 3000


@pytest.mark.parametrize(
    "plan", [None, penstock.Plan(topology="disk", neighbor_policy="degree", neighbor_cache="30%")], ids=["given", "disk"]
)
@pytest.mark.parametrize(("level", "strategy"), [("node", "uniform"), ("edge", "last")])
def test_processes_do_not_matter(level, strategy, plan, tmp_path):
    data = timed_data(level)
    del data.title
    path, options = ingest(data, tmp_path / "store", memory="4GiB").path, dict(options_of(level), shuffle=True, temporal_strategy=strategy)
    expected = [digests(loader := NeighborLoader(path, **options)), digests(loader)]
    seeds, moments = torch.arange(20), torch.arange(20) * 100
    with FactoredLoader(path, num_samplers=1, plan=plan, **options) as factored:
        assert [digests(factored), digests(factored)] == expected
        assert digests(factored.beside(seeds, moments)) == digests(loader.beside(seeds, moments))


@pytest.mark.parametrize("level", ["node", "edge"])
def test_what_is_hot_is_found_out_in_time(level):
    """The last edges are not left to chance, so that other draws are the same: what presampling counts is what batches read."""
    data = timed_data(level)
    loader = NeighborLoader(data, **options_of(level), temporal_strategy="last", shuffle=True)
    maker, plan = loader._maker, penstock.Plan(policy="presample", cache="20%")
    workload, rows, lists = workload_of(plan, maker), np.zeros(300, int), np.zeros(300, int)
    for batch in loader:
        rows[batch.n_id.unique()] += 1
        np.add.at(lists, batch.n_id[: batch.row_ptr.numel() - 1][batch.row_ptr.diff() > 0].numpy(), 1)
    visits = workload.visits()
    assert np.array_equal(visits.nodes[NODE], rows)
    assert np.array_equal(visits.lists[EDGE], lists)
    assert reads_again(workload) == {NODE: 1.0, EDGE: 1.0}
    profile = take_profile(maker, [NODE])
    assert profile.num_batches == len(loader)
    assert np.array_equal(profile.row_visits[NODE], rows)
    with pytest.raises(NotSupportedError, match="by weight or time take the policy presample"):
        NeighborLoader(data, **options_of(level), plan=penstock.Plan(policy="inclusion", cache="20%"))


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


def test_loaders_beside():
    data = timed_data("edge")
    loader, seeds, moments = NeighborLoader(data, **OF_EDGES), torch.arange(40), torch.arange(40) + 100
    expected = digests(NeighborLoader(data, **{**OF_EDGES, "input_nodes": seeds, "input_time": moments}))
    assert digests(loader.beside(seeds, moments)) == expected
    with pytest.raises(UsageError, match="give input_time"):
        loader.beside(seeds)
    by_nodes = NeighborLoader(timed_data(), **options_of("node"))
    assert digests(by_nodes.beside(seeds)) == digests(NeighborLoader(timed_data(), **options_of("node"), input_nodes=seeds))
    with pytest.raises(UsageError, match="input_time needs time_attr"):
        NeighborLoader(data, **OPTIONS).beside(seeds, moments)


@pytest.mark.parametrize("mode", [dict(replace=True), dict(subgraph_type="bidirectional"), dict(temporal_strategy="last", replace=True)])
def test_modes(mode):
    data = timed_data("edge")
    for batch in NeighborLoader(data, **OF_EDGES, **mode):
        assert "seed_time" in batch
        if mode.get("subgraph_type") != "bidirectional":
            check_homogeneous(batch, data)
            assert_in_time(batch)


def test_the_users_transform_of_samples_sees_the_times():
    """In PyG's place, `metadata`; what it says there, the batch says."""

    def later(output):
        input_id, moments = output.metadata
        output.metadata = (input_id, moments + 1)
        return output

    data = timed_data()
    for batch, plain in zip(
        NeighborLoader(data, **options_of("node"), transform_sampler_output=later), NeighborLoader(data, **options_of("node")), strict=True
    ):
        assert torch.equal(batch.seed_time, plain.seed_time + 1)
        assert torch.equal(batch.n_id, plain.n_id)


def test_repeated_seeds_and_masks():
    """Each seed has a time of its own, also where one comes twice; of a mask, times go with its nodes in their order."""
    data = timed_data("edge")
    seeds = torch.tensor([5, 5, 5, 9])
    batch = next(
        iter(
            NeighborLoader(
                data, [-1], input_nodes=seeds, input_time=torch.tensor([0, 1500, 2999, 2999]), time_attr="edge_time", batch_size=4
            )
        )
    )
    counts = batch.batch[batch.edge_index[1]].bincount(minlength=4)
    of_five = data.edge_time[data.edge_index[1] == 5]
    assert counts[:3].tolist() == [int((of_five <= moment).sum()) for moment in (0, 1500, 2999)]
    mask = torch.zeros(300, dtype=torch.bool)
    mask[[4, 250]] = True
    batch = next(iter(NeighborLoader(data, [-1], input_nodes=mask, input_time=torch.tensor([10, 20]), time_attr="edge_time", batch_size=4)))
    assert batch.seed_time.tolist() == [10, 20]
    assert batch.input_id.tolist() == [4, 250]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"time_attr": "nope"}, MissingFieldError, "Data: neither nodes nor edges have a field 'nope' to say when they came"),
        ({"time_attr": "half"}, InputError, r"half must be one whole number per node, int \[300\]; got float32 \[300\]: count seconds"),
        (
            {"time_attr": "edge_attr", "input_time": None},
            InputError,
            r"edge_attr must be one whole number per edge, int \[3000\]; got int64",
        ),
        (
            {"time_attr": "edge_time"},
            UsageError,
            "give input_time, when each seed looks at the graph: seeds are of type 'node', which has no 'edge_time'",
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
    with pytest.raises(MissingFieldError, match=r"store: neither nodes nor edges have a field 'edge_time' to say when they came"):
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
    """Trees are disjoint in any case, as in PyG, and there are no induced ones."""
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes, data["b"].time = 5, 4, torch.arange(4)
    data["a", "x", "b"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    batch = next(iter(NeighborLoader(data, [2], input_nodes="b", time_attr="time", batch_size=4)))
    assert batch["b"].batch.tolist() == [0, 1, 2, 3]
    assert batch["a", "x", "b"].num_edges == 3
    with pytest.raises(UsageError, match="no induced subgraphs"):
        NeighborLoader(data, [2], input_nodes="b", time_attr="time", subgraph_type="induced")


def test_times_of_edges_that_are_not_there():
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.zeros(2, 1), group_name="a", attr_name="x", index=None)
    graph.put_edge_index(torch.tensor([[0, 1], [1, 0]]), edge_type=("a", "to", "a"), layout="coo", size=(2, 2))
    features.put_tensor(torch.zeros(7, dtype=torch.int64), group_name=("a", "by", "b"), attr_name="when", index=None)
    with pytest.raises(InputError, match=r"when of \('a', 'by', 'b'\): the graph has no such edges"):
        NeighborLoader((features, graph), [1], input_nodes=("a", torch.tensor([0])), time_attr="when", input_time=[0])


def test_times_are_read_once():
    """Also those of seeds to come."""
    data, seeds = timed_data(), torch.arange(40)
    loader = NeighborLoader(data, **options_of("node"))
    expected = [batch.seed_time.tolist() for batch in loader.beside(seeds)]
    data.time.zero_()
    assert [batch.seed_time.tolist() for batch in loader.beside(seeds)] == expected


def test_nodes_and_edges_of_one_name():
    data = HeteroData()
    data["a"].num_nodes, data["a"].time = 3, torch.arange(3)
    data["a", "to", "a"].edge_index, data["a", "to", "a"].time = torch.tensor([[0, 1], [1, 2]]), torch.arange(2)
    with pytest.raises(UsageError, match="time_attr='time': both nodes and edges have it"):
        NeighborLoader(data, [1], input_nodes="a", time_attr="time")


def test_on_a_device_the_cpu_draws():
    """And says so."""
    loader = NeighborLoader(timed_data(), **options_of("node"))
    assert on_cpu_only(loader._maker.sampler) == "sampling by time is done on the CPU only"
