"""Loaders by time over the parts of a partition: each has the order of its own lists, and times are asked for where they are."""

import numpy as np
import pytest
import torch

import penstock
from penstock import LinkNeighborLoader, NeighborLoader
from penstock.errors import InputError, MissingFieldError, NotSupportedError, UsageError
from tests.feed.inputs import digests, homogeneous_data
from tests.partitions import cut, on_all


def timed(kind):
    """Nodes or edges with times, some of them the same."""
    data, random = homogeneous_data(), torch.Generator().manual_seed(6)
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
    return {kind: penstock.ingest(timed(kind), folder / kind) for kind in ("nodes", "edges")}


@pytest.fixture(scope="module")
def parts(stores, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return {(name, count): cut(store, folder / f"{name}-{count}", count) for name, store in stores.items() for count in (2, 3)}


def make(data, **options):
    return NeighborLoader(data, [4, 3], "train", **dict(batch_size=16, shuffle=True, seed=5, time_attr="time") | options)


@pytest.mark.parametrize("neg_sampling", [None, dict(mode="triplet", amount=2)], ids=str)
@pytest.mark.parametrize("kind", ["nodes", "edges"])
def test_links(kind, neg_sampling, stores, parts):
    """Their negatives are no later than they are; of nodes, whose times are elsewhere."""

    def work(data):
        how = dict(time_attr="time" if kind == "nodes" else "edge_time", edge_label_time=torch.arange(3000) % 35, neg_sampling=neg_sampling)
        return digests(LinkNeighborLoader(data, [4, 3], batch_size=500, seed=3, exclude_links="reverse", **how))

    assert on_all(parts[kind, 3], 3, work) == [work(stores[kind])] * 3


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
