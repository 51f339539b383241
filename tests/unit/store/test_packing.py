"""Packed copies: what a store says of them, that the rest stays as it was, and what a check finds."""

import json
import os
import threading

import numpy as np
import pytest
import xxhash
from tests.stores import build, homogeneous

from penstock.errors import CorruptStoreError, InputError, StoreBusyError, UsageError
from penstock.records import NODE
from penstock.store import Store, check
from penstock.store.arrays import ArrayFile, ArrayWriter
from penstock.store.change import StoreChange
from penstock.store.files import Scratch
from penstock.store.format import DATA_OFFSET, DTYPES
from penstock.store.manifest import parse_manifest
from penstock.store.packing import choose_fields, drop, pack, packed_of, rows_of
from penstock.store.progress import Quiet
from penstock.store.reorder import reorder, scratch_bytes
from penstock.store.sealed import _CHECKSUM_KEY, _END

NUM_NODES = 300
FILES = ["packed_rows.npy", "x.npy", "x.packed.npy", "y.npy", "y.packed.npy"]


@pytest.fixture
def store(tmp_path):
    random = np.random.default_rng(3)
    columns = {"x": random.random((NUM_NODES, 5), np.float32), "y": random.integers(0, 4, NUM_NODES)}
    source = homogeneous({"src": np.arange(200), "dst": np.arange(200)[::-1]}, node_columns=columns)
    return build(source, tmp_path / "store")[0]


def pack_store(store, seed=0, fields=("x", "y"), work_bytes=1 << 20, **options):
    order = np.random.default_rng(seed).permutation(NUM_NODES)
    with StoreChange(store.path) as change:
        pack(change, NODE, rows_of(order, NUM_NODES), fields, made={"by": f"seed {seed}"}, work_bytes=work_bytes, **options)
    return order, Store(store.path)


def files_of(store):
    return sorted(path.name for path in (store.path / "nodes" / "node").iterdir())


@pytest.mark.parametrize("work_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize(
    ("dtype", "row_shape"), [("float32", (5,)), ("int64", ()), ("bool", (3,)), ("bfloat16", (2, 2)), ("float32", (0,))]
)
def test_rows_are_reordered_in_any_memory(tmp_path, work_bytes, dtype, row_shape):
    random = np.random.default_rng(5)
    values = random.integers(0, 2, (97, *row_shape)).astype(DTYPES[dtype])
    writer, out = (ArrayWriter(tmp_path, name, dtype, row_shape) for name in ("x.npy", "y.npy"))
    writer.append(values)
    spec, rows, scratch = writer.finish(), random.permutation(97).astype(np.int32), Scratch(tmp_path)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        reorder(ArrayFile(spec, folder, "store"), rows, out, scratch, work_bytes, Quiet())
    finally:
        os.close(folder)
    found = np.load(tmp_path / out.finish().file)
    scratch.close()
    np.testing.assert_array_equal(found[rows], values)
    row_bytes = values.nbytes // 97
    assert (scratch_bytes(97, row_bytes, work_bytes) == 0) == (work_bytes // 2 // max(row_bytes, 1) >= 97)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "y.npy"]


def test_a_packed_copy_is_the_field_by_another_order(store):
    before = {path: path.read_bytes() for path in store.path.rglob("*.npy")}
    assert packed_of(store, NODE, ["x"]) is None
    order, packed_store = pack_store(store)
    found = packed_of(packed_store, None, ["y", "x"])
    assert found.made == {"by": "seed 0"}
    assert found.rows.dtype == np.int32
    for name, copy in zip(("y", "x"), found.arrays, strict=True):
        field = packed_store.node_field(name, NODE)
        np.testing.assert_array_equal(copy, field[order])
        np.testing.assert_array_equal(copy[found.rows], field)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert packed_store.digest == store.digest
    assert packed_of(packed_store, NODE, []) is None


def test_all_fields_or_none(store):
    _, packed_store = pack_store(store, fields=("x",))
    assert packed_of(packed_store, NODE, ["x"]) is not None
    assert packed_of(packed_store, NODE, ["x", "y"]) is None


def test_packing_again_replaces_and_dropping_removes(store):
    _, first = pack_store(store)
    opened = packed_of(first, NODE, ["x"])
    expected = opened.arrays[0].copy()
    order, second = pack_store(store, seed=1)
    assert files_of(store) == ["packed_rows-2.npy", "x.npy", "x.packed-2.npy", "y.npy", "y.packed-2.npy"]
    np.testing.assert_array_equal(opened.arrays[0], expected)  # what is mapped stays what it was
    np.testing.assert_array_equal(packed_of(second, NODE, ["x"]).arrays[0], second.node_field("x", NODE)[order])
    with pytest.raises(CorruptStoreError, match="missing: the store is damaged, or was replaced"):
        packed_of(first, NODE, ["x"])
    pack_store(store, seed=2)
    assert files_of(store) == FILES
    with StoreChange(store.path) as change:
        drop(change, [NODE])
    assert files_of(store) == ["x.npy", "y.npy"]
    assert packed_of(Store(store.path), NODE, ["x"]) is None
    assert check(store.path, deep=True).is_ok


def test_spilled_copies_are_the_same(store):
    pack_store(store)
    whole = {path.name: path.read_bytes() for path in store.path.rglob("*packed*")}
    pack_store(store, work_bytes=256)
    assert {path.name.replace("-2", ""): path.read_bytes() for path in store.path.rglob("*packed*")} == whole


def test_a_failed_change_leaves_the_old_state(store, monkeypatch):
    order, _ = pack_store(store)
    manifest = (store.path / "manifest.json").read_bytes()

    class Broken(Quiet):
        def advance(self, amount):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_store(store, seed=1, progress=Broken())
    assert (store.path / "manifest.json").read_bytes() == manifest
    assert files_of(store) == FILES
    np.testing.assert_array_equal(packed_of(Store(store.path), NODE, ["x"]).arrays[0], store.node_field("x", NODE)[order])
    assert sorted(path.name for path in store.path.parent.iterdir()) == ["store"]


def test_litter_of_the_killed_goes_and_nothing_else(store):
    folder = store.path / "nodes" / "node"
    for name in ("x.packed-7.npy", "packed_rows.npy"):
        (folder / name).write_bytes(b"half")
    (folder / "mine.npy").write_bytes(b"kept")
    (store.path / ".manifest.json.partial").write_bytes(b"half")
    pack_store(store)
    assert files_of(store) == sorted([*FILES, "mine.npy"])
    assert not (store.path / ".manifest.json.partial").exists()


def test_one_change_at_a_time(store):
    failures = []

    def other():
        try:
            with StoreChange(store.path):
                pass
        except StoreBusyError as error:
            failures.append(str(error))

    with StoreChange(store.path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30)
    assert failures
    assert "is writing" in failures[0]


def test_orders_that_are_none_are_refused():
    for order, words in (
        (np.arange(3), r"every node once, \[4\]; got int64 \[3\]"),
        (np.zeros(4), "float64"),
        (np.array([0, 1, 1, 3]), "node 2 is missing"),
        (np.array([0, 1, 2, 4]), "nodes from 0 to 4"),
        (np.array([-1, 1, 2, 3]), "nodes from -1 to 3"),
    ):
        with pytest.raises(InputError, match=words):
            rows_of(order, 4)
    np.testing.assert_array_equal(rows_of(np.array([2, 0, 1]), 3), [1, 2, 0])


def test_what_there_is_not_cannot_be_packed(store):
    entry = store.node_entry(NODE)
    assert choose_fields(entry, NODE, None) == ["x"]
    assert choose_fields(entry, NODE, ["y", "x", "y"]) == ["y", "x"]
    with pytest.raises(UsageError, match="'node' has no field 'z'; it has x, y"):
        choose_fields(entry, NODE, ["z"])
    with pytest.raises(UsageError, match="nothing to pack"):
        choose_fields(entry, NODE, [])


def test_a_deep_check_finds_what_is_wrong(store):
    _, packed_store = pack_store(store)
    assert check(store.path, deep=True).is_ok
    entry = packed_store.node_entry(NODE).packed
    path = store.path / entry.fields["x"].file
    content = bytearray(path.read_bytes())
    content[DATA_OFFSET + 3] ^= 1
    path.write_bytes(content)
    findings = check(store.path, deep=True).findings
    assert [finding.file for finding in findings] == [entry.fields["x"].file]
    path.unlink()
    assert "missing" in str(check(store.path).findings[0])
    assert Store(store.path).node_field("x", NODE).shape == (NUM_NODES, 5)  # the store itself is whole
    with pytest.raises(CorruptStoreError, match="missing"):
        packed_of(Store(store.path), NODE, ["x"])


def write_packed(store, change_of, seed=0):
    """Pack, with a copy or a mapping that is not what it should be, and right checksums."""
    _, packed_store = pack_store(store, seed)
    with StoreChange(store.path) as change:
        entry = packed_store.node_entry(NODE).packed
        rows, copy = packed_of(packed_store, NODE, ["x"]).rows.copy(), packed_of(packed_store, NODE, ["x"]).arrays[0].copy()
        change_of(rows, copy)
        manifest = packed_store.manifest
        for values, spec in ((rows, entry.rows), (copy, entry.fields["x"])):
            (store.path / spec.file).unlink()
            writer = ArrayWriter(store.path, spec.file, spec.dtype, spec.shape[1:])
            writer.append(values)
            object.__setattr__(spec, "checksums", writer.finish().checksums)
        change.commit(manifest)
    return check(store.path, deep=True).findings


def test_a_deep_check_compares_rows_and_mapping(store):
    def swap_rows(rows, copy):
        copy[[4, 9]] = copy[[9, 4]]

    def repeat(rows, copy):
        rows[7] = rows[8]

    (finding,) = write_packed(store, swap_rows)
    assert "row 4 is not that of node" in finding.message
    (finding,) = write_packed(store, repeat)
    assert "nodes 7 and 8 share row" in finding.message


def test_older_readers_see_the_store_as_it_was(store):
    _, packed_store = pack_store(store)
    document = json.loads((store.path / "manifest.json").read_bytes())
    assert document["format_version"] == 1
    assert set(document["nodes"]["node"]["packed"]) == {"rows", "fields", "made"}
    known = {name: entry for name, entry in document["nodes"]["node"].items() if name != "packed"}
    assert set(known) == {"num_nodes", "fields", "splits"}
    assert parse_manifest(store.manifest.to_bytes(), "old").nodes[NODE].packed is None
    assert list(packed_store.manifest.arrays()) == list(store.manifest.arrays())


@pytest.mark.parametrize(
    "change_of",
    [
        lambda packed: packed["rows"].update(dtype="float32"),
        lambda packed: packed["fields"].update(z=packed["fields"]["x"]),
        lambda packed: packed["fields"]["x"].update(dtype="int32"),
        lambda packed: packed.pop("made"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(store, change_of):
    _, packed_store = pack_store(store)
    document = json.loads(packed_store.manifest.to_bytes())
    document.pop("manifest_xxh3")
    change_of(document["nodes"]["node"]["packed"])
    text = json.dumps(document, indent=1).removesuffix("\n}") + "," + _CHECKSUM_KEY
    raw = (text + xxhash.xxh3_64_hexdigest(text.encode()) + _END).encode()
    with pytest.raises(CorruptStoreError, match="inconsistent"):
        parse_manifest(raw, "store")
