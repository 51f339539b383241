"""The fields that a batch carries: features, labels, edge attributes; where each comes from and how it is cut to the batch.

In: ids. Out: a tensor. Contiguous CPU tensors, NumPy arrays and memory maps go through `penstock.gather` into recycled memory;
anything else (tensor frames, other dimensions, tensors that want gradients) is cut by PyG's own function.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch_geometric.loader.utils import index_select

from penstock.errors import InputError, NotSupportedError, UsageError
from penstock.feed.tensors import tensors_of
from penstock.gather import RowTable
from penstock.gather.hops import repeat_first, spread
from penstock.records import EDGE, NODE, Allocator, EdgeType, NodeType
from penstock.store.tiers.disk_files import address_of

_AS_INTEGERS = {torch.bfloat16: torch.int16}
"""Types that NumPy lacks -> integers of the same size, as which their rows are moved."""

_NOT_OF_NUMPY = {torch.complex32, *(value for name, value in vars(torch).items() if name.startswith("float8_"))}
"""Rarer types that NumPy lacks, whose rows PyG selects."""

PYG_EDGE_NAMES = {"x": "edge_attr", "weight": "edge_weight", "time": "edge_time"}
"""What PyG calls the edge fields of a store; others keep their names."""

ROW_PTR = "row_ptr"


def row_ptr_is_taken() -> InputError:
    """Return the error for an attribute of that name."""
    what = f"{ROW_PTR} is what a batch calls the places where the edges of each node begin"
    return InputError(f"{what}: rename this field, or delete it from a batch that was cut")


class Source(Protocol):
    """Rows by id."""

    row_bytes: int

    def gather(self, ids: np.ndarray, allocate: Allocator, num_threads: int = 1, hops: np.ndarray | None = None) -> Any:
        """Return the rows of int64[n] `ids`, in memory from `allocate`; `num_threads` may share the work; `hops`: as of a `RowTable`."""
        ...


class TensorRows:
    """Rows of a contiguous array or CPU tensor.

    Args:
        array: the rows.
        name: for messages.
        dtype: of the tensor, where NumPy lacks it.
        version: torch's count of the writes to the tensor.
    """

    def __init__(self, array: np.ndarray, name: str, dtype: torch.dtype | None = None, version: int = 0) -> None:
        self.array = array
        self._table = RowTable(array, name)
        self._dtype = dtype
        self._version = version
        self.row_bytes = self._table.row_bytes

    @property
    def state(self) -> tuple[Any, ...]:
        """Changes when the rows are exchanged or the tensor is written to, unless through its `data` or by NumPy."""
        address = address_of(self.array) if self.array.nbytes else 0  # an empty array has another address each time
        return address, self.array.shape, self.array.dtype, self._dtype, self._version

    def gather(self, ids: np.ndarray, allocate: Allocator, num_threads: int = 1, hops: np.ndarray | None = None) -> torch.Tensor:
        """Return a tensor [n, *row_shape] in memory from `allocate`."""
        rows = torch.from_numpy(self._table.gather(ids, allocate, num_threads, hops))
        rows = rows if self._dtype is None else rows.view(self._dtype)
        if hops is not None:
            repeat_first(rows, hops)
        return rows

    @property
    def kind(self) -> tuple[np.dtype, tuple[int, ...], bool]:
        """(dtype, shape of a row, whether it holds the bits of bfloat16)."""
        return self.array.dtype, self.array.shape[1:], self._dtype is not None


class SelectedRows:
    """Rows of anything that PyG can index."""

    row_bytes = 0

    def __init__(self, value: Any, dim: int) -> None:
        self.value, self._dim = value, dim
        self.is_learned = any(part.requires_grad for part in tensors_of(value))

    @property
    def state(self) -> tuple[Any, ...]:
        """As of `TensorRows`."""
        return id(self.value), *((part.data_ptr(), part.shape, part.dtype, _version(part)) for part in tensors_of(self.value))

    def gather(self, ids: np.ndarray, allocate: Allocator, num_threads: int = 1, hops: np.ndarray | None = None) -> Any:
        """Return the value cut to `ids` along its dimension."""
        rows = index_select(self.value, torch.from_numpy(ids), self._dim)
        if hops is None:
            return rows
        if not isinstance(rows, torch.Tensor) or rows.layout != torch.strided or rows.is_quantized:
            kind = f"{'quantized' if rows.is_quantized else 'sparse'} tensor" if isinstance(rows, torch.Tensor) else type(rows).__name__
            raise NotSupportedError(f"pad fills up plain tensors, and not a {kind}: leave this field out, or do not pad")
        found = spread(rows.movedim(self._dim, 0), hops)
        repeat_first(found, hops)
        return found.movedim(0, self._dim)


@dataclass(frozen=True, slots=True)
class Field:
    """One attribute of the batch.

    Attributes:
        key: node type or edge type that it belongs to; None in a homogeneous graph.
        name: attribute of the batch.
        source: where its rows are.
    """

    key: NodeType | EdgeType | None
    name: str
    source: Source


def refuse_learned(fields: Iterable[Field]) -> None:
    """Raise where a field wants gradients: threads that read ahead of the training step would read rows before it updates them."""
    for field in fields:
        if getattr(field.source, "is_learned", False):
            raise UsageError(
                f"{field.name} wants gradients, and threads would read its rows before they are updated: take num_workers=0, on the CPU; "
                f"or give {field.name}.detach(), if it is not learned"
            )


def states_of(node_fields: Iterable[Field], edge_fields: Iterable[Field]) -> dict[tuple[Any, str], tuple[Any, ...]]:
    """(type, name) of each field that is held here -> its `state`; in a homogeneous graph the types are `NODE` and `EDGE`."""
    return {
        (one.key or only, one.name): one.source.state
        for only, fields in ((NODE, node_fields), (EDGE, edge_fields))
        for one in fields
        if isinstance(one.source, (TensorRows, SelectedRows))
    }


def rows_of(value: Any, name: str, num_rows: int, dim: int = 0) -> Source:
    """Choose the source for a tensor, array or other value with one row per node or edge."""
    if not hasattr(value, "shape") and not hasattr(value, "num_rows"):
        raise InputError(f"{name} is a {type(value).__name__} of one entry for each node or edge: give a tensor or an array")
    length = value.num_rows if hasattr(value, "num_rows") else value.shape[dim] if len(value.shape) else 0
    if length != num_rows:
        raise InputError(f"{name} has {length} rows for {num_rows} nodes or edges: give one row for each")
    layout = str(getattr(value, "layout", "")).removeprefix("torch.")
    if layout.startswith(("sparse_csr", "sparse_csc", "sparse_bs")) or type(value).__module__.startswith("scipy.sparse"):
        raise NotSupportedError(
            f"{name} is a {layout or 'SciPy'} matrix, whose rows are not cut out: give it dense, or as sparse_coo of torch"
        )
    if isinstance(value, np.ndarray) and not _is_known_to_torch(value.dtype):
        raise InputError(f"{name} is an array of {value.dtype}, which torch does not have: convert it, or leave it out of the data")
    if isinstance(value, np.ndarray) and dim == 0 and value.flags.c_contiguous and not value.dtype.hasobject:
        return TensorRows(value, name)
    if device := next((part.device for part in tensors_of(value) if part.is_cuda), None):
        raise NotSupportedError(f"{name} is on {device}: features on the GPU are not supported yet; use data.cpu()")
    if not isinstance(value, torch.Tensor):
        return SelectedRows(value, dim)
    is_plain = type(value) is torch.Tensor and value.layout == torch.strided and not value.requires_grad
    is_plain &= value.dtype not in _NOT_OF_NUMPY and not value.is_conj() and not value.is_neg() and not value.is_quantized
    if not is_plain or dim != 0 or not value.is_contiguous():
        return SelectedRows(value, dim)
    if value.dtype in _AS_INTEGERS:
        return TensorRows(value.view(_AS_INTEGERS[value.dtype]).numpy(), name, value.dtype, _version(value))
    return TensorRows(value.numpy(), name, version=_version(value))


def _version(tensor: torch.Tensor) -> int:
    """Return torch's count of the writes to a tensor."""
    return 0 if tensor.is_inference() else tensor._version


def _is_known_to_torch(dtype: np.dtype) -> bool:
    try:
        torch.from_numpy(np.empty(0, dtype))
    except (TypeError, ValueError):
        return False
    return True
