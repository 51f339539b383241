"""A model whose layers compute only the rows of a batch that later layers read, without a change of its code.

In: a model of PyG's layers. Out: the same model, called as before: `model(batch.x, batch.edge_index)`. Invariant: the rows of the seeds are
what the whole batch gives, up to the order of sums.

The number of rows that a layer is given tells how far from the seeds it is, since after each hop another number of nodes is known. It takes
the edges of that hop and of those nearer to the seeds, as a sparse matrix where it can (`feed/layers.py`), and returns the rows of the
nodes known one hop earlier. Edges that no loader made, a whole graph's for instance, are left to the layer itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch_geometric import nn as pyg

from penstock.errors import NotSupportedError, UsageError
from penstock.feed.layers import Hops, Layer, has_weights, hops_of
from penstock.inference.pyg_models import is_of_one_row
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

BY_SOURCES = (
    *(pyg.GCNConv, pyg.GCN2Conv, pyg.LGConv, pyg.SGConv, pyg.SSGConv, pyg.ARMAConv, pyg.EGConv, pyg.ChebConv, pyg.TAGConv, pyg.APPNP),
    *(pyg.MixHopConv, pyg.FAConv, pyg.PDNConv, pyg.PANConv, pyg.GatedGraphConv, pyg.HypergraphConv),
)
"""Layers that need the degrees of sources, or several hops; their subclasses may, too."""

PADDED = (
    *(pyg.LSTMAggregation, pyg.GRUAggregation, pyg.LCMAggregation, pyg.EquilibriumAggregation),
    pyg.aggr.PatchTransformerAggregation,
)
"""Aggregations by which a row depends on the longest list of all rows."""

BY_ALL_ROWS = (pyg.HANConv,)
"""Layers that take means over all rows of a type."""

HOOKS = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")

_PART = "_penstock_part"
"""An argument of a trimmed `forward`: the module that is called."""

Model = TypeVar("Model", bound=nn.Module)


def trim(model: Model, also: Collection[type[pyg.MessagePassing]] = ()) -> Model:
    """Make each layer of a model compute only the rows that later layers read, for batches of Penstock's loaders.

    The model is changed, and returned. It is called as before, and its first rows are those of the seeds. Its weights and their names stay
    as they were, and so do its results for edges from elsewhere. What stands between the layers gets fewer rows: a skip connection must
    take the first rows of what it skips, `out + x[: len(out)]`; a batch norm in training sees only the rows that are needed; a sum over all
    rows, such as a virtual node's, changes.

    Args:
        model: of PyG's layers, also in `HeteroConv` or made by `to_hetero`; rows of several layers may be joined by `JumpingKnowledge`.
        also: classes of further layers that take (x, edge_index, ...), or (x_dict, edge_index_dict, ...), and whose every row depends only
            on that node and its in-neighbours, and not on how many neighbours these have.
    Raises:
        UsageError: the model has no layer of PyG's.
        NotSupportedError: a layer needs more than the rows of in-neighbours, or may; or a norm is over all rows.
    """
    convs = [part for part in model.modules() if isinstance(part, pyg.MessagePassing)]
    if not convs:
        raise UsageError(f"{type(model).__name__} has no layer of PyG's (MessagePassing): there is nothing to trim")
    for conv in convs:
        _check(conv, also)
    for part in model.modules():
        if not is_of_one_row(part):
            raise NotSupportedError(
                f"{part} looks at all rows of a batch, of which a trimmed model has fewer: take batch_norm, for instance"
            )
    talk = _Talk()
    for conv in convs:
        if "forward" not in vars(conv):
            of_class = _signature(type(conv))
            conv.forward = (_Trimmed if "x" in of_class.parameters else _TrimmedOfTypes)(conv, type(conv), of_class, talk)
            conv.register_forward_pre_hook(_name_part, with_kwargs=True)
            if type(conv) in OF_PRODUCTS:
                conv.message_and_aggregate = _Aggregated(conv, type(conv))  # pyright: ignore[reportAttributeAccessIssue]
    if "forward" not in vars(model):
        model.forward = _Explaining(model, type(model))
        model.register_forward_pre_hook(_name_part, with_kwargs=True)
    for part in model.modules():
        if isinstance(part, pyg.JumpingKnowledge) and _cut_alike not in part._forward_pre_hooks.values():
            part.register_forward_pre_hook(_cut_alike, with_kwargs=True)
    return model


def _check(conv: Any, also: Collection[type]) -> None:
    name = type(conv).__name__
    if type(conv) not in KNOWN and isinstance(conv, BY_SOURCES):
        raise NotSupportedError(f"{name} needs degrees of its neighbours, or several hops, which a trimmed layer does not see")
    if isinstance(conv, BY_ALL_ROWS):
        raise NotSupportedError(f"{name} takes means over all rows of a type, of which a trimmed model has fewer")
    parameters = _signature(type(conv)).parameters.keys()
    if not ({"x", "edge_index"} <= parameters or {"x_dict", "edge_index_dict"} <= parameters):
        raise NotSupportedError(
            f"{name} takes no x and edge_index, nor x_dict and edge_index_dict: a trimmed layer knows where it is by these"
        )
    if type(conv) not in (*KNOWN, *also):
        raise NotSupportedError(
            f"{name} is not known to give a node's row from its in-neighbours' rows alone; if it does, whatever their degrees, say so: "
            f"penstock.trim(model, also=[{name}])"
        )
    if "forward" in vars(conv) and not isinstance(conv.forward, _TrimmedLayer):
        raise NotSupportedError(f"the forward of {name} was replaced: trim the model before")
    if conv.flow != "source_to_target":
        raise NotSupportedError(f"{name} sends along edges from target to source, and batches have the neighbours that send to their seeds")
    if getattr(conv, "cached", False):
        raise NotSupportedError(f"{name} keeps the edges of its first batch (cached=True): make the model without that")
    if type(conv) is pyg.GCNConv and conv.aggr not in ("add", "sum"):
        raise NotSupportedError(f"{name} with aggr={conv.aggr!r}: trim takes 'add'")
    for part in conv.modules():
        if isinstance(part, PADDED):
            raise NotSupportedError(f"{type(part).__name__} in {name}: a row depends on the longest list of neighbours of all rows")


def _signature(kind: type[nn.Module]) -> Signature:
    """The signature of `forward` of a class of layers."""
    unbound = signature(kind.forward)
    return unbound.replace(parameters=list(unbound.parameters.values())[1:])


def _name_part(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Tell what stands in place of a `forward` whose it is. It is no method: a copy that shares it (copy.copy, a clone with weights of its
    own as in MAML, a replica) would be computed with the weights of the module that was trimmed."""
    return args, {**kwargs, _PART: part}


@dataclass(eq=False)
class _Talk:
    """What a model has said."""

    is_of_whole: bool = False

    def of_whole(self) -> None:
        if not self.is_of_whole:
            logger.warning(
                "a trimmed model is trained on edges that no loader made, or that were changed since: it computes the whole of them"
            )
        self.is_of_whole = True


class _Forward:
    """What stands in place of a `forward`; has no code that could be scripted or exported."""

    def __getattr__(self, name: str) -> Any:
        if name in ("__code__", "__globals__"):
            raise AttributeError("a trimmed model is neither scripted nor exported: load its state_dict() into one that is not trimmed")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@dataclass(eq=False)
class _Explaining(_Forward):
    """Replaces a model's `forward`: adds to errors about shapes that a trimmed model has fewer rows."""

    model: nn.Module
    kind: type[nn.Module]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = kwargs.pop(_PART, self.model)
        try:
            return self.kind.forward(model, *args, **kwargs)
        except (RuntimeError, IndexError) as error:
            if isinstance(error, IndexError) or "size" in str(error).lower():
                error.add_note(
                    "the model is trimmed: a layer gives fewer rows than it is given, the first ones; skip it by out + x[: len(out)]"
                )
            raise


@dataclass(eq=False)
class _TrimmedLayer(_Forward):
    """Replaces a layer's `forward`."""

    conv: Any
    kind: type[pyg.MessagePassing]
    signature: Signature
    talk: _Talk

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        conv, of_class = kwargs.pop(_PART, self.conv), self.kind.forward
        if torch._C._get_tracing_state() is not None:  # by torch.jit: for any edges
            return of_class(conv, *args, **kwargs)
        out = None if conv.explain else self._trimmed(conv, _bound(self.signature, args, kwargs))
        if out is not None:
            return out
        if conv.training:
            self.talk.of_whole()
        return of_class(conv, *args, **kwargs)

    def _trimmed(self, conv: Any, more: dict[str, Any]) -> Any:
        """What the layer gives of the rows that count, given the arguments `more`; None for edges that no loader made."""
        raise NotImplementedError


class _Trimmed(_TrimmedLayer):
    """Of a layer that takes rows and edges."""

    def _trimmed(self, conv: Any, more: dict[str, Any]) -> Any:
        of_class, x, edge_index = self.kind.forward, more.pop("x"), more.pop("edge_index")
        rows = x if isinstance(x, (tuple, list)) else (x, x)
        is_seen = isinstance(edge_index, Tensor) and all(isinstance(each, Tensor) for each in rows)
        hops = hops_of(edge_index, len(rows[0]), len(rows[1])) if is_seen else None
        if hops is None:
            return None
        if more.pop("return_attention_weights", None) is not None:
            raise UsageError("return_attention_weights: a trimmed layer has those of some edges only; take them from a model without trim")
        more.pop("size", None)
        layer = _layer_of(hops, edge_index, len(rows[0]), len(rows[1]))
        for name in [name for name in OF_EDGES if more.get(name) is not None]:
            if len(more[name]) != edge_index.size(1):
                raise UsageError(f"{name} has {len(more[name])} values, and the batch {edge_index.size(1)} edges")
        if self.kind is pyg.GCNConv:
            return _gcn(conv, rows[0], edge_index, layer, more.get("edge_weight"), hops.num_src[-1])
        more |= {name: more[name][: layer.sources.numel()] for name in OF_EDGES if more.get(name) is not None}
        if self.kind not in (*OF_PRODUCTS, *OF_PAIRS):
            return of_class(conv, x, layer.edge_index, **more)[: layer.num_dst]
        pair = rows[0], rows[1][: layer.num_dst]
        if self.kind in OF_ATTENTION and more.get("edge_attr") is None and conv.aggr != "mean" and _sends_sums(conv):
            rows_of = x if isinstance(x, Tensor) else pair
            return OF_ATTENTION[self.kind](conv, rows_of, layer.edge_index, (layer.num_src, layer.num_dst))
        values = more.get("edge_weight")
        if self.kind in OF_PRODUCTS and conv.fuse and _has_product(conv, rows[0], values):
            if values is None and rows[0].dtype != torch.get_default_dtype():
                values = rows[0].new_ones(layer.sources.numel())
            with suppress(NotImplementedError):  # PyG writes the code of a class for the first layer made, which may have had no product
                return of_class(conv, pair, layer.adj_t(values))
        return of_class(conv, pair, layer.edge_index, **more)


class _TrimmedOfTypes(_TrimmedLayer):
    """Of a layer that takes rows and edges of all types."""

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
            hops = hops_of(ends, num_src, num_dst)
            if hops is None:
                return None
            layers[edge_type] = _layer_of(hops, ends, num_src, num_dst)
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


def _layer_of(hops: Hops, edge_index: Tensor, num_src: int, num_dst: int) -> Layer:
    """What a layer needs that is given so many rows of sources and destinations.

    Rows of destinations fit several hops where a hop found no new nodes. The last of them is taken: more rows come out than are needed, as
    many for each type of edges, from the hops for which there are sources. Whatever is incomplete is beyond the rows that are read.
    """
    fitting = [number for number in range(1, len(hops.num_dst)) if hops.num_dst[number] == num_dst]
    numbers = [number for number in range(1, fitting[-1] + 1) if hops.num_src[number] <= num_src] if fitting else []
    if not numbers or num_src not in hops.num_src:
        _refuse(hops, num_src, num_dst)
    rows, layer = hops.num_dst[fitting[-1] - 1], hops.layer(edge_index, numbers[-1])
    row_ptr = layer.row_ptr if rows == layer.num_dst else hops.row_ptr[: rows + 1].clamp(max=layer.sources.numel())
    return replace(layer, num_src=num_src, num_dst=rows, row_ptr=row_ptr)


def _refuse(hops: Hops, num_src: int, num_dst: int) -> None:
    if num_src in hops.num_src and num_dst in hops.num_dst:
        raise UsageError(
            f"the model has more layers than the {len(hops.num_src) - 1} hops that are sampled: add a fanout, or leave penstock.trim out"
        )
    rows, known = (num_src, hops.num_src) if num_src not in hops.num_src else (num_dst, hops.num_dst)
    raise UsageError(
        f"a trimmed layer is given {rows} rows, and after each hop of the batch {', '.join(map(str, known))} nodes are known: what stands "
        "between layers keeps a row for each, in their order"
    )


def _cut_alike(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Cut the rows of several layers to the first ones, which all have."""
    xs = args[0] if args else kwargs["xs"]
    least = min(map(len, xs))
    cut = [rows[:least] for rows in xs]
    return ((cut, *args[1:]), kwargs) if args else (args, {**kwargs, "xs": cut})


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
class _Aggregated:
    """Replaces a layer's `message_and_aggregate`: on a device, by products whose gradients do not wait for it (`train/convs.py`)."""

    conv: Any
    kind: Any

    def __call__(self, adj_t: Tensor, x: tuple[Tensor, Tensor | None], *more: Any) -> Tensor:
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
