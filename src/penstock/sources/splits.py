"""Splits: which nodes are for training, validation and test, from masks, index arrays, a column of words, or files of ids.

Out: part ("train", "val", "test") -> int64 row numbers of the node type, ascending. Memory is 8 bytes per node of a part, and one chunk of
the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from penstock.errors import InputError, NodeIdError
from penstock.sources.array_file import AnyArray
from penstock.sources.array_table import ArrayFileTable, array_rows
from penstock.sources.columns import pc
from penstock.sources.source import CHUNK_ROWS, ID, Table

DEFAULT = "default"
"""Name of the split if there is only one."""

PARTS = ("train", "val", "test")
_WORDS = (("train", "training"), ("val", "valid", "validation", "dev"), ("test", "testing"))
_PART_OF = {word: part for part, words in zip(PARTS, _WORDS, strict=True) for word in words}
_NO_PART = ("", "none", "unlabeled", "unlabelled")

BLOCK = 1 << 16
"""Node numbers per temporary array."""

Split = dict[str, np.ndarray]


def part_name(word: str) -> str | None:
    """Return the part for a word in a file or a file name ("valid" -> "val"), or None."""
    return _PART_OF.get(word.strip().lower())


def append(ids: np.ndarray, more: np.ndarray) -> None:
    """Extend an array in place; joining pieces at the end would hold them in memory twice."""
    size = ids.size
    ids.resize(size + more.size, refcheck=False)
    ids[size:] = more


def index_part(indices: np.ndarray, num_nodes: int | None, name: str) -> np.ndarray:
    """Check the node numbers of a part and return them ascending, as int64; not copied if they ascend already."""
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise InputError(f"{name}: has shape {list(indices.shape)} and dtype {indices.dtype}; a part of a split is a list of node numbers")
    if indices.size and (int(indices.min()) < 0 or (num_nodes is not None and int(indices.max()) >= num_nodes)):
        outside = np.flatnonzero((indices < 0) | (indices >= num_nodes) if num_nodes is not None else indices < 0)
        limit = "any number of nodes" if num_nodes is None else f"[0, {num_nodes})"
        raise NodeIdError(
            f"{name}: {outside.size} of {indices.size} node numbers lie outside {limit}; first is {indices[outside[0]]} in row {outside[0]}"
        )
    blocks = (indices[first : first + BLOCK + 1] for first in range(0, indices.size, BLOCK))
    if indices.dtype == np.int64 and all((block[1:] > block[:-1]).all() for block in blocks):
        return indices
    indices = np.sort(indices.astype(np.int64, copy=False))
    repeated = np.flatnonzero(indices[1:] == indices[:-1])
    if repeated.size:
        raise InputError(f"{name}: node {indices[repeated[0]]} occurs more than once")
    return indices


def mask_splits(masks: Mapping[str, AnyArray], num_nodes: int, name: str) -> dict[str, Split]:
    """Read masks.

    Args:
        masks: part -> bool[num_nodes], or bool[num_nodes, S] for S splits, which are then called "0" to "S-1". A mask of one column
            beside those of several belongs to every split.
        num_nodes: rows of each mask.
        name: for messages.
    """
    found: dict[str, Split] = {}
    num_splits = max((mask.shape[1] for mask in masks.values() if len(mask.shape) == 2), default=1)
    for part, mask in masks.items():
        shape: tuple[int, ...] = mask.shape
        width = 1 if len(shape) == 1 else shape[-1]
        if mask.dtype != np.bool_ or len(shape) not in (1, 2) or shape[0] != num_nodes or width not in (1, num_splits):
            expected = f"bool[{num_nodes}]" + (f" or bool[{num_nodes}, {num_splits}]" if num_splits > 1 else "")
            raise InputError(f"{name}: the {part} mask has shape {list(shape)} and dtype {mask.dtype}; expected {expected}")
        for first, rows in _mask_chunks(mask):
            rows = rows.reshape(len(rows), width)
            for i in range(num_splits):
                parts = found.setdefault(DEFAULT if num_splits == 1 else str(i), {})
                append(parts.setdefault(part, np.empty(0, np.int64)), first + np.flatnonzero(rows[:, i if width > 1 else 0]))
    return found


def _mask_chunks(mask: AnyArray) -> Iterable[tuple[int, np.ndarray]]:
    if isinstance(mask, np.ndarray):
        yield 0, mask
        return
    for chunk in ArrayFileTable({"mask": array_rows(mask)}, mask.name).chunks(CHUNK_ROWS):
        yield chunk.first_row, chunk.columns["mask"]


def column_split(table: Table, column: str) -> Split:
    """Read the split from a column of words in a node table: train, val (valid, validation, dev), test; empty or "none" for no part."""
    words = [*_PART_OF, *_NO_PART]
    value_set = pa.array(words)
    part_number = np.array([PARTS.index(_PART_OF[word]) if word in _PART_OF else len(PARTS) for word in words])
    found = {part: np.empty(0, np.int64) for part in PARTS}
    for chunk in table.chunks(CHUNK_ROWS, (column,)):
        values = pc.utf8_lower(pc.utf8_trim_whitespace(pc.fill_null(chunk.columns[column], "")))
        index = pc.index_in(values, value_set=value_set)
        if index.null_count:
            at = int(np.flatnonzero(pc.is_null(index).to_numpy(zero_copy_only=False))[0])
            raise InputError(
                f"{table.where(chunk.first_row + at)}: {values[at].as_py()!r} is no part of a split; use train, val, test, or nothing"
            )
        numbers = part_number[index.to_numpy()]
        for i, rows in enumerate(found.values()):
            append(rows, chunk.first_row + np.flatnonzero(numbers == i))
    return {part: rows for part, rows in found.items() if rows.size}


def find_rows(wanted: Mapping[str, pa.Array], table: Table, names: Mapping[str, str]) -> Split:
    """Find the rows of a node table that hold given ids.

    Args:
        wanted: part -> ids, int64 or strings as the table's `id` column has them.
        table: with a column `id`.
        names: part -> file of its ids, for messages.
    """
    ids = pa.concat_arrays(list(wanted.values()))
    order = pc.unique(ids)
    row_of = np.full(len(order), -1, dtype=np.int64)
    for chunk in table.chunks(CHUNK_ROWS, (ID,)):
        column = chunk.columns[ID]
        index = pc.index_in(pa.array(column) if isinstance(column, np.ndarray) else column, value_set=order)
        hits = np.flatnonzero(pc.is_valid(index).to_numpy(zero_copy_only=False))
        row_of[index.take(pa.array(hits)).to_numpy()] = chunk.first_row + hits
    rows = row_of[pc.index_in(ids, value_set=order).to_numpy()]
    split, start = {}, 0
    for part, values in wanted.items():
        mine, start = rows[start : start + len(values)], start + len(values)
        missing = np.flatnonzero(mine < 0)
        if missing.size:
            first = values[int(missing[0])].as_py()
            raise InputError(
                f"{names[part]}: {missing.size} of {mine.size} ids are not in {table.name}; first is {first!r} in row {missing[0]}"
            )
        split[part] = index_part(mine, None, names[part])
    return split
