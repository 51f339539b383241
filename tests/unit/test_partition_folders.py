"""Partitions as they lie on the disk: what is written whatever the blocks it is read in, what a check finds, what is said of them."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
import xxhash
from torch_geometric.data import Data

import penstock
from penstock.cli import run
from penstock.errors import CorruptStoreError, UsageError
from penstock.kernels.find_lists import cpu, reference
from penstock.partition import Part, describe_partition, partition_store, writer
from penstock.partition import run as partition_run
from penstock.partition.checking import check_partition
from penstock.records import EDGE, NODE
from penstock.store.progress import Quiet
from penstock.store.sealed import seal
from tests.feed.inputs import homogeneous_data
from tests.partitions import cut


def data_with_hubs():
    """Most edges lead to two nodes, whose lists are longer than blocks are here; between them are nodes without any."""
    data = homogeneous_data(40, 500)
    data.edge_index[1] = torch.where(torch.arange(500) % 5 > 0, 7 + 20 * (torch.arange(500) % 2), data.edge_index[1])
    data.edge_attr[:, 1] = data.edge_index[1]
    return data


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "store"
    penstock.ingest(data_with_hubs(), path)
    return penstock.open(path)


@pytest.fixture
def parts(store, tmp_path):
    return cut(store, tmp_path / "parts", 3)


@pytest.mark.parametrize("block_bytes", [8, 72, 1 << 20])
def test_each_part_has_the_rows_and_lists_of_its_nodes(block_bytes, store, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", block_bytes)
    owners = np.random.default_rng(0).integers(0, 3, 40).astype(np.int16)
    owners[owners == 1] = 2  # one has nothing
    cut(store, tmp_path / "parts", 3, {NODE: owners})
    indptr, indices = store.csc(EDGE).indptr, store.csc(EDGE).indices
    entry, edges = store.node_entry(NODE), store.manifest.edges[EDGE]
    numbers = store.map(edges.edge_id)
    for number in range(3):
        part, nodes = Part(tmp_path / "parts", number), np.flatnonzero(owners == number)
        of_nodes, of_edges = part.manifest.nodes[NODE], part.manifest.edges[EDGE]
        assert (part.books[NODE].owners(np.arange(40)) == owners).all()
        for name, spec in entry.fields.items():
            assert (part.map(of_nodes.fields[name]) == store.map(spec)[nodes]).all()
            assert of_nodes.fields[name].properties == spec.properties
        places = np.concatenate([np.arange(indptr[v], indptr[v + 1]) for v in nodes]) if nodes.size else np.empty(0, np.int64)
        assert (part.map(of_edges.indices) == indices[places]).all()
        assert (part.map(of_edges.edge_id) == numbers[places]).all()
        for name, spec in edges.fields.items():
            assert (part.map(of_edges.fields[name]) == store.map(spec)[places]).all()
        assert (part.map(of_edges.list_ptr) == np.cumsum([0, *np.diff(indptr)[nodes]])).all()
        assert (part.map(of_edges.indptr) == indptr).all()
        assert (part.map(of_nodes.out_degrees) == np.bincount(indices, minlength=40)).all()
        assert (part.split("train", None, None) == store.split("train")).all()
    assert check_partition(tmp_path / "parts", deep=True).is_ok


@pytest.mark.parametrize("block_bytes", [8, 1 << 20])
def test_each_part_has_all_links_that_were_held_out(block_bytes, store, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", block_bytes)
    penstock.hold_out(store, tmp_path / "store", val=0.1, test=0.2)
    held = penstock.open(tmp_path / "store")
    cut(held, tmp_path / "parts", 3)
    for number in range(3):
        part = Part(tmp_path / "parts", number)
        assert part.link_parts() == ["val", "test"]
        assert part.held_out == held.held_out
        for name in ("val", "test"):
            assert np.array_equal(part.links(name), held.links(name))
            assert set(part.link_fields(name)) == {"src", "dst", "edge_id", *store.edge_fields()}
            for field, spec in held.link_fields(name).items():
                assert np.array_equal(part.link_field(field, name), held.link_field(field, name))
                assert part.link_fields(name)[field].properties == spec.properties
    assert check_partition(tmp_path / "parts", deep=True).is_ok
    file = tmp_path / "parts" / "part-1" / part.link_fields("test")["dst"].file
    values = np.fromfile(file, np.uint8)
    values[4096 + 1] = 0xFF  # the second byte of the first target
    values.tofile(file)
    messages = [finding.message for finding in check_partition(tmp_path / "parts", deep=True).findings]
    assert len(messages) == 2
    assert "checksum" in messages[0]
    assert "which is not in [0, 39]" in messages[1]


def test_parts_of_before_links_are_of_another_partition(store, tmp_path):
    """Else a process without links would learn something else than the others."""
    penstock.hold_out(store, tmp_path / "store")
    held = penstock.open(tmp_path / "store")
    before = {}
    for of, path in ((store, tmp_path / "whole"), (held, tmp_path / "parts")):
        digest = xxhash.xxh3_64(of.digest.encode())
        part = Part(cut(of, path, 2), 0)
        digest.update(part.books[NODE].digest.encode())
        before[of] = part.manifest.digest == digest.hexdigest()
    assert before == {store: True, held: False}


def test_find_lists():
    rng = np.random.default_rng(0)
    for num_nodes in (1, 2, 7, 100):
        indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 4, num_nodes) * rng.integers(0, 2, num_nodes))])
        for positions in (np.arange(indptr[-1]), rng.permutation(np.arange(indptr[-1]).repeat(2)), np.empty(0, np.int64)):
            nodes = np.full(positions.size, -9)
            cpu.find_lists(indptr, positions, nodes)
            assert nodes.tobytes() == reference.find_lists(indptr, positions).tobytes()


def swap(array):
    array[[0, 1]] = array[[1, 0]]


def double(array):
    array[0] = array[1]


def shorten(array):
    array[-1] -= 1


def lead_nowhere(array):
    array[0] = 1 << 30


def move_an_end(array):
    array[np.flatnonzero(np.diff(array) > 0)[0]] += 1  # a list has one less, that before it one more


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("places", double, "two nodes have one place"),
        ("places", lead_nowhere, "1073741824"),
        ("list_ptr", shorten, "the last row is"),
        ("list_ptr", move_an_end, "a list has another length"),
        ("indices", lead_nowhere, "1073741824"),
        ("train", swap, "ascend"),
        ("indptr", shorten, "the last row is"),
    ],
)
def test_a_check_says_what_is_wrong(name, change, message, parts):
    """With bytes, and, where the checksums are right, with what they mean."""
    (path,) = (parts / "part-1").rglob(f"{name}.npy")
    file = str(path.relative_to(parts / "part-1"))
    array = np.load(path, mmap_mode="r+")
    change(array)
    array.flush()
    assert check_partition(parts).is_ok
    found = check_partition(parts, deep=True).findings
    assert {one.file for one in found} == {f"part-1/{file}"}
    assert "do not match their checksum" in found[0].message

    def with_checksum(document):
        if isinstance(document, list):
            return [with_checksum(each) for each in document]
        if not isinstance(document, dict):
            return document
        document = {key: with_checksum(each) for key, each in document.items() if key != "manifest_xxh3"}
        return document | ({"xxh3": [xxhash.xxh3_64_hexdigest(array.tobytes())]} if document.get("file") == file else {})

    manifest = parts / "part-1" / "manifest.json"
    manifest.write_bytes(seal(with_checksum(json.loads(manifest.read_bytes()))))
    (found,) = check_partition(parts, deep=True).findings
    assert found.file == f"part-1/{file}"
    assert message in found.message


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("number",), 3),
        (("num_parts",), 2),
        (("nodes", "node", "starts"), lambda was: [0, was[1], 41, 40]),
        (("nodes", "node", "starts"), lambda was: [*was[:3], 39]),
        (("nodes", "node", "starts"), lambda was: [*was[:3], 41]),
        (("nodes", "node", "starts"), [1, 10, 20, 40]),
        (("nodes", "node", "num_nodes"), 41),
        (("nodes", "node", "fields", "x", "shape"), [1, 2]),
        (("nodes", "node", "places", "dtype"), "float32"),
        (("nodes", "node", "places", "shape"), [40, 1]),
        (("nodes", "node", "out_degrees", "dtype"), "float32"),
        (("edges", 0, "type"), ["node", "to", "other"]),
        (("edges", 0, "type"), ["node", "node"]),
        (("edges", 0, "indptr", "dtype"), "float64"),
        (("edges", 0, "indices", "dtype"), "float32"),
        (("edges", 0, "edge_id", "shape"), [1]),
        (("edges", 0, "fields", "x", "shape"), [1, 3]),
        (("edges", 0, "num_edges"), -1),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_manifests_that_say_what_cannot_be(place, value, parts):
    manifest = parts / "part-0" / "manifest.json"
    document = {key: each for key, each in json.loads(manifest.read_bytes()).items() if key != "manifest_xxh3"}
    within = document
    for name in place[:-1]:
        within = within[name]
    assert place[-1] in (within if isinstance(within, dict) else range(len(within)))
    within[place[-1]] = value(within[place[-1]]) if callable(value) else value
    manifest.write_bytes(seal(document))
    with pytest.raises(CorruptStoreError, match="is inconsistent"):
        Part(parts, 0)


@pytest.mark.parametrize(("name", "value"), [("num_parts", "3"), ("num_parts", -1), ("digest", None), ("made", 3)])
def test_what_stands_beside_the_parts_and_cannot_be(name, value, parts):
    manifest = parts / "manifest.json"
    document = {key: each for key, each in json.loads(manifest.read_bytes()).items() if key != "manifest_xxh3"}
    del document[name]
    manifest.write_bytes(seal(document if value is None else document | {name: value}))
    with pytest.raises(CorruptStoreError, match="is inconsistent"):
        Part(parts, 0)
    with pytest.raises(CorruptStoreError, match="is inconsistent"):
        describe_partition(parts)
    (found,) = check_partition(parts).findings
    assert (found.file, "is inconsistent" in found.message) == ("manifest.json", True)


def test_a_check_looks_at_all_parts(parts, store):
    other = cut(store, parts.parent / "others", 3, {NODE: np.arange(40) % 3})
    shutil.rmtree(parts / "part-2")
    assert [one.file for one in check_partition(parts).findings] == ["part-2/manifest.json"]
    shutil.copytree(other / "part-2", parts / "part-2")
    assert [one.message for one in check_partition(parts).findings] == ["the parts are of several partitions"]
    assert check_partition(parts / "part-2", deep=True).is_ok
    (path,) = (parts / "part-0").rglob("places.npy")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptStoreError, match="truncated"):
        Part(parts, 0)
    assert "truncated" in check_partition(parts).findings[0].message
    (parts / "manifest.json").write_text("{")
    assert [one.file for one in check_partition(parts).findings] == ["manifest.json"]


def test_stores_of_which_only_rows_differ(store, tmp_path):
    """Their partitions are not mixed up."""
    data = data_with_hubs()
    data.x += 1
    penstock.ingest(data, tmp_path / "other")
    found = [Part(cut(one, tmp_path / str(number), 2), 0) for number, one in enumerate((store, penstock.open(tmp_path / "other"), store))]
    first, other, again = (part.manifest.digest for part in found)
    assert first == again != other


@pytest.mark.parametrize(("name", "message"), [("indices", "1073741824"), ("indptr", "list of node 4")])
def test_damaged_stores_are_not_partitioned(name, message, tmp_path):
    penstock.ingest(data_with_hubs(), tmp_path / "store")
    (path,) = (tmp_path / "store").rglob(f"{name}.npy")
    array = np.load(path, mmap_mode="r+")
    array[5] = 1 << 30
    array.flush()
    with pytest.raises(CorruptStoreError, match=message):
        cut(penstock.open(tmp_path / "store"), tmp_path / "parts", 2)
    assert [one.name for one in tmp_path.iterdir()] == ["store"]


def test_destinations_are_looked_at_before_owners_are_chosen(store, parts, monkeypatch):
    monkeypatch.setattr(partition_run, "assign", None)
    with pytest.raises(UsageError, match="exists"):
        partition_store(store, parts, 2)


def test_parts_that_are_dropped_close_their_folders(parts):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        Part(parts, 0)
    assert len(os.listdir("/proc/self/fd")) == before


def test_commands(store, tmp_path, capsys):
    assert run(["partition", str(store.path), str(tmp_path / "parts"), "--num-parts", "2", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert sum(made["nodes"]) == 40
    assert made.pop("written_s") > 0
    assert sum(made["train"]) == store.split("train").size
    assert run(["info", str(tmp_path / "parts"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {key: told[key] for key in made} == made
    assert run(["info", str(tmp_path / "parts" / "part-1")]) == 0
    assert "part 1 of 2 by ldg, chosen in" in capsys.readouterr().out
    assert run(["check", str(tmp_path / "parts"), "--deep"]) == 0
    capsys.readouterr()
    (path,) = (tmp_path / "parts" / "part-1").rglob("indices.npy")
    path.unlink()
    assert run(["check", str(tmp_path / "parts")]) != 0
    assert "part-1/edges" in capsys.readouterr().out


def test_many_parts_are_not_all_described(store, tmp_path, capsys):
    assert run(["partition", str(store.path), str(tmp_path / "parts"), "--num-parts", "20"]) == 0
    said = capsys.readouterr()
    assert "writing 20 parts" in said.err
    assert "part-15: " in said.out
    assert said.out.endswith("... and 4 more parts; --json says all of them\n")


def test_a_second_level(store, tmp_path, capsys):
    """Rows lie where they did; what differs is told, checked, and in the digest."""
    options = ["--num-parts", "2", "--method", "random", "--seed", "5"]
    assert run(["partition", str(store.path), str(tmp_path / "plain"), *options, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    del plain["written_s"]
    assert run(["partition", str(store.path), str(tmp_path / "parts"), *options, "--trainers-per-part", "3"]) == 0
    assert "3 trainers of each: " in capsys.readouterr().out
    assert run(["info", str(tmp_path / "parts"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trainers_per_part"] == 3
    assert told["trainers_train_balance"] >= 1
    assert {**told, **{name: plain[name] for name in ("path", "seconds")}} | plain == {**told, **plain}
    part, other = Part(tmp_path / "parts", 1), Part(tmp_path / "plain", 1)
    assert part.manifest.digest != other.manifest.digest
    trainers = part.books[NODE].trainers
    within, crossing = 0, 0
    for node in range(40):
        neighbors = store.csc(EDGE).indices[store.csc(EDGE).indptr[node] : store.csc(EDGE).indptr[node + 1]]
        same = part.books[NODE].owners(neighbors) == part.books[NODE].owners(np.array([node]))
        within, crossing = within + same.sum(), crossing + (same & (trainers[neighbors] != trainers[node])).sum()
    assert 0 < crossing < within
    assert told["trainers_edge_cut"] == pytest.approx(crossing / 500)
    for name in ("plain", "parts"):
        shutil.copytree(tmp_path / name / "part-1" / "nodes" / "node" / "rows", tmp_path / f"rows of {name}")
    for file in (tmp_path / "rows of plain").iterdir():
        assert file.read_bytes() == (tmp_path / "rows of parts" / file.name).read_bytes()
    (file,) = (tmp_path / "parts" / "part-1").rglob("trainers.npy")
    array = np.load(file, mmap_mode="r+")
    array[5] = 3
    array.flush()
    findings = check_partition(tmp_path / "parts", deep=True).findings
    assert {one.file.rsplit("/", 1)[1] for one in findings} == {"trainers.npy"}
    Part(tmp_path / "parts", 0).check_books()
    with pytest.raises(CorruptStoreError, match=r"trainers\.npy does not match its checksum"):
        part.check_books()


def test_train_nodes_are_balanced(tmp_path):
    """By the split that is named, of each type that has it."""
    data = Data(x=torch.zeros(200, 1), edge_index=homogeneous_data(200, 800).edge_index, train_mask=torch.arange(200) < 40)
    penstock.ingest(data, tmp_path / "store")
    found = partition_store(tmp_path / "store", tmp_path / "parts", 4, split="default")
    assert found["train"] == [10] * 4
    assert sum(found["nodes"]) == 200


def test_choosing_owners_says_how_far_it_is(store, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.store.progress._FIRST_S", 0.0)
    monkeypatch.setattr("penstock.partition.kinds.PIECE", 7)
    monkeypatch.setattr("penstock.partition.kinds.SETTLED", 0.2)  # of all nodes, not of a piece
    said, progress = [], Quiet()
    progress.note = said.append
    chosen = partition_store(store, tmp_path / "parts", 3, progress=progress)
    assert "choosing owners, pass 1 of at most 10: million nodes 1 of 6" in said
    monkeypatch.setattr("penstock.partition.kinds.PIECE", 1000)
    whole = partition_store(store, tmp_path / "again", 3)
    assert {**chosen, "seconds": 0, "written_s": 0, "path": ""} == {**whole, "seconds": 0, "written_s": 0, "path": ""}
