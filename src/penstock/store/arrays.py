"""Arrays of a store as files: written once from front to back, mapped or read in blocks afterwards.

In: rows. Out: an `.npy` with its data at byte 4096, and an `ArraySpec` with a checksum per block, taken while writing. The number of
rows may be known only at the end: the header has room for any.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from penstock.errors import MAKE_AGAIN, CorruptStoreError, StoreError, reason_of
from penstock.store.files import MappedPages, WriteBehind, as_bytes, forget_pages, open_file, read_at, write_at
from penstock.store.format import BLOCK_BYTES, DATA_OFFSET, DTYPES, ArraySpec, npy_header, row_bytes

NO_SECOND_NAME = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""Errors when a file cannot get a second name: other file system, other owner, too many names, or hard links not supported."""


class ArrayWriter:
    """Write one array from front to back.

    Args:
        root: folder of the store.
        file: path within it; missing folders are made.
        dtype: logical dtype; rows are given in its storage dtype.
        row_shape: shape of one row.
    """

    def __init__(self, root: Path, file: str, dtype: str, row_shape: tuple[int, ...] = ()) -> None:
        self.num_rows = 0
        self.properties: dict[str, Any] = {}
        self._file, self._dtype, self._row_shape = file, dtype, tuple(row_shape)
        self._row_bytes = row_bytes(DTYPES[dtype], self._row_shape)
        self._checksums: list[str] = []
        self._block, self._block_bytes, self._position = xxhash.xxh3_64(), 0, DATA_OFFSET
        self._path = root / file
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._write_behind = WriteBehind(self._descriptor)

    @property
    def storage_dtype(self) -> np.dtype:
        """The dtype of the rows that it takes."""
        return DTYPES[self._dtype]

    def append(self, rows: np.ndarray) -> None:
        """Write the next rows: storage dtype[n, *row_shape]."""
        if rows.dtype != DTYPES[self._dtype] or rows.shape[1:] != self._row_shape:
            raise AssertionError(f"{self._file} takes {DTYPES[self._dtype]} rows of {self._row_shape}, got {rows.dtype} {rows.shape}")
        self.num_rows += len(rows)
        if rows.size:
            self._write(as_bytes(rows))

    def pad_rows(self, num_rows: int, value: int) -> None:
        """Append rows of one value until there are `num_rows`."""
        while self.num_rows < num_rows:
            count = min(num_rows - self.num_rows, (1 << 20) // self._row_bytes)
            self.append(np.full((count, *self._row_shape), value, dtype=DTYPES[self._dtype]))

    def _write(self, buffer: memoryview) -> None:
        for start in range(0, len(buffer), 1 << 20):
            self._write_piece(buffer[start : start + (1 << 20)])

    def _write_piece(self, buffer: memoryview) -> None:
        """Checksum and write a piece while it is still in the processor's cache."""
        write_at(self._descriptor, buffer, self._position)
        self._position += len(buffer)
        self._write_behind.wrote(len(buffer))
        while len(buffer):
            part = buffer[: BLOCK_BYTES - self._block_bytes]
            self._block.update(part)
            self._block_bytes += len(part)
            buffer = buffer[len(part) :]
            if self._block_bytes == BLOCK_BYTES:
                self._close_block()

    def _close_block(self) -> None:
        self._checksums.append(self._block.hexdigest())
        self._block, self._block_bytes = xxhash.xxh3_64(), 0

    def finish(self) -> ArraySpec:
        """Write the header, flush to disk and close."""
        if self._block_bytes:
            self._close_block()
        shape = (self.num_rows, *self._row_shape)
        write_at(self._descriptor, memoryview(npy_header(DTYPES[self._dtype], shape)), 0)
        os.fsync(self._descriptor)
        self.close()
        return ArraySpec(
            file=self._file, dtype=self._dtype, shape=shape, checksums=tuple(self._checksums), properties=dict(self.properties)
        )

    def discard(self) -> None:
        """Close and remove the file."""
        self.close()
        self._path.unlink()

    def close(self) -> None:
        """Close the file, finished or not."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class ArrayFile:
    """One array of a store, opened for reading.

    Args:
        spec: what the manifest says.
        folder: descriptor of the store's folder, so that files of a store that replaced this one are never opened instead.
        store: path of the store, for messages.
    """

    def __init__(self, spec: ArraySpec, folder: int, store: object) -> None:
        self.spec, self._folder, self._store = spec, folder, store

    @contextmanager
    def _open(self, verb: str = "read") -> Iterator[int]:
        """Yield a descriptor of the file; OSError within the block becomes an error that names the file."""
        try:
            descriptor = open_file(self.spec.file, dir_fd=self._folder)
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            message = f"{self._store}: {self.spec.file} is missing: the store is damaged, or was replaced since it was opened; {MAKE_AGAIN}"
            raise CorruptStoreError(message) from None
        except IsADirectoryError:
            raise CorruptStoreError(f"{self._store}: {self.spec.file} is a folder: the store is damaged; {MAKE_AGAIN}") from None
        except ValueError:  # raised by mmap
            raise CorruptStoreError(f"{self._store}: {self.spec.file} is shorter than the manifest says; {MAKE_AGAIN}") from None
        except OSError as error:
            raise StoreError(f"{self._store}: cannot {verb} {self.spec.file}: {reason_of(error)}") from None

    def check_shape(self) -> None:
        """Compare size and header with the manifest."""
        spec, expected_bytes, header = self.spec, DATA_OFFSET + self.spec.data_bytes, bytearray(DATA_OFFSET)
        with self._open() as descriptor:
            size = os.fstat(descriptor).st_size
            read_at(descriptor, memoryview(header), 0)
        if size != expected_bytes:
            what = "truncated" if size < expected_bytes else "too long"
            found = f"{size} bytes, the manifest says {expected_bytes}"
            raise CorruptStoreError(f"{self._store}: {spec.file} is {what}: {found}; {MAKE_AGAIN}")
        if header != npy_header(spec.storage_dtype, spec.shape):
            at = next(i for i, (a, b) in enumerate(zip(header, npy_header(spec.storage_dtype, spec.shape), strict=True)) if a != b)
            raise CorruptStoreError(
                f"{self._store}: the header of {spec.file} is not that of {spec.dtype} {list(spec.shape)} in the manifest; "
                f"first difference at byte {at}; {MAKE_AGAIN}"
            )

    def link(self, path: Path) -> bool:
        """Give the file a second name (a hard link); returns False if the file system does not allow it, or the path is on another one."""
        with self._open("link"):
            try:
                os.link(self.spec.file, path, src_dir_fd=self._folder)
            except OSError as error:
                if error.errno in NO_SECOND_NAME:
                    return False
                raise
        return True

    def map(self) -> np.ndarray:
        """Map the whole array, read-only."""
        with self._open("map") as descriptor:
            pages = MappedPages(descriptor, DATA_OFFSET + self.spec.data_bytes, access=mmap.ACCESS_READ)
            found = os.fstat(descriptor)
        pages.path, pages.inode = Path(str(self._store), self.spec.file), (found.st_dev, found.st_ino)
        pages.written_ns = found.st_mtime_ns
        return np.ndarray(self.spec.shape, dtype=self.spec.storage_dtype, buffer=pages, offset=DATA_OFFSET)

    def read(self, first_row: int, num_rows: int) -> np.ndarray:
        """Read rows without mapping them, and without leaving them in the page cache.

        Args:
            first_row, num_rows: within the array.
        Returns:
            storage dtype[num_rows, *row_shape].
        """
        spec = self.spec
        rows = np.empty((num_rows, *spec.shape[1:]), dtype=spec.storage_dtype)
        if rows.size == 0:
            return rows
        offset = DATA_OFFSET + first_row * spec.row_bytes
        with self._open() as descriptor:
            count = read_at(descriptor, as_bytes(rows), offset)
            forget_pages(descriptor, offset, rows.nbytes)
        if count < rows.nbytes:
            raise CorruptStoreError(f"{self._store}: {spec.file} is shorter than the manifest says; {MAKE_AGAIN}")
        return rows

    def blocks(self, max_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (number of the first row, rows) in order, in blocks of at most `max_bytes`, but at least one row."""
        num_rows = max(1, max_bytes // max(1, self.spec.row_bytes))
        for first in range(0, self.spec.shape[0], num_rows):
            yield first, self.read(first, min(num_rows, self.spec.shape[0] - first))
