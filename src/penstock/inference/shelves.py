"""Storage for the rows of each layer until the next layer is computed: in memory, or in files from which another process can continue.

In: rows of nodes, batch after batch in a fixed order. Out: an array of the rows by node; rows that are never written take neither memory
nor disk space. Invariant of files: rows that the state counts are on the disk, and belong to the model, graph and nodes that it names; a
process may end at any moment.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from penstock.errors import CorruptStoreError, StateError, StoreBusyError, StoreError, UsageError, argument, reason_of
from penstock.records import NodeType
from penstock.store.budget import require_room
from penstock.store.files import WriteBehind, as_bytes, explained, open_locked, sync_folder, write_at
from penstock.store.format import DATA_OFFSET, npy_header
from penstock.store.huge_pages import own_pages
from penstock.store.process_memory import free_bytes
from penstock.store.whole_file import replacing

MEMORY_BYTES, SHARE = 2 << 30, 1 / 2
"""Rows of a layer that take more than this, or more than this share of the free memory, are stored in a file, if there is a folder for
it."""
SAVE_EVERY_S = 30.0
STATE = "state.json"


class Shelf(Protocol):
    """The protocol used by the loop over the layers.

    Attributes:
        num_done: number of complete layers.
    """

    num_done: int

    def begun(self) -> dict[NodeType, np.ndarray] | None:
        """Return the rows of the last complete layer; None if there is none."""
        ...

    def num_rows(self, layer: int, node_type: NodeType) -> int:
        """Return the number of rows that are stored; whole batches."""
        ...

    def append(self, layer: int, node_type: NodeType, rows: np.ndarray, places: np.ndarray, room: int, *, is_sparse: bool) -> None:
        """Store the rows of a batch at int64[n] ascending places of [0, room); `is_sparse`: not all places will be filled."""
        ...

    def rows(self, layer: int, node_type: NodeType) -> np.ndarray:
        """Return all rows of a type, once they are complete."""
        ...

    def step_done(self, layer: int) -> None:
        """Mark a layer as complete; the layer before it is no longer needed."""
        ...


class MemoryShelf:
    """Rows in memory; a layer larger than `room_for_rows` is in a nameless file, which ends with the array or the process.

    Args:
        folder: for such files; None: everything in memory.
    """

    num_done = 0

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._tables, self._counts = folder, {}, {}

    def begun(self) -> dict[NodeType, np.ndarray] | None:
        """Return None: no earlier process left anything."""
        return None

    def num_rows(self, layer: int, node_type: NodeType) -> int:
        """Return the number of rows of a layer that are stored."""
        return self._counts.get((layer, node_type), 0)

    def append(self, layer: int, node_type: NodeType, rows: np.ndarray, places: np.ndarray, room: int, *, is_sparse: bool) -> None:
        """Copy the rows of a batch to their places."""
        place = layer, node_type
        if place not in self._tables:
            shape, what = (room, *rows.shape[1:]), "evaluation keeps a layer"
            self._tables[place] = empty_rows(shape, rows.dtype, self._folder, what, is_sparse=is_sparse)
            self._counts[place] = 0
        table = self._tables[place]
        _check_alike(layer, rows, table.dtype, table.shape[1:])
        table[places] = rows
        self._counts[place] += len(rows)

    def rows(self, layer: int, node_type: NodeType) -> np.ndarray:
        """Return the array."""
        return self._tables[layer, node_type]

    def step_done(self, layer: int) -> None:
        """Drop the layer before."""
        for place in [place for place in self._tables if place[0] < layer]:
            del self._tables[place]


def _check_alike(layer: int, rows: np.ndarray, dtype: np.dtype, shape: Sequence[int]) -> None:
    """Refuse rows whose dtype or shape differs from earlier ones."""
    if rows.dtype != dtype or list(rows.shape[1:]) != list(shape):
        raise UsageError(
            f"layer {layer} gives {rows.dtype} rows {list(rows.shape[1:])} where it gave {dtype} rows {list(shape)} before: "
            "all batches must have the same"
        )


def room_for_rows() -> int:
    """Return how many bytes of rows should be kept in memory now, within the limit of a container."""
    return min(MEMORY_BYTES, int(SHARE * free_bytes()))


def empty_rows(
    shape: tuple[int, ...], dtype: np.dtype, folder: Path | None, what: str, most_bytes: int | None = None, *, is_sparse: bool = False
) -> np.ndarray:
    """Return an array in memory, or, if there is a folder and it takes more than `most_bytes` (`room_for_rows`), in a file that ends with
    it. `what`: begins the message for a full disk; `is_sparse`: use small pages, so that only rows that are written take memory."""
    num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if folder is None and not is_sparse:
        require_room(num_bytes, "a layer whose rows are kept in memory", f"give {argument('out')}, a file")
    if folder is None or num_bytes <= (room_for_rows() if most_bytes is None else most_bytes):
        return own_pages(num_bytes, are_huge=not is_sparse).view(dtype).reshape(shape) if num_bytes else np.empty(shape, dtype)
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed below)
    except OSError as error:
        raise StoreError(f"cannot write in {folder}: {reason_of(error)}") from error
    with file:
        try:
            os.posix_fallocate(file.fileno(), 0, num_bytes)  # else writing to the map on a full disk kills the process silently
        except OSError as error:
            raise StoreError(
                f"{what} of {num_bytes / 2**30:.1f} GiB in {folder}: {reason_of(error)}; free some space and go on by "
                f"{argument('resume', True)}"
            ) from error
        return np.memmap(file, dtype=dtype, mode="r+", shape=shape)


class FileShelf:
    """Rows in files of a folder beside the result; the last file becomes the result.

    Args:
        out: file of the result, `.npy`.
        made_of: everything that determines the rows, as plain values; existing rows are continued if it is the same.
        node_types: in their order.
    """

    def __init__(self, out: Path, made_of: Mapping[str, Any], node_types: list[NodeType]) -> None:
        self._out, self.folder = out, working_folder(out)
        self._made_of, self._types = dict(made_of), node_types
        self._files: dict[tuple[int, NodeType], _RowsFile] = {}
        self._saved_at, self._is_flushed = time.monotonic(), True
        self.num_done, self._known = 0, {}

    def _read_state(self) -> None:
        """Read the state that an earlier process saved."""
        path = self.folder / STATE
        try:
            state = json.loads(path.read_text())
            made_of, num_done = dict(state["made_of"]), int(state["layers_done"])
            known = {self._place(name): _known(each) for name, each in state["files"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise CorruptStoreError(f"{path} cannot be read ({error}): delete {self.folder}, and begin anew") from error
        if not any(each["rows"] for each in known.values()):
            return
        self.num_done, self._known = num_done, known
        different = [name for name in self._made_of if made_of.get(name) != self._made_of[name]]
        if different:
            raise StateError(
                f"{self.folder} holds rows of another inference ({', '.join(different)} differ): delete it, or take another "
                f"{argument('out')}"
            )

    def _place(self, name: str) -> tuple[int, NodeType]:
        layer, number = name.split("-")
        return int(layer), self._types[int(number)]

    def _name(self, layer: int, node_type: NodeType) -> str:
        return f"{layer}-{self._types.index(node_type)}"

    def _path(self, layer: int, node_type: NodeType) -> Path:
        return self.folder / f"layer-{self._name(layer, node_type)}.npy"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder's lock while rows are computed. After a failure, the state of the rows is saved, or the folder is removed if it
        has none."""
        lock = self._lock()
        try:
            self._read_state()
            try:
                yield
            except BaseException:
                with suppress(StoreError):  # the first error is raised below
                    if self._is_flushed:
                        self._save()
                if not any(each["rows"] for each in self._known.values()):
                    shutil.rmtree(self.folder, ignore_errors=True)
                raise
        finally:
            for file in self._files.values():
                file.close()
            os.close(lock)

    def _lock(self) -> int:
        """Make the folder, and take its lock."""
        if self.folder.is_symlink():
            raise UsageError(f"{self.folder} is a link: delete it, or take another {argument('out')}")
        with explained(self.folder, "write in"):
            try:
                return open_locked(self.folder / ".lock")
            except BlockingIOError:
                raise StoreBusyError(f"another process computes rows in {self.folder}: take another {argument('out')}") from None

    def begun(self) -> dict[NodeType, np.ndarray] | None:
        """Return the rows of the last complete layer; None if there is none."""
        if not self.num_done:
            return None
        return {t: self.rows(self.num_done - 1, t) for t in self._types if (self.num_done - 1, t) in self._known}

    def num_rows(self, layer: int, node_type: NodeType) -> int:
        """Return the number of rows of a layer that are stored, including those of an earlier process."""
        return self._known.get((layer, node_type), {"rows": 0})["rows"]

    def append(self, layer: int, node_type: NodeType, rows: np.ndarray, places: np.ndarray, room: int, *, is_sparse: bool) -> None:
        """Write rows to their places; from time to time they are synced and the state is saved."""
        place = layer, node_type
        known = self._known.setdefault(place, {"rows": 0, "dtype": rows.dtype.str, "shape": [room, *rows.shape[1:]]})
        _check_alike(layer, rows, np.dtype(known["dtype"]), known["shape"][1:])
        with explained(self.folder, "write in"):
            if place not in self._files:
                if known["rows"]:
                    self.rows(layer, node_type)  # checks that it is as it was written
                self._files[place] = _RowsFile(self._path(layer, node_type), rows.dtype, tuple(known["shape"]))
            self._files[place].write(rows, places)
        known["rows"] += len(rows)
        if time.monotonic() - self._saved_at >= SAVE_EVERY_S:
            self._save()

    def rows(self, layer: int, node_type: NodeType) -> np.ndarray:
        """Return a map of the file; CorruptStoreError if it is not as it was written."""
        known, path = self._known[layer, node_type], self._path(layer, node_type)
        try:
            rows = np.load(path, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise CorruptStoreError(f"{path} cannot be read ({error}): delete {self.folder}, and begin anew") from error
        if [rows.dtype.str, list(rows.shape)] != [known["dtype"], known["shape"]]:
            raise CorruptStoreError(f"{path} is not what was written there: delete {self.folder}, and begin anew")
        return rows

    def step_done(self, layer: int) -> None:
        """Sync the rows of the layer and save the state, then delete the layer before."""
        self.num_done = layer + 1
        self._save()
        for place in [place for place in self._known if place[0] < layer]:
            del self._known[place]
            with suppress(KeyError):
                self._files.pop(place).close()
            with suppress(OSError):
                self._path(*place).unlink()

    def _save(self) -> None:
        self._is_flushed = False  # after a failed flush there is no second try: the system may have dropped the data
        with explained(self.folder, "write in"):
            for file in self._files.values():
                file.flush()
        self._is_flushed = True
        files = {self._name(*place): each for place, each in self._known.items()}
        state = {"made_of": self._made_of, "layers_done": self.num_done, "files": files}
        with replacing(self.folder / STATE, "free some space, and call it again") as aside:
            aside.write_text(json.dumps(state, indent=1))
        self._saved_at = time.monotonic()

    def finish(self, node_type: NodeType, write: Callable[[Path, np.ndarray], None] | None = None) -> np.ndarray:
        """Move the result to its place, or have `write` write it there in another format, and delete the folder. Returns a map of it."""
        if write is not None:
            rows = self.rows(self.num_done - 1, node_type)
            write(self._out, rows)
            shutil.rmtree(self.folder, ignore_errors=True)
            return rows
        with explained(self._out, "write"):
            made = self._path(self.num_done - 1, node_type)
            with suppress(OSError):  # hard link: if the process ends here, the same call finds it; not on all file systems
                os.link(made, self.folder / "result.npy")
                made = self.folder / "result.npy"
            os.replace(made, self._out)
            sync_folder(self._out.parent)
        shutil.rmtree(self.folder, ignore_errors=True)
        return np.load(self._out, mmap_mode="r")


def _known(state: dict[str, Any]) -> dict[str, Any]:
    """Return what a saved state says about a file: rows, dtype, shape; raises if one is missing or invalid."""
    return {"rows": int(state["rows"]), "dtype": np.dtype(state["dtype"]).str, "shape": [int(length) for length in state["shape"]]}


def working_folder(out: Path) -> Path:
    """Return the folder for the rows until the result is complete."""
    return out.with_name(f"{out.name}.unfinished")


class _RowsFile:
    """An `.npy` that is written row by row, with holes where rows are left out; an existing file is continued."""

    def __init__(self, path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        self._write_behind = WriteBehind(self._descriptor)
        write_at(self._descriptor, memoryview(npy_header(dtype, shape)), 0)
        os.ftruncate(self._descriptor, DATA_OFFSET + shape[0] * self._row_bytes)  # its final length, without allocating space

    def write(self, rows: np.ndarray, places: np.ndarray) -> None:
        """Write rows to int64[n] ascending places; consecutive places by one write."""
        if rows.size:
            buffer, width = as_bytes(rows), self._row_bytes
            ends = [0, *(np.flatnonzero(np.diff(places) != 1) + 1).tolist(), len(rows)]
            for first, last in itertools.pairwise(ends):
                write_at(self._descriptor, buffer[first * width : last * width], DATA_OFFSET + int(places[first]) * width)
            self._write_behind.wrote(rows.nbytes)

    def flush(self) -> None:
        """Sync the file to disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
