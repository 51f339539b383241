"""What holds for every way to sample: the same batches from any source, place of lists, thread and process; state; links; training."""

import json
from itertools import permutations

import pytest
import torch

import penstock
from penstock import LinkNeighborLoader, NeighborLoader, Plan
from penstock.errors import StateError, UsageError
from penstock.feed.factored import FactoredLoader
from penstock.store import ingest
from penstock.train import TrainConfig, train
from tests.feed.inputs import digests
from tests.feed.ways import WAYS, each_that, each_way, plain_data, typed_data
from tests.padding import without_padding
from tests.train.stores import make_data

DATA, TYPED = plain_data(), typed_data()
OF_PAPERS = dict(input_nodes=("paper", TYPED["paper"].train_mask), batch_size=40, seed=0)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    data = DATA.clone()
    del data.title
    return ingest(data, tmp_path_factory.mktemp("ways") / "store", memory="4GiB", edge_ids=True)


@pytest.fixture(scope="module")
def typed_store(tmp_path_factory):
    return ingest(TYPED, tmp_path_factory.mktemp("ways") / "typed", memory="4GiB", edge_ids=True)


@pytest.fixture(scope="module")
def known():
    """Digests of the batches of loaders of the store, by way."""
    return {}


def expected_of(way, store, known):
    if id(way) not in known:
        known[id(way)] = digests(way.load(store))
    return known[id(way)]


def nodes_and_edges(loader):
    return [(batch.n_id.tolist(), batch.edge_index.tolist()) for batch in loader]


@each_way
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_rows_threads_ranks_and_batches_again(way, num_workers, is_sorted):
    data = plain_data(is_sorted) if is_sorted else DATA
    loader = way.load(data, num_workers=num_workers)
    found = digests(way.load(data))
    batches = list(loader)
    for batch in batches:
        way.check(batch, data)
    assert digests(batches) == found
    assert [penstock.digest(loader(epoch=0, batch=index)) for index in range(len(loader))] == found
    for rank in range(2):
        assert digests(way.load(data, num_workers=num_workers, rank=rank, num_ranks=2)) == found[rank::2]


def test_ways_are_not_each_other():
    """Neither in what they sample nor in their states, which are not taken by each other."""
    loaders = {name: way.load(DATA, shuffle=True) for name, way in WAYS.items()}
    sampled = [nodes_and_edges(loader) for loader in loaders.values()]
    for number, batches in enumerate(sampled):
        assert sampled.index(batches) == number
    for one, other in permutations(WAYS, 2):
        with pytest.raises(StateError, match=WAYS[one].says if other == "uniform" else "another configuration"):
            loaders[other].load_state_dict(loaders[one].state_dict())


@each_way
@pytest.mark.parametrize("plan", [None, Plan(policy="presample", cache="20%"), Plan(policy="belady", cache="20%", window=3)], ids=str)
def test_state_at_every_batch(way, plan):
    whole = digests(way.load(DATA, shuffle=True))
    loader = way.load(DATA, shuffle=True, plan=plan, num_workers=2)
    iterator = iter(loader)
    for index in range(len(loader)):
        other = way.load(DATA, shuffle=True)
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert digests(other) == whole[index:]
        next(iterator)


@each_way
def test_what_a_state_says(way):
    """Of other ways nothing, which states of before did not either; and it is refused where the same way was told something else."""
    state = way.load(DATA, shuffle=True).state_dict()
    for name in ("shared_draws", "walks", "layer_wise", "num_samples"):
        assert (name in state["configuration"]) == (name in way.plain)
    for options, said in way.changes:
        with pytest.raises(StateError, match=said):
            way.load(DATA, shuffle=True, **options).load_state_dict(state)


PLANS = [
    Plan(topology="memory", policy="degree", cache="10%"),
    Plan(topology="disk", features="disk"),
    Plan(neighbor_policy="presample", neighbor_cache="30%"),
    Plan(neighbor_policy="ratio", neighbor_cache="30%", neighbor_layout="prefix", topology="disk"),
    Plan(policy="degree", cache="20%", map_threads=2),
    Plan(policy="presample", cache="8KiB", neighbor_policy="presample", neighbor_cache="shared"),
    Plan(policy="belady", cache="10%", neighbor_policy="ratio", neighbor_cache="20%", neighbor_layout="prefix"),
    Plan(policy="presample", cache="20%", presample_batches=3, topology="disk", neighbor_policy="presample", neighbor_cache="30%"),
    Plan(host_memory="4GiB"),
    "ginex",
    "ducati",
]


@each_way
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_plans_do_not_matter(way, plan, store, known):
    source = store.path if PLANS.index(plan) % 2 else store
    if "budget" in way.refuses and getattr(plan, "host_memory", None):
        with pytest.raises(UsageError, match="a budget is fitted to sampled edges"):
            way.load(source, plan=plan)
        return
    assert digests(way.load(source, plan=plan, num_workers=2)) == expected_of(way, store, known)


@each_way
def test_sources_do_not_matter(way, store, known):
    assert digests(way.load(store.path)) == expected_of(way, store, known)
    assert nodes_and_edges(way.load(store)) == nodes_and_edges(way.load(DATA))


@each_way
def test_typed_data(way, typed_store):
    options = OF_PAPERS | way.of("typed")
    for batch in NeighborLoader(TYPED, **options):
        way.check(batch, TYPED)
    expected = digests(NeighborLoader(TYPED, **options))
    assert digests(NeighborLoader(TYPED, **options, num_workers=2)) == expected
    found = digests(NeighborLoader(typed_store, **options))
    for plan in PLANS[1:6:2]:
        assert digests(NeighborLoader(typed_store.path, **options, plan=plan, num_workers=2)) == found


ON_DISK = Plan(topology="disk", neighbor_policy="degree", neighbor_cache="30%")
PLACES = [("walks", "typed", None), ("the latest", "plain", ON_DISK), *((name, "plain", None) for name in WAYS if name != "uniform")]


@pytest.mark.parametrize(("name", "data", "plan"), PLACES, ids=str)
def test_samplers_as_processes(name, data, plan, store, typed_store):
    """Of uniform samples, `test_factored.py` says so."""
    path, options = (store if data == "plain" else typed_store).path, OF_PAPERS if data == "typed" else dict(batch_size=32, seed=5)
    options = options | dict(shuffle=True) | WAYS[name].of(data)
    plain, seeds = NeighborLoader(path, **options), torch.arange(20) if data == "plain" else ("paper", torch.arange(20))
    times = (seeds * 10,) if "input_time" in options else ()
    with FactoredLoader(path, num_samplers=1, plan=plan, **options) as loader:
        assert [digests(loader), digests(loader)] == [digests(plain), digests(plain)]
        assert digests(loader.beside(seeds, *times)) == digests(plain.beside(seeds, *times))


@each_that(lambda way: "pad" not in way.refuses)
def test_padded_batches(way):
    for plain, padded in zip(way.load(DATA), way.load(DATA, pad=True), strict=True):
        assert torch.equal(padded.n_id[padded.pad_node_mask].sort().values, plain.n_id.sort().values)
        assert penstock.digest(without_padding(padded)) == penstock.digest(plain)


@each_way
def test_links(way):
    """Labels are those of any way, and edges that are links of the batch are left out."""
    options = dict(batch_size=100, neg_sampling="binary", seed=1) | way.of("links")
    plain = LinkNeighborLoader(DATA, [3, 2], batch_size=100, neg_sampling="binary", seed=1)
    kept, left = (list(LinkNeighborLoader(DATA, **options, exclude_links=which)) for which in (None, "self"))
    for alone, one, other in zip(plain, kept, left, strict=True):
        assert torch.equal(one.edge_label, alone.edge_label)
        assert torch.equal(one.input_id, alone.input_id)
        assert one.num_edges == other.num_edges + other.num_excluded_edges
        assert torch.equal(one.n_id, other.n_id)
    assert sum(batch.num_excluded_edges for batch in left) > 0
    assert digests(LinkNeighborLoader(DATA, **options, exclude_links="self", num_workers=2)) == digests(left)


@each_that(lambda way: way.trains)
def test_training(way, tmp_path):
    """As `penstock train` does it: other weights than without, the same again."""
    data = make_data()
    data.edge_weight = torch.linspace(0, 1, data.num_edges)
    path = ingest(data, tmp_path / "store").path
    settings = dict(store=str(path), num_neighbors=(3, 2), batch_size=32, epochs=1)
    configs = [TrainConfig(**settings | changes) for changes in ({}, way.trains, way.trains)]
    alone, sampled, again = (train(config, tmp_path / f"run-{number}").weights_digest for number, config in enumerate(configs))
    assert alone != sampled == again
