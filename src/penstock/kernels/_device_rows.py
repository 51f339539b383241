"""Copy rows of bytes on a device: the code that `gather_rows`, `gather_cached` and `move_rows` share.

A kernel gets addresses as 64-bit integers, so it reads host memory, mapped files and the device's own memory in the same way, whatever
object owns them. In: addresses of rows. Out: their bytes at other addresses. Invariant: at any row size and alignment, a copy writes no
byte outside the rows and reads none outside the words that a row lies on.

A copy uses the widest words that divide all addresses and the row's size: 16 bytes, as two words of 8 that the compiler joins, else 8 or 4.
Over the link, rows of 32 bytes or more are read in words of 16 whatever their alignment, and the bytes beside a row are dropped: narrower
words would need more requests for as many bytes. With an alignment below 4 bytes, a word that was read is written in pieces of 2 or 1. A
row that does not begin at a multiple of 128 bytes is read from the boundary before it, with the lanes before its first byte idle, so that
requests over the link are for whole lines. Source: UVA, which reports 88-93 % of the link's bandwidth with this and 78-82 % without.
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
NEAR_BYTES = 16 << 10
"""Bytes that a program copies at once from the device's own memory, unused columns included."""
NEAR_COLUMN_BYTES = 1 << 10
"""Bytes of one row that are copied at once from there."""
FAR_BYTES = 12 << 10
"""Bytes of rows that a program copies at once over the link, or up to twice as many: a few programs must keep enough requests in flight."""
FAR_COLUMN_BYTES = 2 << 10
"""Bytes of one row that are copied at once over the link; of a longer row, NEAR_COLUMN_BYTES."""
MAX_ROWS = 4 << 10
"""Most rows that a program copies at once."""
WIDE_BYTES = 32
"""Rows of at least this size are read over the link in words of 16, whatever their alignment."""


@triton.jit
def pointer(address, TYPE: tl.constexpr):
    """A pointer to elements of a type. Triton takes numbers for 32 bits wide where they fit: addresses in the low memory of a host do."""
    return address.to(tl.int64).to(tl.pointer_type(TYPE))


@triton.jit
def load_places(block, order, num_rows, HAS_ORDER: tl.constexpr, ROWS: tl.constexpr):
    """Return (places of the rows in block `block` of a copy, which of them exist). `order`: address of int32[num_rows], the order of
    the rows; without it, they come in ascending order."""
    places = block * ROWS + tl.arange(0, ROWS)
    are_there = places < num_rows
    if HAS_ORDER:
        places = tl.load(pointer(order, tl.int32) + places, mask=are_there, other=0)
    return places, are_there


@triton.jit
def copy_rows(
    sources, targets, are_there, ROW_BYTES: tl.constexpr, WORD: tl.constexpr, READ: tl.constexpr, COLUMNS: tl.constexpr,
    SHIFTED: tl.constexpr,
):  # fmt: skip
    """Copy a row from each of int64[ROWS] addresses `sources` to each of `targets`, where `are_there`; see `layout_of`."""
    read: tl.constexpr = 8 if READ > 8 else READ
    written: tl.constexpr = 8 if WORD > 8 else WORD
    read_type: tl.constexpr = tl.int64 if read == 8 else tl.int32
    written_type: tl.constexpr = tl.int64 if written == 8 else tl.int32 if written == 4 else tl.int16 if written == 2 else tl.int8
    steps: tl.constexpr = READ // read
    parts: tl.constexpr = read // written
    size: tl.constexpr = ROW_BYTES // written
    num_words: tl.constexpr = (ROW_BYTES + 2 * READ - WORD - 1) // READ * steps  # most words that a row lies on
    slack: tl.constexpr = (LINE - READ) // read if SHIFTED else 0
    lead, before = tl.zeros_like(sources).to(tl.int32)[:, None], tl.zeros_like(sources).to(tl.int32)[:, None]
    if READ > WORD:
        before = ((sources % READ) // written).to(tl.int32)[:, None]  # pieces of the first word before the row
        sources -= sources % READ
    if SHIFTED:
        lead = ((sources % LINE) // READ * steps).to(tl.int32)[:, None]
    # without `multiple_of` the compiler does not see the alignment and copies 16 bytes as 8 + 8
    readable = tl.multiple_of(sources.to(tl.pointer_type(read_type))[:, None], (READ, READ))
    writable = tl.multiple_of(targets.to(tl.pointer_type(written_type))[:, None], (WORD, WORD))
    for first in range(0, num_words + slack, COLUMNS):
        columns = first - lead + tl.arange(0, COLUMNS)[None, :]
        places = columns * parts - before
        is_read = are_there[:, None] & (places >= 0) & (places < size)
        if READ > WORD:  # a word of 16 bytes is read whole or not at all: the mask must be as wide as the read
            begins = ((first + tl.arange(0, COLUMNS)[None, :]) // steps * steps - lead) * parts - before
            is_read = are_there[:, None] & (begins > -steps * parts) & (begins < size)
        words = tl.load(readable + columns, mask=is_read)
        for part in tl.static_range(parts):
            is_inside = are_there[:, None] & (places + part >= 0) & (places + part < size)
            tl.store(writable + (places + part), (words >> (8 * written * part)).to(written_type), mask=is_inside)


def layout_of(row_bytes: int, source: int, *others: int, is_far: bool) -> dict[str, Any]:
    """Choose how rows are copied.

    Args:
        row_bytes: bytes of a row, at least 1.
        source: address of the rows to read, over the link if `is_far`.
        others: addresses of other rows, read or written.
    Returns:
        the constants of `copy_rows`, and ROWS and num_warps of a program. WORD: a power of two from 1 to 16 that divides all addresses and
        the row's size; READ: bytes per read.
    """
    alignment = source
    for address in others:
        alignment |= address
    return _layout(row_bytes, source % LINE.value, alignment % 16, is_far)


@cache
def _layout(row_bytes: int, source: int, alignment: int, is_far: bool) -> dict[str, Any]:
    word = row_bytes | alignment | 16
    word &= -word
    read = 16 if is_far and row_bytes >= WIDE_BYTES else max(4, word)
    is_shifted = row_bytes >= LINE.value and (row_bytes | source) % LINE.value != 0  # one instruction reads a shorter row anyway
    needed = cdiv(row_bytes + read - min(word, read), read) * read + (LINE.value - read if is_shifted else 0)
    most = FAR_COLUMN_BYTES if is_far else NEAR_COLUMN_BYTES
    column_bytes = triton.next_power_of_2(needed) if needed <= most else NEAR_COLUMN_BYTES
    rows = triton.next_power_of_2(cdiv(FAR_BYTES, min(row_bytes, column_bytes))) if is_far else NEAR_BYTES // column_bytes
    rows = max(1, min(MAX_ROWS, rows))
    return {
        "ROW_BYTES": row_bytes, "WORD": word, "READ": read, "COLUMNS": column_bytes // min(read, 8), "SHIFTED": is_shifted,
        "ROWS": rows, "num_warps": 4 if rows * column_bytes <= NEAR_BYTES else 8,
    }  # fmt: skip


def integer_of(numbers: torch.Tensor) -> Any:
    """The Triton type of row numbers."""
    return tl.int32 if numbers.dtype == torch.int32 else tl.int64


def addresses_of(device: torch.device, *tensors: torch.Tensor) -> list[int]:
    """The addresses at which a kernel on `device` finds the first bytes of contiguous tensors."""
    return [device_address(tensor, device) for tensor in tensors]
