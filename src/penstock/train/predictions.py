"""The class of every node into a file.

In: classes by node, and the store. Out: `.npy`, whose row i is node i (`store.original_ids` has the ids), or `.csv` with the user's ids
and the names of classes where the store has them. Invariant: the file is whole, or is not there.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from penstock.errors import argument
from penstock.store import Store
from penstock.store.results import result_path
from penstock.store.whole_file import replacing
from penstock.train.parts import PartsStore

_ROWS = 1 << 16


def predictions_path(path: str | os.PathLike[str] | None) -> Path | None:
    """Refuse, before anything is trained, what could not be written."""
    return None if path is None else result_path(path, "predictions", (".npy", ".csv"))


def write_predictions(path: Path, classes: np.ndarray, store: Store | PartsStore, node_type: str) -> None:
    """Write int64[num_nodes] classes, or 0/1 uint8[num_nodes, num_labels]; a file that is there is replaced.

    Raises:
        StoreError: the disk is full, or the folder is read-only.
    """
    again = f"the training is over and saved; free some space, and {argument('resume', True)} writes them again"
    with replacing(path, again) as aside:
        if path.suffix == ".npy":
            with open(aside, "wb") as file:
                np.save(file, classes)
        else:
            _write_csv(aside, classes, store, node_type)


def _write_csv(path: Path, classes: np.ndarray, store: Store | PartsStore, node_type: str) -> None:
    names = np.array(store.node_fields(node_type)["y"].properties.get("class_names", ()))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "class"] if classes.ndim == 1 else ["id", *(f"label_{i}" for i in range(classes.shape[1]))])
        whole = store if isinstance(store, Store) and store.has_original_ids(node_type) else None  # a partition has no ids of the user's
        for first in range(0, len(classes), _ROWS):
            rows = classes[first : first + _ROWS]
            nodes = np.arange(first, first + len(rows))
            ids = nodes if whole is None else whole.original_ids(nodes, node_type)
            values = (names[rows] if names.size else rows).reshape(len(rows), -1)
            writer.writerows([each, *row] for each, row in zip(ids, values.tolist(), strict=True))
