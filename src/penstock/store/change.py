"""Adding arrays to an existing store, or removing some: under its lock; new files beside the old ones; the manifest is renamed at the end.

In: a store. Out: the same store with another manifest. Invariants: no file that the manifest names is ever modified, so the store is the
old one until the rename and the new one afterwards, even if the process is killed; files that were made here but that no manifest names are
removed by the next change of the store. Open `Store` objects do not change.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from penstock.errors import StoreError
from penstock.store.arrays import ArrayWriter
from penstock.store.files import Scratch, explained, sync_folder
from penstock.store.format import MANIFEST
from penstock.store.manifest import Manifest
from penstock.store.opened import Store
from penstock.store.writer import OF_CHANGES, PARTIAL, WriterLock, write_manifest


class StoreChange:
    """A change of a store; a context manager that takes the lock and leaves no unused files behind.

    Args:
        path: of the store.
    Attributes:
        store: as it is before the change.
        scratch: for temporary files.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.store = Store(path)
        self.scratch = Scratch(self.store.path)
        self._lock, self._open_arrays = WriterLock(self.store.path), list[ArrayWriter]()

    def __enter__(self) -> Self:
        with explained(self.store.path, "change"):
            self._lock.acquire()
            try:
                self.store = Store(self.store.path)  # opened again: it may have been replaced before the lock was taken
                self._remove_litter(self.store.manifest)
            except BaseException:
                self._lock.release()
                raise
        return self

    def array(self, stem: str, dtype: str, row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        """Begin an array: `<stem>.npy`, or, if the manifest names that already, `<stem>-2.npy` and so on."""
        taken, number = _named(self.store.manifest), 1
        while (file := f"{stem}{'' if number == 1 else f'-{number}'}.npy") in taken:
            number += 1
        self._open_arrays.append(ArrayWriter(self.store.path, file, dtype, row_shape))
        return self._open_arrays[-1]

    def commit(self, manifest: Manifest) -> None:
        """Sync all files to disk, rename the manifest into place, and remove files that it no longer names."""
        root = self.store.path
        for folder in {(root / spec.file).parent for spec in manifest.all_arrays()}:
            sync_folder(folder)
        write_manifest(root / PARTIAL, manifest)
        os.rename(root / PARTIAL, root / MANIFEST)
        sync_folder(root)
        self._remove_litter(manifest)

    def _remove_litter(self, manifest: Manifest) -> None:
        """Remove files left by killed changes. The caller holds the lock, so nobody is writing them."""
        root, named = self.store.path, _named(manifest)
        (root / PARTIAL).unlink(missing_ok=True)
        for path in sorted(root.glob("nodes/*/*.npy")):
            is_here = path.parent.resolve().is_relative_to(root.resolve())  # not in a folder that a link leads to
            if is_here and OF_CHANGES.fullmatch(path.name) and path.relative_to(root).as_posix() not in named:
                path.unlink()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.scratch.close()
        for array in self._open_arrays:
            array.close()
        try:
            if kind is not None:
                self._remove_litter(Store(self.store.path, check_arrays=False).manifest)
        finally:
            self._lock.release()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            with explained(self.store.path, "change"):
                raise error


def _named(manifest: Manifest) -> set[str]:
    return {spec.file for spec in manifest.all_arrays()}
