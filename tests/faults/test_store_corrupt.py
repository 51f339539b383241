"""Truncated, altered and foreign files: a clear error from open or check, never a crash, and a flipped byte is found wherever it is."""

import json
import os
import re
import shutil

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from tests.stores import build, homogeneous

from penstock.errors import CorruptStoreError, FormatVersionError, NotAStoreError, StoreError
from penstock.records import NODE
from penstock.store import Store, check, manifest


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A store with every kind of file."""
    rng = np.random.default_rng(0)
    names = [f"node {i}" for i in rng.permutation(300)]
    column = lambda rows: pa.array([names[row] for row in rows])  # noqa: E731
    source = homogeneous(
        {"src": column(rng.integers(0, 300, 2000)), "dst": column(rng.integers(0, 300, 2000)), "time": np.arange(2000)},
        node_columns={"id": column(range(300)), "x": rng.random((300, 4)), "y": rng.integers(-1, 5, 300)},
        mapped=True,
        splits={"default": {"train": np.arange(100), "val": np.arange(100, 150)}},
    )
    return build(source, tmp_path_factory.mktemp("pristine") / "store")[0].path


@pytest.fixture
def store(pristine, tmp_path):
    """A copy to damage."""
    return shutil.copytree(pristine, tmp_path / "store")


def files_of(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


def flip(file, position, bits=0x10):
    data = bytearray(file.read_bytes())
    data[position] ^= bits
    file.write_bytes(data)


def rewrite_manifest(path, change):
    """Alter the manifest and make its checksum right again, as a tool that writes a wrong store would."""
    document = json.loads((path / "manifest.json").read_text())
    document.pop("manifest_xxh3")
    change(document)
    text = json.dumps(document, indent=1).removesuffix("\n}") + ',\n "manifest_xxh3": "'
    (path / "manifest.json").write_text(text + xxhash.xxh3_64_hexdigest(text.encode()) + '"\n}\n')


def test_pristine_store_passes(pristine):
    report = check(pristine, deep=True)
    assert report.is_ok, report
    assert report.num_arrays == len(files_of(pristine)) - 1
    assert "every checksum and invariant holds" in str(report)
    assert "sizes and headers fit" in str(check(pristine))


def test_a_flipped_byte_is_found_wherever_it_is(pristine, store):
    rng = np.random.default_rng(1)
    for name in files_of(pristine):
        size = (store / name).stat().st_size
        places = {0, size - 1, *map(int, rng.integers(0, size, 6)), *([4095, 4096] if size > 4096 else [])}
        for position in places:
            flip(store / name, position, 1 << int(rng.integers(0, 8)))
            try:
                report = check(store, deep=True)
                assert not report.is_ok, (name, position)
                assert {finding.file for finding in report.findings} == {name}
                assert all("\n" not in finding.message for finding in report.findings)
            except (NotAStoreError, FormatVersionError):
                assert name == "manifest.json"
            shutil.copy(pristine / name, store / name)


def test_deep_check_names_file_and_bytes(store):
    flip(store / "nodes/node/x.npy", 4096 + 77)
    assert check(store).is_ok
    report = check(store, deep=True)
    assert [str(finding) for finding in report.findings] == [
        "nodes/node/x.npy: bytes 4096 to 8895 do not match their checksum: they were altered"
    ]
    assert Store(store).num_nodes == {NODE: 300}


@pytest.mark.parametrize("name", ["nodes/node/x.npy", "edges/node__to__node/indices.npy", "nodes/node/id_bytes.npy"])
@pytest.mark.parametrize("size", [0, 100, 4096, -1, +8])
def test_wrong_size(store, name, size):
    file = store / name
    data = file.read_bytes()
    file.write_bytes(data + b"\0" * size if size == 8 else data[:size])
    with pytest.raises(CorruptStoreError, match=rf"{name} is (truncated|too long): \d+ bytes, the manifest says {len(data)}"):
        Store(store)
    assert [finding.file for finding in check(store).findings] == [name]


def test_missing_file(store):
    (store / "nodes/node/y.npy").unlink()
    with pytest.raises(CorruptStoreError, match=r"nodes/node/y.npy is missing"):
        Store(store)
    assert [finding.file for finding in check(store, deep=True).findings] == ["nodes/node/y.npy"]


@pytest.mark.parametrize("name", ["manifest.json", "nodes/node/x.npy"])
@pytest.mark.parametrize("is_pipe", [True, False])
def test_a_pipe_or_a_device_in_place_of_a_file(store, name, is_pipe):
    (store / name).unlink()
    if is_pipe:
        os.mkfifo(store / name)
    else:
        (store / name).symlink_to("/dev/zero")
    with pytest.raises(StoreError, match=rf"cannot read .*{name}: it is not a regular file"):
        Store(store)


def test_every_finding_is_reported(store):
    flip(store / "nodes/node/x.npy", 5000)
    flip(store / "edges/node__to__node/indptr.npy", 4096)
    (store / "nodes/node/y.npy").unlink()
    report = check(store, deep=True)
    assert {finding.file for finding in report.findings} == {"nodes/node/x.npy", "edges/node__to__node/indptr.npy", "nodes/node/y.npy"}
    assert str(report).count("\n") == len(report.findings)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", CorruptStoreError),
        (b"{", CorruptStoreError),
        (b"\xff\xfe\x00", CorruptStoreError),
        (b"[" * 100_000, CorruptStoreError),
        (b"[]", NotAStoreError),
        (b'{"name": "my web app"}', NotAStoreError),
        (b'{"format": "penstock-store", "format_version": 99}', FormatVersionError),
        (b'{"format": "penstock-store", "format_version": 1}', CorruptStoreError),
        (b'{"format": "penstock-store", "format_version": "x"}', CorruptStoreError),
    ],
)
def test_unreadable_manifest(store, content, error):
    (store / "manifest.json").write_bytes(content)
    with pytest.raises(error, match=r"manifest\.json"):
        Store(store)


def test_manifest_cut_anywhere(store):
    raw = (store / "manifest.json").read_bytes()
    for size in range(0, len(raw), 97):
        with pytest.raises(StoreError):
            manifest.parse_manifest(raw[:size], "store")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("nodes"),
        lambda d: d["nodes"]["node"].update(num_nodes=301),
        lambda d: d["nodes"]["node"].update(num_nodes=-1),
        lambda d: d["nodes"]["node"].update(num_nodes=True),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(dtype="object"),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(file="../../etc/passwd"),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(file="/etc/passwd"),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(file="nodes/node/../../x.npy"),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(file="nodes/node/x\0.npy"),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(file="nodes/node/x\n.npy"),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(file=7),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(xxh3=[{}]),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(xxh3=["\ud800"]),
        lambda d: d["nodes"]["node"]["fields"]["y"]["properties"].update(num_classes="5"),
        lambda d: d["nodes"]["node"]["fields"]["y"]["properties"].update(class_names=300),
        lambda d: d["nodes"]["node"]["fields"]["y"]["properties"].update(class_names=["a"]),
        lambda d: d["nodes"]["node"]["fields"].update({"\ud800": d["nodes"]["node"]["fields"]["x"]}),
        lambda d: d["nodes"].update(paper={"num_nodes": 1, "fields": {}, "splits": {}}),
        lambda d: d["nodes"]["node"]["fields"].update(z=d["nodes"]["node"]["fields"]["x"]),
        lambda d: d["nodes"]["node"]["splits"]["default"]["val"].update(dtype="float64"),
        lambda d: d["nodes"]["node"]["splits"]["default"]["val"].update(shape=[0, 10**30], xxh3=[]),
        lambda d: d["nodes"]["node"]["splits"]["default"]["val"].update(shape=[0, *[1] * 40], xxh3=[]),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(shape=[300, 10**30]),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(shape=[]),
        lambda d: d["nodes"]["node"]["fields"]["x"].update(xxh3=[]),
        lambda d: d["nodes"]["node"]["ids"].update(kind="float"),
        lambda d: d["nodes"]["node"]["ids"]["arrays"].pop("id_rows"),
        lambda d: d["edges"][0].update(type=["node", "to"]),
        lambda d: d["edges"][0].update(type=["node", "to", "paper"]),
        lambda d: d["edges"][0].update(type=["node", 7, "node"]),
        lambda d: d["edges"].append(d["edges"][0]),
        lambda d: d["edges"][0]["edge_id"].update(dtype="float64"),
        lambda d: d["edges"][0].update(num_edges=1),
        lambda d: d["edges"][0]["indices"].update(dtype="float32"),
        lambda d: d.update(edges={}),
        lambda d: d.update(checksum_block_bytes=7),
    ],
)
def test_inconsistent_manifest(store, change):
    rewrite_manifest(store, change)
    with pytest.raises(CorruptStoreError):
        Store(store)


def test_a_name_that_is_there_twice(store):
    text = (store / "manifest.json").read_text()
    (store / "manifest.json").write_text(text.replace(' "provenance": {', ' "edges": [],\n "provenance": {'))
    with pytest.raises(CorruptStoreError, match="an object has a name twice"):
        Store(store)


def test_numbers_that_json_does_not_have_are_kept_as_text(store):
    rewrite_manifest(store, lambda d: d["provenance"].update(share=float("nan"), most=float("inf"), least=0.5))
    provenance = Store(store).manifest.provenance
    assert (provenance["share"], provenance["most"], provenance["least"]) == ("NaN", "Infinity", 0.5)


def replace_values(path, name, change):
    """Change values of an array and its checksum, so that only the invariants can tell."""
    array = np.load(path / name, mmap_mode="r+")
    change(array)
    array.flush()
    checksum = xxhash.xxh3_64_hexdigest(array.tobytes())

    def fix(node):
        if isinstance(node, dict):
            if node.get("file") == name:
                node["xxh3"] = [checksum]
            for value in node.values():
                fix(value)
        elif isinstance(node, list):
            for value in node:
                fix(value)

    rewrite_manifest(path, fix)


def assign(index, value):
    def change(array):
        array[index] = value

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("edges/node__to__node/indptr.npy", assign(0, 1), "row 0 is 1, not 0"),
        ("edges/node__to__node/indptr.npy", assign(7, 10**6), "values must ascend"),
        ("edges/node__to__node/indptr.npy", assign(-1, 1999), "goes from 0 to 1999"),
        ("edges/node__to__node/indices.npy", assign(5, 300), r"row 5 is 300, which is not in \[0, 299\]"),
        ("edges/node__to__node/indices.npy", assign(5, -1), r"row 5 is -1"),
        ("edges/node__to__node/edge_id.npy", assign(0, -5), r"row 0 is -5, which is not in \[0, \.\.\.\]"),
        ("nodes/node/y.npy", assign(3, 5), r"row 3 is 5, which is not in \[-1, 4\]"),
        ("nodes/node/splits/default/train.npy", assign(0, 1), "row 1 is 1 after 1: values must ascend"),
        ("nodes/node/splits/default/val.npy", assign(-1, 300), r"row 49 is 300, which is not in \[0, 299\]"),
        ("nodes/node/splits/default/val.npy", assign(0, 99), "node 99 of split 'default' is in 'train' and in 'val'"),
        ("nodes/node/id_offsets.npy", assign(5, 0), "values must ascend"),
        ("nodes/node/id_cells.npy", assign(3, 299), "values must ascend"),
        ("nodes/node/id_rows.npy", assign(3, 300), "row 3 is 300"),
        ("nodes/node/id_rows.npy", lambda a: a.__setitem__([0, -1], a[[-1, 0]]), "is in the wrong cell"),
        ("nodes/node/id_rows.npy", lambda a: a.__setitem__(0, a[-1]), "is in the wrong cell"),
        ("nodes/node/id_bytes.npy", assign(0, ord("m")), "is in the wrong cell"),
    ],
)
def test_broken_invariants_with_right_checksums(store, name, change, message):
    replace_values(store, name, change)
    report = check(store, deep=True)
    assert not report.is_ok
    assert any(re.search(message, finding.message) for finding in report.findings), str(report)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("nodes/node/id_bytes.npy", assign(slice(None), 0xFF)),
        ("nodes/node/id_cells.npy", assign(slice(None, None, 2), 2**62)),
        ("nodes/node/id_rows.npy", assign(slice(None), 10**6)),
    ],
)
def test_ids_that_lead_nowhere(store, name, change):
    replace_values(store, name, change)
    opened = Store(store)
    with pytest.raises(CorruptStoreError, match=r"ids of 'node' in .* are damaged: .*check --deep"):
        opened.find(opened.original_ids(range(300), NODE) if "bytes" in name else [f"node {i}" for i in range(350)], NODE)


def test_paths_that_hold_no_store(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for name, message in (("missing", "does not exist"), ("file", "is a file"), ("folder", "is not a store: it has no manifest.json")):
        for attempt in (Store, check):
            with pytest.raises(NotAStoreError, match=message):
                attempt(tmp_path / name)
