"""Bad input, tried as a new user would: the table of docs/errors.md, row by row.

Each command ends with one line on standard error that says what is wrong and what to do, and exit code 2; each call of the library with
an exception whose message is that line. Nothing that was there before is lost.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock.cli import run
from penstock.errors import BudgetError, NotSupportedError, UsageError
from penstock.feed import NeighborLoader, drawing
from penstock.kernels import _triton
from penstock.plan import make_plan
from penstock.store import Store, ingest
from penstock.store.device_memory import DeviceMemory
from tests.feed.inputs import typed_data
from tests.train.stores import make_data, make_store

TABLE = Path(__file__).parents[3] / "docs" / "errors.md"
TRAIN = ("--num-neighbors", "3,2", "--batch-size", "32", "--epochs", "1", "--num-workers", "0")


def call(capfd, *arguments):
    """Run a command; returns (exit code, standard error without progress)."""
    code = run([str(argument) for argument in arguments])
    _, error = capfd.readouterr()
    return code, error


def said(capfd, *arguments):
    """The one line that a refused command ends with; every other line is progress."""
    code, error = call(capfd, *arguments)
    assert code == 2, error
    lines = [line for line in error.splitlines() if line.startswith("penstock: ")]
    assert len(lines) == 1, error
    assert "Traceback" not in error
    assert_in_table(lines[0].removeprefix("penstock: "))
    return lines[0]


def assert_in_table(message):
    """Some row of the table, with ... for what varies, is this message."""
    rows = re.findall(r"\| `` (.+?) `` \|", TABLE.read_text())
    patterns = [".*".join(re.escape(part) for part in row.split("...")) for row in rows]
    assert any(re.search(pattern, message) for pattern in patterns), f"not in docs/errors.md: {message}"


def refused(error, function, *arguments, **options):
    """The message of an exception, which must be in the table too."""
    with pytest.raises(error) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert_in_table(str(caught.value))
    return str(caught.value)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("bad") / "store").path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Runs without --out go below the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", ["info", "check", "train"])
def test_wrong_path(command, tmp_path, capfd):
    assert "does not exist" in said(capfd, command, tmp_path / "nowhere")
    assert not list(tmp_path.iterdir()), "a refused command left something behind"


@pytest.mark.parametrize("command", ["info", "check", "train"])
def test_not_a_store(command, tmp_path, capfd):
    (tmp_path / "notes.txt").write_text("hello")
    assert "is a file" in said(capfd, command, tmp_path / "notes.txt")
    assert "has no manifest.json" in said(capfd, command, tmp_path)


def test_truncated_file(tmp_path, capfd):
    make_store(tmp_path / "store")
    indices = next((tmp_path / "store").rglob("indices.npy"))
    os.truncate(indices, 5000)
    line = said(capfd, "train", tmp_path / "store")
    assert "indices.npy is truncated: 5000 bytes, the manifest says" in line
    assert "put the file back or make the store again" in line


def test_unknown_options_and_commands(store, capfd):
    assert "No such option" in said(capfd, "train", store, "--colour", "blue")
    assert "No such command" in said(capfd, "dance")
    assert "--epochs" in said(capfd, "train", store, "--epochs", "many")
    assert "takes whole numbers" in said(capfd, "train", store, "--num-neighbors", "ten,five")
    assert "does not fit" in said(capfd, "train", store, "--num-neighbors", "5,5,5", "--layers", "2")


def test_a_source_that_is_not_there_or_nothing_we_know(tmp_path, capfd):
    assert "no such file" in said(capfd, "ingest", tmp_path / "edges.csv", tmp_path / "store")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    said(capfd, "ingest", tmp_path / "picture.png", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_kind_of_graph_without_what_it_needs(tmp_path, capfd):
    assert "'--num-nodes'" in said(capfd, "generate", "zipf", tmp_path / "store")
    assert "'--base'" in said(capfd, "generate", "kronecker", tmp_path / "store")


@pytest.mark.parametrize(
    ("columns", "fault"), [("a:zzz", "ends at 'zzz'"), ("q:b", "starts at 'q'"), ("b:9", "ends at '9'"), ("b:a", "backwards")]
)
def test_a_range_of_columns_with_a_wrong_end(columns, fault, tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst,a,b\n0,1,2,3\n")
    assert f"range '{columns}' for 'x' " in (line := said(capfd, "ingest", tmp_path / "edges.csv", "store", "--edge-field", f"x={columns}"))
    assert fault in line


def test_a_bad_cell_names_its_line(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst,w\n0,1,0.5\n1,x,0.5\n")
    assert "line 3" in said(capfd, "ingest", tmp_path / "edges.csv", tmp_path / "store", "--edge-field", "weight=w", "--ids", "int")


def test_a_destination_that_is_there(store, tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    before = sorted(path.name for path in store.iterdir())
    assert "is a store already" in said(capfd, "ingest", tmp_path / "edges.csv", store)
    assert sorted(path.name for path in store.iterdir()) == before
    assert Store.open(store).num_nodes["node"] == 400


def test_empty_graph(tmp_path):
    refused(penstock.errors.InputError, ingest, Data(x=torch.zeros(0, 3), edge_index=torch.zeros(2, 0, dtype=torch.int64)), tmp_path / "s")


def test_graph_without_edges_trains(tmp_path, capfd):
    data = make_data()
    data.edge_index = torch.zeros(2, 0, dtype=torch.int64)
    ingest(data, tmp_path / "store")
    for model in ("sage", "gcn", "gat", "gin"):
        code, error = call(capfd, "train", tmp_path / "store", "--out", tmp_path / model, "--model", model, *TRAIN)
        assert code == 0, error


def test_nodes_without_neighbours_and_isolated_seeds_train(tmp_path, capfd):
    data = make_data()
    data.edge_index = data.edge_index[:, (data.edge_index < 300).all(dim=0)]  # the last hundred nodes stand alone
    ingest(data, tmp_path / "store")
    code, error = call(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", *TRAIN)
    assert code == 0, error
    alone = NeighborLoader(Store.open(tmp_path / "store"), [3], input_nodes=torch.tensor([399]), batch_size=4)
    assert next(iter(alone)).edge_index.shape == (2, 0)


@pytest.mark.parametrize(
    ("seeds", "error"),
    [
        (torch.tensor([1, 400]), penstock.errors.NodeIdError),
        (torch.tensor([-1]), penstock.errors.NodeIdError),
        (torch.tensor([1.5]), penstock.errors.UsageError),
        (torch.tensor([[1, 2]]), penstock.errors.UsageError),
        (torch.empty(0, dtype=torch.int64), penstock.errors.UsageError),
        ("paper", penstock.errors.PenstockError),
    ],
    ids=str,
)
def test_seeds(seeds, error, store):
    refused(error, NeighborLoader, Store.open(store), [2], input_nodes=seeds)


def test_duplicated_seeds_and_batches_larger_than_the_set_are_fine(store):
    (batch,) = NeighborLoader(Store.open(store), [2], input_nodes=np.array([3, 3]), batch_size=1000)
    assert batch.n_id[:2].tolist() == [3, 3]


@pytest.mark.parametrize("fanouts", [[], [0], [3, 0], [-2], [1] * 17], ids=str)
def test_fanouts(fanouts, store):
    refused(penstock.errors.UsageError, NeighborLoader, Store.open(store), fanouts)


def test_fanouts_of_unequal_length():
    uneven = {edge_type: [2] * (1 + i) for i, edge_type in enumerate(typed_data().edge_types)}
    refused(penstock.errors.UsageError, NeighborLoader, typed_data(), uneven, input_nodes="paper")
    refused(penstock.errors.UsageError, NeighborLoader, typed_data(), {("a", "b", "c"): [1]}, input_nodes="paper")


def test_weights(store, tmp_path, capfd):
    data = make_data()
    data.edge_weight = torch.ones(data.edge_index.shape[1])
    for name, error in (("age", penstock.errors.MissingFieldError), ("edge_index", penstock.errors.MissingFieldError)):
        refused(error, NeighborLoader, data, [2], weight_attr=name)
    data.edge_weight[5] = -1
    refused(penstock.errors.InputError, NeighborLoader, data, [2], weight_attr="edge_weight")
    ingest(data, tmp_path / "negative", memory="4GiB")
    data.edge_weight = torch.ones(data.edge_index.shape[1], 2)
    refused(penstock.errors.InputError, NeighborLoader, data, [2], weight_attr="edge_weight")
    assert "to weigh them by; they have none" in said(capfd, "train", store, *TRAIN, "--weight", "age")
    assert "weight is -1 at edge" in said(capfd, "train", tmp_path / "negative", *TRAIN, "--weight", "weight")
    assert "weight is -1 at edge" in said(capfd, "study", "cache", tmp_path / "negative", "--weight", "edge_weight")
    by_inclusion = ("--weight", "weight", "--policy", "inclusion", "--batch-size", "32")
    ingest(data_with_weights(), tmp_path / "weighted", memory="4GiB")
    assert "take the policy presample" in said(capfd, "study", "cache", tmp_path / "weighted", *by_inclusion)


def data_with_weights():
    data = make_data()
    data.edge_weight = torch.ones(data.edge_index.shape[1])
    return data


@pytest.mark.parametrize("missing", ["x", "y", "train_mask"])
def test_missing_features_labels_and_splits(missing, tmp_path, capfd):
    data = make_data()
    delattr(data, missing)
    data.num_nodes = 400
    ingest(data, tmp_path / "store")
    said(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", *TRAIN)


def test_features_of_another_length(tmp_path):
    data = make_data()
    data.x = data.x[:399]
    data.num_nodes = 400
    refused(penstock.errors.InputError, ingest, data, tmp_path / "store")
    other = Data(num_nodes=5, edge_index=torch.tensor([[0], [1]]), x=torch.zeros(4, 2))
    refused(penstock.errors.InputError, NeighborLoader, other, [1])


def test_nan_features_and_nan_loss(tmp_path, capfd):
    data = make_data()
    data.x[17, 1] = float("nan")
    refused(penstock.errors.InputError, ingest, data, tmp_path / "store")
    ingest(data, tmp_path / "store", nan="allow")
    said(capfd, "train", tmp_path / "store", "--out", tmp_path / "run", *TRAIN)


def test_labels_out_of_range(tmp_path):
    data = make_data()
    data.y[5] = -7
    refused(penstock.errors.InputError, ingest, data, tmp_path / "store")


@pytest.mark.parametrize("num_workers", ["1000", "-1"])
def test_too_many_threads(num_workers, store, tmp_path, capfd):
    said(capfd, "train", store, "--out", tmp_path / "run", "--num-workers", num_workers)


def test_no_threads_is_fine(store, tmp_path, capfd):
    assert call(capfd, "train", store, "--out", tmp_path / "run", *TRAIN)[0] == 0


def test_a_run_that_is_there(store, tmp_path, capfd):
    assert call(capfd, "train", store, "--out", tmp_path / "run", *TRAIN)[0] == 0
    before = (tmp_path / "run" / "checkpoint.pt").read_bytes()
    said(capfd, "train", store, "--out", tmp_path / "run", *TRAIN)
    said(capfd, "train", store, "--out", tmp_path / "run", *TRAIN, "--resume", "--hidden", "7")
    assert (tmp_path / "run" / "checkpoint.pt").read_bytes() == before


def test_a_run_in_the_folder_of_a_store(store, capfd):
    before = sorted(path.name for path in store.iterdir())
    said(capfd, "train", store, *TRAIN, "--out", store)
    assert sorted(path.name for path in store.iterdir()) == before


def test_a_node_table_that_nothing_is_read_from(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    (tmp_path / "nodes.csv").write_text("name,age\n0,5\n1,6\n")
    said(capfd, "ingest", "edges.csv", "store", "--nodes", "nodes.csv")


def test_a_file_of_predictions_that_cannot_be(store, tmp_path, capfd):
    said(capfd, "train", store, *TRAIN, "--predictions", "classes.txt")
    said(capfd, "train", store, *TRAIN, "--predictions", "nowhere/classes.csv")
    assert not list(tmp_path.iterdir())


def test_a_second_run_gets_a_folder_of_its_own(store, tmp_path, capfd):
    for arguments, epochs in ((), [1]), ((), [1, 1]), (("--resume", "--epochs", "2", "--predictions", "classes.csv"), [1, 2]):
        assert call(capfd, "train", store, *TRAIN, *arguments)[0] == 0
        reports = [json.loads((tmp_path / "runs" / f"store-{i + 1}" / "report.json").read_text()) for i in range(len(epochs))]
        assert [report["epochs"] for report in reports] == epochs
    assert (tmp_path / "classes.csv").read_text().startswith("id,class\n0,")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 200 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)], capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_disk_full(store, small_disk, tmp_path, capfd):
    said(capfd, "ingest", tmp_path.parent / "nothing.csv", small_disk / "store")
    (tmp_path / "edges.csv").write_text("src,dst\n" + "".join(f"{i},{i + 1}\n" for i in range(60_000)))
    said(capfd, "ingest", tmp_path / "edges.csv", small_disk / "store")
    assert not (small_disk / "store").exists()
    code, _ = call(capfd, "train", store, "--out", small_disk / "run", *TRAIN, "--hidden", "8")
    assert code == 0
    before = (small_disk / "run" / "checkpoint.pt").read_bytes()
    (small_disk / "filler").write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize))
    said(capfd, "train", store, "--out", small_disk / "run", *TRAIN, "--hidden", "8", "--resume", "--epochs", "2")
    assert (small_disk / "run" / "checkpoint.pt").read_bytes() == before


@pytest.fixture
def read_only(tmp_path):
    """A file system that cannot be written."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], capture_output=True, check=False).returncode:
        pytest.skip("mounting a read-only file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_read_only_folder(store, read_only, tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    said(capfd, "ingest", tmp_path / "edges.csv", read_only / "store")
    said(capfd, "train", store, "--out", read_only / "run", *TRAIN)


def test_no_place_for_compiled_kernels(read_only):
    code = "from penstock.order import RandomOrder; print(sorted(RandomOrder(5, 0).batch(0, 0, 5).tolist()))"
    environment = {**os.environ, "PENSTOCK_CACHE_DIR": str(read_only / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[0, 1, 2, 3, 4]"
    assert_in_table(done.stderr.strip())


def test_two_processes_at_one_place(store, tmp_path, capfd):
    from penstock.train.folder import lock_folder

    with lock_folder(tmp_path / "run"):
        said(capfd, "train", store, "--out", tmp_path / "run", *TRAIN)
    left, right = Store.open(store), Store.open(store)  # opening is for any number of readers
    assert left.num_nodes == right.num_nodes


def test_two_ingestions_at_one_place(tmp_path, capfd):
    from penstock.store.writer import StoreWriter

    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    with StoreWriter(tmp_path / "store"):
        said(capfd, "ingest", tmp_path / "edges.csv", tmp_path / "store")


def test_memory_that_does_not_suffice(tmp_path, capfd):
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    assert "MiB" in said(capfd, "ingest", tmp_path / "edges.csv", tmp_path / "store", "--memory", "1MiB")
    said(capfd, "ingest", tmp_path / "edges.csv", tmp_path / "store", "--memory", "plenty")


def test_layouts_that_cannot_be(tmp_path, store, capfd):
    said(capfd, "layout", store, "--memory", "1MiB")
    said(capfd, "layout", store, "--field", "colour")
    said(capfd, "layout", store, "--by", "alphabet")
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    ingest(tmp_path / "edges.csv", tmp_path / "bare", memory="4GiB")
    said(capfd, "layout", tmp_path / "bare", "--train-fraction", "0.5")
    assert sorted(path.name for path in (store / "nodes" / "node").glob("*packed*")) == []


def test_json_says_the_same(tmp_path, capfd):
    assert run(["info", str(tmp_path / "nowhere"), "--json"]) == 2
    out, _ = capfd.readouterr()
    assert json.loads(out)["error"]["exit_code"] == 2


def test_the_table_names_tests_that_exist():
    named = set(re.findall(r"`(test_\w+)`", TABLE.read_text()))
    faults = "\n".join(path.read_text() for path in (Path(__file__).parents[2] / "faults").glob("test_train_*.py"))
    assert named <= set(globals()) | set(re.findall(r"^def (test_\w+)", faults, flags=re.MULTILINE))


def test_plans(store, capfd):
    def train(*options):
        return said(capfd, "train", store, *TRAIN, *options)

    assert "--recipe must be one of pyg" in train("--recipe", "cake")
    assert "--neighbor-layout must be one of direct, prefix" in train("--neighbor-layout", "tree")
    assert "got 'fifo'" in train("--neighbor-policy", "fifo")
    assert "--neighbor-cache 5 rows" in train("--neighbor-policy", "ratio", "--neighbor-cache", "5 rows")
    assert "more than all lists" in train("--neighbor-policy", "ratio", "--neighbor-cache", "101%")
    assert "choose one of random" in train("--neighbor-cache", "10%")
    assert "it needs --policy" in train("--neighbor-cache", "shared", "--neighbor-policy", "ratio")
    assert "leave --device-policy fifo out" in train("--recipe", "ducati", "--device-policy", "fifo")
    assert "--cache 9 rows counts" in train("--recipe", "ducati", "--cache", "9 rows")
    assert "for lists of 400 nodes" in train("--neighbor-policy", "ratio", "--neighbor-cache", "1KiB")
    assert "rows and lists alone" in train("--recipe", "ducati", "--cache", "1KiB")
    assert "'fast' of --slow-topology" in train("--slow-topology", "fast")
    assert "there is none" in train("--slow-topology", "same")
    assert "a block" in train("--slow-topology", "1GB/s,4 rows,4KiB blocks")
    assert "iB process" in train("--host-memory", "64MiB")
    assert "--host-memory decides --window" in train("--host-memory", "4GiB", "--window", "3")
    assert "--evaluation must be one of" in train("--evaluation", "never")
    assert "--hold must be one of" in train("--hold", "all")


def test_devices(store, monkeypatch):
    def load(**options):
        return refused(UsageError, NeighborLoader, store, [2], "train", **options)

    assert "got 'gpu'" in load(device="gpu")
    assert "'mps'" in load(device="mps")
    assert "give device='cuda'" in load(plan=penstock.Plan(device_policy="fifo"))
    shared = make_plan("ducati", host_memory="4GiB")
    assert "divides memory of the device" in refused(NotSupportedError, NeighborLoader, store, [2], "train", plan=shared, device="cuda")
    small = make_plan("gnnlab", host_memory="64MiB")
    assert "in memory (features='disk')" in refused(BudgetError, NeighborLoader, store, [2], "train", plan=small, device="cuda")
    assert "device_policy alone" in load(plan=penstock.Plan(policy="fifo", device_policy="fifo", device_cache="9 rows"), device="cuda")
    assert "and there is none" in refused(UsageError, penstock.Plan, device_policy="same")
    assert "looks ahead, and" in refused(UsageError, penstock.Plan, policy="belady", device_policy="fifo", device_cache="9 rows")
    assert "first batch on" in refused(UsageError, penstock.Plan, policy="degree", device_policy="degree")
    assert "choose one of random" in refused(UsageError, penstock.Plan, device_cache="10%")
    assert "give device_cache" in refused(UsageError, penstock.Plan, device_policy="belady")
    assert "pinned, host; got 'far'" in refused(UsageError, penstock.Plan, device_topology="far")
    on_device = penstock.Plan(device_topology="device")
    assert "neighbour lists read by a device" in load(plan=on_device)
    assert "disjoint=True is done" in load(plan=on_device, device="cuda", disjoint=True)
    assert "leave neighbor_policy out" in load(plan=replace(on_device, neighbor_policy="ratio"), device="cuda")
    monkeypatch.setattr(drawing, "look_at_device_memory", lambda device: DeviceMemory(1 << 20, 1 << 10, 0))
    assert "1 KiB that cpu has free" in load(plan=on_device, device="cuda")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert torch.__version__ in load(device="cuda")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "torch finds none" in load(device="cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert "has 1 of them" in load(device="cuda:1")
    monkeypatch.setattr(_triton, "is_installed", lambda: False)
    assert "pip install" in load(device="cuda")


def test_studies(tmp_path, capfd):
    ingest(Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3), tmp_path / "bare")
    bare = ("study", "cache", tmp_path / "bare", "--train-fraction", "1")
    assert "has no split" in said(capfd, *bare[:3])
    assert "got 'arc'" in said(capfd, *bare, "--policy", "degree,arc")
    assert "got 'sorted'" in said(capfd, *bare, "--order", "sorted")
    assert "--capacity a lot" in said(capfd, *bare, "--capacity", "10%,a lot")
    assert "--row-bytes" in said(capfd, *bare, "--capacity", "1KiB")
    assert "'0,4'" in said(capfd, *bare, "--window", "0,4")
    assert "got 1.5" in said(capfd, *bare[:4], "1.5")
    (tmp_path / "file").touch()
    assert "choose another --out" in said(capfd, *bare, "--out", tmp_path / "file" / "out")
