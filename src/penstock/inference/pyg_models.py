"""PyG's own models, `GraphSAGE`, `GCN`, `GAT`, `GIN`, ..., as steps that compute `model(x, edge_index)` layer by layer.

In: a `BasicGNN` and a graph. Out: a step per layer. Invariant: a node's row depends only on the rows of its neighbours. Degrees of
neighbours, which a batch does not show, are counted in the whole graph; parts that look at all nodes at once are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import BatchNorm, EdgeConv, GATConv, GATv2Conv, GCNConv, GINConv, LayerNorm, MessageNorm, PNAConv, SAGEConv, norm
from torch_geometric.nn.models.basic_gnn import BasicGNN

from penstock.errors import NotSupportedError, UsageError
from penstock.feed.layers import Layer, layers
from penstock.inference.steps import Step
from penstock.records import CSC, EDGE, Graph

logger = logging.getLogger("penstock")

OF_PAIRS = (SAGEConv, GINConv, GATConv, GATv2Conv)
"""Layers that accept separate sources and destinations, and so need not compute rows that are not requested."""

CONVS = (*OF_PAIRS, GCNConv, PNAConv, EdgeConv)
AGGREGATIONS = {"sum", "add", "mean", "max", "min", "mul", "std", "var", "softmax", "powermean"}
"""Aggregations that depend only on the messages of a node, in any order."""

NORMS = tuple(getattr(norm, name) for name in norm.__all__)
OF_ONE_ROW = (BatchNorm, nn.LayerNorm, nn.Identity, MessageNorm)
"""Norms whose rows, in a trained model, depend only on the same row. PyG's LayerNorm in mode "node" is another one."""

NOT_OF_ONE_ROW = (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.Softmax2d)
"""Activations that may work along any dimension."""

_BLOCK = 1 << 20


def steps_of(model: nn.Module, graph: Graph, fields: Collection[str] = ()) -> list[Step]:
    """Return the layers of a PyG model as steps; raises for other models. `fields`: edge fields, which the model does not get."""
    name = type(model).__name__
    if not isinstance(model, BasicGNN) or type(model).forward is not BasicGNN.forward:
        raise UsageError(
            f"{name} is not one of PyG's standard models: give its layers, functions of a batch: "
            "infer(model, data, [lambda batch: model.conv1(batch.x, batch.edge_index).relu(), ...])"
        )
    if not graph.is_homogeneous:
        raise UsageError(f"{name} is for graphs of one type, and this one has {len(graph.num_nodes)} node types: give layers")
    for conv in model.convs:
        _check_conv(conv)
    if model.jk_mode not in (None, "last"):
        raise NotSupportedError(f"jk={model.jk_mode!r} joins the outputs of all layers, which are not kept: it must be 'last', or None")
    if any(nn.parameter.is_lazy(value) for value in (*model.parameters(), *model.buffers())):
        raise UsageError(f"{name} has weights without a shape: it was never used, and has learnt nothing")
    check_parts(model)
    is_left_out = {"edge_weight": model.supports_edge_weight, "edge_attr": model.supports_edge_attr}
    for field in [field for field in fields if is_left_out.get(field)]:
        logger.warning("%s is left out, as by model(x, edge_index): give layers where the model has learnt from it", field)
    is_by_degree = [isinstance(conv, GCNConv) and conv.normalize for conv in model.convs]
    degrees = Degrees.of(graph.adjacency[EDGE]) if any(is_by_degree) else None
    return [partial(_apply, model, i, degrees if is_by_degree[i] else None) for i in range(len(model.convs))]


def _check_conv(conv: Any) -> None:
    """Refuse layers that compute, or may compute, other rows from a batch than from the whole graph."""
    name = type(conv).__name__
    if type(conv) not in CONVS:
        raise UsageError(f"{name} is not known to give a node's row from its neighbours' rows alone: give layers")
    if conv.flow != "source_to_target":
        raise NotSupportedError(f"{name} sends along edges from target to source, and batches have the neighbours that send to their seeds")
    names = [conv.aggr] if isinstance(conv.aggr, (str, type(None))) else conv.aggr
    is_sum = not (isinstance(conv, GCNConv) and conv.normalize) or names in (["add"], ["sum"])
    if not is_sum or not all(each in AGGREGATIONS or isinstance(conv, PNAConv) for each in names):
        raise NotSupportedError(f"{name} with aggr={conv.aggr!r}: infer takes {'add' if not is_sum else ', '.join(sorted(AGGREGATIONS))}")
    if getattr(conv, "cached", False) and conv.normalize and conv._cached_edge_index is not None:
        raise NotSupportedError(f"{name} has kept the edges of a graph (cached=True): make the model without that, and load its weights")


def check_parts(model: nn.Module) -> None:
    """Refuse a model with a part that looks at all nodes at once."""
    for part in model.modules():
        if not is_of_one_row(part):
            raise NotSupportedError(f"{part} looks at all nodes at once, which no batch has: infer takes batch_norm, for instance")


def is_of_one_row(part: nn.Module) -> bool:
    """Whether a trained norm or activation computes a row from that row alone; True for other kinds of parts."""
    if isinstance(part, nn.modules.batchnorm._NormBase):  # pyright: ignore[reportPrivateUsage]
        return isinstance(part, (nn.BatchNorm1d, nn.SyncBatchNorm)) and part.track_running_stats
    if isinstance(part, NOT_OF_ONE_ROW):
        return getattr(part, "dim", None) in (1, -1)
    return not isinstance(part, NORMS) or isinstance(part, OF_ONE_ROW) or (isinstance(part, LayerNorm) and part.mode == "node")


def _apply(model: BasicGNN, number: int, degrees: Degrees | None, batch: Any) -> Tensor:
    """Apply a layer, and everything between it and the next layer."""
    conv: Any = model.convs[number]
    (layer,) = layers(batch)
    x = batch.x.to(next(model.parameters()).dtype)
    if degrees is not None:
        x = degrees.normalized(layer, batch.n_id, conv) @ conv.lin(x)
        x = x if conv.bias is None else x + conv.bias
    elif isinstance(conv, OF_PAIRS):
        x = _of_pairs(conv, x, layer)
    else:
        x = conv(x, layer.edge_index)[: layer.num_dst]
    is_last = number == model.num_layers - 1
    if is_last and model.jk_mode is None:
        return x
    act = nn.Identity() if model.act is None else model.act
    x = model.norms[number](act(x)) if model.act_first else act(model.norms[number](x))
    return model.lin(x) if is_last and hasattr(model, "lin") else x


def _of_pairs(conv: Any, x: Tensor, layer: Layer) -> Tensor:
    """Apply a layer by a sparse product if it supports one, else by messages along edges."""
    pair = x, x[: layer.num_dst]
    if conv.fuse and (not x.is_cuda or conv.aggr in ("mean", "sum", "add")):  # torch has other products only on the CPU
        ones = None if x.dtype == torch.get_default_dtype() else x.new_ones(layer.sources.numel())
        with suppress(NotImplementedError):  # PyG generates code per class from the first layer made, which may not have had it
            return conv(pair, layer.adj_t(ones))
    return conv(pair, layer.edge_index)


@dataclass(frozen=True, slots=True)
class Degrees:
    """Degrees for the normalisation of GCN.

    Attributes:
        others: float32[num_nodes], number of in-edges from other nodes.
        loops: float32[num_nodes], number of in-edges from the node itself.
    """

    others: Tensor
    loops: Tensor

    @classmethod
    def of(cls, csc: CSC) -> Degrees:
        """Count them, in one pass over the edges."""
        others, loops = (np.empty(csc.num_dst, np.float32) for _ in range(2))
        ends = np.asarray(csc.indptr)
        first = 0
        while first < csc.num_dst:
            last = max(int(np.searchsorted(ends, ends[first] + _BLOCK, "right")) - 1, first + 1)
            counts = np.diff(ends[first : last + 1])
            is_loop = csc.indices[ends[first] : ends[last]] == np.repeat(np.arange(first, last), counts)
            loops[first:last] = np.bincount(np.repeat(np.arange(last - first), counts), is_loop, last - first)
            others[first:last] = counts - loops[first:last]
            first = last
        return cls(torch.from_numpy(others), torch.from_numpy(loops))

    def normalized(self, layer: Layer, nodes: Tensor, conv: GCNConv) -> Tensor:
        """Return the rows of GCN's normalised matrix for a batch, CSR [num_dst, num_src]; each node has exactly one loop."""
        others, loops = (each[nodes.cpu()].to(nodes.device, conv.lin.weight.dtype) for each in (self.others, self.loops))
        if conv.add_self_loops:
            loops = torch.ones_like(loops)  # also with conv.improved, which only affects edges with weights
        roots = (others + loops).rsqrt().nan_to_num(posinf=0.0)
        sources, targets = layer.edge_index
        values = roots[sources] * roots[targets]
        if not conv.add_self_loops:
            return layer.adj_t(values)
        values = values.masked_fill(nodes[sources] == nodes[targets], 0.0)
        return layer.adj_t_with_loops(values, (loops * roots * roots)[: layer.num_dst])
