"""What a run has learnt, for all nodes: the exact rows of its model, by its best weights.

In: the folder of a run, also of one that several processes trained, and the store. Out: a file, within a budget of memory where one is
given. Ended and called again, it goes on.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.errors import MissingFileError, NotSupportedError, StateError, UsageError, argument
from penstock.inference.needed import find_needed
from penstock.inference.shelves import working_folder
from penstock.inference.steps import Step
from penstock.inference.whole_graph import apply
from penstock.kernels._triton import tensor_device
from penstock.partition import is_partition
from penstock.plan import make_plan
from penstock.records import NodeType
from penstock.store import Progress, Quiet, Store
from penstock.store.format import file_name
from penstock.store.given_nodes import given_nodes
from penstock.store.ids import INTEGER
from penstock.store.progress import hearing, stage
from penstock.store.results import ResultFile, refuse_overwritten, result_file
from penstock.store.whole_file import replacing
from penstock.train import checkpoint
from penstock.train.config import TrainConfig
from penstock.train.data import TrainingData, read_training_data
from penstock.train.inference import source_of, steps_of
from penstock.train.models import GNN
from penstock.train.predictions import ENDINGS, columns_of
from penstock.train.run import CHECKPOINT
from penstock.train.tables import Columns, write_table
from penstock.train.task import Classes, task_of
from penstock.train.typed_models import TypedGNN

ROWS = ("outputs", "hidden", "predictions")


def infer_run(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    rows: str = "outputs",
    nodes: Any = None,
    node_type: NodeType | None = None,
    store: str | os.PathLike[str] | None = None,
    inductive: bool = False,
    batch_size: int | None = None,
    host_memory: str | int | None = None,
    spool: str | int | None = None,
    num_workers: int = 1,
    device: str = "cpu",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the rows that the model of a run gives for nodes of its target, all of them or some, over all neighbours.

    Args:
        run: its folder; the weights are the best by val, or the last.
        out: file; None: in the folder of the run, called by its rows: `outputs.npy` (`outputs-user.npy`, of another type than its target;
            `outputs-test.npy`, of the part test, `outputs-new.npy`, of nodes in `new.csv`, `outputs-some.npy`, of nodes in an array). An
            `.npy` holds float32[n, width], whose row i is that of node i of the store, or of the i-th of `nodes`; a `.parquet` the user's
            `id` of each node, and a list column `outputs` or `hidden`. Of predictions an `.npy` holds int64[n] classes, uint8[n, width]
            labels or float32 numbers; a `.parquet` or `.csv` your ids, and columns as those of `train(..., predictions=)`.
        rows: "outputs": of the last layer, logits before any softmax, or numbers in the unit of the labels; "hidden": of the layer before
            it, embeddings; "predictions": what outputs say, a class for instance. Of a run that learnt edges, outputs are embeddings too:
            where these were links, the product of those of two nodes ranks the pair (see `infer_pairs`).
        nodes: for which rows are wanted: whole numbers [n], a file of nodes, or a part of the run's split, "test" for instance (see
            `penstock.store.given_nodes`); layers before the last are computed for nodes that these need. None: all.
        node_type: of the nodes; None: the target, of edges their target type. Of edges also the type of their sources.
        store: where it is, if not where it was in training; with `inductive` another one.
        inductive: the store need not be that of the training, but of the same types, features and width of features: of a day later, for
            instance. It needs no labels. Rows that nodes learnt in place of features are theirs by your ids, where there are any, for which
            the store of the training must be in its place; nodes that it had not get the mean of these rows.
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
    data, model, epoch = learnt(folder, store, progress, is_inductive=inductive)
    types = (data.target,) if data.edges is None else data.edges.node_types
    target = data.target if node_type is None else node_type
    if target not in types:
        raise UsageError(f"{argument('node_type', target)}: the model of {run} has outputs for {' and '.join(map(repr, types))} only")
    path, ending = _file_of(rows, folder / default_name(rows, None if target == data.target else target, nodes) if out is None else out)
    refuse_overwritten(path, "nodes", nodes)
    model = model.to(tensor_device(device) if device != "cpu" else device)
    steps = _steps_to(rows, data, model, target, folder)
    assert isinstance(data.store, Store), "as `learnt` opens it"
    wanted = np.arange(data.graph.num_nodes[target]) if nodes is None else given_nodes(data.store, target, "nodes", nodes, data.split)
    started, source = time.perf_counter(), source_of(model, data)
    needed, done = find_needed(source, steps, (target, wanted), num_workers), 0

    def advance(so_far: int, of: int) -> None:
        nonlocal done
        progress.advance(so_far - done)
        done = so_far

    def write(path: Path, made: np.ndarray) -> None:
        """Write the rows as a table; a stage of its own, in place of the one that is under way."""

        def columns(piece: slice) -> Columns:
            progress.advance(piece.stop - piece.start)
            return columns_of(data.task, made[piece]) if rows == "predictions" else {rows: made[piece]}

        progress.end()
        progress.begin(path.name, len(made), "rows")
        with replacing(path, "the rows are computed; free some space, and the same command writes them") as aside:
            write_table(aside, ending, wanted, columns, data.store, target, made[:1].nbytes)

    plan = make_plan(None, host_memory=host_memory, spool=spool)
    try:
        with hearing(progress.note), stage(progress, f"{rows} of {model.kind} over all neighbours", needed.num_rows):
            made = apply(
                model, source, steps, needed, path, batch_size=batch_size, plan=plan,
                num_workers=num_workers, progress=advance, what=rows, write=None if ending == ".npy" else write,
            )  # fmt: skip
    except KeyboardInterrupt:
        if done:
            progress.note(f"{done:,} of {needed.num_rows:,} rows are in {working_folder(path)}: the same command goes on with them")
        raise
    return {
        "out": str(path),
        "rows": rows,
        "node_type": target,
        "num_nodes": data.graph.num_nodes[target],
        "shape": list(made.shape),
        "dtype": made.dtype.name,
        "epoch": epoch,
        "seconds": time.perf_counter() - started,
    }


def default_name(what: str, node_type: NodeType | None, given: Any) -> str:
    """The name of a file for rows of nodes or pairs that were `given`, so that those of others stay."""
    some = Path(given).stem if isinstance(given, str | os.PathLike) else None if given is None else "some"
    return "-".join([what, *([] if node_type is None else [file_name(node_type)]), *([] if some is None else [some])]) + ".npy"


def _file_of(rows: str, out: str | os.PathLike[str]) -> ResultFile:
    """Where the rows go; UsageError if they cannot."""
    if rows != "predictions" and Path(out).suffix == ".csv":
        raise UsageError(f"{argument('out')}: {rows} go into an .npy or a .parquet; a .csv is for {argument('rows', 'predictions')}")
    return result_file(out, "out", ENDINGS if rows == "predictions" else (".npy", ".parquet"))


def _steps_to(rows: str, data: TrainingData, model: GNN | TypedGNN, target: NodeType, folder: Path) -> list[Step]:
    """The steps of a model whose last one gives the rows."""
    if rows == "predictions" and data.edges is not None:
        raise UsageError(f"the model of {folder} predicts nothing of nodes, it learnt edges: ask for {argument('pairs')}, or other rows")
    if rows == "hidden" and model.num_layers == 1:
        raise UsageError(f"the model of {folder} has one layer, and none before it: {argument('rows', 'hidden')} needs two")
    steps = steps_of(model, data.graph, data.prepare, data.task.decide if rows == "predictions" else data.read, target)
    return steps[:-1] if rows == "hidden" else steps


def learnt(
    folder: Path, store: str | os.PathLike[str] | None, progress: Progress, *, is_inductive: bool
) -> tuple[TrainingData, GNN | TypedGNN, int | None]:
    """(what a run was trained on, its model with the weights that were best by val, of which epoch; None: the last weights)."""
    file = folder / CHECKPOINT
    if not file.exists():
        raise MissingFileError(f"{folder} holds no run: give the folder of one (made by `penstock train`)")
    state = checkpoint.load(file)
    config = TrainConfig.from_dict(state["config"])
    trained_on = config.store
    if store is None and not os.path.exists(trained_on):
        raise MissingFileError(
            f"{trained_on}, the store that {folder} was trained on, is not there: say where it is by {argument('store')}"
        )
    config = config if store is None else replace(config, store=os.fspath(store))
    if is_partition(config.store):
        raise NotSupportedError(f"{config.store} is a partition: give the store that it was cut from, {argument('store')}")
    opened = Store.open(config.store)
    is_other = opened.digest not in (state.get("cut_from"), state.get("store", opened.digest))
    if is_other and not is_inductive:
        raise StateError(
            f"{folder} was trained on a store of digest {state['store']}, {opened.path} has {opened.digest}: put that one back, or say "
            f"{argument('inductive', True)} to apply the model to another graph"
        )
    task = None
    if is_other and "task" in state:  # runs of before have none, and take it from labels
        with checkpoint.damage_said(file):
            task, config = task_of(state["task"]), replace(config, target=state["target"])
    data = read_training_data(opened, config, task)
    if is_other and task is None and isinstance(data.task, Classes):  # whose words may be others than those of the training
        data = replace(data, task=replace(data.task, class_names=()))
    with torch.device("meta"):
        model = data.make_model(config)
    with checkpoint.damage_said(file):
        best = state["best"]
        weights = best["model"] or state["model"]
        if is_other:
            weights = _carried_over(weights, model, data, folder, trained_on, state["store"], progress)
        model.load_state_dict(weights, assign=True)  # learnt rows stay in the file
        return data, model, best["epoch"] + 1 if best["model"] else None


def _carried_over(
    weights: dict[str, torch.Tensor],
    model: GNN | TypedGNN,
    data: TrainingData,
    folder: Path,
    trained_on: str,
    digest: str,
    progress: Progress,
) -> dict[str, torch.Tensor]:
    """The weights of a run for a model of another store; StateError where they do not fit it."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    of_nodes = {names[model.table(t).weight]: t for t in data.without_features}
    here = {name: list(tensor.shape)[name in of_nodes :] for name, tensor in model.state_dict().items()}
    there = {name: list(tensor.shape)[name in of_nodes :] for name, tensor in weights.items()}
    if here != there:
        name = next(name for name in (*here, *there) if here.get(name) != there.get(name))
        raise StateError(
            f"the model of {folder} does not fit {data.store.path}, which has other types, features or classes than the store of the "
            f"training: {name} is {there.get(name, 'not')} there, {here.get(name, 'not')} here"
        )
    if of_nodes:
        before = Store.open(trained_on) if os.path.exists(trained_on) else None
        if before is None or before.digest != digest:
            types = ", ".join(repr(t) for t in of_nodes.values())
            raise StateError(
                f"nodes of {types} have learnt rows, which are found by the ids of the store that was trained on: put it back to "
                f"{trained_on}"
            )
        for name, node_type in of_nodes.items():
            weights = weights | {name: _rows_of(weights[name], before, data.store, node_type, progress)}
    return weights


def _rows_of(rows: torch.Tensor, before: Store, now: Any, node_type: NodeType, progress: Progress) -> torch.Tensor:
    """float32[num_nodes, width]: the rows that nodes of a type learnt, for those of another store, who are the same by their ids."""
    numbers = np.arange(now.num_nodes[node_type])
    there, here = (store.node_entry(node_type).ids for store in (before, now))  # without any, a node's number is its id
    kinds = [INTEGER if ids is None else ids.kind for ids in (there, here)]
    if kinds[0] != kinds[1]:
        raise StateError(
            f"nodes of '{node_type}' have learnt rows, which are found by ids: these are {kinds[0]} in {before.path}, and {kinds[1]} in "
            f"{now.path}; ingest one of them with the ids of the other"
        )
    numbers = numbers if here is None else now.original_ids(numbers, node_type)
    numbers = numbers if there is None else before.find(numbers, node_type)
    is_known = (numbers >= 0) & (numbers < len(rows))
    found = rows.mean(0).repeat(numbers.size, 1)
    found[torch.from_numpy(is_known)] = rows[torch.from_numpy(numbers[is_known])]
    if num_new := int((~is_known).sum()):
        progress.note(f"{num_new:,} of {numbers.size:,} nodes of '{node_type}' are new: each gets the mean of the rows that were learnt")
    return found
