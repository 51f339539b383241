"""Rows of bytes, copied by the programs of a kernel for a device: what `gather_rows`, `gather_cached` and `move_rows` share.

Everything is addressed by number: a kernel gets addresses as 64-bit integers, so that it reads memory of the host, mapped files and the
device's own in the same way, whatever object owns it. In: addresses of rows. Out: their bytes elsewhere. Invariant: no byte outside the
rows is written, and none read but those of the words that a row lies on, at any row size and alignment.

A copy goes in the widest words that all addresses and the row's size are multiples of: 16 bytes as two of 8, which the compiler joins,
else 8 or 4. Rows of odd sizes are read by words of 4 all the same, whose bytes beside the row are left out, and written by 2 or 1: lanes
that read less would ask for each line several times. A row that does not begin at a multiple of 128 bytes is read from the boundary before
it on, with the lanes before its first byte idle, so that requests over the link are for whole lines. Source: UVA, which reports 88-93 % of
the link's bandwidth with that and 78-82 % without.
"""

# types are constants of kernels here:
# pyright: reportArgumentType=false, reportAssignmentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from penstock.kernels._cuda import device_address
from penstock.kernels._triton import cdiv

LINE: tl.constexpr = tl.constexpr(128)
"""Bytes of a request over the link."""
TILE_BYTES = 1 << 14
"""That a program copies at once."""
MAX_COLUMN_BYTES = 1 << 10
"""Of a row, that are copied at once."""
_TYPES = {8: tl.int64, 4: tl.int32, 2: tl.int16, 1: tl.int8}


@triton.jit
def load_places(block, order, num_rows, HAS_ORDER: tl.constexpr, ROWS: tl.constexpr):
    """Which rows of a copy the `block`-th piece is, and which of them are there: by the int32[num_rows] at `order`, or as they stand."""
    places = block * ROWS + tl.arange(0, ROWS)
    are_there = places < num_rows
    if HAS_ORDER:
        places = tl.load(order.to(tl.pointer_type(tl.int32)) + places, mask=are_there, other=0)
    return places, are_there


@triton.jit
def copy_rows(
    sources, targets, are_there, ROW_BYTES: tl.constexpr, WORD: tl.constexpr, TYPE: tl.constexpr, COLUMNS: tl.constexpr,
    SHIFTED: tl.constexpr,
):  # fmt: skip
    """Copy a row from each of int64[ROWS] addresses `sources` to each of `targets`, where `are_there`; see `layout_of`."""
    written: tl.constexpr = 8 if WORD > 8 else WORD
    read: tl.constexpr = 4 if WORD < 4 else written
    aligned: tl.constexpr = 4 if WORD < 4 else WORD
    parts: tl.constexpr = read // written
    size: tl.constexpr = ROW_BYTES // written
    num_words: tl.constexpr = (ROW_BYTES + 2 * read - written - 1) // read  # that a row lies on, at most
    slack: tl.constexpr = (LINE - aligned) // read if SHIFTED else 0
    if parts > 1:
        before = (sources % read).to(tl.int32)  # bytes of the first word that are not the row's
        sources = sources - before
    # multiples: else the compiler does not see it, and copies 16 bytes by 8
    readable = tl.multiple_of(sources.to(tl.pointer_type(tl.int32 if WORD < 4 else TYPE))[:, None], (aligned, aligned))
    writable = tl.multiple_of(targets.to(tl.pointer_type(TYPE))[:, None], (WORD, WORD))
    for first in range(0, num_words + slack, COLUMNS):
        columns = first + tl.arange(0, COLUMNS)[None, :]
        if SHIFTED:
            columns = columns - ((sources % LINE) // aligned * (aligned // read)).to(tl.int32)[:, None]
        places = columns * parts
        if parts > 1:
            places = places - (before // written)[:, None]
        words = tl.load(readable + columns, mask=are_there[:, None] & (places + (parts - 1) >= 0) & (places < size))
        for part in tl.static_range(parts):
            is_inside = are_there[:, None] & (places + part >= 0) & (places + part < size)
            tl.store(writable + (places + part), (words >> (8 * written * part)).to(TYPE), mask=is_inside)


def layout_of(row_bytes: int, source: int, *others: int) -> dict[str, Any]:
    """Choose how rows are copied.

    Args:
        row_bytes: of a row, at least 1.
        source: address of the rows that are read over the link.
        others: addresses of other rows, read or written.
    Returns:
        the constants of `copy_rows`, and ROWS that a program copies at once. WORD: bytes that all addresses are multiples of, 1 to 16.
    """
    alignment = source
    for address in others:
        alignment |= address
    return _layout(row_bytes, source % LINE.value, alignment % 16)


@cache
def _layout(row_bytes: int, source: int, alignment: int) -> dict[str, Any]:
    word = row_bytes | alignment | 16
    word &= -word
    read = max(4, min(word, 8))
    is_shifted = row_bytes >= LINE.value and (row_bytes | source) % LINE.value != 0  # shorter ones are one instruction's anyway
    needed = cdiv(row_bytes + read - min(word, read), read) + ((LINE.value - max(4, word)) // read if is_shifted else 0)
    columns = min(MAX_COLUMN_BYTES // read, triton.next_power_of_2(needed))
    return {
        "ROW_BYTES": row_bytes, "WORD": word, "TYPE": _TYPES[min(word, 8)], "COLUMNS": columns, "SHIFTED": is_shifted,
        "ROWS": max(1, TILE_BYTES // (columns * read)),
    }  # fmt: skip


def integer_of(numbers: torch.Tensor) -> Any:
    """The type of row numbers in a kernel."""
    return tl.int32 if numbers.dtype == torch.int32 else tl.int64


def addresses_of(device: torch.device, *tensors: torch.Tensor) -> list[int]:
    """Where a kernel on `device` finds the first byte of each of some contiguous tensors."""
    return [device_address(tensor, device) for tensor in tensors]
