"""`penstock.infer`: what a user calls.

In: a model, and what a loader loads from. Out: an array, in memory or in a file. Invariant: it is what the model gives over the whole
graph, up to the order of sums; killed and called again, the bits are those of a call that was never stopped.
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
    """Compute what a model gives for nodes, over all their neighbours, layer by layer: each node's row of each layer once at most, and no
    row that nobody reads.

        embeddings = penstock.infer(model, store)  # one of PyG's GraphSAGE, GCN, GAT, GIN, ...
        penstock.infer(model, store, [lambda batch: model.conv1(batch.x, batch.edge_index).relu(),
                                      lambda batch: model.conv2(batch.x, batch.edge_index)], out="embeddings.npy")

    Args:
        model: set to evaluation while it is at work, on the CPU or on a device.
        data: as of `NeighborLoader`, with features `x`: `Data`, `HeteroData`, a store, or its path.
        layers: the model as functions of a batch, one for each layer: of a batch whose first `batch_size` nodes have all their neighbours,
            and whose `x` is what the layer before gave, they return rows for the nodes of the batch, or for the first ones only. Whatever
            looks at other nodes than these, or at degrees of neighbours, must have been computed before, as a field of `data`. None: those
            of a model of PyG's (`BasicGNN`), which gives what `model(x, edge_index)` does. Steps that need no neighbours, such as an
            encoder or a classifier, are marked by `penstock.inference.OfRows`. Of a typed graph each is called once for each node type
            and batch, the seeds being of that type, and may return a dictionary by type; a type of which it gives nothing has no `x` after
            it. A plan with a budget of memory calls them on some batches more, to see what they take.
        input_nodes: whose rows are wanted, each once, as of `NeighborLoader`; None: all nodes. Of a typed graph, a node type, or a pair of
            it and nodes. The last layer is computed for these only, the one before for these and their in-neighbours, and so on backwards,
            until nearly all nodes are among them (`LIMIT` in `inference/needed.py`): from there on for all. Which nodes a batch has changes
            a row in its last bits at most, by how sums of products are rounded in matrices of another size.
        out: file for the result, `.npy`. The layers are then files too, in `OUT.unfinished` beside it, two at most at a time: neither
            features nor results need fit in memory, and the same call goes on where a process was ended (what functions do is not compared:
            they must be the same). None: all is in memory.
        batch_size: nodes per batch; None: by the width of the rows and the mean degree.
        split, plan, num_workers: as of `NeighborLoader`. A plan holds for the features and for the rows of each layer.
        progress: told (rows done, rows in all) after each batch; of the rows that are computed.
    Returns:
        [num_nodes, width] in the order of `input_nodes`, of bfloat16 float32; with `out`, a map of the file.
    Raises:
        UsageError: layers that cannot be, or do not give rows for their seeds.
        NotSupportedError: a model that is not computed layer by layer, or data whose features are with somebody else.
        StateError: `OUT.unfinished` has rows of another model, graph, or choice of nodes, or a version left it that computed other rows.
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
    """Apply the steps of a model, in memory or in files; `what`: decides the rows besides; `write`: puts the result into its file, where
    that is no `.npy`; other arguments as of `infer` and `run`."""
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
            # with the above they say which; None also where a state says nothing of it, of a version that computed all
            "rows": None if needed.has_all else [list(each.values()) for each in needed.counts],
        }
        shelf = FileShelf(path, made_of, base.graph.node_types)
        with shelf.held():
            run(base, steps, needed, shelf, **options)
            return shelf.finish(wanted[0], write)


def _settings(part: nn.Module) -> str:
    """What a part of a model was told, as far as it is a word or a number."""
    plain = {name: value for name, value in vars(part).items() if isinstance(value, (bool, int, float, str, tuple, type(None)))}
    return f"{type(part).__name__} {sorted(plain.items(), key=str)}"


def _device_of(model: nn.Module) -> torch.device:
    return next((weights.device for weights in model.parameters()), torch.device("cpu"))


def _checked(layers: Sequence[Step], model: nn.Module) -> list[Step]:
    """Refuse what are no functions, and models of which they cannot be exact."""
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
    """Refuse inputs whose features are elsewhere, and plans that read rows from files where there are none."""
    if not isinstance(base, (ArrayInput, PyGInput)) or base.books:
        raise NotSupportedError("infer reads features of Data, HeteroData and stores: ingest the graph into a store")
    if layers is None and all(one.name != "x" for one in base.fields()[0]):
        raise MissingFieldError("the nodes have no features x, which the first layer reads: give them, or layers")
    if path is None and not plan.has_plain_features and (plan.features == "disk" or plan.host_memory is not None):
        raise UsageError(f"this plan reads rows from files: say where those of the layers are to be, by {argument('out')}")


def _check_width(model: nn.Module, base: Input) -> None:
    """Refuse a model of PyG's that takes other features than there are."""
    widths = [one.source.array.shape[1:] for one in base.fields()[0] if one.name == "x" and isinstance(one.source, TensorRows)]
    wanted = getattr(model, "in_channels", -1)
    if base.graph.is_homogeneous and isinstance(wanted, int) and wanted > 0 and widths and widths[0] != (wanted,):
        found = f"{widths[0][0]} features" if len(widths[0]) == 1 else f"features {list(widths[0])}"
        raise UsageError(f"{type(model).__name__} takes {wanted} features of a node, and these nodes have {found}")


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation, and each of its parts back to what it was."""
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
        array = array.detach().cpu().contiguous().numpy() if isinstance(array, torch.Tensor) else array
        digest.update(f"{place} {getattr(array, 'dtype', None)} {getattr(array, 'shape', None)}".encode())
        if isinstance(array, np.ndarray):
            digest.update(as_bytes(array))
    return digest.hexdigest()


def weights_digest(state: dict[str, torch.Tensor]) -> str:
    """Return 16 hex digits over all weights, by name."""
    digest = xxhash.xxh3_64()
    for name in sorted(state):
        digest.update(name.encode())
        value = state[name]
        if not nn.parameter.is_lazy(value) and value.layout == torch.strided:  # lazy: of a layer that was never used
            digest.update(as_bytes(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()
