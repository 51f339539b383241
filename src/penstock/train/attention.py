"""Attention of PyG's layers over the edges of a batch: GAT's, GATv2's, TransformerConv's, and HGT's over those of several types.

In: a layer of PyG's, whose weights are used, rows of sources and destinations, and edges. Out: what the layer gives. On a CPU no row for
each edge is put into memory, of which pages would cost more than the sums: heads are products of sparse matrices, and what is of edges is
computed some of them at a time, in cache. On a device nobody waits for it: PyG's GAT leaves out the self-loops that are there, and waits to
hear how many are left; here they stay, and have no weight. PyG's HGT looks up how many rows each relation has, which their shapes say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv
from torch_geometric.utils import softmax

from penstock.feed.layers import Layer
from penstock.records import EdgeType, NodeType

_PIECE_BYTES = 1 << 20


def is_transformed() -> bool:
    """Whether gradients are taken by `torch.func`, which knows neither sparse matrices nor functions with gradients of their own."""
    return torch._C._are_functorch_transforms_active()


def attention(conv: GATConv, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, size: tuple[int, int]) -> Tensor:
    """A layer of GAT without features of edges: shares of the sources of each destination, and sums by these.

    PyG's leaves out the self-loops that are there, and waits to hear how many are left; here they stay, and their share is none.

    Args:
        x: of the sources, of which the first are the destinations; or of both.
        edge_index: int64[2, num_edges].
        size: (sources, destinations).
    """
    of_src, of_dst = (conv.lin_src, conv.lin_dst) if conv.lin is None else (conv.lin, conv.lin)
    assert of_src is not None
    assert of_dst is not None
    x_src, x_dst = (x, x[: size[1]]) if isinstance(x, Tensor) else x
    src = of_src(x_src).unflatten(1, (conv.heads, -1))
    is_mapped = isinstance(x, Tensor) and conv.lin is not None
    dst = src[: size[1]] if is_mapped else of_dst(x_dst).unflatten(1, (conv.heads, -1))
    of_sources, of_targets = _by_head(src, conv.att_src), _by_head(dst, conv.att_dst)

    def scores(edges: Tensor) -> Tensor:
        return F.leaky_relu(of_sources.index_select(0, edges[0]) + of_targets.index_select(0, edges[1]), conv.negative_slope)

    return _attended(conv, src, x_dst, scores, edge_index, size)


def attention_v2(conv: GATv2Conv, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, size: tuple[int, int]) -> Tensor:
    """A layer of GATv2 without features of edges; its arguments are those of `attention`."""
    x_src, x_dst = (x, x[: size[1]]) if isinstance(x, Tensor) else x
    src = conv.lin_l(x_src).unflatten(1, (conv.heads, -1))
    is_mapped = isinstance(x, Tensor) and conv.share_weights
    dst = src[: size[1]] if is_mapped else conv.lin_r(x_dst).unflatten(1, (conv.heads, -1))
    return _attended(conv, src, x_dst, lambda edges: _scores_of_sums(dst, src, conv.att, conv.negative_slope, edges), edge_index, size)


def _attended(
    conv: Any, src: Tensor, x_dst: Tensor, scores: Callable[[Tensor], Tensor], edge_index: Tensor, size: tuple[int, int]
) -> Tensor:
    """Of GAT or GATv2: sums of float[num_src, heads, width] by shares, which follow from the scores float[num_edges, heads] of edges."""
    is_loop = None
    if conv.add_self_loops:
        loops = torch.arange(min(size), device=edge_index.device).expand(2, -1)
        is_loop = F.pad(edge_index[0] == edge_index[1], (0, loops.size(1))).unsqueeze(1)
        edge_index = torch.cat([edge_index, loops], dim=1)
    alpha = scores(edge_index)
    alpha = alpha if is_loop is None else alpha.masked_fill(is_loop, -torch.inf)
    alpha = F.dropout(softmax(alpha, edge_index[1], num_nodes=size[1]), conv.dropout, conv.training)
    out = _weighted_sums(src, alpha, edge_index, size[1])
    out = out.flatten(1) if conv.concat else out.mean(dim=1)
    out = out if conv.res is None else out + conv.res(x_dst)
    return out if conv.bias is None else out + conv.bias


def dot_attention(conv: TransformerConv, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, size: tuple[int, int]) -> Tensor:
    """A layer of TransformerConv without features of edges; its arguments are those of `attention`."""
    x_src, x_dst = (x, x[: size[1]]) if isinstance(x, Tensor) else x
    queries, keys, values = (
        lin(rows).unflatten(1, (conv.heads, -1)) for lin, rows in ((conv.lin_query, x_dst), (conv.lin_key, x_src), (conv.lin_value, x_src))
    )
    alpha = softmax(_scores(queries, keys, edge_index) / math.sqrt(conv.out_channels), edge_index[1], num_nodes=size[1])
    out = _weighted_sums(values, F.dropout(alpha, conv.dropout, conv.training), edge_index, size[1])
    out = out.flatten(1) if conv.concat else out.mean(dim=1)
    if not conv.root_weight:
        return out
    own = conv.lin_skip(x_dst)
    if conv.lin_beta is None:
        return out + own
    beta = conv.lin_beta(torch.cat([out, own, out - own], dim=-1)).sigmoid()
    return beta * own + (1 - beta) * out


def _by_head(rows: Tensor, by: Tensor) -> Tensor:
    """float[n, heads]: products of float[n, heads, width] with float[1, heads, width]."""
    if rows.device.type == "cpu":  # what is to be added up would be put into memory as a whole; to launch blocks takes a device longer
        return F.linear(rows.flatten(1), torch.block_diag(*by[0].unsqueeze(1)))
    return (rows * by).sum(-1)


def typed_attention(
    conv: Any, x: Mapping[NodeType, Tensor], edges: Mapping[EdgeType, Tensor], num_dst: Mapping[NodeType, int] | None = None
) -> dict[NodeType, Tensor]:
    """A layer of HGT: for each destination shares of its sources of all relations, and sums by these.

    PyG maps keys and values of the sources, once for each relation. Here queries are mapped the other way, and sums in place of values, to
    the same effect: destinations are fewer.

    Args:
        conv: PyG's HGTConv.
        x: of all sources, of which the first of a type are its destinations.
        edges: int64[2, num_edges] of each relation.
        num_dst: how many destinations there are of each type; None: all rows.
    """
    heads, out = (conv.heads, conv.out_channels // conv.heads), {}
    keys, values = ({t: _mapped(conv, t, x[t], part).unflatten(1, heads) for t in {e[0] for e in edges}} for part in (0, 2))
    for t in x:
        if t not in conv.dst_node_types:
            continue
        rows = x[t] if num_dst is None else x[t][: num_dst[t]]
        into, queries = {e: ends for e, ends in edges.items() if e[2] == t}, _mapped(conv, t, rows, 1)
        sums = torch.zeros_like(queries)
        if into:
            logits = [
                _scores(_by_relation(conv.k_rel, conv, e, queries).unflatten(1, heads), keys[e[0]], ends) * _prior(conv, e)
                for e, ends in into.items()
            ]
            targets = torch.cat([ends[1] for ends in into.values()])
            alpha = softmax(torch.cat(logits), targets, num_nodes=len(rows)).split([ends.size(1) for ends in into.values()])
            for (e, ends), shares in zip(into.items(), alpha, strict=True):
                of_relation = _weighted_sums(values[e[0]], shares, ends, len(rows)).flatten(1)
                sums = sums + _by_relation(conv.v_rel, conv, e, of_relation, is_transposed=True)
        mixed = conv.out_lin.lins[t](F.gelu(sums))
        if mixed.size(1) == rows.size(1):
            share = conv.skip[t].sigmoid()
            mixed = share * mixed + (1 - share) * rows
        out[t] = mixed
    return out


def _mapped(conv: Any, node_type: NodeType, rows: Tensor, part: int) -> Tensor:
    """Keys (part 0), queries (1) or values (2) of rows: float[n, out_channels]."""
    lin = conv.kqv_lin.lins[node_type]
    return F.linear(rows, lin.weight.chunk(3)[part], None if lin.bias is None else lin.bias.chunk(3)[part])


def _by_relation(maps: Any, conv: Any, edge_type: EdgeType, rows: Tensor, *, is_transposed: bool = False) -> Tensor:
    """Rows float[n, out_channels] by the map of a relation of each head: a product with each is slower than with a matrix of blocks."""
    blocks = maps.weight.unflatten(0, (conv.heads, len(conv.edge_types)))[:, conv.edge_types_map[edge_type]]
    return F.linear(rows, torch.block_diag(*(blocks.mT if is_transposed else blocks)))


def _prior(conv: Any, edge_type: EdgeType) -> Tensor:
    """float[1, heads]: by which the scores of a relation are multiplied."""
    return conv.p_rel["__".join(edge_type)] / math.sqrt(conv.out_channels // conv.heads)


def _scores(queries: Tensor, keys: Tensor, edge_index: Tensor) -> Tensor:
    """float[num_edges, heads]: products of float[num_dst, heads, width] with float[num_src, heads, width] along edges."""
    if _has_products(queries, keys):
        return _Scores.apply(queries, keys, edge_index)  # pyright: ignore[reportReturnType]
    sources, targets = edge_index
    return (queries.index_select(0, targets) * keys.index_select(0, sources)).sum(-1)


def _scores_of_sums(dst: Tensor, src: Tensor, by: Tensor, slope: float, edge_index: Tensor) -> Tensor:
    """float[num_edges, heads]: leaky_relu of the sums of the rows of both ends, times by: float[1, heads, width]."""
    if _has_products(dst, src):
        return _ScoresOfSums.apply(dst, src, by, slope, edge_index)  # pyright: ignore[reportReturnType]
    sources, targets = edge_index
    return (F.leaky_relu(dst.index_select(0, targets) + src.index_select(0, sources), slope) * by).sum(-1)


def _weighted_sums(x: Tensor, alpha: Tensor, edge_index: Tensor, num_dst: int) -> Tensor:
    """float[num_dst, heads, width]: sums of the rows of sources float[num_src, heads, width], by alpha float[num_edges, heads]."""
    if _has_products(x, alpha):
        return _Attended.apply(x, alpha, edge_index, num_dst)  # pyright: ignore[reportReturnType]
    sources, targets = edge_index
    messages = x.index_select(0, sources) * alpha.unsqueeze(-1)
    return messages.new_zeros(num_dst, *x.shape[1:]).index_add(0, targets, messages)


def _has_products(x: Tensor, other: Tensor) -> bool:
    """Whether torch has products of sparse matrices for both, with all gradients that are asked."""
    is_known = x.dtype in (torch.float32, torch.float64) and x.dtype == other.dtype
    return x.device.type == "cpu" and is_known and not (torch.compiler.is_compiling() or is_transformed())


class _Attended(torch.autograd.Function):
    """See `_weighted_sums`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor, edge_index: Tensor, num_dst: int) -> Tensor:
        ctx.save_for_backward(x, alpha, edge_index)
        return _sums_by_head(x, alpha, edge_index, num_dst)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (x, alpha, edge_index), of_out = ctx.saved_tensors, gradients[0].contiguous()
        if torch.is_grad_enabled():  # with gradients of their own: torch's `once_differentiable` leaves some out in silence
            sources, targets = edge_index
            messages = of_out.index_select(0, targets)
            of_x = torch.zeros_like(x).index_add(0, sources, messages * alpha.unsqueeze(-1))
            return of_x, (messages * x.index_select(0, sources)).sum(-1), None, None
        return _sums_by_head(of_out, alpha, edge_index.flip(0), x.size(0)), _products(of_out, x, edge_index), None, None


class _Scores(torch.autograd.Function):
    """See `_scores`."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, edge_index: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys, edge_index)
        return _products(queries, keys, edge_index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (queries, keys, edge_index), of_scores = ctx.saved_tensors, gradients[0]
        if torch.is_grad_enabled():
            (sources, targets), by = edge_index, of_scores.unsqueeze(-1)
            of_queries = torch.zeros_like(queries).index_add(0, targets, keys.index_select(0, sources) * by)
            return of_queries, torch.zeros_like(keys).index_add(0, sources, queries.index_select(0, targets) * by), None
        of_queries = _sums_by_head(keys, of_scores, edge_index, queries.size(0))
        return of_queries, _sums_by_head(queries, of_scores, edge_index.flip(0), keys.size(0)), None


class _ScoresOfSums(torch.autograd.Function):
    """See `_scores_of_sums`."""

    @staticmethod
    def forward(ctx: Any, dst: Tensor, src: Tensor, by: Tensor, slope: float, edge_index: Tensor) -> Tensor:
        ctx.save_for_backward(dst, src, by, edge_index)
        ctx.slope = slope
        found = dst.new_empty(edge_index.size(1), dst.size(1))
        for piece in _pieces(dst, edge_index):
            sums = dst.index_select(0, edge_index[1, piece]).add_(src.index_select(0, edge_index[0, piece]))
            found[piece] = _by_head(F.leaky_relu_(sums, slope), by)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        (dst, src, by, edge_index), of_scores, slope = ctx.saved_tensors, gradients[0].unsqueeze(-1), ctx.slope
        pieces = [slice(None)] if torch.is_grad_enabled() else _pieces(dst, edge_index)  # gradients of their own are of the whole
        of_dst, of_src, of_by = torch.zeros_like(dst), torch.zeros_like(src), torch.zeros_like(by)
        for piece in pieces:
            sources, targets = edge_index[:, piece]
            sums = dst.index_select(0, targets) + src.index_select(0, sources)
            of_sums = torch.ops.aten.leaky_relu_backward(of_scores[piece] * by, sums, slope, False)
            of_by += (F.leaky_relu(sums, slope) * of_scores[piece]).sum(0)
            of_dst.index_add_(0, targets, of_sums)
            of_src.index_add_(0, sources, of_sums)
        return of_dst, of_src, of_by, None, None


def _pieces(rows: Tensor, edge_index: Tensor) -> Iterator[slice]:
    """Some edges at a time, whose rows fit into a processor's cache."""
    step = max(_PIECE_BYTES // (rows[:1].nbytes or 1), 1)
    for first in range(0, edge_index.size(1), step):
        yield slice(first, first + step)


def _products(of_dst: Tensor, of_src: Tensor, edge_index: Tensor) -> Tensor:
    """float[num_edges, heads]: products of the rows of both ends, some edges at a time."""
    found = of_dst.new_empty(edge_index.size(1), of_dst.size(1))
    for piece in _pieces(of_dst, edge_index):
        products = of_dst.index_select(0, edge_index[1, piece]).mul_(of_src.index_select(0, edge_index[0, piece]))
        torch.sum(products, dim=-1, out=found[piece])
    return found


def _sums_by_head(x: Tensor, alpha: Tensor, edge_index: Tensor, num_dst: int) -> Tensor:
    sources, targets = edge_index.to(torch.int32)  # as the product reads them
    targets, order = targets.sort(stable=True)
    row_ptr, sources = torch._convert_indices_from_coo_to_csr(targets, num_dst, out_int32=True), sources[order]  # pyright: ignore[reportPrivateImportUsage]
    layer = Layer(x.size(0), num_dst, row_ptr, sources, edge_index, None)
    out = x.new_empty(num_dst, *x.shape[1:])
    for head, weights in enumerate(alpha.index_select(0, order).t().contiguous()):
        torch.addmm(out[:, head], layer.adj_t(weights), x[:, head], beta=0, out=out[:, head])
    return out
