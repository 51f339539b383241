"""What a run has learnt of edges, said of pairs of nodes: their scores as links, or labels.

In: the folder of a run that learnt edges, and pairs. Out: a file with a row for each. The rows of their ends are computed over all
neighbours, for these nodes alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.errors import UsageError, argument
from penstock.inference.needed import find_needed
from penstock.inference.shelves import MemoryShelf
from penstock.inference.steps import run as run_steps
from penstock.kernels._triton import tensor_device
from penstock.records import EdgeType
from penstock.store import Progress, Quiet
from penstock.store.format import ENDS
from penstock.store.given_links import given_links
from penstock.store.progress import hearing, stage
from penstock.store.results import refuse_overwritten, result_file
from penstock.store.whole_file import replacing
from penstock.train.data import TrainingData
from penstock.train.edge_labels import LabelledEdges
from penstock.train.finished import default_name, learnt
from penstock.train.held_out import PAIRS, PARTS, HeldOutEdges, Rows, rows_of
from penstock.train.inference import source_of, steps_of
from penstock.train.predictions import columns_of
from penstock.train.tables import Columns, ids_of, write_pieces


def infer_pairs(
    run: str | os.PathLike[str],
    pairs: str | os.PathLike[str] | np.ndarray,
    out: str | os.PathLike[str] | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    inductive: bool = False,
    batch_size: int | None = None,
    num_workers: int = 1,
    device: str = "cpu",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write what the model of a run that learnt edges says of pairs of nodes.

    Args:
        run: its folder; the weights are the best by val, or the last.
        pairs: whole numbers [n, 2] or [2, n], sources first; two pairs are read as [2, n]. Or the name of a part that was held out of the
            store, "val" or "test". Or a file of pairs (see `penstock.store.given_links`).
        out: an `.npy` file, whose row i is that of pair i; None: in the folder of the run, `pairs-test.npy` of the part test,
            `pairs-new.npy` of those in `new.csv`, `pairs-some.npy` of an array. Of a run that learnt links it holds their scores,
            float32[n]; of one that learnt labels numbers in their unit, or logits, float32[n, width]. A `.csv` or `.parquet` has your ids
            of both ends, `src` and `dst`, and a `score`, or the `class`, labels or numbers that are predicted.
        store, inductive, batch_size, num_workers, device, progress: as of `infer_run`.
    Returns:
        What was written, as plain values; `shape` is that of an `.npy`.
    Raises:
        UsageError, InputError, StateError, StoreError: as of `infer_run`.
    """
    folder, progress = Path(run), progress or Quiet()
    data, model, epoch = learnt(folder, store, progress, is_inductive=inductive)
    if data.edges is None:
        raise UsageError(f"{run} learnt nothing of pairs: {argument('pairs')} are for runs that learnt links or labels of edges")
    ends = _ends(data.store, data.edges.edge_type, pairs)
    path, ending = result_file(folder / default_name("pairs", None, pairs) if out is None else out, "out", (".npy", ".csv", ".parquet"))
    refuse_overwritten(path, "pairs", pairs)
    model = model.to(tensor_device(device) if device != "cpu" else device)
    started, how = time.perf_counter(), {"batch_size": batch_size, "num_workers": num_workers, "device": next(model.parameters()).device}
    rows = _rows_of_ends(data, model, data.edges, ends, path.parent, progress, **how)
    shape = (ends.shape[1], data.task.num_outputs) if isinstance(data.edges, LabelledEdges) else ends.shape[1:]
    said = _say(data, model, data.edges, rows, ends, progress)
    with stage(progress, "pairs", ends.shape[1], "pairs"), replacing(path, "free some space") as aside:
        if ending == ".npy":
            _write_array(aside, shape, (_as_read(data, each) for _, each in said))
        else:
            write_pieces(aside, ending, (_columns(data, pairs, each) for pairs, each in said))
    return {
        "out": str(path),
        "edge_type": list(data.edges.edge_type),
        "shape": list(shape),
        "dtype": "float32",
        "epoch": epoch,
        "seconds": time.perf_counter() - started,
    }


def _ends(store: Any, edge_type: EdgeType, pairs: Any) -> np.ndarray:
    """int64[2, n]: the pairs that are meant."""
    parts = store.link_parts(edge_type)
    if not isinstance(pairs, str) or pairs not in (*PARTS, *parts):
        return given_links(store, edge_type, "pairs", pairs, "val, test, or ").ends
    if pairs not in parts:
        raise UsageError(f"{argument('pairs', pairs)} is no part of the links of {store.path}, which are {', '.join(parts) or 'none'}")
    return store.links(pairs, edge_type)


def _rows_of_ends(
    data: TrainingData, model: Any, edges: HeldOutEdges, ends: np.ndarray, folder: Path, progress: Progress, **how: Any
) -> Rows:
    """The rows of all nodes that are ends. `folder`: for what memory should not hold. `how`: of `penstock.inference.steps.run`."""
    types = edges.edge_type[0], edges.edge_type[2]
    given, found = source_of(model, data), Rows()
    model.eval()
    for t in edges.node_types:
        nodes = np.unique(np.concatenate([ids for ids, of in zip(ends, types, strict=True) if of == t]))
        steps = steps_of(model, data.graph, data.prepare, data.read, t)
        needed = find_needed(given, steps, (t, nodes), how["num_workers"])
        with hearing(progress.note), stage(progress, f"rows of {t} over all neighbours", needed.num_rows), torch.no_grad():
            of_type = run_steps(given, steps, needed, MemoryShelf(folder), advance=progress.advance, **how)
        found[t] = nodes, of_type
    return found


def _say(
    data: TrainingData, model: Any, edges: HeldOutEdges, rows: Rows, ends: np.ndarray, progress: Progress
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(int64[2, n] pairs, float[n, width] what the model says of them), some at a time."""
    source, _, target = edges.edge_type
    device = next(model.parameters()).device
    for first in range(0, ends.shape[1], PAIRS):
        sources, targets = ends[:, first : first + PAIRS]
        both = (torch.from_numpy(rows_of(*each)).to(device) for each in ((rows[source], sources), (rows[target], targets)))
        with torch.no_grad():
            outputs = edges.of_pairs(model, *both).cpu().numpy()
        yield ends[:, first : first + PAIRS], outputs
        progress.advance(len(outputs))


def _as_read(data: TrainingData, outputs: np.ndarray) -> np.ndarray:
    """float[n], or [n, width]: outputs as users read them."""
    return data.task.read(outputs) if isinstance(data.edges, LabelledEdges) else outputs[:, 0]


def _columns(data: TrainingData, pairs: np.ndarray, outputs: np.ndarray) -> Columns:
    """The same as a part of a table."""
    assert data.edges is not None
    types = data.edges.edge_type[0], data.edges.edge_type[2]
    ids = {end: ids_of(data.store, t, nodes) for end, t, nodes in zip(ENDS, types, pairs, strict=True)}
    said = columns_of(data.task, data.task.decide(outputs)) if isinstance(data.edges, LabelledEdges) else {"score": outputs[:, 0]}
    return {**ids, **said}


def _write_array(path: Path, shape: tuple[int, ...], pieces: Iterator[np.ndarray]) -> None:
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for piece in pieces:
            file.write(piece.astype("<f4").tobytes())
