"""Labels of a partition: the task that they make is that of the store, whoever has which, and whichever of them are in a split."""

import numpy as np
import pytest
import torch

from penstock.errors import InputError
from penstock.exchange import join
from penstock.store import ingest
from penstock.train import TrainConfig
from penstock.train.data import read_training_data, what_is_learnt
from penstock.train.parts import PartsStore
from tests.partitions import cut, free_addresses, together
from tests.ranks import Meeting, Threads
from tests.train.stores import make_data, make_typed_data

NUM_PARTS = 2


def of_parts(path, config):
    """What each process of a partition reads."""
    addresses, meeting = free_addresses(NUM_PARTS), Meeting(NUM_PARTS)

    def read(rank):
        with join(path, addresses=addresses, rank=rank) as graph:
            ranks = Threads(rank, NUM_PARTS, meeting)
            parts = PartsStore(path, graph, ranks, config.split)
            ranks.together(lambda: parts.read_labels(config, *what_is_learnt(parts, config)))
            return read_training_data(parts, config)

    return together(NUM_PARTS, read)


def labels_with(form):
    """Classes of 400 nodes; the last one, which is in no split, says something that no other does."""
    labels = torch.arange(400) % 4
    labels[-1] = 6
    if form == "halves":
        return labels.float().index_put((torch.tensor([399]),), torch.tensor(0.5))
    if form == "missing":
        return torch.where(torch.arange(400) % 7 == 0, torch.nan, labels.double())
    return {"integers": labels, "floats": labels.float(), "bfloat16": labels.bfloat16(), "a column": labels[:, None]}[form]


@pytest.mark.parametrize("form", ["integers", "floats", "halves", "missing", "bfloat16", "a column"])
def test_the_task_is_that_of_the_store(form, tmp_path):
    data = make_data(labels=labels_with(form))
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name][-1] = False
    store = ingest(data, tmp_path / "store")
    owners = {t: (np.arange(count) % 2).astype(np.int16) for t, count in store.num_nodes.items()}
    config = TrainConfig(store=str(store.path))
    expected = read_training_data(store, config)
    for found in of_parts(cut(store, tmp_path / "parts", NUM_PARTS, owners), config):
        assert found.task == expected.task
        for part, nodes in expected.parts.items():
            assert np.array_equal(found.parts[part], nodes)
            assert np.array_equal(found.labels_of(nodes), expected.labels_of(nodes))


def test_labels_that_are_no_classes(tmp_path):
    data = make_data(labels=labels_with("halves"))
    store = ingest(data, tmp_path / "store")
    cut(store, tmp_path / "parts", NUM_PARTS, {"node": (np.arange(400) < 200).astype(np.int16)})
    config = TrainConfig(store="", metric="accuracy")
    with pytest.raises(InputError, match=r"must be classes, .*; node 399 has 0.5"):
        read_training_data(store, config)
    with pytest.raises(InputError, match=r"must be classes, .*; a node has 0.5"):
        of_parts(tmp_path / "parts", config)


def test_labels_of_other_types_are_not_looked_at(tmp_path):
    data = make_typed_data()
    data["author"].y = torch.rand(data["author"].num_nodes)
    data["author"].train_mask = torch.ones(data["author"].num_nodes, dtype=torch.bool)
    store = ingest(data, tmp_path / "store")
    config = TrainConfig(store=str(store.path), target="paper", metric="accuracy")
    expected = read_training_data(store, config)
    for found in of_parts(cut(store, tmp_path / "parts", NUM_PARTS), config):
        assert found.task == expected.task
