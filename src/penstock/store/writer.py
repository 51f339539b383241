"""Writing a store atomically: beside the destination, under a lock, renamed at the end.

In: arrays and a manifest. Out: a store at the destination, or nothing. Invariants: the destination holds the old state or the new one, even
if the process is killed; files left by a killed writer are removed by the next one; two writers never work on one destination.

While `papers` is written, two names exist beside it: `.papers.lock`, held by flock until its holder ends, and `.papers.partial-<pid>`, the
unfinished store. If the file system cannot swap two folders, the old store is renamed to `.papers.old-<pid>` on the way.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from penstock.errors import (
    MAKE_AGAIN,
    CorruptStoreError,
    FormatVersionError,
    NotAStoreError,
    StoreBusyError,
    StoreError,
    UsageError,
    argument,
    refuse_unseen,
)
from penstock.store.arrays import ArrayWriter
from penstock.store.files import Scratch, exchange, explained, lock_file, sync_folder
from penstock.store.format import BLOCK_BYTES, FOLDERS, MANIFEST, ArraySpec
from penstock.store.opened import Store
from penstock.store.results import refuse_in_store

PARTIAL = f".{MANIFEST}.partial"
OF_CHANGES = re.compile(r"(.+\.packed|packed_rows)(-\d+)?\.npy")
"""Files that a change of a store makes (`store/change.py`). Fields may have such names too, but those are in the manifest."""


class Serialised(Protocol):
    """A manifest: of a store or of a part."""

    def to_bytes(self) -> bytes: ...  # noqa: D102


class WriterLock:
    """The lock for writing at a path: held by one process at a time, released when it ends.

    Args:
        destination: path of the store; a link is followed, so that a store has only one lock.
    Attributes:
        is_held: whether this object holds it.
    """

    is_held = False

    def __init__(self, destination: Path) -> None:
        destination = Path(os.path.realpath(destination))
        self._destination, self._path, self._lock = destination, destination.parent / f".{destination.name}.lock", -1

    def acquire(self) -> None:
        """Take the lock; raises StoreBusyError if another process holds it."""
        while True:
            self._lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                lock_file(self._lock)
                if self._path.exists() and os.path.samestat(os.fstat(self._lock), os.stat(self._path)):
                    self.is_held = True
                    self._sign()
                    return
            except BlockingIOError:
                holder = os.pread(self._lock, 20, 0).decode(errors="replace") or "unknown"
                self._close()
                raise StoreBusyError(
                    f"another process (pid {holder}) is writing {self._destination}: wait for it, or choose another path"
                ) from None
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno != errno.ENOLCK:  # nobody can have it
                    self._path.unlink(missing_ok=True)
                self._close()
                raise
            self._close()

    def _sign(self) -> None:
        """Write our process id into the lock file, for messages of other processes; ignored if the disk is full."""
        with suppress(OSError):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def _close(self) -> None:
        os.close(self._lock)
        self._lock, self.is_held = -1, False

    def release(self) -> None:
        """Remove the lock file while it is still held: a process that opened it meanwhile sees that it is gone, and starts over."""
        self._path.unlink(missing_ok=True)
        self._close()


class StoreWriter:
    """A store being written; a context manager that takes the lock and leaves no unfinished files behind.

    Args:
        destination: path of the new store; its parent must exist. If it is a link, the store is written where the link leads.
        overwrite: replace an existing store, if its folder holds nothing else. It stays until the new one is complete.
    Attributes:
        folder: of the unfinished store.
        scratch: for temporary files.
    """

    def __init__(self, destination: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self.destination = Path(os.path.realpath(destination))
        parent, name = self.destination.parent, self.destination.name
        self._overwrite, self._name, self._parent = overwrite, name, parent
        self.folder = parent / f".{name}.partial-{os.getpid()}"
        self.scratch = Scratch(self.folder)
        self._lock = WriterLock(self.destination)
        self._open_arrays: list[ArrayWriter] = []

    def __enter__(self) -> Self:
        try:
            with explained(self.destination, "write"):
                if not self._parent.is_dir():
                    refuse_unseen(self._parent)
                    raise UsageError(f"cannot write {self.destination}: the folder {self._parent} does not exist")
                refuse_in_store(self._parent, None)
                self._check_destination()
                self._lock.acquire()
                self._check_destination()
                self._remove_litter()
                self.folder.mkdir()
            return self
        except BaseException:  # also Ctrl-C, even after the last line
            if self._lock.is_held:
                shutil.rmtree(self.folder, ignore_errors=True)
                self._lock.release()
            raise

    def _check_destination(self) -> None:
        path = self.destination
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return
        if not (path / MANIFEST).is_file():
            raise UsageError(f"{path} exists and is not a Penstock store: choose another path")
        if not self._overwrite:
            raise UsageError(f"{path} is a store already: choose another path, or say {argument('overwrite', True)}")
        try:
            other = what_is_not_of_the_store(path)
        except NotAStoreError:
            raise UsageError(f"{path} exists and is not a Penstock store: choose another path") from None
        if other is not None:
            raise UsageError(f"{path} holds '{other}', which is not of the store and would be lost: move it, or choose another path")

    def _remove_litter(self) -> None:
        """Remove files of killed writers. The caller holds the lock, so no writer is alive."""
        for old in self._beside("old"):
            if not self.destination.exists():
                old.rename(self.destination)
            else:
                _remove(old)
        for partial in self._beside("partial"):
            _remove(partial)

    def _beside(self, kind: str) -> list[Path]:
        prefix = f".{self._name}.{kind}-"
        return [path for path in sorted(self._parent.iterdir()) if path.name.startswith(prefix) and path.name[len(prefix) :].isdigit()]

    def array(self, file: str, dtype: str, row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        """Begin an array of the store."""
        writer = ArrayWriter(self.folder, file, dtype, row_shape)
        self._open_arrays.append(writer)
        return writer

    def adopt(self, store: Store, spec: ArraySpec) -> None:
        """Add an array of another store: as a second name (hard link) of its file, or, if the file system does not allow that, as a
        copy."""
        path, source = self.folder / spec.file, store.array_file(spec)
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.link(path):
            return
        copy = self.array(spec.file, spec.dtype, spec.shape[1:])
        for _, rows in source.blocks(BLOCK_BYTES):
            copy.append(rows)
        if copy.finish().checksums != spec.checksums:
            raise CorruptStoreError(f"{store.path}: {spec.file} is damaged: its checksums are not those in the manifest; {MAKE_AGAIN}")

    def commit(self, manifest: Serialised) -> None:
        """Write the manifest, sync everything to disk, and rename the store to its destination."""
        write_manifest(self.folder / MANIFEST, manifest)
        for folder, _, _ in os.walk(self.folder):
            sync_folder(Path(folder))
        if not (self.destination / MANIFEST).exists():
            self.folder.rename(self.destination)
        elif not exchange(self.folder, self.destination):
            old = self._parent / f".{self._name}.old-{os.getpid()}"
            self.destination.rename(old)
            self.folder.rename(self.destination)
            shutil.rmtree(old)
        sync_folder(self._parent)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.scratch.close()
        for array in self._open_arrays:
            array.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            with explained(self.destination, "write"):
                raise error


def what_is_not_of_the_store(path: Path) -> str | None:
    """Return the path, within a store's folder, of the first entry that no writer put there; None if there is none.

    Raises:
        NotAStoreError: the folder is not a store.
    """
    try:
        manifest = Store(path, check_arrays=False).manifest
        files = {spec.file for spec in manifest.all_arrays()}
    except (CorruptStoreError, FormatVersionError):
        files = None  # unknown: any array in the right place is taken for one of the store
    for found in sorted(path.rglob("*")):
        name, is_link = found.relative_to(path), found.is_symlink()
        if name.as_posix() in (MANIFEST, PARTIAL, *(files or ())):
            continue
        is_array = found.suffix == ".npy" if files is None else OF_CHANGES.fullmatch(found.name)
        if name.parts[0] not in FOLDERS or is_link or not (found.is_dir() or is_array):
            return name.as_posix()
    return None


def _remove(path: Path) -> None:
    """Remove a folder with its contents; if it is a link, remove only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def write_manifest(path: Path, manifest: Serialised) -> None:
    """Write a manifest and sync it to disk."""
    with open(path, "wb") as file:
        file.write(manifest.to_bytes())
        file.flush()
        os.fsync(file.fileno())
