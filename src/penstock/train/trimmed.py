"""What layers of a trimmed model compute: only the rows of a batch that later layers read.

In: a layer of PyG's, and rows and edges as its `forward` takes them. Out: the rows that count. Invariant: those are what the layer gives of
the whole batch, up to the order of sums.

The number of rows that a layer is given tells how far from the seeds it is, since after each hop another number of nodes is known. It takes
the edges of that hop and of those nearer to the seeds, as a sparse matrix where it can (`feed/layers.py`), and returns the rows of the
nodes known one hop earlier. Of batches without hops (induced, bidirectional) it returns all rows. Edges that no loader made, a whole
graph's for instance, are left to the layer itself.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import Parameter, Signature, signature
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch_geometric import nn as pyg

from penstock.errors import UsageError
from penstock.feed.layers import Hops, Layer, has_weights, hops_of, place_of
from penstock.records import EdgeType, NodeType
from penstock.train.attention import attention, attention_v2, dot_attention, is_transformed, typed_attention
from penstock.train.convs import counts, mapped_sums, means, product

logger = logging.getLogger("penstock")

OF_PRODUCTS = (pyg.SAGEConv, pyg.GraphConv, pyg.GINConv)
"""Layers that take a sparse matrix."""

OF_ATTENTION: dict[type, Callable[..., Tensor]] = {
    pyg.GATConv: attention,
    pyg.GATv2Conv: attention_v2,
    pyg.TransformerConv: dot_attention,
}
"""Layers of attention -> what they compute without features of edges."""

OF_PAIRS = (
    *(pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv, pyg.ResGatedGraphConv, pyg.GINEConv, pyg.GENConv, pyg.GeneralConv, pyg.LEConv),
    *(pyg.FiLMConv, pyg.EdgeConv, pyg.NNConv, pyg.CGConv, pyg.RGCNConv, pyg.FastRGCNConv),
)
"""Layers that take separate sources and destinations, and then compute only the rows of the destinations."""

OF_ROWS = (pyg.PNAConv, pyg.AGNNConv, pyg.ClusterGCNConv)
"""Layers that compute all rows that they are given, of which some are dropped."""

KNOWN = (*OF_PRODUCTS, *OF_PAIRS, *OF_ROWS, pyg.GCNConv, pyg.HGTConv)

OF_EDGES = ("edge_weight", "edge_attr", "edge_type")
"""Arguments of layers that have a value or row for each edge."""

HOOKS = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")

PART = "_penstock_part"
"""An argument of a trimmed `forward`: the module that is called."""


def signature_of(kind: type[nn.Module]) -> Signature:
    """The signature of `forward` of a class of layers."""
    unbound = signature(kind.forward)
    return unbound.replace(parameters=list(unbound.parameters.values())[1:])


def name_part(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A hook that tells a replaced `forward` which module is called. Without it a copy that shares the `forward` (copy.copy, a clone with
    weights of its own as in MAML, a replica) would be computed with the weights of the module that was trimmed."""
    return args, {**kwargs, PART: part}


@dataclass(eq=False)
class Talk:
    """What a trimmed model has warned of: its layers share it, so that each thing is said once."""

    is_of_whole: bool = False

    def of_whole(self) -> None:
        """Warn that the model is trained on edges that cannot be trimmed."""
        if not self.is_of_whole:
            logger.warning(
                "a trimmed model is trained on edges that no loader of Penstock sorted by target, as in a whole graph or the reverses in a "
                "typed bidirectional batch, or that were changed since: it computes the whole of them, as PyG does"
            )
        self.is_of_whole = True


class Forward:
    """A forward of a trimmed model: how many layers stand one after the other, by the rows that they are given, and whether any returns
    rows of which some are incomplete. In a typed graph such rows do not tell when there are more layers than hops."""

    def __init__(self) -> None:
        self._given: dict[tuple[int, int], list[weakref.ref[Tensor]]] = {}
        self._is_short = False

    def note(self, edge_index: Tensor, rows: Tensor, num_hops: int, *, is_short: bool) -> bool:
        """Note a layer that is given these rows of sources. Returns whether there are too many: rows that are incomplete may be read."""
        given = self._given.setdefault(place_of(edge_index), [])  # of views of the same edges too
        if not any(each() is rows for each in given):
            given.append(weakref.ref(rows))
        self._is_short |= is_short
        return self._is_short and len(given) > num_hops


class _Here(threading.local):
    forward: Forward | None = None


here = _Here()
"""The forward that this thread is in; None: of a layer alone."""


class Replacing:
    """Stands in place of a `forward`; has no code that could be scripted or exported."""

    def __getattr__(self, name: str) -> Any:
        if name in ("__code__", "__globals__"):
            raise AttributeError("a trimmed model is neither scripted nor exported: load its state_dict() into one that is not trimmed")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(eq=False)
class TrimmedLayer(Replacing):
    """Replaces a layer's `forward`.

    Attributes:
        conv: the layer.
        kind: its class, whose `forward` computes what cannot be trimmed.
        signature: of that `forward`.
        talk: of the model.
    """

    conv: Any
    kind: type[pyg.MessagePassing]
    signature: Signature
    talk: Talk

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the rows that count; of edges that no loader made, what the layer computes."""
        conv, of_class = kwargs.pop(PART, self.conv), self.kind.forward
        if torch._C._get_tracing_state() is not None:  # by torch.jit: for any edges
            return of_class(conv, *args, **kwargs)
        out = None if conv.explain else self._trimmed(conv, _bound(self.signature, args, kwargs))
        if out is not None:
            return out
        if conv.training:
            self.talk.of_whole()
        return of_class(conv, *args, **kwargs)

    def _trimmed(self, conv: Any, more: dict[str, Any]) -> Any:
        """Compute the rows that count from the arguments `more` of `forward`; None for edges that no loader made."""
        raise NotImplementedError


class Trimmed(TrimmedLayer):
    """Of a layer that takes (x, edge_index, ...)."""

    def _trimmed(self, conv: Any, more: dict[str, Any]) -> Any:
        of_class, x, edge_index = self.kind.forward, more.pop("x"), more.pop("edge_index")
        rows: Any = x if isinstance(x, (tuple, list)) else (x, x)
        is_one_sided = rows[1] is None and self.kind in OF_PRODUCTS
        is_seen = all(isinstance(each, Tensor) for each in (edge_index, *rows[: 1 if is_one_sided else 2]))
        num_src, num_dst = (len(rows[0]), None if is_one_sided else len(rows[1])) if is_seen else (0, 0)
        hops = _look_up(edge_index, num_src, num_dst) if is_seen else None
        if hops is None:
            return None
        layer = _layer_of(hops, edge_index, rows[0], num_dst)
        if more.get("return_attention_weights") is not None:
            if layer.num_dst == len(rows[1]) and layer.sources.numel() == edge_index.size(1):
                return of_class(conv, x, edge_index, **more)
            raise UsageError("return_attention_weights: a trimmed layer has those of some edges only; take them from a model without trim")
        more = {name: value for name, value in more.items() if name not in ("return_attention_weights", "size")}
        for name in [name for name in OF_EDGES if more.get(name) is not None]:
            if len(more[name]) != edge_index.size(1):
                raise UsageError(f"{name} has {len(more[name])} values, and the batch {edge_index.size(1)} edges")
        if self.kind is pyg.GCNConv:
            return _gcn(conv, rows[0], edge_index, layer, more.get("edge_weight"), hops.num_src[-1])
        more |= {name: more[name][: layer.sources.numel()] for name in OF_EDGES if more.get(name) is not None}
        if self.kind not in (*OF_PRODUCTS, *OF_PAIRS):
            return of_class(conv, x, layer.edge_index, **more)[: layer.num_dst]
        pair = rows[0], None if is_one_sided else rows[1][: layer.num_dst]
        if self.kind in OF_ATTENTION and more.get("edge_attr") is None and conv.aggr != "mean" and _sends_sums(conv):
            rows_of = x if isinstance(x, Tensor) else pair
            return OF_ATTENTION[self.kind](conv, rows_of, layer.edge_index, (layer.num_src, layer.num_dst))
        values = more.get("edge_weight")
        if self.kind in OF_PRODUCTS and conv.fuse and _has_product(conv, rows[0], values):
            if values is None and rows[0].dtype != torch.get_default_dtype():
                values = rows[0].new_ones(layer.sources.numel())
            with suppress(NotImplementedError):  # PyG writes the code of a class for the first layer made, which may have had no product
                return of_class(conv, pair, layer.adj_t(values))
        if is_one_sided:
            more["size"] = layer.num_src, layer.num_dst
        return of_class(conv, pair, layer.edge_index, **more)


class TrimmedOfTypes(TrimmedLayer):
    """Of a layer that takes (x_dict, edge_index_dict, ...)."""

    def _trimmed(self, conv: Any, more: dict[str, Any]) -> Any:
        x, edges = more.pop("x_dict"), more.pop("edge_index_dict")
        is_seen = all(isinstance(each, Tensor) for each in (*x.values(), *edges.values()))
        layers = self._layers(x, edges) if is_seen else None
        if layers is None:
            return None
        num_dst = {t: len(rows) for t, rows in x.items()} | {e[2]: layer.num_dst for e, layer in layers.items()}
        edges = {e: layer.edge_index for e, layer in layers.items()}
        if isinstance(conv, pyg.HGTConv):
            _initialize(conv.kqv_lin.lins, x)
        if self.kind is pyg.HGTConv and _sends_sums(conv) and not _has_hooks(*conv.children(), *conv.kqv_lin.lins.values()):
            return typed_attention(conv, x, edges, num_dst)
        return {t: rows if rows is None else rows[: num_dst[t]] for t, rows in self.kind.forward(conv, x, edges, **more).items()}

    def _layers(self, x: Mapping[NodeType, Tensor], edges: Mapping[EdgeType, Tensor]) -> dict[EdgeType, Layer] | None:
        """What is needed of each type of edges; None where no loader made them."""
        layers = {}
        for edge_type, ends in edges.items():
            num_src, num_dst = (len(x[edge_type[at]]) for at in (0, 2))
            hops = _look_up(ends, num_src, num_dst)
            if hops is None:
                return None
            layers[edge_type] = _layer_of(hops, ends, x[edge_type[0]], num_dst)
        return layers


def _initialize(maps: Any, x: Mapping[NodeType, Tensor]) -> None:
    """Give the maps of types that are made at the first call (PyG's -1) their width. PyG looks at a row for it, and there may be none."""
    for node_type, rows in x.items():
        if isinstance(maps[node_type].weight, UninitializedParameter):
            maps[node_type].initialize_parameters(None, (rows,))
            maps[node_type].reset_parameters()  # a second time, as PyG does: later random numbers are the same


def _bound(of_class: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a layer's `forward` by their names."""
    given = dict(of_class.bind(*args, **kwargs).arguments)
    for name, parameter in of_class.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
    return given


_untraced: Any = torch.compiler.disable
"""A look-up that `torch.compile` traced would be compiled again for the sizes of each batch."""

_look_up = _untraced(hops_of)


@_untraced
def _layer_of(hops: Hops, edge_index: Tensor, sources: Tensor, num_dst: int | None) -> Layer:
    """What a layer needs that is given these rows of sources, and so many of destinations; None: destinations have no rows.

    Rows of destinations fit several hops where a hop found no new nodes. The last of them is taken: more rows come out than are needed, as
    many for each type of edges, from the hops for which there are sources. Whatever is incomplete is beyond the rows that are read. Without
    rows of destinations, those of sources tell the hop. Destinations that are the seeds alone, `conv((x, x[:batch_size]), edge_index)`,
    were cut already.
    """
    num_src, num_hops = len(sources), len(hops.num_src) - 1
    if num_dst is None:
        of_sources = [number for number in range(1, len(hops.num_src)) if hops.num_src[number] == num_src]
        return hops.layer(edge_index, of_sources[-1]) if of_sources else _refuse(hops, num_src, num_dst)
    fitting = [number for number in range(1, len(hops.num_dst)) if hops.num_dst[number] == num_dst]
    numbers = [number for number in range(1, fitting[-1] + 1) if hops.num_src[number] <= num_src] if fitting else []
    if not fitting and num_dst == hops.num_dst[0] and num_src in hops.num_src[1:]:
        return replace(hops.layer(edge_index, 1), num_src=num_src)
    if not numbers or num_src not in hops.num_src:
        _refuse(hops, num_src, num_dst)
    rows, layer = hops.num_dst[fitting[-1] - 1], hops.layer(edge_index, numbers[-1])
    if here.forward is not None and here.forward.note(edge_index, sources, num_hops, is_short=rows > layer.num_dst):
        _refuse(hops, num_src, num_dst)
    row_ptr = layer.row_ptr if rows == layer.num_dst else hops.row_ptr[: rows + 1].clamp(max=layer.sources.numel())
    return replace(layer, num_src=num_src, num_dst=rows, row_ptr=row_ptr)


def _refuse(hops: Hops, num_src: int, num_dst: int | None) -> NoReturn:
    if num_src in hops.num_src and (num_dst is None or num_dst in hops.num_dst):
        raise UsageError(
            f"the model has more layers than the {len(hops.num_src) - 1} hops that are sampled: add a fanout, or leave penstock.trim out"
        )
    rows, known = (num_src, hops.num_src) if num_src not in hops.num_src else (num_dst, hops.num_dst)
    raise UsageError(
        f"a trimmed layer is given {rows} rows, and after each hop of the batch {', '.join(map(str, known))} nodes are known: what stands "
        "between layers keeps a row for each, in their order"
    )


def _has_product(conv: Any, x: Tensor, weights: Tensor | None) -> bool:
    """Whether a layer is a product of matrices that torch has, with all gradients; of the maximum it has other ones than PyG."""
    if is_transformed():
        return False
    is_known = x.dtype in (torch.float32, torch.float64) and (weights is None or (weights.dtype == x.dtype and weights.dim() == 1))
    return is_known and _sends_sums(conv) and not (weights is not None and weights.requires_grad)


def _sends_sums(conv: Any) -> bool:
    """Whether a layer adds up what its class sends, and nobody wants to see or change that."""
    inside = (getattr(conv, f"_{name}_forward{when}_hooks") for name in HOOKS for when in ("", "_pre"))
    is_sum = conv.aggr in ("mean", "sum", "add") and type(conv.aggr_module) in (pyg.MeanAggregation, pyg.SumAggregation)
    is_own = not vars(conv).keys() & {"message", "edge_update", "aggregate", "update"}
    return is_sum and is_own and not any(inside) and not _has_hooks(conv.aggr_module)


def _has_hooks(*parts: nn.Module) -> bool:
    """Whether somebody wants to see or change what a part of a layer gets or gives."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in parts)


@dataclass(eq=False)
class Aggregated:
    """Replaces a layer's `message_and_aggregate`: on a device, by products whose gradients do not wait for it (`train/convs.py`)."""

    conv: Any
    kind: Any

    def __call__(self, adj_t: Tensor, x: tuple[Tensor, Tensor | None], *more: Any) -> Tensor:
        """Sum up the rows x[0] of the sources by a sparse matrix [num_dst, num_src]."""
        if not x[0].is_cuda or self.conv.aggr not in ("mean", "sum", "add"):
            return self.kind.message_and_aggregate(self.conv, adj_t, x, *more)
        if self.conv.aggr != "mean":
            return product(adj_t, x[0])
        return product(adj_t, x[0]) / counts(adj_t) if has_weights(adj_t) else means(adj_t, x[0])


def _gcn(conv: Any, x: Tensor, edge_index: Tensor, layer: Layer, weights: Tensor | None, num_nodes: int) -> Tensor:
    """GCNConv, by the degrees that the whole batch shows, as ever; weights: float[num_edges of the batch]."""
    values, loops = x.new_ones(edge_index.size(1)) if weights is None else weights.view(-1), None
    if conv.normalize:
        values, loops = _normalized(
            edge_index, values, num_nodes, conv.add_self_loops, 1.0 if weights is None or not conv.improved else 2.0
        )
    values, loops = values[: layer.sources.numel()], None if loops is None else loops[: layer.num_dst]

    def sums(rows: Tensor) -> Tensor:
        if _has_product(conv, rows, values):
            with suppress(NotImplementedError):  # under autocast, of half the width
                return product(layer.adj_t(values) if loops is None else layer.adj_t_with_loops(values, loops), rows)
        edges, of_edges = layer.edge_index, values
        if loops is not None:
            edges = torch.cat([edges, torch.arange(layer.num_dst, device=edges.device).expand(2, -1)], dim=1)
            of_edges = torch.cat([values, loops])
        return conv.propagate(edges, x=rows, edge_weight=of_edges, size=(layer.num_src, layer.num_dst))

    return mapped_sums(conv, x, sums)


def _normalized(edge_index: Tensor, values: Tensor, num_nodes: int, has_loops: bool, loop: float) -> tuple[Tensor, Tensor | None]:
    """PyG's `gcn_norm`: values for the edges and, if each node has a loop, for these; nobody waits for a device."""
    sources, targets = edge_index
    loops = None
    if has_loops:  # one a node: of its own, the last one, has its weight
        is_loop = sources == targets
        loops = values.new_full((num_nodes + 1,), loop)
        loops = loops.scatter(0, torch.where(is_loop, targets, num_nodes), values)[:num_nodes]
        values = values.masked_fill(is_loop, 0.0)
    sums = values.new_zeros(num_nodes).scatter_add(0, targets, values)
    roots = (sums if loops is None else sums + loops).pow(-0.5)
    roots = roots.masked_fill(roots == torch.inf, 0.0)
    return roots[sources] * values * roots[targets], None if loops is None else roots * loops * roots
