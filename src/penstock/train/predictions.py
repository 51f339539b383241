"""What is predicted of every node, into a file.

In: a class, labels or numbers for each node, and the store. Out: `.npy`, whose row i is node i (`store.original_ids` has the ids), or a
table with the user's ids and the names of classes where the store has them. Invariant: the file is whole, or is not there.
"""

from __future__ import annotations

import os
from functools import partial

import numpy as np

from penstock.errors import argument
from penstock.store import Store
from penstock.store.results import ResultFile, result_file
from penstock.store.whole_file import replacing
from penstock.train.parts import PartsStore
from penstock.train.tables import Columns, write_table


def predictions_file(path: str | os.PathLike[str] | None) -> ResultFile | None:
    """Refuse, before anything is trained, what could not be written."""
    return None if path is None else result_file(path, "predictions", (".npy", ".csv", ".parquet"))


def write_predictions(file: ResultFile, predicted: np.ndarray, store: Store | PartsStore, node_type: str) -> None:
    """Write what `Task.decide` returned for all nodes; a file that is there is replaced.

    Raises:
        StoreError: the disk is full, or the folder is read-only.
    """
    names = np.array(store.node_fields(node_type)["y"].properties.get("class_names", ()))
    again = f"the training is over and saved; free some space, and {argument('resume', True)} writes them again"
    with replacing(file.path, again) as aside:
        if file.ending == ".npy":
            with open(aside, "wb") as opened:
                np.save(opened, predicted)
        else:
            write_table(aside, file.ending, len(predicted), partial(_columns, predicted, names), store, node_type)


def _columns(predicted: np.ndarray, names: np.ndarray, piece: slice) -> Columns:
    return columns_of(predicted[piece], names)


def columns_of(rows: np.ndarray, names: np.ndarray) -> Columns:
    """What `Task.decide` returned for some nodes or edges, as columns of a table. `names`: of classes, or none."""
    is_number = rows.dtype.kind == "f"
    if rows.ndim == 1:
        return {"number": rows} if is_number else {"class": names[rows] if names.size else rows}
    return {f"{'number' if is_number else 'label'}_{number}": rows[:, number] for number in range(rows.shape[1])}
