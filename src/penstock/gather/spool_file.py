"""The files of a spool: rows in two halves, written piece by piece, bypassing the page cache. Also cuts a group of batches into pieces.

In: rows in memory. Out: a tier of the rows, by their place in the spool. Invariant: in every file, a piece begins at a block boundary.
"""

from __future__ import annotations

import errno
import math
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.errors import TierError, UsageError, argument, reason_of
from penstock.store.budget import format_bytes
from penstock.store.process_memory import aligned_bytes
from penstock.store.tiers import DiskOptions, DiskTier, RowFile

BLOCK = 4096
"""Writes begin and end at multiples of this."""
MOST_ROWS = 1 << 18
"""Most rows of a piece."""
GAP_BYTES = 1 << 15
"""Holes between the rows of a batch belong to other batches; holes up to this size are read along."""


class SpoolFile:
    """Rows on a disk, in one file per field. The files have no names, and end with the object.

    Args:
        folder: on the disk to use.
        row_bytes: bytes of a row, per field.
        num_bytes: size of the spool, all fields and both halves together.
        num_buffers: number of buffers for pieces. piece_bytes: approximate bytes per piece. least_rows: least rows per piece.
        name: for messages.
    Attributes:
        step: pieces begin at multiples of this number of rows. piece_rows: most rows of a piece. half_rows: rows of each half.
        tier: the rows, by their place. written_bytes: bytes written so far.
    Raises:
        UsageError: the spool is too small for any row, or cannot be made in the folder.
    """

    def __init__(
        self,
        folder: Path,
        row_bytes: Sequence[int],
        num_bytes: int,
        *,
        num_buffers: int,
        piece_bytes: int,
        least_rows: int = 1,
        name: str = "spool",
    ) -> None:
        whole = max(1, sum(row_bytes))
        self.step, self.piece_rows = _step_of(row_bytes), piece_rows_of(row_bytes, piece_bytes, least_rows)
        least = least_bytes(row_bytes)
        self.half_rows = num_bytes // 2 // whole // self.step * self.step
        self.written_bytes = 0
        if num_bytes < least:
            raise UsageError(f"{argument('spool')} of {format_bytes(num_bytes)} holds no rows: give at least {least:,} bytes")
        self._row_bytes, self._folder, self._name = tuple(row_bytes), folder, name
        self._buffers = [[_pages(self.piece_rows * width) for width in row_bytes] for _ in range(num_buffers)]
        self._descriptors: list[int] = []
        weakref.finalize(self, _close, self._descriptors)
        files = []
        try:
            for width in row_bytes:
                with tempfile.TemporaryFile(dir=folder) as unnamed:  # without a name: removed when it is closed, in any case
                    os.posix_fallocate(unnamed.fileno(), 0, max(1, 2 * self.half_rows * width))
                    path = Path(f"/proc/self/fd/{unnamed.fileno()}")
                    self._descriptors.append(_open_to_write(path))
                files.append(RowFile(path=Path(f"/proc/self/fd/{self._descriptors[-1]}"), data_offset=0, row_bytes=width))
        except OSError as error:
            room = ""
            _close(self._descriptors)  # so that their space counts as free
            self._descriptors.clear()
            if error.errno == errno.ENOSPC:
                space = os.statvfs(folder)
                room = f": {format_bytes(space.f_bavail * space.f_frsize)} are free"
            raise UsageError(
                f"{argument('spool')} of {format_bytes(num_bytes)} cannot be made in {folder}: {reason_of(error)}{room}; give "
                f"less, or a folder on another disk ({argument('spool_folder')})"
            ) from None
        self.tier = DiskTier(files, 2 * self.half_rows, name, DiskOptions(gap_bytes=GAP_BYTES, block_bytes=BLOCK))

    @property
    def buffer_bytes(self) -> int:
        """Memory of all buffers."""
        return sum(buffer.nbytes for fields in self._buffers for buffer in fields)

    def buffer(self, number: int) -> list[np.ndarray]:
        """Return a buffer: per field uint8[piece_rows * row_bytes]."""
        return self._buffers[number]

    def write(self, first: int, count: int, buffers: Sequence[np.ndarray]) -> None:
        """Write `count` rows of a buffer to the spool, from row `first` on, a multiple of `step`. Raises TierError."""
        for descriptor, width, buffer in zip(self._descriptors, self._row_bytes, buffers, strict=True):
            left, at = buffer.data[: -(-count * width // BLOCK) * BLOCK], first * width
            while left:
                try:
                    done = os.pwrite(descriptor, left, at)
                except OSError as error:
                    raise TierError(
                        f"{self._name}: it cannot be written in {self._folder}: {reason_of(error)}; give less "
                        f"{argument('spool')}, or a folder on another disk ({argument('spool_folder')})"
                    ) from error
                left, at = left[done:], at + done
                self.written_bytes += done


def piece_rows_of(row_bytes: Sequence[int], piece_bytes: int, least_rows: int) -> int:
    """Return the number of rows of a piece: about `piece_bytes`, at least `least_rows`, whole blocks of each field. For narrow rows, at
    most about MOST_ROWS, since planning their reads takes many times their size."""
    step = _step_of(row_bytes)
    return step * -(-max(least_rows, min(MOST_ROWS, piece_bytes // max(1, sum(row_bytes)))) // step)


def least_bytes(row_bytes: Sequence[int]) -> int:
    """Return the size of the smallest spool that holds any rows."""
    return 2 * _step_of(row_bytes) * max(1, sum(row_bytes))


def _step_of(row_bytes: Sequence[int]) -> int:
    """Return the least number of rows that fill whole blocks in each field."""
    return math.lcm(*(BLOCK // math.gcd(width, BLOCK) for width in row_bytes))


class Pieces(NamedTuple):
    """How batches are cut into pieces.

    Attributes:
        num_batches: number of batches of the group that fit; they are the first ones.
        cuts: int64[num_batches, num_pieces + 1]: piece p has the rows cuts[b, p]:cuts[b, p + 1] of batch b.
    """

    num_batches: int
    cuts: np.ndarray

    @property
    def num_pieces(self) -> int:
        """Number of pieces of all batches."""
        return self.cuts.shape[1] - 1


def cut(batches: Sequence[np.ndarray], piece_rows: int, half_rows: int, step: int) -> Pieces:
    """Cut batches at the same row numbers, so that the parts of all batches between two cuts make a piece.

    Args:
        batches: per batch its distinct rows, ascending.
        piece_rows: most rows of a piece; at least four times the number of batches.
        half_rows: rows that fit, with pieces rounded up to multiples of `step`. The last batches are left out if they do not fit.
    """
    ends = np.cumsum([0, *(rows.size for rows in batches)])
    number = int(np.searchsorted(ends + (2 * ends // piece_rows + 2) * step, half_rows, side="right")) - 1
    if number <= 0:
        return Pieces(0, np.zeros((0, 1), np.int64))
    some = batches[:number]
    # every `stride`-th row of a batch represents `stride` rows; between two cuts, a batch may have up to `stride` more; equal rows are on
    # the same side of a cut
    stride = max(1, piece_rows // (16 * number))
    standing = np.sort(np.concatenate([rows[stride - 1 :: stride] for rows in some]))
    apart = piece_rows // stride - 2 * number
    cuts = [np.concatenate([[0], np.searchsorted(rows, standing[apart::apart]), [rows.size]]) for rows in some]
    return Pieces(number, np.stack(cuts).astype(np.int64))


def _pages(num_bytes: int) -> np.ndarray:
    """Return uint8[at least num_bytes], page-aligned and of whole blocks, as direct writes require."""
    return aligned_bytes(max(1, -(-num_bytes // BLOCK)) * BLOCK)


def _open_to_write(path: Path) -> int:
    """Open for writing, bypassing the page cache if the file system allows it."""
    try:
        return os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
