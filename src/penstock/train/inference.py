"""The standard models as steps over the whole graph (see `penstock.inference`), and over sampled neighbourhoods.

In: a model in evaluation mode. Out: steps that give one row of logits, or what is made of them, per node; or these, batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from penstock.feed import layers
from penstock.feed.inputs import ArrayInput
from penstock.inference import OfRows
from penstock.inference.steps import Step
from penstock.records import CSC, EDGE, NODE, Graph, NodeType
from penstock.store import Store
from penstock.train.data import TrainingData
from penstock.train.models import GNN
from penstock.train.task import as_float
from penstock.train.typed_models import TypedGNN

Features = Callable[[torch.Tensor], torch.Tensor]
Finish = Callable[[np.ndarray], np.ndarray]


def degrees_of(adjacency: CSC, nodes: torch.Tensor) -> torch.Tensor:
    """float32[n]: in-degrees of nodes in the whole graph, read off the row pointers on the host; where the nodes are."""
    return torch.from_numpy(adjacency.degrees(nodes.cpu().numpy()).astype(np.float32)).to(nodes.device)


@torch.no_grad()
def infer_sampled(
    predict: Callable[[Any], torch.Tensor], batches: Iterable[Any], *, advance: Callable[[int], None], finish: Finish
) -> list[np.ndarray]:
    """Compute logits over sampled neighbourhoods, batch by batch: memory follows the batch, not the graph.

    Args:
        predict: batch -> float32[batch_size, outputs].
        batches: of the nodes whose logits are wanted, in their order; None where only other processes have one.
        advance: told of rows done.
        finish: applied to the logits of a batch; only what it returns is kept.
    """
    done = []
    for batch in batches:
        logits = predict(batch).cpu().numpy()
        if batch is None:
            continue
        done.append(finish(logits))
        advance(len(logits))
    return done


def steps_of(
    model: GNN | TypedGNN,
    graph: Graph,
    prepare: Features = as_float,
    finish: Finish = lambda logits: logits,
    node_type: NodeType | None = None,
) -> list[Step]:
    """Cut a model into steps.

    Args:
        model: in evaluation mode.
        graph: the topology.
        prepare: applied to raw features of a batch.
        finish: applied to the logits of a batch; only what it returns is kept.
        node_type: of the nodes that the last step is for; None: the target of the model.
    """
    if isinstance(model, GNN):
        return _steps(model, graph, prepare, finish)
    return _typed_steps(model, prepare, finish, model.target if node_type is None else node_type)


def source_of(model: GNN | TypedGNN, data: TrainingData) -> ArrayInput:
    """What the first step reads: features, or the rows that nodes have learnt in their place."""
    if isinstance(model, GNN) and model.rows is not None:
        return ArrayInput(data.graph, {NODE: {"x": model.rows.weight.detach().cpu().numpy()}})
    arrays = {t: {"x": rows} for t, rows in data.x.items()}
    return ArrayInput(data.graph, arrays, is_mapped=True, packed_in=data.store if isinstance(data.store, Store) else None)


def _steps(model: GNN, graph: Graph, prepare: Features, finish: Finish) -> list[Step]:
    def step(i: int, batch: Any) -> Any:
        (layer,) = layers(batch)
        degree = degrees_of(graph.adjacency[EDGE], batch.n_id) if model.needs_degree else None
        rows = model.layer(i, prepare(batch.x) if i == 0 else batch.x, layer, degree)
        return finish(rows.cpu().numpy()) if i == model.num_layers - 1 else rows

    steps: list[Step] = [lambda batch, i=i: step(i, batch) for i in range(model.num_layers)]
    return [OfRows(lambda batch: model.first(prepare(batch.x))), *steps[1:]] if model.is_aggregated else steps


def _typed_steps(model: TypedGNN, prepare: Features, finish: Finish, node_type: NodeType) -> list[Step]:
    def encode(batch: Any) -> dict[NodeType, torch.Tensor]:
        some = [t for t in batch.node_types if batch[t].num_nodes]
        return {t: model.encode(t, prepare(batch[t].x) if "x" in batch[t] else model.table(t)(batch[t].n_id)) for t in some}

    def step(i: int, batch: Any) -> Any:
        (layer,) = layers(batch)
        none = next(model.parameters()).new_empty(0, model.hidden)  # of types without nodes
        rows = model.layer(i, {t: batch[t].x if "x" in batch[t] else none for t in batch.node_types}, layer)
        if i < model.num_layers - 1:
            return rows
        return {node_type: finish(model.last(rows[node_type], node_type).cpu().numpy())}

    return [OfRows(encode), *(lambda batch, i=i: step(i, batch) for i in range(model.num_layers))]
