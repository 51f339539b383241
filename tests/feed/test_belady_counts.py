"""Belady inside training keeps its promise to the row: what is missed, tier by tier and epoch by epoch, is what the simulator says."""

from functools import partial

import numpy as np
import pytest

import penstock
from penstock.cache import Belady, degree_hotness
from penstock.cache.belady import NUM_CLASSES, hotness_classes
from penstock.cache.expected import expected_visits
from penstock.cache.inclusion import inclusion_probability
from penstock.cache.presample import presample_visits, reads_again, sample_batches
from penstock.cache.simulate import simulate
from penstock.order import RandomOrder
from penstock.plan import Plan
from penstock.records import NODE
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import NodeSeeds
from penstock.store import ingest
from penstock.train import TrainConfig, train
from tests.feed.inputs import typed_data
from tests.train.stores import make_store

FANOUTS, BATCH_SIZE, SEED, EPOCHS = [4, 3], 16, 5, 3
BENEATH = {"disk": "disk", "given": "mmap", "memory": "host"}
"""What the tier beneath the cache is called."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("belady")
    return {"plain": make_store(folder / "plain"), "typed": ingest(typed_data(), folder / "typed", memory="4GiB")}


def new_policy(visits, capacity, window):
    """As a loader begins: with the rows visited most."""
    policy = Belady(visits.size, capacity, window, hotness_classes(visits, NUM_CLASSES))
    policy.fill(np.lexsort((np.arange(visits.size), -visits))[: min(capacity, np.count_nonzero(visits))])
    return policy


def hotness_of(graph, node_type, workload, presample_batches=None, *, by_inclusion=True):
    """Visits that a loader without a budget expects."""
    sampler = NeighborSampler(graph, FANOUTS, seed=SEED)
    seeds = NodeSeeds(workload["seed_type"], workload["seeds"])
    batches = SampledBatches(sampler, seeds, workload["order"], workload["batch_size"])
    visits = presample_visits(batches, max_batches=presample_batches).nodes[node_type]
    inclusion = inclusion_probability(sampler, workload["seed_type"], workload["seeds"], batch_size=BATCH_SIZE)[node_type]
    likely = inclusion.astype(np.float32) if by_inclusion else None
    again = reads_again(batches)[node_type] if presample_batches is None else 0.0
    return expected_visits(visits, degree_hotness(graph, node_type), likely, again=again)


def promised(store, node_type, seed_type, capacity, window, presample_batches=None, **how):
    """Per epoch (hits, rows asked for), by the simulator: over a sampler, an order and a policy of its own, none of them the loader's.

    The window ends with the epoch, as the loader's: the simulator is asked epoch by epoch. The content stays from one to the next.
    """
    graph, seeds = store.graph(), store.split("train", None, seed_type)
    sampler, order = NeighborSampler(graph, FANOUTS, seed=SEED), RandomOrder(seeds.size, SEED)
    workload = dict(seed_type=seed_type, seeds=seeds, order=order, batch_size=BATCH_SIZE)
    policy = new_policy(hotness_of(graph, node_type, workload, presample_batches, **how), capacity, window)
    for epoch in range(EPOCHS):
        batches = (nodes[node_type] for nodes in sample_batches(sampler, epochs=[epoch], **workload))
        hits, asked = simulate(policy, batches)
        yield int(hits.sum()), int(asked.sum())


def counted(records, node_type, features):
    """The same as a run counted it: (rows from the cache, rows from all tiers) per epoch; and that no other tier was asked."""
    label = "" if node_type == NODE else f"{node_type} "
    for tiers in records:
        mine = {name.removeprefix(label): counts["num_rows"] for name, counts in tiers.items() if name.startswith(label)}
        assert set(mine) == {"cache", BENEATH[features]}
        yield mine["cache"], mine["cache"] + mine[BENEATH[features]]


def rows_asked(loader):
    """Tier -> rows it was asked for so far."""
    return {name: counts["num_rows"] for name, counts in loader.stats().tiers.items()}


def epochs_of(loader):
    """What each tier was asked for, epoch by epoch; what the cache begins with does not count."""
    before = rows_asked(loader)
    for _ in range(EPOCHS):
        for _batch in loader:
            pass
        now = rows_asked(loader)
        yield {name: {"num_rows": count - before[name]} for name, count in now.items()}
        before = now


@pytest.mark.parametrize("features", BENEATH)
@pytest.mark.parametrize("num_workers", [0, 1, 2, 4])
def test_a_training_misses_what_the_simulator_says(num_workers, features, stores, tmp_path):
    store = stores["plain"]
    config = TrainConfig(
        store=str(store.path), num_neighbors=tuple(FANOUTS), batch_size=BATCH_SIZE, hidden=8, epochs=EPOCHS, seed=SEED, torch_threads=1,
        num_workers=num_workers, features=features, policy="belady", cache="60 rows", window=4, eval_every=EPOCHS,
    )  # fmt: skip
    result = train(config, tmp_path)
    expected = list(promised(store, NODE, NODE, 60, 4))
    assert list(counted([record.tiers for record in result.history], NODE, features)) == expected
    assert 0 < expected[-1][0] < expected[-1][1]


@pytest.mark.parametrize(("capacity", "window"), [(0, 3), (1, 1), (60, 1), (60, 7), (60, 100), (250, 3), (400, 2)])
@pytest.mark.parametrize("features", ["disk", "given"])
def test_any_window_and_capacity(capacity, window, features, stores):
    plan = Plan(features=features, policy="belady", cache=f"{capacity} rows", window=window)
    options = dict(input_nodes="train", batch_size=BATCH_SIZE, shuffle=True, seed=SEED, num_workers=2)
    loader = penstock.NeighborLoader(stores["plain"], FANOUTS, plan=plan, **options)
    assert list(counted(epochs_of(loader), NODE, features)) == list(promised(stores["plain"], NODE, NODE, capacity, window))


@pytest.mark.parametrize("presample_batches", [1, 3])
def test_what_few_batches_say(presample_batches, stores):
    """Hotness is by expected visits then."""
    store, plan = stores["plain"], Plan(features="disk", policy="belady", cache="60 rows", window=4, presample_batches=presample_batches)
    options = dict(input_nodes="train", batch_size=BATCH_SIZE, shuffle=True, seed=SEED, num_workers=2)
    loader = penstock.NeighborLoader(store, FANOUTS, plan=plan, **options)
    assert list(counted(epochs_of(loader), NODE, "disk")) == list(promised(store, NODE, NODE, 60, 4, presample_batches))


@pytest.mark.parametrize("num_workers", [0, 3])
def test_typed_graphs_and_lists_from_the_disk(num_workers, stores):
    store = stores["typed"]
    plan = Plan(
        features="disk", topology="disk", policy="belady", cache="20%", window=5, neighbor_policy="ratio", neighbor_cache="20%"
    )  # fmt: skip
    options = dict(input_nodes=("paper", "train"), batch_size=BATCH_SIZE, shuffle=True, seed=SEED, num_workers=num_workers)
    epochs = list(epochs_of(penstock.NeighborLoader(store, FANOUTS, plan=plan, **options)))
    for node_type, capacity in (("paper", 100), ("author", 12)):
        promise = list(promised(store, node_type, "paper", capacity, 5, by_inclusion=False))  # lists on a disk are not read for it
        assert list(counted(epochs, node_type, "disk")) == promise
        assert promise[-1][0] > 0


def test_a_resumed_loader_begins_as_a_new_one(stores):
    """The rest of the epoch is counted as the simulator does from there on, with a policy that has seen nothing yet."""
    store, done = stores["plain"], 5
    options = dict(input_nodes="train", batch_size=BATCH_SIZE, shuffle=True, seed=SEED, num_workers=2)
    make = partial(
        penstock.NeighborLoader, store, FANOUTS, plan=Plan(features="disk", policy="belady", cache="60 rows", window=4), **options
    )
    first = make()
    for _, _batch in zip(range(done), first, strict=False):
        state = first.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    before = rows_asked(resumed)
    ids = [np.sort(batch.n_id.numpy()) for batch in resumed]
    counts = {name: count - before[name] for name, count in rows_asked(resumed).items()}
    sampler, seeds = NeighborSampler(store.graph(), FANOUTS, seed=SEED), store.split("train")
    workload = dict(seed_type=NODE, seeds=seeds, order=RandomOrder(seeds.size, SEED), batch_size=BATCH_SIZE)
    trace = list(sample_batches(sampler, epochs=[0], **workload))[done:]
    assert all(np.array_equal(np.sort(nodes[NODE]), mine) for nodes, mine in zip(trace, ids, strict=True))
    hits, asked = simulate(new_policy(hotness_of(store.graph(), NODE, workload), 60, 4), (nodes[NODE] for nodes in trace))
    assert (counts["cache"], counts["disk"]) == (hits.sum(), asked.sum() - hits.sum())
