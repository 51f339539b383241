"""Loaders of every way to sample over the parts of a partition: the batches are those of the whole store, whoever has which list."""

import pytest

import penstock
from penstock import LinkNeighborLoader, NeighborLoader, Plan
from penstock.exchange import wire
from penstock.store.tiers import elements
from tests.feed.inputs import digests
from tests.feed.ways import WAYS, each_way, plain_data, typed_data
from tests.partitions import cut, on_all


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return {name: penstock.ingest(data, folder / name) for name, data in (("plain", plain_data()), ("typed", typed_data()))}


@pytest.fixture(scope="module")
def parts(stores, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return {(name, count): cut(store, folder / f"{name}-{count}", count) for name, store in stores.items() for count in (1, 2, 3)}


def make(data, way, name="plain", **options):
    settings = dict(batch_size=48, shuffle=True, seed=5, input_nodes=("paper", "train") if name == "typed" else None)
    return NeighborLoader(data, **settings | way.of(name) | options)


@each_way
@pytest.mark.parametrize(("name", "num_parts", "num_ranks"), [("plain", 1, 1), ("plain", 3, 3), ("plain", 2, 4), ("typed", 3, 3)])
def test_batches_and_states_are_those_of_the_store(way, name, num_parts, num_ranks, stores, parts):
    def work(graph):
        loader = make(graph, way, name, rank=graph.rank, num_ranks=graph.num_ranks, num_workers=2)
        return digests(loader), loader.state_dict()

    whole = make(stores[name], way, name)
    expected = digests(whole)
    for rank, (found, state) in enumerate(on_all(parts[name, num_parts], num_ranks, work)):
        assert found == expected[rank::num_ranks]
        assert state == whole.state_dict()


SAMPLES = [
    ("fanouts", "plain", dict(num_neighbors=[-1, 2])),
    ("fanouts", "plain", dict(num_neighbors=[100, 5, 1])),
    (None, "plain", dict(plan=Plan(policy="fifo", cache="20%", neighbor_policy="presample", neighbor_cache="50%"))),
    (None, "plain", dict(plan=Plan(policy="belady", cache="10%", window=3))),
    ("replace", "plain", dict(num_neighbors=[70, 10], replace=True)),
    ("replace", "typed", dict(num_neighbors=[70, 10], replace=True)),
    ("disjoint", "plain", dict(disjoint=True)),
    ("induced", "plain", dict(subgraph_type="induced")),
    ("induced", "plain", dict(subgraph_type="bidirectional")),
    ("pad", "plain", dict(pad=True)),
]
"""What a way must not refuse, and options."""


@pytest.mark.parametrize(
    ("way", "name", "options"),
    [
        pytest.param(way, name, options, id=f"{of_way}-{name}-{options}")
        for of_way, way in WAYS.items()
        for needs, name, options in SAMPLES
        if needs not in way.refuses
    ],
)
def test_any_sample(way, name, options, stores, parts, monkeypatch):
    monkeypatch.setattr(wire, "PIECE_BYTES", 240)
    monkeypatch.setattr(elements, "PIECE", 70)
    options = {"batch_size": 75} | options
    expected = digests(make(stores[name], way, name, **options | {"plan": None}))
    assert on_all(parts[name, 3], 3, lambda graph: digests(make(graph, way, name, num_workers=1, **options))) == [expected] * 3


@each_way
def test_links(way, stores, parts):
    def work(data):
        how = dict(neg_sampling="binary", exclude_links="reverse", batch_size=500, seed=3)
        return digests(LinkNeighborLoader(data, **how | way.of("links")))

    assert on_all(parts["plain", 3], 3, work) == [work(stores["plain"])] * 3


@each_way
def test_a_state_goes_either_way(way, stores, parts):
    def half(data):
        loader = make(data, way)
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        return loader.state_dict()

    def rest(data, state):
        loader = make(data, way)
        loader.load_state_dict(state)
        return digests(loader)

    expected, state = digests(make(stores["plain"], way))[3:], half(stores["plain"])
    found = on_all(parts["plain", 2], 2, lambda graph: (rest(graph, state), half(graph)))
    assert found == [(expected, state)] * 2
    assert rest(stores["plain"], state) == expected
