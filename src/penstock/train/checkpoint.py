"""Checkpoints: everything a run needs to go on as if it had never stopped, written aside and renamed.

In: tensors and plain values. Out: one file that loads with `weights_only=True`. Invariant: the file is the old one or the new one.
"""

from __future__ import annotations

import copy
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.errors import CorruptStoreError, PenstockError, StateError, argument, first_line
from penstock.store import Store
from penstock.store.whole_file import replacing
from penstock.train.config import PLAN_SETTINGS, TrainConfig
from penstock.train.parts import PartsStore
from penstock.train.ranks import Ranks

_PARTS = {"config", "model", "loader", "record", "history", "best"}
SETTINGS = ("config", "order", "store")
"""What `check_same` looks at."""

OF_EACH_PROCESS = {
    *("num_workers", "non_stop", "verify", "torch_threads", "checkpoint_every_s", "store", "recipe", "device"),
    *(name for name in PLAN_SETTINGS if name != "order"),
}
"""Settings that may differ among processes that train together; of a plan, only the order of the seeds has a say in the weights."""

_FREE = {"epochs", "patience", *OF_EACH_PROCESS}
"""Settings that may differ in a run that goes on."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint; raises StoreError where the disk is full or the folder is read-only."""
    again = f"the one before it is untouched; free some space and go on by {argument('resume', True)}"
    hint = again if path.exists() else "nothing is saved yet; free some space and start again"
    with replacing(path, hint, what="the checkpoint ") as aside, open(aside, "wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # of a full disk too, which torch does not name
            cause = error.__context__
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
            raise cause if isinstance(cause, OSError) else OSError(first_line(error)) from error
        file.flush()
        os.fsync(file.fileno())


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint without running any code from it. Tensors are maps of its file: they are read when they are looked at, and the
    system may drop their pages.

    Raises:
        CorruptStoreError: it is damaged, or no checkpoint.
    """
    with damage_said(path), open(path, "rb") as file:
        with zipfile.ZipFile(file) as archive:
            if damaged := archive.testzip():  # torch compares no checksum
                raise zipfile.BadZipFile(f"{damaged} is damaged")
        same = f"/proc/self/fd/{file.fileno()}"  # torch opens it again, when another may have its name
        state = torch.load(same, weights_only=True, map_location="cpu", mmap=True)  # where a device has written it, too
        if not isinstance(state, dict) or not state.keys() >= _PARTS:
            raise ValueError("it is not a checkpoint of penstock train")
    return state


def load_for_all(
    path: Path, ranks: Ranks, check: Callable[[dict[str, Any]], None], set_aside: Callable[[dict[str, Any]], list[Tensor]]
) -> tuple[dict[str, Any], list[Tensor] | None]:
    """Read a checkpoint in the first of several processes, and tell it to all. All call it at the same point.

    Args:
        path, ranks: which, and who.
        check: refuses settings (`SETTINGS`) that are not those of this run, in each process.
        set_aside: takes tables that the processes share out of what was read.
    Returns:
        The rest, and these tables where number 0 is; they are mapped.
    """
    read: dict[str, Any] = {}
    tables: list[Tensor] = []

    def read_settings() -> dict[str, Any]:
        read.update(load(path))
        return {name: read[name] for name in SETTINGS if name in read}

    def check_settings() -> None:
        with damage_said(path):
            check(settings)

    def rest() -> dict[str, Any]:
        with damage_said(path):
            tables.extend(set_aside(read))
        return copy.deepcopy({**read, "model": None}) | {"model": read["model"]}  # of which a model has its own; the rest outlives the map

    settings = ranks.from_first(read_settings)
    ranks.agree(check_settings)
    return ranks.from_first(rest), tables if ranks.is_first else None


@contextmanager
def damage_said(path: Path) -> Iterator[None]:
    """While a checkpoint is read, and what is in it taken: raise CorruptStoreError for whatever is raised. Of a damaged one torch raises
    nearly anything; errors of ours stay."""
    try:
        yield
    except (MemoryError, PenstockError):
        raise
    except Exception as error:
        raise CorruptStoreError(
            f"cannot read the checkpoint {path}: {first_line(error)}; put a copy of it back, or train anew in another folder"
        ) from error


def check_same(state: dict[str, Any], folder: Path, config: TrainConfig, order: str, store: Store | PartsStore) -> None:
    """Raise StateError where a run that goes on from a state of its folder would not be the same run: other settings, or another store."""
    saved = TrainConfig.from_dict(state["config"]).as_dict() | {"order": state.get("order", "random")}  # of an older run: with the defaults
    now = config.as_dict() | {"order": order}
    for name in (name for name in now if name not in _FREE):
        if saved[name] != now[name]:
            raise StateError(
                f"{folder} was trained with {argument(name, saved[name])}, not with {argument(name, now[name])}: resume with the same, or "
                f"take a new {argument('out')}"
            )
    check_store(state, folder, store)


def check_store(state: dict[str, Any], folder: Path, store: Store | PartsStore) -> None:
    """Raise StateError where a state was not trained on this store."""
    if state.get("store", store.digest) != store.digest:  # runs of before have none
        raise StateError(
            f"{folder} was trained on a store of digest {state['store']}, {store.path} has {store.digest}: put that one back, or take a "
            f"new {argument('out')}"
        )
