"""Whether an open store is unchanged and still at its path: for work that takes hours.

In: a store, and its arrays that are mapped. Out: nothing, or an error that says what happened. A mapped or open file keeps its bytes when
it is deleted, moved or replaced, so everything read is valid and only the path is gone (`StoreError`). A file that is written to or
truncated in place changes under the map, and data read since then cannot be trusted (`CorruptStoreError`).
Cost: one `stat` per array; nothing is read. If a file is truncated between two checks, reading its map fails first: see
`kernels/bus_error`.
"""

from __future__ import annotations

import os

from penstock.errors import CorruptStoreError, StoreError
from penstock.store.files import MappedPages
from penstock.store.opened import Store


def check_bytes(store: Store) -> None:
    """Raise CorruptStoreError if a mapped file was truncated or written to."""
    for pages in _pages(store).values():
        if pages.size() < len(pages):
            raise CorruptStoreError(f"{pages.path} was truncated while it was in use: {pages.size()} bytes are left of {len(pages)}")
        found = _stat(pages)
        if found is not None and (found.st_dev, found.st_ino) == pages.inode and found.st_mtime_ns != pages.written_ns:
            raise CorruptStoreError(f"{pages.path} was written to while it was in use")


def check_place(store: Store) -> None:
    """Raise StoreError if the store was deleted, moved or replaced by a different one. It may be replaced by an equal one, and packed
    copies of fields may be added or removed."""
    if not store.path.exists():
        raise StoreError(f"{store.path} was deleted or moved while it was in use")
    if not store.is_in_place:
        try:
            is_equal = Store(store.path).digest == store.digest
        except StoreError:
            is_equal = False
        if not is_equal:
            raise StoreError(f"{store.path} was replaced by something else while it was in use")
        return
    files = {spec.file for spec in store.manifest.arrays()}
    for pages in (pages for file, pages in _pages(store).items() if file in files):
        found = _stat(pages)
        if found is None or (found.st_dev, found.st_ino) != pages.inode:
            raise StoreError(f"{pages.path} was {'deleted' if found is None else 'replaced'} while it was in use")


def _pages(store: Store) -> dict[str, MappedPages]:
    return {file: array.base for file, array in store.mapped.items() if isinstance(array.base, MappedPages)}


def _stat(pages: MappedPages) -> os.stat_result | None:
    try:
        return os.stat(pages.path)
    except OSError:
        return None
