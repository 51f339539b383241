"""A model over all neighbours by several processes: the rows that one computes. Processes are played by threads."""

import copy

import numpy as np
import pytest
import torch

import penstock
from penstock.inference.needed import find_needed
from penstock.inference.shelves import MemoryShelf
from penstock.inference.steps import num_rows, run
from penstock.partition.book import make_book
from penstock.plan import Plan
from penstock.store import Store
from penstock.train import TrainConfig
from penstock.train.data import TrainingData, read_training_data
from penstock.train.division import Division
from penstock.train.inference import source_of, steps_of
from penstock.train.shared_layers import SharedLayers
from tests.partitions import together
from tests.ranks import Meeting, Threads
from tests.train.stores import make_bare_store, make_store, make_typed_data, make_typed_store


def make_store_with_a_void(path):
    """A type without nodes, and features."""
    data = make_typed_data()
    data["void"].num_nodes = 0
    data["void", "fills", "paper"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    return penstock.ingest(data, path)


STORES = {"plain": make_store, "bare": make_bare_store, "typed": make_typed_store, "void": make_store_with_a_void}
KINDS = [
    ("void", "rgcn"),
    ("void", "hgt"),
    ("plain", "gcn"),
    ("plain", "gat"),
    ("bare", "sage"),
    ("bare", "gin"),
    ("typed", "rgcn"),
    ("typed", "hgt"),
]


def with_shares(data, config, whole, division, number):
    """The model of a process: that of one alone, with its share of what nodes learn."""
    nodes = {t: division[t].nodes_of(number) for t in data.without_features}
    model = data.make_model(config, nodes).eval()
    weights = copy.deepcopy(whole.state_dict())
    names = {id(weight): name for name, weight in model.named_parameters()}
    for t, its_nodes in nodes.items():
        name = names[id(model.table(t).weight)]
        weights[name] = weights[name][torch.from_numpy(its_nodes)]
    model.load_state_dict(weights)
    return model


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize(("of", "kind"), KINDS)
def test_rows_are_those_of_one(of, kind, in_file, tmp_path, monkeypatch):
    random = np.random.default_rng()
    num_ranks = int(random.integers(2, 5))
    monkeypatch.setattr("penstock.inference.steps.BATCH_BYTES", int(random.integers(1, 1 << 16)))
    if in_file:
        monkeypatch.setattr("penstock.inference.shelves.MEMORY_BYTES", 0)
    STORES[of](tmp_path / "store")
    config = TrainConfig(store=str(tmp_path / "store"), num_neighbors=(3, 3), hidden=8, model=kind, heads=2, num_workers=0)
    data = read_training_data(Store.open(config.store), config)
    whole = data.make_model(config).eval()
    counts = data.graph.num_nodes
    owners = {t: random.integers(0, num_ranks - 1, count) for t, count in counts.items()}  # one has nothing
    divisions = {t: Division(counts[t], random.permutation(num_ranks).tolist(), make_book(each, num_ranks)) for t, each in owners.items()}
    monkeypatch.setattr(TrainingData, "divide", lambda data, ranks: divisions)
    nodes = random.permutation(counts[data.target])[: random.integers(1, 200)]
    nodes = nodes[owners[data.target][nodes] == 0] if random.random() < 0.5 else nodes  # or only one has some that are wanted
    nodes = nodes if nodes.size else np.array([7])
    with torch.no_grad():
        steps = steps_of(whole, data.graph, data.prepare)
        source = source_of(whole, data)
        expected = run(source, steps, find_needed(source, steps, (data.target, nodes)), MemoryShelf())
    meeting, done = Meeting(num_ranks), np.zeros(num_ranks, int)

    def work(number):
        def advance(count):
            done[number] += count

        ranks = Threads(number, num_ranks, meeting)
        model = with_shares(data, config, whole, data.divide(ranks), number)
        layers = SharedLayers(
            model, data, ranks, torch.device("cpu"), plan=Plan(), num_workers=number % 2, folder=tmp_path, advance=advance
        )
        with torch.no_grad():
            return layers.run(steps_of(model, data.graph, data.prepare), nodes)

    for rows in together(num_ranks, work):
        np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)
    assert done.sum() == num_rows(data.graph, steps, nodes.size)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
