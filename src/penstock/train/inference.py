"""Layer-wise inference: the exact output of a model over full neighbourhoods, one layer at a time over the whole graph.

In: a model with `layer`, a graph, features. Out: one row of logits, or what is made of them, per wanted node. Each node's row of each
layer is computed once, in whatever order; a layer's output lies in memory or, beyond a bound, in a file.
The batches come from the same loader as in training, with fanout -1 and one hop.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.errors import StoreError, argument, reason_of
from penstock.feed import NeighborLoader, layers
from penstock.feed.inputs import ArrayInput
from penstock.feed.layers import note_edges
from penstock.records import CSC, EDGE, NODE, Graph, NodeType
from penstock.train.models import GNN
from penstock.train.task import as_float
from penstock.train.typed_models import TypedGNN

MEMORY_BYTES = 2 << 30
"""Outputs of a layer beyond this go to a file."""

BATCH_BYTES = 128 << 20
"""Rows that a batch of all neighbours reads, about; several batches are under way."""

Features = Callable[[torch.Tensor], torch.Tensor]
Finish = Callable[[np.ndarray], np.ndarray]


def _table(rows: int, width: int, folder: Path) -> np.ndarray:
    """A float32 array [rows, width]: in memory, or in a file without a name, which goes with the array or the process."""
    num_bytes = rows * width * 4
    if num_bytes <= MEMORY_BYTES:
        return np.empty((rows, width), dtype=np.float32)
    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed below)
    except OSError as error:
        raise StoreError(f"cannot write in {folder}: {reason_of(error)}") from error
    with file:
        try:
            os.posix_fallocate(file.fileno(), 0, num_bytes)  # a map that the disk has no room for would end the process without a word
        except OSError as error:
            raise StoreError(
                f"evaluation keeps a layer of {num_bytes / 2**30:.1f} GiB in {folder}: {reason_of(error)}; free some space and go on by "
                f"{argument('resume', True)}"
            ) from error
        return np.memmap(file, dtype=np.float32, mode="r+", shape=(rows, width))


def _fill(table: np.ndarray, parts: Iterator[np.ndarray]) -> np.ndarray:
    """Write rows one part after the other."""
    done = 0
    for part in parts:
        table[done : done + len(part)] = part
        done += len(part)
    return table


def degrees_of(adjacency: CSC, nodes: torch.Tensor) -> torch.Tensor:
    """float32[n]: in-degrees of nodes in the whole graph, read off the row pointers on the host; where the nodes are."""
    return torch.from_numpy(adjacency.degrees(nodes.cpu().numpy()).astype(np.float32)).to(nodes.device)


def _batches(source: ArrayInput, wanted: Any, batch_size: int, num_workers: int, model: GNN | TypedGNN) -> Iterator[Any]:
    """Batches over all neighbours, made on the CPU and moved to the model one by one: a layer's rows are read once, in whatever order."""
    device = device_of(model)
    loader = NeighborLoader(source, [-1], input_nodes=wanted, batch_size=batch_size, num_workers=num_workers, seed=0)
    return (_moved(batch, device) for batch in loader)


def _moved(batch: Any, device: torch.device) -> Any:
    """A batch where a model computes. Its edges are those of the loader: they are not compared there."""
    if device.type != "cpu":
        batch = batch.to(device)
        note_edges(batch)
    return batch


def _batch_size(row_bytes: int, num_nodes: int, num_edges: int) -> int:
    """Nodes per batch, as many as read `BATCH_BYTES` with their neighbours if they have the mean degree and share none."""
    bytes_per_node = row_bytes * (1 + num_edges // max(num_nodes, 1))
    return min(max(BATCH_BYTES // max(bytes_per_node, 1), 64), 4096)


def device_of(model: torch.nn.Module) -> torch.device:
    """Where a model computes."""
    return next(model.parameters()).device


@torch.no_grad()
def infer_sampled(
    predict: Callable[[Any], torch.Tensor],
    loader: NeighborLoader,
    *,
    advance: Callable[[int], None] = lambda count: None,
    finish: Finish = lambda logits: logits,
) -> list[np.ndarray]:
    """Compute logits over sampled neighbourhoods, batch by batch: memory follows the batch, not the graph.

    Args:
        predict: batch -> float32[batch_size, outputs].
        loader: over the nodes whose logits are wanted, in their order.
        advance, finish: as for `infer`.
    """
    done = []
    for batch in loader:
        logits = predict(batch).cpu().numpy()
        done.append(finish(logits))
        advance(len(logits))
    return done


@torch.no_grad()
def infer(
    model: GNN,
    graph: Graph,
    x: np.ndarray,
    nodes: np.ndarray,
    folder: Path,
    *,
    prepare: Features = as_float,
    batch_size: int | None = None,
    num_workers: int = 0,
    advance: Callable[[int], None] = lambda count: None,
    finish: Finish = lambda logits: logits,
) -> np.ndarray:
    """Compute logits over full neighbourhoods for a homogeneous graph.

    Args:
        model: in evaluation mode.
        graph, x: topology and features [num_nodes, width].
        nodes: int64[n], whose logits are wanted; the last layer is computed for these only.
        folder: for layers that exceed memory.
        prepare: applied to raw features of a batch.
        batch_size: in nodes; None goes by the width of a layer's rows and the mean degree.
        advance: told of rows done, num_nodes per inner layer and n for the last.
        finish: applied to the logits of a batch; only what it returns is kept.
    Returns:
        float32[n, outputs], or as `finish` makes it.
    """
    adjacency = graph.adjacency[EDGE]

    def outputs(i: int, x: np.ndarray, wanted: np.ndarray | None) -> Iterator[np.ndarray]:
        """Yield the output of a layer, batch after batch."""
        size = batch_size or _batch_size(x.itemsize * x.shape[1], adjacency.num_dst, adjacency.num_edges)
        for batch in _batches(ArrayInput(graph, {NODE: {"x": x}}), wanted, size, num_workers, model):
            (layer,) = layers(batch)
            features = prepare(batch.x) if i == 0 else batch.x
            yield model.layer(i, features, layer, degrees_of(adjacency, batch.n_id) if model.needs_degree else None).cpu().numpy()
            advance(layer.num_dst)

    current: np.ndarray = x
    for i in range(model.num_layers - 1):
        current = _fill(_table(graph.num_nodes[NODE], model.width(i), folder), outputs(i, current, None))
    return np.concatenate([finish(logits) for logits in outputs(model.num_layers - 1, current, nodes)])


@torch.no_grad()
def infer_typed(
    model: TypedGNN,
    graph: Graph,
    x: dict[NodeType, np.ndarray],
    nodes: np.ndarray,
    folder: Path,
    *,
    prepare: Features = as_float,
    batch_size: int | None = None,
    num_workers: int = 0,
    advance: Callable[[int], None] = lambda count: None,
    finish: Finish = lambda logits: logits,
) -> np.ndarray:
    """Compute logits over full neighbourhoods for a typed graph; as `infer`.

    Args:
        x: features of the node types that have any.
        nodes: int64[n] of the target type.
    """
    device = device_of(model)

    def encoded(t: NodeType) -> Iterator[np.ndarray]:
        """Yield what the first layer reads of a type, batch after batch."""
        num_nodes = graph.num_nodes[t]
        size = batch_size or _batch_size(x[t].itemsize * x[t].shape[1] if t in x else 0, num_nodes, 0)
        for first in range(0, num_nodes, size):
            ids = torch.arange(first, min(first + size, num_nodes), device="cpu")
            given = prepare(torch.from_numpy(np.array(x[t][first : first + size]))) if t in x else ids
            yield model.encode(t, given.to(device)).cpu().numpy()

    def outputs(i: int, current: dict[NodeType, np.ndarray], t: NodeType, wanted: np.ndarray | None) -> Iterator[np.ndarray]:
        """Yield the output of a layer for a type, batch after batch."""
        source = ArrayInput(graph, {t: {"x": rows} for t, rows in current.items()})
        num_edges = sum(csc.num_edges for (_, _, dst), csc in graph.adjacency.items() if dst == t)
        size = batch_size or _batch_size(4 * model.hidden, graph.num_nodes[t], num_edges)
        for batch in _batches(source, (t, wanted), size, num_workers, model):
            (layer,) = layers(batch)
            yield model.layer(i, {other: batch[other].x for other in graph.num_nodes}, layer)[t].cpu().numpy()
            advance(layer.num_dst[t])

    def table(t: NodeType) -> np.ndarray:
        return _table(graph.num_nodes[t], model.hidden, folder)

    current = {t: _fill(table(t), encoded(t)) for t in graph.num_nodes}
    for i in range(model.num_layers - 1):
        current = {t: _fill(table(t), outputs(i, current, t, None)) if count else table(t) for t, count in graph.num_nodes.items()}
    last = outputs(model.num_layers - 1, current, model.target, nodes)
    return np.concatenate([finish(model.classify(torch.from_numpy(rows).to(device)).cpu().numpy()) for rows in last])
