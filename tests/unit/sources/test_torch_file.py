"""Tensors that `torch.save` wrote."""

import numpy as np
import pytest
import torch
from tests.tables import check_table

from penstock.errors import InputError
from penstock.records import NODE
from penstock.sources import open_source
from penstock.sources.array_table import ArrayFileTable, array_rows
from penstock.sources.torch_file import open_pt
from penstock.store import ingest

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]
DTYPES += [torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(tmp_path, dtype):
    array = (np.arange(60).reshape(20, 3) % 120).astype(str(dtype).removeprefix("torch."))
    torch.save(torch.from_numpy(array), tmp_path / "a.pt")
    table = ArrayFileTable({"a": array_rows(open_pt(tmp_path / "a.pt"))}, "a.pt")
    assert table.columns["a"].dtype == array.dtype
    np.testing.assert_array_equal(check_table(table)["a"], array)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (7,), (7, 1), (7, 2, 3)])
def test_shapes(tmp_path, shape):
    array = np.random.default_rng(0).standard_normal(shape)
    torch.save(torch.from_numpy(array), tmp_path / "a.pt")
    np.testing.assert_array_equal(open_pt(tmp_path / "a.pt").load(), array)


def test_views(tmp_path):
    """Of a part of a tensor torch writes all of it."""
    whole = torch.arange(40).reshape(10, 4)
    for name, tensor in {"rows": whole[3:8], "transposed": whole[3:8].T, "parameter": torch.nn.Parameter(whole.float())}.items():
        torch.save(tensor, tmp_path / f"{name}.pt")
        np.testing.assert_array_equal(open_pt(tmp_path / f"{name}.pt").load(), tensor.detach().numpy())


def test_into_a_store(tmp_path):
    """Features, bfloat16 too, labels, a mask and a list of ids."""
    x, y = torch.randn(5, 3).to(torch.bfloat16), torch.tensor([1, 0, 2, -1, 1])
    for name, tensor in {"x": x, "y": y, "train": y == 1, "test": torch.tensor([3, 2]), "e": torch.tensor([[0, 1], [4, 2]])}.items():
        torch.save(tensor, tmp_path / f"{name}.pt")
    fields = {name: str(tmp_path / f"{name}.pt") for name in "xy"}
    splits = {part: str(tmp_path / f"{part}.pt") for part in ("train", "test")}
    source = open_source(tmp_path / "e.pt", node_fields=fields, splits=splits)
    assert source.nodes[NODE].table.columns["x"].is_bfloat16
    store = ingest(source, tmp_path / "store", feature_dtype="bfloat16")
    assert torch.equal(torch.from_numpy(store.node_field("x").copy()).view(torch.bfloat16), x)
    np.testing.assert_array_equal(store.node_field("y"), y)
    assert [store.split(part).tolist() for part in ("train", "test")] == [[0, 4], [2, 3]]


class Code:
    def __reduce__(self):
        return (open, ("ran", "w"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Code(), "a.pt: damaged, or not a dense tensor that loads without running code in the file"),
        (np.zeros(3), "a.pt: damaged, or not a dense tensor that loads without"),
        ({"x": torch.zeros(3)}, "a.pt: holds a dict, expected a dense tensor; save each by itself"),
        (torch.zeros(3, 3).to_sparse(), r"a.pt: (holds a Tensor, expected|damaged, or not) a dense tensor"),  # torch before 2.14 loads it,
        (torch.zeros(4, 4)[:, ::2], r"a.pt: a tensor of float32 with strides \[4, 2\]; save it contiguous, and as numbers"),
        (torch.zeros(3, dtype=torch.complex64), "a.pt: a tensor of complex64 with strides"),
    ],
)
def test_others_are_refused(tmp_path, monkeypatch, value, message):
    monkeypatch.chdir(tmp_path)
    torch.save(value, "a.pt")
    with pytest.raises(InputError, match=message):
        open_pt(tmp_path / "a.pt")
    assert not (tmp_path / "ran").exists()


def test_damaged_and_old_files(tmp_path):
    path = tmp_path / "a.pt"
    torch.save(torch.zeros(3), path, _use_new_zipfile_serialization=False)
    with pytest.raises(InputError, match=r"a.pt: in the format of torch before 1.6; load and save it again, or save it as .npy"):
        open_pt(path)
    torch.save(torch.zeros(3), path)
    whole = path.read_bytes()
    at = whole.rindex(b"PK\x01\x02") + 6  # the version of zip in the list of members, which torch does not look at
    for data in (b"", b"PK\x03\x04", b"text", whole[:at] + b"\xff" + whole[at + 1 :]):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"a.pt: damaged, or not a dense tensor that loads"):
            open_pt(path)
