"""The files of a store are plain `.npy`, and their names cannot collide or escape."""

import itertools

import numpy as np
import pytest

from penstock.errors import InputError
from penstock.store.arrays import ArrayWriter
from penstock.store.files import as_bytes
from penstock.store.format import BLOCK_BYTES, DTYPES, file_name, folder_of_edges, npy_header


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "bfloat16"])
@pytest.mark.parametrize("shape", [(0,), (7,), (5, 3), (4, 2, 2), (3, 0), (0, 128)])
def test_arrays_load_with_numpy(tmp_path, dtype, shape):
    rows = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    writer = ArrayWriter(tmp_path, "a/b.npy", dtype, shape[1:])
    for row in rows:
        writer.append(row[None])
    spec = writer.finish()
    path = tmp_path / "a" / "b.npy"
    assert (spec.shape, spec.dtype, path.stat().st_size) == (shape, dtype, 4096 + rows.nbytes)
    np.testing.assert_array_equal(np.load(path, allow_pickle=False), rows, strict=True)
    if rows.size:
        mapped = np.load(path, mmap_mode="r")
        assert mapped.offset == 4096
        np.testing.assert_array_equal(mapped, rows, strict=True)


def test_header_is_version_1_and_4096_bytes_for_any_shape():
    for shape in ((0,), (10**15,), (10**12, 3, 4, 5, 6, 7, 8)):
        header = npy_header(np.dtype("<f4"), shape)
        assert len(header) == 4096
        assert header.startswith(b"\x93NUMPY\x01\x00")
        assert header.endswith(b"\n")


def test_blocks_have_checksums_of_their_own(tmp_path):
    rows = np.arange((BLOCK_BYTES + 4096) // 8)
    whole, pieces = ArrayWriter(tmp_path, "whole.npy", "int64"), ArrayWriter(tmp_path, "pieces.npy", "int64")
    whole.append(rows)
    for piece in np.array_split(rows, 1000):
        pieces.append(piece)
    checksums = whole.finish().checksums
    assert len(checksums) == 2
    assert pieces.finish().checksums == checksums


def test_padding_and_discarding(tmp_path):
    writer = ArrayWriter(tmp_path, "a.npy", "int64")
    writer.append(np.zeros(1, np.int64))
    writer.pad_rows(300_000, 7)
    writer.finish()
    assert np.load(tmp_path / "a.npy").tolist() == [0] + [7] * 299_999
    writer = ArrayWriter(tmp_path, "b.npy", "int64")
    writer.discard()
    assert not (tmp_path / "b.npy").exists()


def test_writer_takes_only_its_own_rows(tmp_path):
    writer = ArrayWriter(tmp_path, "a.npy", "float32", (3,))
    for wrong in (np.zeros((2, 3)), np.zeros((2, 4), np.float32), np.zeros(3, np.float32)):
        with pytest.raises(AssertionError):
            writer.append(wrong)
    writer.close()


def test_names_become_harmless_file_names():
    assert file_name("paper") == "paper"
    assert file_name("../../etc") == "%2E.%2F..%2Fetc"
    assert file_name(".hidden") == "%2Ehidden"
    assert file_name("caf\u00e9") == "caf%C3%A9"
    for bad in ("", "x" * 81):
        with pytest.raises(InputError, match="1 to 80 characters"):
            file_name(bad)


def test_folders_of_edge_types_do_not_collide():
    assert folder_of_edges(("a", "to", "b")) == "edges/a__to__b"
    parts = ["a", "b", "_", "__", "___", "a_", "_a", "a_b", "a__b", "a___b", "_a_"]
    names = list(itertools.product(parts, repeat=3))
    assert len({folder_of_edges(name) for name in names}) == len(names)


def test_as_bytes_of_anything_contiguous():
    assert bytes(as_bytes(np.array([[1, 2]], np.uint8))) == b"\x01\x02"
    assert len(as_bytes(np.empty((0, 5)))) == 0
