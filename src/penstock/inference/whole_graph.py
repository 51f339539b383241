"""`penstock.infer`, the public function.

In: a model, and any data that a loader accepts. Out: an array, in memory or in a file. Invariant: it equals the model's output over the
whole graph, up to the order of sums; a call that is killed and repeated gives the same bits as one that was never stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import nn
from torch_geometric.nn import GCNConv

from penstock.errors import MissingFieldError, NotSupportedError, UsageError, argument
from penstock.feed.digest import digest_of
from penstock.feed.fields import TensorRows
from penstock.feed.inputs import ArrayInput, Input, open_input
from penstock.feed.inputs.arrays import StoreInput
from penstock.feed.inputs.pyg import PyGInput
from penstock.inference.needed import Needed, find_needed
from penstock.inference.pyg_models import check_parts, steps_of
from penstock.inference.shelves import FileShelf, MemoryShelf
from penstock.inference.steps import Step, run
from penstock.plan import Plan, make_plan
from penstock.sample.neighbor import check_ids
from penstock.store.files import as_bytes
from penstock.store.results import result_file


def infer(
    model: nn.Module,
    data: Any,
    layers: Sequence[Step] | None = None,
    *,
    input_nodes: Any = None,
    out: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    split: str | None = None,
    plan: Plan | str | None = None,
    num_workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Compute the output of a model for nodes, over all their neighbours, layer by layer: each row of each layer at most once, and only
    rows that are needed.

        embeddings = penstock.infer(model, store)  # one of PyG's GraphSAGE, GCN, GAT, GIN, ...
        penstock.infer(model, store, [lambda batch: model.conv1(batch.x, batch.edge_index).relu(),
                                      lambda batch: model.conv2(batch.x, batch.edge_index)], out="embeddings.npy")

    Args:
        model: on the CPU or on a device; set to evaluation mode during the call.
        data: as for `NeighborLoader`, with features `x`: `Data`, `HeteroData`, a store, or its path.
        layers: the model as functions of a batch, one per layer. The first `batch_size` nodes of the batch have all their neighbours, and
            its `x` is the result of the layer before; the function returns rows for the nodes of the batch, or for the first ones only.
            Values that depend on other nodes, or on degrees of neighbours, must be computed before, as a field of `data`. None: the layers
            of a PyG model (`BasicGNN`); the result is that of `model(x, edge_index)`. Steps that need no neighbours, such as an encoder or
            a classifier, are wrapped in `penstock.inference.OfRows`. In a typed graph each function is called once per node type and
            batch, with seeds of that type, and may return a dictionary by type; a type for which it returns nothing has no `x` afterwards.
            If the plan has a memory budget, the functions are also called on some extra batches, to measure their memory.
        input_nodes: the nodes whose rows are requested, each once, as for `NeighborLoader`; None: all nodes. In a typed graph a node type,
            or a pair of it and nodes. The last layer is computed for these only, the one before also for their in-neighbours, and so on;
            layers that need nearly all nodes (`LIMIT` in `inference/needed.py`) are computed for all. The choice of nodes changes at most
            the last bits of a row, since sums of products are rounded differently in matrices of another size.
        out: file for the result, `.npy`. The layers are then files too, in `OUT.unfinished` beside it, at most two at a time: neither
            features nor results need fit in memory, and the same call continues after a process was ended (the functions are not compared:
            they must be the same). None: everything is in memory.
        batch_size: nodes per batch; None: depends on the width of the rows and the mean degree.
        split, plan, num_workers: as for `NeighborLoader`. A plan applies to the features and to the rows of each layer.
        progress: called with (rows done, rows in all) after each batch.
    Returns:
        [num_nodes, width] in the order of `input_nodes`; bfloat16 becomes float32. With `out`, a map of the file.
    Raises:
        UsageError: invalid layers, or layers that do not return rows for their seeds.
        NotSupportedError: the model cannot be computed layer by layer, or the features are in a feature store or a partition.
        StateError: `OUT.unfinished` has rows of another model, graph or choice of nodes, or of a version that computed other rows.
        StoreError: files cannot be written.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if batch_size is not None and (not isinstance(batch_size, (int, np.integer)) or batch_size < 1):
        raise UsageError(f"batch_size must be a whole number from 1, got {batch_size!r}")
    plan, path = make_plan(plan), None if out is None else result_file(out, "out", (".npy",)).path
    base = open_input(data, is_sorted=False, split=split)
    _check(base, layers, plan, path)
    seeds = base.seeds(input_nodes, None)
    check_ids(base.graph, seeds.node_type, seeds.ids, are_looked_up=base.has_own_ids(seeds.node_type))
    if seeds.ids.size == 0:
        raise UsageError("input_nodes is empty: there is nothing to compute")
    if input_nodes is not None and np.unique(seeds.ids).size < seeds.ids.size:
        raise UsageError("input_nodes names nodes twice: give each once, and look its row up as often as you need it")
    if layers is None:
        _check_width(model, base)
        steps, names = steps_of(model, base.graph, [one.name for one in base.fields()[1]]), ("x",)
    else:
        steps, names = _checked(layers, model), None
    needed = find_needed(base, steps, (seeds.node_type, seeds.ids), num_workers)
    return apply(
        model, base, steps, needed, path, names=names, batch_size=batch_size, plan=plan, num_workers=num_workers, progress=progress
    )


def apply(
    model: nn.Module,
    base: Input,
    steps: Sequence[Step],
    needed: Needed,
    path: Path | None,
    *,
    batch_size: int | None,
    progress: Callable[[int, int], None] | None,
    what: str = "",
    write: Callable[[Path, np.ndarray], None] | None = None,
    **options: Any,
) -> np.ndarray:
    """Apply the steps of a model, in memory or in files. `what`: further values that determine the rows; `write`: writes the result if its
    file is not an `.npy`; other arguments as for `infer` and `run`."""
    total, done, wanted = needed.num_rows, 0, needed.wanted

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None and count:
            progress(done, total)

    options |= {"batch_size": batch_size, "advance": advance, "device": _device_of(model)}
    with _evaluating(model), torch.no_grad():
        if path is None:
            return run(base, steps, needed, MemoryShelf(), **options)
        made_of = {
            "weights": weights_digest(model.state_dict()),
            "model": xxhash.xxh3_64_hexdigest(f"{what} {[_settings(part) for part in model.modules()]}".encode()),
            "layers": len(steps),
            "graph": base.store.digest if isinstance(base, StoreInput) else _graph_digest(base),
            "nodes": [wanted[0], wanted[1].size, xxhash.xxh3_64_hexdigest(as_bytes(wanted[1]))],
            "batch_size": None if batch_size is None else int(batch_size),
            # with the above, these identify the nodes; a state of an older version, which computed all, lacks it: None
            "rows": None if needed.has_all else [list(each.values()) for each in needed.counts],
        }
        shelf = FileShelf(path, made_of, base.graph.node_types)
        with shelf.held():
            run(base, steps, needed, shelf, **options)
            return shelf.finish(wanted[0], write)


def _settings(part: nn.Module) -> str:
    """Return the settings of a part of a model that are texts or numbers."""
    plain = {name: value for name, value in vars(part).items() if isinstance(value, (bool, int, float, str, tuple, type(None)))}
    return f"{type(part).__name__} {sorted(plain.items(), key=str)}"


def _device_of(model: nn.Module) -> torch.device:
    return next((weights.device for weights in model.parameters()), torch.device("cpu"))


def _checked(layers: Sequence[Step], model: nn.Module) -> list[Step]:
    """Refuse layers that are not functions, and models for which the result would not be exact."""
    check_parts(model)
    if any(isinstance(part, GCNConv) and part.normalize for part in model.modules()):
        raise NotSupportedError(
            "GCNConv divides by degrees, which no batch shows of neighbours: put them into the graph (torch_geometric.transforms.GCNNorm) "
            "and take GCNConv(..., normalize=False) with batch.edge_weight"
        )
    steps = list(layers) if isinstance(layers, Iterable) else []
    if not steps or not all(map(callable, steps)):
        raise UsageError("layers must be functions of a batch, one for each layer of the model, one at least")
    return steps


def _check(base: Input, layers: Any, plan: Plan, path: Path | None) -> None:
    """Refuse inputs whose features are not in arrays, and plans that read rows from files if there are none."""
    if not isinstance(base, (ArrayInput, PyGInput)) or base.books:
        raise NotSupportedError("infer reads features of Data, HeteroData and stores: ingest the graph into a store")
    if layers is None and all(one.name != "x" for one in base.fields()[0]):
        raise MissingFieldError("the nodes have no features x, which the first layer reads: give them, or layers")
    if path is None and not plan.has_plain_features and (plan.features == "disk" or plan.host_memory is not None):
        raise UsageError(f"this plan reads rows from files, and those of the layers need a file too: give {argument('out')}")


def _check_width(model: nn.Module, base: Input) -> None:
    """Refuse a PyG model whose number of features is not that of the input."""
    widths = [one.source.array.shape[1:] for one in base.fields()[0] if one.name == "x" and isinstance(one.source, TensorRows)]
    wanted = getattr(model, "in_channels", -1)
    if base.graph.is_homogeneous and isinstance(wanted, int) and wanted > 0 and widths and widths[0] != (wanted,):
        found = f"{widths[0][0]} features" if len(widths[0]) == 1 else f"features {list(widths[0])}"
        raise UsageError(f"{type(model).__name__} takes {wanted} features of a node, and these nodes have {found}")


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode within the block, and each of its parts back afterwards."""
    before = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, is_training in before.items():
            part.training = is_training


def _graph_digest(base: Input) -> str:
    digest = xxhash.xxh3_64()
    of_nodes, of_edges = base.fields()
    arrays: dict[Any, Any] = {
        (e, name): getattr(csc, name) for e, csc in base.graph.adjacency.items() for name in ("indptr", "indices", "edge_ids")
    }
    for one in (*of_nodes, *of_edges):
        arrays[one.key, one.name] = one.source.array if isinstance(one.source, TensorRows) else getattr(one.source, "value", None)
    for place, array in arrays.items():
        if isinstance(array, np.ndarray):
            digest.update(f"{place} {array.dtype} {array.shape}".encode())
            digest.update(as_bytes(array))
        else:
            digest.update(f"{place} {digest_of(array)}".encode())
    return digest.hexdigest()


def weights_digest(state: dict[str, torch.Tensor]) -> str:
    """Return 16 hex digits over all weights, by name."""
    digest = xxhash.xxh3_64()
    for name in sorted(state):
        digest.update(name.encode())
        value = state[name]
        if not nn.parameter.is_lazy(value) and value.layout == torch.strided:  # lazy: a layer that was never used
            digest.update(as_bytes(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()
