"""What a run has learnt, for all nodes: the exact rows of its model, by its best weights.

In: the folder of a run, also of one that several processes trained, and the store. Out: a file, within a budget of memory where one is
given. Ended and called again, it goes on.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.errors import MissingFileError, NotSupportedError, UsageError, argument
from penstock.inference.needed import find_needed
from penstock.inference.shelves import working_folder
from penstock.inference.whole_graph import apply
from penstock.kernels._triton import tensor_device
from penstock.partition import is_partition
from penstock.plan import make_plan
from penstock.store import Progress, Quiet, Store
from penstock.store.progress import hearing, stage
from penstock.store.results import result_file
from penstock.store.whole_file import replacing
from penstock.train import checkpoint
from penstock.train.config import TrainConfig
from penstock.train.data import TrainingData, read_training_data
from penstock.train.inference import source_of, steps_of
from penstock.train.models import GNN
from penstock.train.run import CHECKPOINT
from penstock.train.tables import Columns, write_table
from penstock.train.typed_models import TypedGNN

ROWS = ("outputs", "hidden")


def infer_run(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    rows: str = "outputs",
    store: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    host_memory: str | int | None = None,
    spool: str | int | None = None,
    num_workers: int = 1,
    device: str = "cpu",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the rows that the model of a run gives for all nodes of its target, over all neighbours.

    Args:
        run: its folder; the weights are the best by val, or the last.
        out: file; None: `outputs.npy` or `hidden.npy` in the folder of the run. An `.npy` holds float32[num_nodes, width], whose row i is
            that of node i of the store; a `.parquet` the user's `id` of each node, and a list column `outputs` or `hidden`.
        rows: "outputs": of the last layer, before any softmax; "hidden": of the layer before it, embeddings.
        store: where it is, if not where it was in training.
        batch_size, num_workers: as of `penstock.infer`.
        host_memory, spool: a budget for the whole process, and for rows on the disk (see `Plan`).
        device: where the model computes.
        progress: hears of it.
    Returns:
        What was written, as plain values.
    Raises:
        UsageError, InputError, StateError, StoreError: as of `penstock.train.train` and `penstock.infer`.
    """
    if rows not in ROWS:
        raise UsageError(f"{argument('rows')} must be one of {', '.join(ROWS)}; got {rows!r}")
    folder, progress = Path(run), progress or Quiet()
    data, model, epoch = _learnt(folder, store)
    path, ending = result_file(folder / f"{rows}.npy" if out is None else out, "out", (".npy", ".parquet"))
    model = model.to(tensor_device(device) if device != "cpu" else device)
    steps = steps_of(model, data.graph, data.prepare)
    if rows == "hidden" and model.num_layers == 1:
        raise UsageError(f"the model of {run} has one layer, and none before it: {argument('rows', 'hidden')} needs two")
    steps = steps if rows == "outputs" else steps[:-1]
    nodes = np.arange(data.graph.num_nodes[data.target])
    started, source = time.perf_counter(), source_of(model, data)
    needed, done = find_needed(source, steps, (data.target, nodes), num_workers), 0

    def advance(so_far: int, of: int) -> None:
        nonlocal done
        progress.advance(so_far - done)
        done = so_far

    write = None if ending == ".npy" else partial(_write_table, ending, rows, data, progress)
    plan = make_plan(None, host_memory=host_memory, spool=spool)
    try:
        with hearing(progress.note), stage(progress, f"{rows} of {model.kind} over all neighbours", needed.num_rows):
            made = apply(
                model, source, steps, needed, path, batch_size=batch_size, plan=plan,
                num_workers=num_workers, progress=advance, what=rows, write=write,
            )  # fmt: skip
    except KeyboardInterrupt:
        if done:
            progress.note(f"{done:,} of {needed.num_rows:,} rows are in {working_folder(path)}: the same command goes on with them")
        raise
    return {
        "out": str(path),
        "node_type": data.target,
        "shape": list(made.shape),
        "epoch": epoch,
        "seconds": time.perf_counter() - started,
    }


def _write_table(ending: str, name: str, data: TrainingData, progress: Progress, path: Path, made: np.ndarray) -> None:
    """Write the rows as a table with one column of that name; a stage of its own, in place of the one that is under way."""

    def columns(piece: slice) -> Columns:
        progress.advance(piece.stop - piece.start)
        return {name: made[piece]}

    progress.end()
    progress.begin(path.name, len(made), "rows")
    with replacing(path, "the rows are computed; free some space, and the same command writes them") as aside:
        write_table(aside, ending, len(made), columns, data.store, data.target, made[:1].nbytes)


def _learnt(folder: Path, store: str | os.PathLike[str] | None) -> tuple[TrainingData, GNN | TypedGNN, int | None]:
    """(what a run was trained on, its model with the weights that were best by val, of which epoch; None: the last weights)."""
    file = folder / CHECKPOINT
    if not file.exists():
        raise MissingFileError(f"{folder} holds no run: give the folder of one (made by `penstock train`)")
    state = checkpoint.load(file, is_mapped=True)
    config = TrainConfig.from_dict(state["config"])
    config = config if store is None else replace(config, store=os.fspath(store))
    if is_partition(config.store):
        raise NotSupportedError(f"{config.store} is a partition: give the store that it was cut from, {argument('store')}")
    opened = Store.open(config.store)
    if state.get("cut_from") != opened.digest:  # of a run over parts
        checkpoint.check_store(state, folder, opened)
    data = read_training_data(opened, config)
    with torch.device("meta"):
        model = data.make_model(config)
    with checkpoint.damage_said(file):
        best = state["best"]
        model.load_state_dict(best["model"] or state["model"], assign=True)  # learnt rows stay in the file
        return data, model, best["epoch"] + 1 if best["model"] else None
