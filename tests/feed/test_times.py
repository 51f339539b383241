"""`time_attr`: nothing of the future in a seed's tree. See also `test_ways.py`."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from torch_geometric.data import Data, HeteroData

import penstock
from penstock.cache.presample import reads_again
from penstock.errors import NotSupportedError, StateError, UsageError
from penstock.feed import LinkNeighborLoader, NeighborLoader, link_arguments
from penstock.feed.fit.profile import take_profile
from penstock.feed.setup.choices import workload_of
from penstock.records import EDGE, NODE
from penstock.sample import times
from penstock.store import ingest
from tests.feed.inputs import check_homogeneous, check_typed, digests, homogeneous_data, typed_data

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
def test_data(is_sorted, level):
    data, options = timed_data(level, is_sorted=is_sorted), options_of(level)
    loader = NeighborLoader(data, **options)
    for batch in loader:
        assert_in_time(batch)
        seeds = batch.n_id[: batch.batch_size]
        assert torch.equal(batch.seed_time, data.time[seeds] if level == "node" else 10 * seeds)
    assert loader.stats().time_bytes == 8 * 3000
    assert digests(NeighborLoader(data, **options)) == digests(NeighborLoader(data, **options, disjoint=True))


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("level", ["node", "edge"])
def test_what_came_at_that_very_time_is_too_late(level, strategy):
    """By the strict rule: the samples of seeds that look a moment earlier, under the times that were given."""
    data = timed_data(level)
    options = dict(options_of(level), temporal_strategy=strategy, temporal_rule="<")
    moments = data.time if level == "node" else options["input_time"]
    earlier = NeighborLoader(data, **options_of(level) | {"temporal_strategy": strategy, "input_time": moments - 1})
    num_edges = 0
    for batch, expected in zip(NeighborLoader(data, **options), earlier, strict=True):
        assert torch.equal(batch.seed_time, expected.seed_time + 1)
        assert torch.equal(batch.n_id, expected.n_id)
        assert torch.equal(batch.edge_index, expected.edge_index)
        num_edges += batch.num_edges
    assert num_edges > 0
    far = options | {"input_time": np.full(300, np.iinfo(np.int64).min)}
    with pytest.raises(UsageError, match="and int64 has no earlier time"):
        NeighborLoader(data, **far)


@pytest.mark.parametrize("level", ["node", "edge"])
def test_what_is_too_old_is_left_out(level):
    """All edges in time that are at most as old as the window says, and no other ones."""
    data = timed_data(level)
    options = dict(options_of(level), num_neighbors=[-1, -1])
    times = data.time[data.edge_index[0]] if level == "node" else data.edge_time
    for rule, window in product(("<=", "<"), (1, 200, np.int32(900), (1 << 63) - 1)):
        for batch in NeighborLoader(data, **options, temporal_rule=rule, time_window=window):
            moments = batch.seed_time[batch.batch]
            for node in range(sum(batch.num_sampled_nodes[:2])):
                of_node, moment = data.edge_index[1] == batch.n_id[node], moments[node]
                is_in_time = (times < moment if rule == "<" else times <= moment) & (times >= moment - int(window))
                expected = (of_node & is_in_time).nonzero().view(-1)
                assert torch.equal(batch.e_id[batch.edge_index[1] == node].sort().values, expected)


def test_links_do_not_see_themselves(caplog):
    """Nor their reverses, nor what else came at the moment; without a word of what a model might see."""
    data, random = homogeneous_data(), torch.Generator().manual_seed(3)
    data.edge_time = torch.randint(0, 50, (data.num_edges,), generator=random)
    given = dict(num_neighbors=[-1, -1], batch_size=50, time_attr="edge_time", edge_label_time=data.edge_time)
    for rule, sees in (("<", False), ("<=", True)):
        caplog.clear()
        link_arguments._warn_of_leaks.cache_clear()
        for batch in LinkNeighborLoader(data, **given, temporal_rule=rule):
            of_links = batch.edge_label_time[batch.batch[batch.edge_index[1]]]
            assert (batch.edge_time <= of_links).all()
            assert bool((batch.edge_time == of_links).any()) == sees
            assert torch.equal(batch.edge_label_time, data.edge_time[batch.input_id])
        assert ("links that a batch asks about" in caplog.text) == sees


@pytest.mark.parametrize("level", ["node", "edge"])
def test_links_that_look_at_the_graph_before_they_came(level, caplog):
    """No sample has them, whatever the rule is: nothing is said of what a model might see. Links that look later are warned of."""
    data = timed_data(level)
    times = data.time[data.edge_index[0]] if level == "node" else data.edge_time
    given = {"num_neighbors": [3], "time_attr": "time" if level == "node" else "edge_time"}
    cases = [(-1, None, False), (-1, 5, False), (1, None, True), (1, 5, True), (9, 5, False)]
    for links, rule, (later, window, sees) in product((slice(None), slice(0, 60)), ("<=", "<"), cases):
        caplog.clear()
        link_arguments._warn_of_leaks.cache_clear()
        ends = None if links.stop is None else data.edge_index[:, links]
        moments = (times + later)[links]
        LinkNeighborLoader(data, **given, edge_label_index=ends, edge_label_time=moments, temporal_rule=rule, time_window=window)
        assert ("links that a batch asks about" in caplog.text) == sees


def test_last_takes_the_latest():
    """Of each list; of equal times those that come later in it, as PyG's stable sort has them."""
    data = Data(num_nodes=9, edge_index=torch.stack([torch.arange(1, 9), torch.zeros(8, dtype=torch.int64)]))
    data.edge_time = torch.tensor([5, 1, 3, 3, 9, 3, 2, 7])
    for moment, expected in ((0, []), (1, [1]), (2, [1, 6]), (3, [2, 3, 5]), (4, [2, 3, 5]), (7, [5, 0, 7]), (100, [0, 7, 4])):
        given = dict(input_nodes=[0], time_attr="edge_time", input_time=torch.tensor([moment]), temporal_strategy="last")
        batch = next(iter(NeighborLoader(data, [3], **given)))
        assert batch.e_id.tolist() == expected
        in_window = next(iter(NeighborLoader(data, [3], time_window=2, **given)))
        assert in_window.e_id.tolist() == [edge for edge in expected if data.edge_time[edge] >= moment - 2]
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
    with pytest.raises(UsageError, match="give input_time, the time of each seed: seeds are of type 'author', which has no"):
        NeighborLoader(data, [2], input_nodes=seeds, time_attr="time" if level == "node" else "edge_time")


def test_a_state_of_other_times_is_refused():
    """Also of the same times in each list, of other edges."""
    data, options = timed_data("edge"), OF_EDGES | {"shuffle": True}
    state = NeighborLoader(data, **options).state_dict()
    swapped, pair = data.clone(), (data.edge_index[1] == data.edge_index[1, 0]).nonzero()[:2, 0]
    swapped.edge_time[pair] = data.edge_time[pair.flip(0)]
    with pytest.raises(StateError, match=r"edges of node/to/node: .* by time"):
        NeighborLoader(swapped, **options).load_state_dict(state)


@pytest.mark.parametrize("plan", [penstock.Plan(topology="disk", neighbor_policy="presample", neighbor_cache="30%"), "ginex"], ids=str)
def test_times_stay_where_lists_go(plan, tmp_path):
    data = timed_data("edge")
    del data.title
    loader = NeighborLoader(ingest(data, tmp_path / "store", memory="4GiB"), **OF_EDGES, plan=plan)
    list(loader)
    assert loader.stats().time_bytes == 8 * 3000


@pytest.mark.parametrize("level", ["node", "edge"])
def test_what_is_hot_is_found_out_in_time(level):
    """The last edges are not left to chance, so that other draws are the same: what presampling counts is what batches read."""
    data = timed_data(level)
    loader = NeighborLoader(data, **options_of(level), temporal_strategy="last", shuffle=True)
    maker, plan = loader.engine.maker, penstock.Plan(policy="presample", cache="20%")
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
    with pytest.raises(NotSupportedError, match="by weight, time, walks or layers take the policy presample"):
        NeighborLoader(data, **options_of(level), plan=penstock.Plan(policy="inclusion", cache="20%"))


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


def test_times_are_read_once():
    """Also those of seeds to come."""
    data, seeds = timed_data(), torch.arange(40)
    loader = NeighborLoader(data, **options_of("node"))
    expected = [batch.seed_time.tolist() for batch in loader.beside(seeds)]
    data.time.zero_()
    assert [batch.seed_time.tolist() for batch in loader.beside(seeds)] == expected


def test_times_of_nodes_where_edges_have_some_too(tmp_path, caplog):
    """In a store both may be called "time": what is meant is said."""
    data = HeteroData(
        {
            "a": {"num_nodes": 9, "time": torch.arange(9)},
            ("a", "to", "a"): {"edge_index": torch.randint(0, 9, (2, 50)), "time": torch.arange(50)},
        }
    )
    store = ingest(data, tmp_path / "store")
    for name in ("time", "edge_time"):
        caplog.clear()
        times._warn_of_two.cache_clear()
        loader = NeighborLoader(store, [2], "a", time_attr=name, input_time=torch.arange(9))
        assert len(loader.engine.maker.times.of_nodes) == (name == "time")
        assert ("time_attr='edge_time' means those" in caplog.text) == (name == "time")
