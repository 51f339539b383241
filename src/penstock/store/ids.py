"""The user's node ids in batches: 64-bit integers, or strings in Arrow's layout; and their hashes.

In: a column of a chunk. Out: a batch that can be hashed, compared and written. Invariant: strings stay bytes in one buffer; no Python
object per id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InputError
from penstock.kernels.id_hash import cpu as kernels
from penstock.kernels.seen_ids import cpu as seen_kernels
from penstock.sources.source import TEXT_BYTES, Column, Table

INTEGER, STRING = "int64", "string"
_FIRST_SEED, _SECOND_SEED = 0x5EED, 0x0DD5EED
_SLOT_BYTES = 16
_REHASHED = 1 << 16


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings in one buffer.

    Attributes:
        offsets: int32 or int64[n + 1], where each begins.
        data: uint8[..], UTF-8.
    """

    offsets: np.ndarray
    data: np.ndarray

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, index: int) -> str:
        return bytes(self.data[self.offsets[index] : self.offsets[index + 1]]).decode()

    def to_arrow(self) -> pa.Array:
        """View as an Arrow array."""
        offsets = self.offsets.astype(np.int64, copy=False)
        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(offsets), pa.py_buffer(self.data))


IdBatch = np.ndarray | Strings


def kind_of(column: Column) -> str:
    """Return the kind of ids in a column: `INTEGER` or `STRING`."""
    return STRING if column.dtype.kind == "O" else INTEGER


def memory_row_bytes(columns: Iterable[Column]) -> int:
    """Return the memory of a row of these columns; an estimate for strings."""
    return max(1, sum(TEXT_BYTES if kind_of(column) == STRING else column.row_bytes for column in columns))


def read_ids(table: Table, values: Any, first_row: int, name: str) -> IdBatch:
    """Take a column of a chunk as ids.

    Raises:
        InputError: a missing id, or an integer beyond 64 bits.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        if values.dtype == np.uint64 and values.size and values.max() > np.iinfo(np.int64).max:
            bad = int(np.argmax(values > np.iinfo(np.int64).max))
            raise InputError(f"{table.where(first_row + bad)}: '{name}' is {values[bad]}: ids are signed 64-bit integers, or strings")
        return np.ascontiguousarray(values, dtype=np.int64)
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OUT":
        raise InputError(f"{table.where(first_row)}: '{name}' is {values.dtype}: ids are integers or strings")
    array = as_arrow(values)
    if array.null_count:
        bad = int(np.argmax(np.asarray(array.is_null())))
        raise InputError(f"{table.where(first_row + bad)}: '{name}' has no value: every node needs an id")
    return from_arrow(array)


def as_arrow(values: Any) -> pa.Array:
    """Return strings as an Arrow array of type string or large_string."""
    is_arrow = isinstance(values, (pa.Array, pa.ChunkedArray))
    array = values if is_arrow else pa.array(values, type=pa.string()).cast(pa.large_string())  # only PyArrow 20 can in one step
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        array = array.cast(pa.large_string())
    return array


def from_arrow(array: pa.Array) -> Strings:
    """View an Arrow array of type string or large_string."""
    dtype = np.dtype(np.int64 if pa.types.is_large_string(array.type) else np.int32)
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return Strings(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8))
    bounds = np.frombuffer(offsets, dtype=dtype, count=len(array) + 1, offset=array.offset * dtype.itemsize)
    return Strings(bounds, np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8))


def hash_ids(batch: IdBatch, seed: int) -> np.ndarray:
    """Return uint64[n]: equal hashes for equal ids; different ones for different integers."""
    hashes = np.empty(len(batch), dtype=np.uint64)
    if isinstance(batch, Strings):
        kernels.hash_strings(batch.offsets, batch.data, seed, hashes)
    else:
        kernels.hash_integers(batch, seed, hashes)
    return hashes


class SeenIds:
    """A filter that passes each id the first time. It saves sorting and need not be exact.

    Ids are identified by 128 bits of hash. When the table is full it is emptied, and ids pass again.

    Args:
        max_bytes: of the table.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_slots = max(1 << 10, min(max_bytes // _SLOT_BYTES, (1 << 32) - 1))
        self._table, self._count = np.zeros(2 << 10, dtype=np.uint64), 0

    def fresh(self, batch: IdBatch) -> np.ndarray:
        """Return bool[n]: which ids pass."""
        self._make_room(len(batch))
        mask = np.empty(len(batch), dtype=np.uint8)
        self._count += seen_kernels.add_new(hash_ids(batch, _FIRST_SEED), hash_ids(batch, _SECOND_SEED), self._table, mask)
        return mask.view(np.bool_)

    def _make_room(self, num_ids: int) -> None:
        """Double the table until a quarter stays empty; empty it if it may not grow. A larger batch gets a table large enough for it."""
        num_slots = self._table.size // 2
        needed = -(-4 * (self._count + num_ids) // 3)
        if needed <= num_slots:
            return
        if needed > self._max_slots:
            num_slots = max(self._max_slots, 2 * num_ids)
            self._table, self._count = np.empty(0, dtype=np.uint64), 0
            self._table = np.zeros(2 * num_slots, dtype=np.uint64)
            return
        num_slots = min(self._max_slots, max(2 * num_slots, needed))
        old, self._table = self._table.reshape(-1, 2), np.zeros(2 * num_slots, dtype=np.uint64)
        for first in range(0, len(old), _REHASHED):
            pairs = old[first : first + _REHASHED]
            pairs = pairs[pairs[:, 0] != 0]
            one, other = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
            seen_kernels.add_new(one, other, self._table, np.empty(one.size, dtype=np.uint8))
