"""Where results may be written: into folders that exist, but never into a store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import NotAStoreError, StoreError, UsageError, argument, refuse_unseen
from penstock.store.files import explained
from penstock.store.format import FOLDERS, MANIFEST
from penstock.store.opened import Store


class ResultFile(NamedTuple):
    """A file to be written.

    Attributes:
        path: of the file; if the given path is a link, of its target, which is replaced.
        ending: of the given name; it determines the format.
    """

    path: Path
    ending: str


def result_file(path: str | os.PathLike[str], name: str, endings: tuple[str, ...]) -> ResultFile:
    """Check, before anything is computed, that a file can be written there. `name`: of the argument that gave it, for messages."""
    given = Path(path)
    if given.suffix not in endings:
        raise UsageError(
            f"{argument(name)} takes a file that ends in {', '.join(endings[:-1])}{' or ' * (len(endings) > 1)}{endings[-1]}, got {given}"
        )
    target = Path(os.path.realpath(given)) if given.is_symlink() else given
    if not target.parent.is_dir():
        refuse_unseen(target.parent)
        raise UsageError(f"{argument(name)}: the folder {target.parent} does not exist")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{argument(name)}: the folder {target.parent} cannot be written")
    if target.is_dir():
        raise UsageError(f"{argument(name)}: {given} is a folder: name a file in it")
    if given.suffix == ".npy" and target.is_file() and not begins_as_npy(target):
        raise UsageError(f"{argument(name)}: {given} is there, and no .npy file in spite of its name: choose another, or remove it")
    refuse_in_store(target.parent, name)
    return ResultFile(target, given.suffix)


def refuse_overwritten(path: Path, name: str, given: Any) -> None:
    """Raise UsageError if a file that was given as argument `name` would be replaced by the result."""
    if isinstance(given, str | os.PathLike) and path.exists() and os.path.exists(given) and os.path.samefile(path, given):
        raise UsageError(f"{argument('out')}: {path} has the {name}, and would be replaced: choose another file")


def begins_as_npy(path: Path) -> bool:
    """Whether a file is an `.npy`, or empty."""
    with explained(path, "read"), path.open("rb") as file:
        return file.read(6) in (b"\x93NUMPY", b"")


def refuse_in_store(folder: Path, name: str | None = "out") -> None:
    """Raise UsageError if a folder to write to, given as argument `name` or by its place, is a store or within one: with foreign files in
    it, the store could no longer be overwritten, and its own files might be damaged."""
    inner = folder.resolve()
    for place in (inner, *inner.parents):
        if os.path.isfile(place / MANIFEST) and _is_store(place):
            where = "a store" if place == inner else f"in the store {place}"
            raise UsageError(f"{folder} is {where}: choose another {'path' if name is None else argument(name)}")


def _is_store(path: Path) -> bool:
    try:
        Store(path, check_arrays=False)
    except NotAStoreError:
        return False
    except StoreError:  # damaged, or of a newer version; other programs have files of that name too
        return any(os.path.isdir(path / folder) for folder in FOLDERS)
    return True
