"""What is predicted of every node, into a file.

In: a class, labels or numbers for each node, and the store. Out: `.npy`, whose row i is node i (`store.original_ids` has the ids), or a
table with the user's ids and the names of classes where the task has them. Invariant: the file is whole, or is not there.
"""

from __future__ import annotations

import os

import numpy as np

from penstock.errors import argument
from penstock.store import Store
from penstock.store.results import ResultFile, result_file
from penstock.store.whole_file import replacing
from penstock.train.parts import PartsStore
from penstock.train.tables import Columns, write_table
from penstock.train.task import Classes, Task

ENDINGS = (".npy", ".csv", ".parquet")
"""Of files that may hold predictions."""


def predictions_file(path: str | os.PathLike[str] | None) -> ResultFile | None:
    """Refuse, before anything is trained, what could not be written."""
    return None if path is None else result_file(path, "predictions", ENDINGS)


def write_predictions(file: ResultFile, predicted: np.ndarray, task: Task, store: Store | PartsStore, node_type: str) -> None:
    """Write what `Task.decide` returned for all nodes; a file that is there is replaced.

    Raises:
        StoreError: the disk is full, or the folder is read-only.
    """
    again = f"the training is over and saved; free some space, and {argument('resume', True)} writes them again"
    with replacing(file.path, again) as aside:
        if file.ending == ".npy":
            with open(aside, "wb") as opened:
                np.save(opened, predicted)
        else:
            nodes = range(len(predicted))
            write_table(aside, file.ending, nodes, lambda piece: columns_of(task, predicted[piece]), store, node_type)


def columns_of(task: Task, rows: np.ndarray) -> Columns:
    """What the task's `decide` returned for some nodes or edges, as columns of a table."""
    is_number = rows.dtype.kind == "f"
    if rows.ndim == 1:
        names = task.class_names if isinstance(task, Classes) else ()
        return {"number": rows} if is_number else {"class": np.array(names)[rows] if names else rows}
    return {f"{'number' if is_number else 'label'}_{number}": rows[:, number] for number in range(rows.shape[1])}
