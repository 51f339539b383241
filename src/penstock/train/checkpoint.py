"""Checkpoints: everything a run needs to go on as if it had never stopped, written aside and renamed.

In: tensors and plain values. Out: one file that loads with `weights_only=True`. Invariant: the file is the old one or the new one.
"""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash

from penstock.errors import CorruptStoreError, StoreError, argument


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint; raises StoreError where the disk is full or the folder is read-only."""
    aside = path.with_name(f".{path.name}.partial")
    try:
        with open(aside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except (OSError, RuntimeError) as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        hint = f"The one before it is untouched; free some space and go on by {argument('resume', True)}"
        raise StoreError(f"cannot write the checkpoint {path}: {str(error).splitlines()[0]}. {hint}") from error


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
