"""Files of rows, opened so that reads bypass the page cache, if the file system allows it.

In: a path, or an array that is mapped from a file. Out: a descriptor, and the block size of reads. Invariant: a file that was replaced
since it was mapped is refused.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import MAKE_AGAIN, TierError, reason_of
from penstock.store.files import MappedPages
from penstock.store.tiers.host import row_bytes_of

BLOCKS = (512, 4096)
"""Logical blocks that disks have, tried in this order."""

BUFFERED_BLOCK = 512
"""Block size of reads through the page cache; any number would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """Rows of equal length in a file, one after the other.

    Attributes:
        path: of the file.
        data_offset: where row 0 begins.
        row_bytes: bytes of a row.
        inode: (device, number) that the path must lead to; None: any.
    """

    path: Path
    data_offset: int
    row_bytes: int
    inode: tuple[int, int] | None = None

    @classmethod
    def behind(cls, array: np.ndarray) -> RowFile | None:
        """Return the file behind a C-contiguous array [num_rows, ...] that is a map, of a store or by `np.load(mmap_mode="r")`; None for
        others."""
        owner: Any = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        pages, row_bytes = owner.base, row_bytes_of(array)
        if not array.flags.c_contiguous:
            return None
        if isinstance(pages, MappedPages):
            offset = address_of(array) - address_of(np.frombuffer(pages, np.uint8))
            return cls(path=pages.path, data_offset=offset, row_bytes=row_bytes, inode=pages.inode)
        if isinstance(owner, np.memmap) and isinstance(pages, mmap.mmap) and owner.mode == "r" and owner.filename:
            return cls(path=Path(owner.filename), data_offset=owner.offset + address_of(array) - address_of(owner), row_bytes=row_bytes)
        return None


def address_of(array: np.ndarray) -> int:
    """Address of the first byte."""
    return array.__array_interface__["data"][0]


class OpenRows:
    """A file of rows, open. Closed with the object.

    Args:
        file: which.
        num_rows: least number of rows of the file.
        name: of the tier, for messages.
        block_bytes: reads begin and end at multiples of this; None: the smallest block that the file allows.
        direct: bypass the page cache, if the file system allows it.
    Attributes:
        refusal: why reads go through the page cache; None if they do not.
    """

    def __init__(self, file: RowFile, num_rows: int, name: str, *, block_bytes: int | None = None, direct: bool = True) -> None:
        self.file, self.end, self.refusal = file, file.data_offset + num_rows * file.row_bytes, None
        try:
            self.descriptor, block = _open_direct(file.path) if direct else (os.open(file.path, os.O_RDONLY | os.O_CLOEXEC), BUFFERED_BLOCK)
        except FileNotFoundError:
            raise TierError(f"{name}: {file.path} is not there: it was moved, or the store was replaced; open the store again") from None
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise TierError(f"{name}: cannot open {file.path}: {reason_of(error)}") from None
            self.refusal = f"the file system of {file.path} takes no direct reads"
            self.descriptor, block = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC), BUFFERED_BLOCK
        self.is_direct = direct and self.refusal is None
        self._close = weakref.finalize(self, os.close, self.descriptor)
        self.block_bytes = max(block, block_bytes or 0)
        found = os.fstat(self.descriptor)
        if file.inode is not None and (found.st_dev, found.st_ino) != file.inode:
            raise TierError(f"{name}: {file.path} was replaced since it was opened: open the store again")
        if found.st_size < self.end:
            raise TierError(
                f"{name}: {file.path} has {found.st_size} bytes, {num_rows} rows need {self.end}: it is truncated; {MAKE_AGAIN}"
            )

    def close(self) -> None:
        """Close it."""
        self._close()


def _open_direct(path: Path) -> tuple[int, int]:
    """Return (descriptor, smallest block) for reads that bypass the page cache; raises OSError if they are not possible."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    with mmap.mmap(-1, max(BLOCKS)) as buffer:
        for block in BLOCKS:
            try:
                with memoryview(buffer)[:block] as target:
                    os.preadv(descriptor, [target], 0)
                return descriptor, block
            except OSError as error:
                if error.errno != errno.EINVAL:
                    os.close(descriptor)
                    raise
    os.close(descriptor)
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
