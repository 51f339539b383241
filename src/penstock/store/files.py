"""Reading and writing whole buffers, syncing, locking: thin wrappers over system calls.

Invariant: written pages are sent to the disk continuously (`WriteBehind`), so that at most two windows of them are dirty: a process whose
memory limit counts the page cache (a container) never waits for many dirty pages at once, and the final flush is short.
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
    """A memory map that knows its file, so that its rows can also be read in other ways.

    Attributes:
        path: of the file.
        inode: (device, number).
        written_ns: modification time of the file when it was mapped.
        is_moved: its pages were replaced by huge pages, or are being replaced, or must not be (see `huge_pages`).
    """

    path: Path
    inode: tuple[int, int]
    written_ns: int
    is_moved: bool = False


def open_file(name: str, flags: int = os.O_RDONLY, *, dir_fd: int) -> int:
    """Open a file whose name comes from elsewhere; refuses pipes and devices, which may block or never end."""
    descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=dir_fd)
    kind = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return descriptor


def memory_of(array: np.ndarray) -> Any:
    """Return the object that owns the memory of an array, for instance a map; None if NumPy owns it."""
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
    """Fill the buffer from an offset of a file; returns the bytes read, which are fewer only at the end of the file."""
    done = 0
    while done < len(buffer):
        count = os.preadv(descriptor, [buffer[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done


def forget_pages(descriptor: int, offset: int, length: int) -> None:
    """Tell the system that these pages of a file will not be needed again soon."""
    os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


class WriteBehind:
    """For each window of bytes written: start writing it to disk, and wait for the window before."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._pending_bytes = descriptor, 0

    def wrote(self, length: int) -> None:
        """Note that `length` bytes were written, anywhere in the file."""
        self._pending_bytes += length
        if self._pending_bytes >= WINDOW_BYTES:
            self._pending_bytes = 0
            if hasattr(_libc, "sync_file_range"):
                _libc.sync_file_range(self._descriptor, _WHOLE_FILE, _WHOLE_FILE, ctypes.c_uint(_WAIT_BEFORE | _WRITE))


class ScratchFile:
    """A file without a name, which does not outlive the process; rows are written and read at byte offsets."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - whoever made it closes it
        self._write_behind = WriteBehind(self._file.fileno())

    def write(self, rows: np.ndarray, offset: int) -> None:
        """Write all rows at an offset."""
        if rows.size:
            write_at(self._file.fileno(), as_bytes(rows), offset)
            self._write_behind.wrote(rows.nbytes)

    def read(self, rows: np.ndarray, offset: int, *, forget: bool = False) -> np.ndarray:
        """Fill `rows` from an offset, and return them. `forget`: drop the pages from the page cache, as they are not needed again."""
        if rows.size:
            read_at(self._file.fileno(), as_bytes(rows), offset)
            if forget:
                forget_pages(self._file.fileno(), offset, rows.nbytes)
        return rows

    def as_stream(self) -> IO[bytes]:
        """Return the file as a Python stream."""
        return self._file

    def close(self) -> None:
        """Close the file, which frees its disk space."""
        self._file.close()


class Scratch:
    """Makes scratch files, and closes those that are still open at the end.

    Args:
        folder: on the disk that stores them.
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
    """Lock an open file, until it is closed; raises BlockingIOError if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"its file system has no locks ({error.strerror}), mount it with them") from error


def open_locked(path: Path) -> int:
    """Make a file, and its folder, and lock it; returns a descriptor that holds the lock until it is closed. Raises as `lock_file`;
    symbolic links are not followed. A holder of the lock may have removed the file meanwhile: then the file that is there now is locked."""
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
    """Sync a folder, so that the names in it survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths atomically; returns False if the file system cannot."""
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
    """Turn the system's errors about a path into StoreError with one line that says what to do."""
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
