"""Loaders by time over the parts of a partition: whoever has a list draws of it, and the batches are those of the whole store."""

import numpy as np
import pytest
import torch

import penstock
from penstock import LinkNeighborLoader, NeighborLoader, Plan
from penstock.errors import InputError, MissingFieldError, NotSupportedError, UsageError
from penstock.exchange import wire
from penstock.store.tiers import elements
from tests.feed.inputs import homogeneous_data, typed_data
from tests.feed.links import BY, WRITES
from tests.partitions import cut, on_all


def timed(kind):
    """Nodes or edges with times, some of them the same; of types, some have them, and lists of some lie in their order."""
    random = torch.Generator().manual_seed(6)
    if kind == "typed":
        data = typed_data()
        data["author"].time = torch.randint(0, 9, (60,), generator=random)
        return data
    if kind == "typed edges":
        data = typed_data()
        data[WRITES].edge_time = torch.randint(0, 9, (900,), generator=random) * (1 << 40)
        data[BY].edge_time = torch.arange(900)
        return data
    data = homogeneous_data()
    if kind == "nodes":
        data.time = torch.randint(0, 30, (300,), generator=random).int()
        data.grade, data.half_time = torch.rand(300), data.time.bfloat16()
    else:
        data.edge_time = torch.randint(0, 30, (3000,), generator=random)
    data.edge_weight = torch.ones(3000)
    return data


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return {kind: penstock.ingest(timed(kind), folder / kind) for kind in ("nodes", "edges", "typed", "typed edges")}


@pytest.fixture(scope="module")
def parts(stores, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return {(name, count): cut(store, folder / f"{name}-{count}", count) for name, store in stores.items() for count in (1, 2, 3)}


def make(data, kind="nodes", num_neighbors=(4, 3), **options):
    known = {"nodes": None, "edges": torch.arange(100) % 35, "typed": torch.arange(200) % 10, "typed edges": torch.arange(200) << 35}
    settings = dict(batch_size=16, shuffle=True, seed=5, input_time=known[kind], time_attr="edge_time" if "edges" in kind else "time")
    return NeighborLoader(data, list(num_neighbors), ("paper", "train") if "typed" in kind else "train", **settings | options)


def digests(loader):
    return [penstock.digest(batch) for batch in loader]


@pytest.mark.parametrize(
    ("kind", "num_parts", "num_ranks"), [("nodes", 1, 1), ("nodes", 3, 3), ("edges", 2, 4), ("typed", 2, 2), ("typed edges", 3, 3)]
)
@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_batches_are_those_of_the_store(kind, num_parts, num_ranks, strategy, stores, parts):
    def work(graph):
        loader = make(graph, kind, temporal_strategy=strategy, rank=graph.rank, num_ranks=graph.num_ranks, num_workers=2)
        return digests(loader), loader.state_dict()

    whole = make(stores[kind], kind, temporal_strategy=strategy)
    expected = digests(whole)
    for rank, (found, state) in enumerate(on_all(parts[kind, num_parts], num_ranks, work)):
        assert found == expected[rank::num_ranks]
        assert state == whole.state_dict()


@pytest.mark.parametrize("kind", ["nodes", "edges"])
@pytest.mark.parametrize(
    "options",
    [
        dict(replace=True),
        dict(num_neighbors=[-1, 2]),
        dict(num_neighbors=[100, 70]),
        dict(num_neighbors=[2, 2, 2], temporal_strategy="last", replace=True),
        dict(pad=True),
        dict(plan=Plan(policy="fifo", cache="20%", neighbor_policy="presample", neighbor_cache="50%")),
    ],
    ids=str,
)
def test_any_sample(kind, options, stores, parts, monkeypatch):
    monkeypatch.setattr(wire, "PIECE_BYTES", 60)
    monkeypatch.setattr(elements, "PIECE", 70)
    expected = digests(make(stores[kind], kind, **options | {"plan": None}))
    assert on_all(parts[kind, 3], 3, lambda graph: digests(make(graph, kind, num_workers=1, **options))) == [expected] * 3


@pytest.mark.parametrize("neg_sampling", [None, "binary", dict(mode="triplet", amount=2)], ids=str)
@pytest.mark.parametrize("kind", ["nodes", "edges"])
def test_links(kind, neg_sampling, stores, parts):
    """Their negatives are no later than they are; of nodes, whose times are elsewhere."""

    def work(data):
        how = dict(time_attr="time" if kind == "nodes" else "edge_time", edge_label_time=torch.arange(3000) % 35, neg_sampling=neg_sampling)
        return digests(LinkNeighborLoader(data, [4, 3], batch_size=500, seed=3, exclude_links="reverse", **how))

    assert on_all(parts[kind, 3], 3, work) == [work(stores[kind])] * 3


def test_a_state_goes_either_way(stores, parts):
    whole = make(stores["nodes"])
    batches = iter(whole)
    next(batches)
    state, rest = whole.state_dict(), [penstock.digest(batch) for batch in batches]

    def work(graph):
        loader = make(graph)
        loader.load_state_dict(state)
        return digests(loader)

    assert on_all(parts["nodes", 2], 2, work) == [rest, rest]


def test_each_has_the_order_of_its_own(stores, parts):
    whole = make(stores["nodes"]).stats().time_bytes
    assert whole == 3000 * 8
    found = on_all(parts["nodes", 3], 3, lambda graph: make(graph).stats().time_bytes - 8 * 301)
    assert sum(found) == whole
    assert max(found) < 0.5 * whole


def test_what_are_no_times(stores, parts):
    """As of the store."""
    for options, kind in (
        (dict(time_attr="grade"), InputError),
        (dict(time_attr="half_time"), InputError),
        (dict(time_attr="y", input_time=torch.zeros(3)), UsageError),
        (dict(time_attr="age"), MissingFieldError),
        (dict(weight_attr="edge_weight"), NotSupportedError),
        (dict(subgraph_type="induced"), UsageError),
    ):

        def why(data, options=options, kind=kind):
            with pytest.raises(kind) as found:
                make(data, **options)
            return str(found.value).split(": ", 1)[-1]

        assert on_all(parts["nodes", 2], 2, why) == [why(stores["nodes"])] * 2


def test_seeds_whose_times_are_elsewhere(stores, parts):
    def work(data):
        return np.concatenate([batch.seed_time.numpy() for batch in make(data, shuffle=False)])

    expected = stores["nodes"].node_field("time")[stores["nodes"].split("train")]
    assert (work(stores["nodes"]) == expected).all()
    assert all((found == expected).all() for found in on_all(parts["nodes", 2], 2, work))
