"""Learnt rows of which each process of a training has a share, in a learner: checkpoints, evaluations, memory. Processes are played."""

from contextlib import nullcontext

import pytest
import torch
from tests.faults.ranked import SETTINGS
from tests.partitions import together
from tests.ranks import Meeting, Threads
from tests.refusals import refused
from tests.train.stores import make_bare_store, make_typed_data, make_typed_store

import penstock
from penstock.errors import PipelineError, StoreError, UsageError
from penstock.feed import NeighborLoader
from penstock.store import Store
from penstock.store.device_memory import DeviceMemory
from penstock.train import TrainConfig, train
from penstock.train.data import read_training_data
from penstock.train.division import Division
from penstock.train.learner import Learner
from penstock.train.ranks import Ranks
from penstock.train.rows import LearntRows
from penstock.train.shared_rows import SharedRows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Stores without features, and with some."""
    path = tmp_path_factory.mktemp("shares")
    make_bare_store(path / "bare")
    make_typed_store(path / "typed")
    return path


def bare_learners(folder, *ranks):
    """What is learnt from nodes without features, and learners of it, of these processes."""
    config = TrainConfig(store=str(folder / "bare"), **SETTINGS)
    data = read_training_data(Store.open(config.store), config)
    return data, [Learner(config, data, torch.device("cpu"), each) for each in ranks]


@pytest.mark.parametrize("damage", ["shape", "type", "gone", "none", "rows", "moments", "best"])
def test_a_checkpoint_whose_learnt_rows_are_of_another_model(damage, folder):
    data, (alone, shared) = bare_learners(folder, Ranks(), Ranks(1, 2))
    alone.step(0, NeighborLoader(data.source(), [4, 3], data.parts["train"], batch_size=32, seed=0)(range(32)), 0)
    state = {**alone.state(), "best": {"model": alone.weights()}}
    rows, moments = state["model"]["rows.weight"], state["rows"][0]
    if damage == "rows":
        del state["rows"]
    elif damage == "moments":
        del moments["exp_avg"]
    elif damage == "best":
        del state["best"]["model"]["rows.weight"]
    else:
        state["model"]["rows.weight"] = {"shape": rows[:200], "type": rows.double(), "gone": None, "none": 3}[damage]
    with pytest.raises(ValueError, match=r"(learnt rows are those|what Adam kept of learnt rows is) of another model"):
        shared.set_aside(state)


def test_what_is_set_aside_is_what_was_saved(folder):
    _, (alone, shared) = bare_learners(folder, Ranks(), Ranks(1, 2))
    state = {**alone.state(), "best": {"model": {}}}
    names = list(state["model"])
    (table,) = shared.set_aside(state)
    assert torch.equal(table, alone.model.rows.weight)
    assert list(state["model"]) == names
    assert state["model"]["rows.weight"] is None


def test_a_process_takes_memory_for_its_share(folder, monkeypatch):
    monkeypatch.setattr("penstock.train.data.MAX_EMBEDDING_BYTES", 12 * 16 * 200)
    bare_learners(folder, Ranks(1, 2))
    refused(UsageError, bare_learners, folder, Ranks())


WHOLE = 4 * 400 * 16
"""Bytes of the table."""


@pytest.mark.parametrize(
    ("num_rows", "room", "on_device", "is_read"),
    [
        (800, 1 << 20, 1 << 20, True),
        (799, 1 << 20, 1 << 20, False),
        (800, WHOLE, 2 * WHOLE, True),
        (800, WHOLE - 1, 1 << 20, False),
        (800, 1 << 20, 2 * WHOLE - 1, False),
    ],
)
def test_a_table_is_read_whole_where_as_many_rows_would_be_read(num_rows, room, on_device, is_read, folder, monkeypatch):
    """And where the host has room for it, and the device on which it would lie."""
    monkeypatch.setattr("penstock.inference.shelves.MEMORY_BYTES", room)
    memory = DeviceMemory(1 << 30, on_device, 0)
    monkeypatch.setattr("penstock.train.learner.look_at_device_memory", lambda device: memory)
    meeting = Meeting(2)
    _, learners = bare_learners(folder, *(Threads(number, 2, meeting) for number in range(2)))

    def work(number):
        learner = learners[number]
        with learner.reading(num_rows):
            read = {t: rows.clone() for t, rows in learner._whole.items()}
        assert not learner._whole
        return read

    for read in together(2, work):
        assert [tuple(rows.shape) for rows in read.values()] == [(400, 16)] * is_read


def test_no_room_for_a_table_that_is_collected(tmp_path, monkeypatch):
    """Is said by all before anything is sent."""
    monkeypatch.setattr("penstock.train.shared_rows._COLLECTED_BYTES", 0)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    meeting, division = Meeting(2), Division(9, [0, 1])

    def collect(number):
        table = LearntRows(9, 3, division.nodes_of(number))
        shared_rows = SharedRows(table, division, Threads(number, 2, meeting))
        refused(PipelineError if number else StoreError, shared_rows.collect, table.weight.detach(), tmp_path)

    together(2, collect)


@pytest.mark.parametrize(
    ("settings", "of_a_node"),
    [({}, 1 + 4 + 12), ({"num_neighbors": (4, -1)}, 1 + 4 + (4 << 20)), ({"layer_wise": True}, 1 + 7 / 32), ({"host_memory": "3GiB"}, 0)],
    ids=str,
)
def test_rows_that_an_evaluation_reads_are_foretold(settings, of_a_node, folder, tmp_path, monkeypatch):
    told = []

    def reading(learner, num_rows):
        told.append(num_rows)
        return nullcontext()

    monkeypatch.setattr(Learner, "reading", reading)
    config = TrainConfig(store=str(folder / "bare"), **SETTINGS | {"evaluation": "sampled", "epochs": 1} | settings)
    train(config, tmp_path / "run")
    assert told == [int(200 * of_a_node)]


@pytest.mark.parametrize("name", ["bare", "typed", "tiny"])
def test_a_step_that_is_tried_is_of_one_alone(name, folder, tmp_path):
    """Also of one that has no row of a type."""
    if name == "tiny":
        data = make_typed_data()
        data["venue"].num_nodes = 1
        data["venue", "prints", "paper"].edge_index[0] = 0
        penstock.ingest(data, tmp_path / "tiny")
    config = TrainConfig(store=str((tmp_path if name == "tiny" else folder) / name), **SETTINGS)
    data = read_training_data(Store.open(config.store), config)
    learner = Learner(config, data, torch.device("cpu"), Ranks(1, 2))
    before = learner.weights()
    seeds = data.parts["train"] if name == "bare" else (data.target, data.parts["train"])
    learner.step_on_a_copy()(NeighborLoader(data.source(), [4, 3], seeds, batch_size=32, seed=0)(range(32)))
    assert all((before[name] == now).all() for name, now in learner.weights().items())
