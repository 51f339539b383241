"""Checkpoints: everything a run needs to go on as if it had never stopped, written aside and renamed.

In: tensors and plain values. Out: one file that loads with `weights_only=True`. Invariant: the file is the old one or the new one.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash

from penstock.errors import CorruptStoreError, argument
from penstock.store.whole_file import replacing


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint; raises StoreError where the disk is full or the folder is read-only."""
    again = f"the one before it is untouched; free some space and go on by {argument('resume', True)}"
    hint = again if path.exists() else "nothing is saved yet; free some space and start again"
    with replacing(path, hint, what="the checkpoint ") as aside, open(aside, "wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # of a full disk, too
            raise OSError(str(error).splitlines()[0]) from error
        file.flush()
        os.fsync(file.fileno())


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint without running any code from it."""
    try:
        return torch.load(path, weights_only=True, map_location="cpu")  # where a device has written it, too
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError, KeyError) as error:
        raise CorruptStoreError(f"cannot read the checkpoint {path}: {str(error).splitlines()[0]}") from error


def weights_digest(state: dict[str, torch.Tensor]) -> str:
    """Return 16 hex digits over all weights, by name."""
    digest = xxhash.xxh3_64()
    for name in sorted(state):
        digest.update(name.encode() + np.ascontiguousarray(state[name].detach().cpu().numpy()).tobytes())
    return digest.hexdigest()
