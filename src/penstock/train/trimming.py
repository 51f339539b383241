"""A model whose layers compute what later ones read of a batch, its own code unchanged.

In: a model of PyG's layers. Out: the same model, to be called as ever, `model(batch.x, batch.edge_index)`. Invariant: the rows of the seeds
are what the whole batch gives, up to the order of sums.

A layer knows by the number of rows that it is given how far from the seeds it is: after each hop another number of nodes is known. It takes
the edges of that hop and of those nearer to the seeds, where it can as a sparse matrix (`feed/layers.py`), and gives the rows of the nodes
that were known a hop before. Edges that no loader made, a whole graph's for instance, are left to the layer itself.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from inspect import Signature, signature
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch_geometric import nn as pyg

from penstock.errors import NotSupportedError, UsageError
from penstock.feed.layers import Hops, Layer, has_weights, hops_of
from penstock.train.convs import counts, means, product

logger = logging.getLogger("penstock")

OF_PRODUCTS = (pyg.SAGEConv, pyg.GraphConv, pyg.GINConv)
"""Layers that take a sparse matrix."""

OF_PAIRS = (
    *(pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv, pyg.ResGatedGraphConv, pyg.GINEConv, pyg.GENConv, pyg.GeneralConv, pyg.LEConv),
    *(pyg.FiLMConv, pyg.EdgeConv, pyg.NNConv, pyg.CGConv, pyg.RGCNConv, pyg.FastRGCNConv),
)
"""Layers that take sources and destinations apart, and need not compute rows that nobody wants."""

OF_ROWS = (pyg.PNAConv, pyg.AGNNConv, pyg.ClusterGCNConv)
"""Layers that compute all rows they are given, of which some are dropped."""

KNOWN = (*OF_PRODUCTS, *OF_PAIRS, *OF_ROWS, pyg.GCNConv)

OF_EDGES = ("edge_weight", "edge_attr", "edge_type")
"""Arguments of layers with a value or row for each edge."""


def trim(model: nn.Module, also: Collection[type[pyg.MessagePassing]] = ()) -> nn.Module:
    """Have each layer of a model compute the rows that later layers read, of batches of Penstock's loaders.

    The model is changed, and returned. It is called as before, and gives rows of the seeds, as the first ones. Its weights and their names,
    and what it gives for edges from elsewhere, stay what they were. What stands between the layers has fewer rows too: norms over a batch
    see those that count, and a skip connection takes the first rows of what it skips, `out + x[: len(out)]`.

    Args:
        model: of PyG's layers, in `HeteroConv` or not; what joins the rows of several layers is `JumpingKnowledge`.
        also: classes of further layers that take (x, edge_index, ...), of which each row follows from its own and those of its
            in-neighbours alone.
    Raises:
        UsageError: there is no layer of PyG's in it.
        NotSupportedError: a layer that needs more than rows of its in-neighbours, or of which that is not known.
    """
    convs = [part for part in model.modules() if isinstance(part, pyg.MessagePassing)]
    if not convs:
        raise UsageError(f"{type(model).__name__} has no layer of PyG's (MessagePassing): there is nothing to trim")
    if isinstance(model, fx.GraphModule):
        raise NotSupportedError("a model made by to_hetero does not say which layer it is at: use HeteroConv, or penstock.layers")
    for conv in convs:
        _check(conv, also)
    talk = _Talk()
    for conv in convs:
        if not isinstance(conv.forward, _Trimmed):
            conv.forward = _Trimmed(conv, talk)
        if type(conv) in OF_PRODUCTS:
            conv.message_and_aggregate = _Aggregated(conv)  # pyright: ignore[reportAttributeAccessIssue]
    if not isinstance(model.forward, (_Trimmed, _Explaining)):
        model.forward = _Explaining(model)
    for part in model.modules():
        if isinstance(part, pyg.HeteroConv) and _note_level not in part._forward_pre_hooks.values():
            part.register_forward_pre_hook(_note_level, with_kwargs=True)
        if isinstance(part, pyg.JumpingKnowledge) and _cut_alike not in part._forward_pre_hooks.values():
            part.register_forward_pre_hook(_cut_alike)
    return model


def _check(conv: Any, also: Collection[type]) -> None:
    name = type(conv).__name__
    if type(conv) not in (*KNOWN, *also):
        raise NotSupportedError(
            f"{name} is not known to give a node's row from its in-neighbours' rows alone; "
            f"if it does, say so: penstock.trim(model, also=[{name}])"
        )
    if conv.flow != "source_to_target":
        raise NotSupportedError(f"{name} sends along edges from target to source, and batches have the neighbours that send to their seeds")
    if getattr(conv, "cached", False):
        raise NotSupportedError(f"{name} keeps the edges of its first batch (cached=True): make the model without that")
    if type(conv) is pyg.GCNConv and conv.aggr not in ("add", "sum"):
        raise NotSupportedError(f"{name} with aggr={conv.aggr!r}: trim takes 'add'")


@dataclass(eq=False)
class _Talk:
    """What a model has said."""

    is_of_whole: bool = False

    def of_whole(self) -> None:
        if not self.is_of_whole:
            logger.warning(
                "a trimmed model is trained on edges that no loader made (copied, moved or changed ones): it computes them whole; "
                "for a GPU give the loader device='cuda' in place of batch.to(device)"
            )
        self.is_of_whole = True


@dataclass(eq=False)
class _Explaining:
    """In place of a model's `forward`: errors about shapes say that rows are fewer."""

    model: nn.Module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return type(self.model).forward(self.model, *args, **kwargs)
        except RuntimeError as error:
            error.add_note(
                "the model is trimmed: layers give fewer rows than they are given, the first ones; a skip is out + x[: len(out)]"
            )
            raise


@dataclass(eq=False)
class _Trimmed:
    """In place of a layer's `forward`."""

    conv: Any
    talk: _Talk
    level: int | None = None
    """How many hops the layer has, where its `HeteroConv` has seen that."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        conv, of_class = self.conv, type(self.conv).forward
        given = _signature(type(conv)).bind(conv, *args, **kwargs).arguments
        x, edge_index = given.pop("x"), given.pop("edge_index")
        hops = hops_of(edge_index) if isinstance(edge_index, Tensor) else None
        if hops is None or conv.explain:
            if conv.training:
                self.talk.of_whole()
            return of_class(conv, *args, **kwargs)
        more = {name: value for name, value in given.items() if name not in ("self", "size") and value is not None}
        if "return_attention_weights" in more:
            raise UsageError("return_attention_weights: a trimmed layer has those of some edges only; take them from a model without trim")
        if hops.is_typed and self.level is None:
            raise NotSupportedError(
                "of a typed graph, trim takes layers in a HeteroConv, which sees where they are; else use penstock.layers"
            )
        rows = x if isinstance(x, (tuple, list)) else (x, x)
        if not all(isinstance(each, Tensor) for each in rows):
            raise UsageError(f"{type(conv).__name__} without x: a trimmed layer sees by the number of rows where it is")
        layer = hops.layer(edge_index, self.level or max(_levels(hops, rows), default=0) or _refuse(hops, rows))
        for name in OF_EDGES:
            if name in more and len(more[name]) != edge_index.size(1):
                raise UsageError(f"{name} has {len(more[name])} values, and the batch {edge_index.size(1)} edges")
        if type(conv) is pyg.GCNConv:
            return _gcn(conv, rows[0], edge_index, layer, more.get("edge_weight"), hops.num_src[-1])
        more |= {name: more[name][: layer.sources.numel()] for name in OF_EDGES if name in more}
        if type(conv) not in (*OF_PRODUCTS, *OF_PAIRS):
            return of_class(conv, x, layer.edge_index, **more)[: layer.num_dst]
        pair = rows[0], rows[1][: layer.num_dst]
        if type(conv) in OF_PRODUCTS and _has_product(conv, rows[0], more.get("edge_weight")):
            values = more.get("edge_weight")
            if values is None and rows[0].dtype != torch.get_default_dtype():
                values = rows[0].new_ones(layer.sources.numel())
            with suppress(NotImplementedError):  # PyG writes the code of a class for the first layer made, which may have had no product
                return of_class(conv, pair, layer.adj_t(values))
        return of_class(conv, pair, layer.edge_index, **more)


@cache
def _signature(kind: type) -> Signature:
    return signature(kind.forward)  # pyright: ignore[reportAttributeAccessIssue]


def _levels(hops: Hops, rows: Sequence[Tensor]) -> set[int]:
    """How many hops a layer may have that is given so many rows of sources and destinations: several, where a hop found no new nodes."""
    known = zip(hops.num_src, hops.num_dst, strict=True)
    return {number for number, counts in enumerate(known) if number and counts == (len(rows[0]), len(rows[1]))}


def _refuse(hops: Hops, rows: Sequence[Tensor]) -> int:
    if (len(rows[0]), len(rows[1])) == (hops.num_src[0], hops.num_dst[0]):
        raise UsageError(
            f"the model has more layers than the {len(hops.num_src) - 1} hops that are sampled: add a fanout, or leave penstock.trim out"
        )
    known = ", ".join(map(str, hops.num_src))
    raise UsageError(
        f"a trimmed layer is given {len(rows[0])} rows, and after each hop of the batch {known} nodes are known: what stands between "
        "layers keeps a row for each, in their order"
    )


def _note_level(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Tell the layers of a `HeteroConv` how many hops they have: as many as fit the rows of all types."""
    x_dict, edges = (args[at] if len(args) > at else kwargs[name] for at, name in enumerate(("x_dict", "edge_index_dict")))
    noted = {edge_type: hops_of(edge_index) for edge_type, edge_index in edges.items() if isinstance(edge_index, Tensor)}
    known = [(hops, (x_dict[e[0]], x_dict[e[2]])) for e, hops in noted.items() if hops and e[0] in x_dict and e[2] in x_dict]
    level = max(set.intersection(*(_levels(*each) for each in known)), default=0) or _refuse(*known[0]) if known else None
    for conv in part.modules():
        if isinstance(conv.forward, _Trimmed):
            conv.forward.level = level


def _cut_alike(part: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of the rows of several layers those that all have, the first ones."""
    least = min(map(len, args[0]))
    return [rows[:least] for rows in args[0]], *args[1:]


def _has_product(conv: Any, x: Tensor, weights: Tensor | None) -> bool:
    is_for_device = conv.aggr in ("mean", "sum", "add")  # others torch has for the CPU only
    return conv.fuse and _is_multiplied(x, weights) and (is_for_device or not x.is_cuda)


def _is_multiplied(x: Tensor, weights: Tensor | None) -> bool:
    """Whether torch multiplies sparse matrices of these numbers, with their gradients."""
    return x.dtype in (torch.float32, torch.float64) and (weights is None or (weights.dtype == x.dtype and not weights.requires_grad))


@dataclass(eq=False)
class _Aggregated:
    """In place of a layer's `message_and_aggregate`: on a device, products whose gradients wait for nothing (`train/convs.py`)."""

    conv: Any

    def __call__(self, adj_t: Tensor, x: tuple[Tensor, Tensor | None], *more: Any) -> Tensor:
        if not x[0].is_cuda or self.conv.aggr not in ("mean", "sum", "add"):
            return type(self.conv).message_and_aggregate(self.conv, adj_t, x, *more)
        if self.conv.aggr != "mean":
            return product(adj_t, x[0])
        return product(adj_t, x[0]) / counts(adj_t) if has_weights(adj_t) else means(adj_t, x[0])


def _gcn(conv: Any, x: Tensor, edge_index: Tensor, layer: Layer, weights: Tensor | None, num_nodes: int) -> Tensor:
    """GCNConv, by the degrees that the whole batch shows, as ever; weights: float[num_edges of the batch]."""
    x = conv.lin(x)
    (sources, targets), num_edges = layer.edge_index, layer.sources.numel()
    if not conv.normalize:
        values, loops = None if weights is None else weights[:num_edges], None
    else:
        values, loops = _normalized(edge_index, weights, num_nodes, conv.add_self_loops, 2.0 if conv.improved else 1.0, x.dtype)
        values = values[:num_edges]
    if _is_multiplied(x, values):
        values = x.new_ones(num_edges) if values is None else values
        out = product(layer.adj_t(values) if loops is None else layer.adj_t_with_loops(values, loops[: layer.num_dst]), x)
    else:
        messages = x[sources] if values is None else x[sources] * values.unsqueeze(1)
        out = x.new_zeros(layer.num_dst, x.size(1)).index_add(0, targets, messages.to(x.dtype))
        if loops is not None:
            out = out + (x[: layer.num_dst] * loops[: layer.num_dst].unsqueeze(1)).to(x.dtype)
    return out if conv.bias is None else out + conv.bias


def _normalized(
    edge_index: Tensor, weights: Tensor | None, num_nodes: int, has_loops: bool, loop: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """PyG's `gcn_norm`: values for the edges and, if each node has a loop, for these; nobody waits for a device."""
    sources, targets = edge_index
    values = torch.ones(edge_index.size(1), dtype=dtype, device=edge_index.device) if weights is None else weights
    loops = None
    if has_loops:  # one a node: of its own, the last one, has its weight
        is_loop = sources == targets
        loops = values.new_full((num_nodes + 1,), 1.0 if weights is None else loop)
        loops = loops.scatter(0, torch.where(is_loop, targets, num_nodes), values)[:num_nodes]
        values = values.masked_fill(is_loop, 0.0)
    sums = values.new_zeros(num_nodes).scatter_add(0, targets, values)
    roots = (sums if loops is None else sums + loops).pow(-0.5)
    roots = roots.masked_fill(roots == torch.inf, 0.0)
    return roots[sources] * values * roots[targets], None if loops is None else roots * loops * roots
