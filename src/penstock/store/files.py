"""Writing and reading whole buffers, and making what was written last: thin covers over the system calls that Python leaves raw.

Invariant: written pages are pushed to the disk as they come (`WriteBehind`), so that at most two windows of them are dirty: a bound on
memory that counts the page cache (a container's) then never waits for a flood of them, and the final flush is short.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from penstock.errors import StoreError, reason_of

WINDOW_BYTES = 8 << 20
_WAIT_BEFORE, _WRITE = 1, 2
_WHOLE_FILE = ctypes.c_int64(0)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_libc = ctypes.CDLL(None, use_errno=True)


class MappedPages(mmap.mmap):
    """A map that knows its file, for whoever wants to read rows of it in another way.

    Attributes:
        path: of the file.
        inode: (device, number).
        written_ns: when it was last written to, as of the mapping.
        is_moved: its pages were copied into memory where they lie, or are being so, or must not be (see `huge_pages`).
    """

    path: Path
    inode: tuple[int, int]
    written_ns: int
    is_moved: bool = False


def open_file(name: str, flags: int = os.O_RDONLY, *, dir_fd: int) -> int:
    """Open a file that was named by somebody else: a pipe or a device of that name would be waited for, or read without an end."""
    descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=dir_fd)
    kind = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file")
    return descriptor


def memory_of(array: np.ndarray) -> Any:
    """Return what the memory of an array belongs to, for instance a map; None where NumPy has it."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.obj if isinstance(owner, memoryview) else owner.base
    return owner


def as_bytes(array: np.ndarray) -> memoryview:
    """View a C-contiguous array as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def write_at(descriptor: int, buffer: memoryview, offset: int) -> None:
    """Write the whole buffer at an offset of a file."""
    done = 0
    while done < len(buffer):
        done += os.pwrite(descriptor, buffer[done:], offset + done)


def read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill the buffer from an offset of a file; returns the bytes read, fewer only at the end of the file."""
    done = 0
    while done < len(buffer):
        count = os.preadv(descriptor, [buffer[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done


def forget_pages(descriptor: int, offset: int, length: int) -> None:
    """Tell the system that these pages of a file will not be read again soon."""
    os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


class WriteBehind:
    """Start writing a file to disk with every window that fills, and wait for the window before."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._pending_bytes = descriptor, 0

    def wrote(self, length: int) -> None:
        """Note that so many bytes were written, anywhere in the file."""
        self._pending_bytes += length
        if self._pending_bytes >= WINDOW_BYTES:
            self._pending_bytes = 0
            if hasattr(_libc, "sync_file_range"):
                _libc.sync_file_range(self._descriptor, _WHOLE_FILE, _WHOLE_FILE, ctypes.c_uint(_WAIT_BEFORE | _WRITE))


class ScratchFile:
    """A file without a name, so that nothing of it outlives the process: rows written and read at offsets in bytes."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - whoever made it closes it
        self._write_behind = WriteBehind(self._file.fileno())

    def write(self, rows: np.ndarray, offset: int) -> None:
        """Write all rows at an offset."""
        if rows.size:
            write_at(self._file.fileno(), as_bytes(rows), offset)
            self._write_behind.wrote(rows.nbytes)

    def read(self, rows: np.ndarray, offset: int, *, forget: bool = False) -> np.ndarray:
        """Fill all rows from an offset, and forget the pages where this is their last use. Returns the rows."""
        if rows.size:
            read_at(self._file.fileno(), as_bytes(rows), offset)
            if forget:
                forget_pages(self._file.fileno(), offset, rows.nbytes)
        return rows

    def as_stream(self) -> IO[bytes]:
        """Return the file for whoever reads and writes streams."""
        return self._file

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()


class Scratch:
    """A maker of scratch files, which closes those that are still open at the end.

    Args:
        folder: on the disk that shall take them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._files = folder, []

    def file(self) -> ScratchFile:
        """Make a file."""
        self._files.append(ScratchFile(self._folder))
        return self._files[-1]

    def close(self) -> None:
        """Close all files that are still open."""
        for file in self._files:
            file.close()
        self._files.clear()


def lock_file(descriptor: int) -> None:
    """Take the lock of an open file, which is gone with it; raises BlockingIOError where another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"its file system has no locks ({error.strerror}), mount it with them") from error


def open_locked(path: Path) -> int:
    """Make a file, and its folder, and take its lock: a descriptor, with which the lock is gone. As of `lock_file`; nothing is written
    where a link leads. Who has the lock may remove the file: the one that is there is taken."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            lock_file(descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths in one step; False where the file system cannot."""
    if not hasattr(_libc, "renameat2"):
        return False
    status = _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if status == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


@contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """Turn the system's complaints about a disk into one line that says what to do."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        reasons = {
            errno.ENOSPC: "the disk is full: free some space or choose another disk",
            errno.EDQUOT: "the disk quota is used up: free some space or choose another disk",
            errno.EROFS: "the file system is read-only: choose another folder",
            errno.EACCES: "no permission: choose another folder, or change its owner or mode",
            errno.EPERM: "no permission: choose another folder, or change its owner or mode",
        }
        if error.errno is None:  # an error of ours
            raise
        raise StoreError(f"cannot {verb} {path}: {reasons.get(error.errno) or reason_of(error)}") from error
