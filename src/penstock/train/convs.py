"""PyG's layers, made so that the processor waits for no device.

In: `Layer.adj_t()`, for attention `Layer.edge_index`, and rows of its sources. Out: what PyG's layers give. torch's product of a CSR matrix
transposes it in the backward pass, and copies a number to the device for that, out of ordinary memory: who asks then waits for all that was
asked before (`sparse_compressed_to_flipped`). Here gradients go along the edges, and there is no transpose. PyG's attention leaves out the
self-loops that are there, and waits to hear how many are left; here they stay, and have no weight. PyG's HGT looks up how many rows each
relation has, which follows from their shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, HGTConv, Linear, SAGEConv
from torch_geometric.typing import Adj, OptPairTensor
from torch_geometric.utils import softmax, spmm

from penstock.feed.layers import Layer, has_weights

_PIECE_BYTES = 4 << 20


class Sage(SAGEConv):
    """PyG's SAGEConv, of means."""

    def message_and_aggregate(self, adj_t: Adj, x: OptPairTensor) -> Tensor:
        """Means of the rows of sources."""
        if not x[0].is_cuda:
            return spmm(adj_t, x[0], reduce="mean")
        assert isinstance(adj_t, Tensor)
        return product(adj_t, x[0]) / counts(adj_t) if has_weights(adj_t) else means(adj_t, x[0])


class Gcn(GCNConv):
    """PyG's GCNConv, of a matrix that is given."""

    def forward(self, x: Tensor, edge_index: Adj, edge_weight: None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sums of the rows of sources, by weight."""
        return mapped_sums(self, x, lambda rows: product(edge_index, rows))


class Gin(GINConv):
    """PyG's GINConv."""

    def message_and_aggregate(self, adj_t: Adj, x: OptPairTensor) -> Tensor:
        """Sums of the rows of sources, by weight."""
        return product(adj_t, x[0])


class Gat(GATConv):
    """PyG's GATConv that adds self-loops, without features of edges: each node that is a source and a destination has one, whatever loops
    there are."""

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, size: tuple[int, int] | None = None
    ) -> Tensor:
        """Attention over int64[2, num_edges] and the loops; size: (sources, destinations)."""
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        return attention(self, x, edge_index, size or (x_src.size(0), x_dst.size(0)))


class Hgt(HGTConv):
    """PyG's HGTConv, relations in any order."""

    def _construct_src_node_feat(
        self, k_dict: dict[str, Tensor], v_dict: dict[str, Tensor], edge_index_dict: dict[Any, Adj]
    ) -> tuple[Tensor, Tensor, dict[Any, int]]:
        """Keys and values float[n, heads, width] of the sources of each relation, by its own maps, and where they begin."""
        weights = [each.weight.unflatten(0, (self.heads, len(self.edge_types))) for each in (self.k_rel, self.v_rel)]
        rows, offset, count = ([], []), {}, 0
        for edge_type in edge_index_dict:
            number, offset[edge_type] = self.edge_types_map[edge_type], count
            for mapped, given, weight in zip(rows, (k_dict[edge_type[0]], v_dict[edge_type[0]]), weights, strict=True):
                mapped.append(torch.einsum("nhd,hde->nhe", given, weight[:, number]))
            count += rows[0][-1].size(0)
        return torch.cat(rows[0]), torch.cat(rows[1]), offset


def is_transformed() -> bool:
    """Whether gradients are taken by `torch.func`, which knows neither sparse matrices nor functions with gradients of their own."""
    return torch._C._are_functorch_transforms_active()


def mapped_sums(conv: GCNConv, x: Tensor, sums: Callable[[Tensor], Tensor]) -> Tensor:
    """A layer of GCN: linear map, sums and bias.

    In either order the same, but for rounding, if the map is nothing else. Sums come first where rows do not get much wider by that: they
    are fewer, and no gradients are asked of features.
    """
    lin: Any = conv.lin
    is_linear = type(lin) in (Linear, nn.Linear) and lin.bias is None and not (lin._forward_hooks or lin._forward_pre_hooks)
    out = lin(sums(x)) if is_linear and conv.in_channels <= 2 * conv.out_channels else sums(lin(x))
    return out if conv.bias is None else out + conv.bias


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
    src = of_src(x_src).view(-1, conv.heads, conv.out_channels)
    is_mapped = isinstance(x, Tensor) and conv.lin is not None
    dst = src[: size[1]] if is_mapped else of_dst(x_dst).view(-1, conv.heads, conv.out_channels)
    is_loop = None
    if conv.add_self_loops:
        loops = torch.arange(min(size), device=edge_index.device).expand(2, -1)
        is_loop = F.pad(edge_index[0] == edge_index[1], (0, loops.size(1))).unsqueeze(1)
        edge_index = torch.cat([edge_index, loops], dim=1)
    sources, targets = edge_index
    of_sources, of_targets = _by_head(src, conv.att_src), _by_head(dst, conv.att_dst)
    alpha = F.leaky_relu(of_sources.index_select(0, sources) + of_targets.index_select(0, targets), conv.negative_slope)
    alpha = alpha if is_loop is None else alpha.masked_fill(is_loop, -torch.inf)
    alpha = F.dropout(softmax(alpha, targets, num_nodes=size[1]), conv.dropout, conv.training)
    has_product = src.dtype in (torch.float32, torch.float64) and src.dtype == alpha.dtype
    if src.device.type == "cpu" and has_product and not (torch.compiler.is_compiling() or is_transformed()):
        out = _Attended.apply(src, alpha, edge_index, size[1])
    else:
        out = conv.propagate(edge_index, x=(src, dst), alpha=alpha, size=size)
    out = out.flatten(1) if conv.concat else out.mean(dim=1)
    out = out if conv.res is None else out + conv.res(x_dst)
    return out if conv.bias is None else out + conv.bias


def _by_head(rows: Tensor, by: Tensor) -> Tensor:
    """float[n, heads]: products of float[n, heads, width] with float[1, heads, width]."""
    if rows.device.type == "cpu":  # what is to be added up would be put into memory as a whole; to launch blocks takes a device longer
        return F.linear(rows.flatten(1), torch.block_diag(*by[0].unsqueeze(1)))
    return (rows * by).sum(-1)


class _Attended(torch.autograd.Function):
    """float[num_dst, heads, width]: sums of the rows of sources float[num_src, heads, width], by alpha float[num_edges, heads].

    No row for each edge is put into memory, of which pages would cost more than the sums: heads are products of sparse matrices, and
    gradients of alpha are computed some edges at a time.
    """

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
        of_alpha, step = torch.empty_like(alpha), max(_PIECE_BYTES // (x[:1].nbytes or 1), 1)
        for first in range(0, len(alpha), step):
            sources, targets = edge_index[:, first : first + step]
            products = of_out.index_select(0, targets).mul_(x.index_select(0, sources))
            torch.sum(products, dim=-1, out=of_alpha[first : first + step])
        return _sums_by_head(of_out, alpha, edge_index.flip(0), x.size(0)), of_alpha, None, None


def _sums_by_head(x: Tensor, alpha: Tensor, edge_index: Tensor, num_dst: int) -> Tensor:
    sources, targets = edge_index.to(torch.int32)  # as the product reads them
    targets, order = targets.sort(stable=True)
    row_ptr, sources = torch._convert_indices_from_coo_to_csr(targets, num_dst, out_int32=True), sources[order]  # pyright: ignore[reportPrivateImportUsage]
    layer = Layer(x.size(0), num_dst, row_ptr, sources, edge_index, None)
    out = x.new_empty(num_dst, *x.shape[1:])
    for head, weights in enumerate(alpha.index_select(0, order).t().contiguous()):
        torch.addmm(out[:, head], layer.adj_t(weights), x[:, head], beta=0, out=out[:, head])
    return out


def product(adj_t: Any, x: Tensor) -> Tensor:
    """adj_t @ x: float[num_dst, num_src] as CSR, whose values take no gradient, by float[num_src, width]."""
    return _Product.apply(adj_t, x) if x.is_cuda and x.requires_grad else torch.sparse.mm(adj_t, x)  # pyright: ignore[reportReturnType]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adj_t: Tensor, x: Tensor) -> Tensor:
        ctx.adj_t = adj_t
        return torch.sparse.mm(adj_t, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, sums_by_column(ctx.adj_t, gradients[0])


def means(adj_t: Tensor, x: Tensor) -> Tensor:
    """float[num_dst, width]: means of the rows of `x` that the rows of a CSR matrix of ones name; zeros where there are none.

    To torch they are bags of embeddings, one kernel; the product, the counts and their quotient are seven launches.
    """
    return _Means.apply(adj_t, x) if x.requires_grad else _bags(adj_t, x)  # pyright: ignore[reportReturnType]


class _Means(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, adj_t: Tensor, x: Tensor) -> Tensor:
        ctx.adj_t = adj_t
        return _bags(adj_t, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, sums_by_column(ctx.adj_t, gradients[0] / counts(ctx.adj_t))


def _bags(adj_t: Tensor, x: Tensor) -> Tensor:
    return F.embedding_bag(adj_t.col_indices(), x, adj_t.crow_indices(), mode="mean", include_last_offset=True)


def counts(adj_t: Tensor) -> Tensor:
    """int64[num_dst, 1]: the edges of each row of a CSR matrix, or 1 for none."""
    return adj_t.crow_indices().diff().clamp_(min=1).unsqueeze(1)


def sums_by_column(adj_t: Tensor, rows: Tensor) -> Tensor:
    """adj_t.T @ rows, float[num_src, width]: of float[num_dst, num_src] as CSR and float[num_dst, width], without a look at what is in it.

    A row of memory for each edge is taken meanwhile. To sort the edges instead takes none, and 23 launches where here are five: small
    batches wait for these. A device adds up in any order, unless `torch.use_deterministic_algorithms` says otherwise.
    """
    # half the bytes of int64: a batch has fewer rows and edges than 2**31
    ends = torch._convert_indices_from_csr_to_coo(adj_t.crow_indices(), adj_t.col_indices(), out_int32=True)  # pyright: ignore[reportPrivateImportUsage]
    messages = rows.index_select(0, ends[0])
    if has_weights(adj_t):
        messages *= adj_t.values().unsqueeze(1)
    return rows.new_zeros(adj_t.shape[1], rows.shape[1]).index_add_(0, ends[1], messages)


def scale(layer: Layer, degree: Tensor) -> Tensor:
    """float[num_dst]: degree / number drawn."""
    return degree[: layer.num_dst] / layer.row_ptr.diff().clamp(min=1)


def gcn_matrix(layer: Layer, degree: Tensor) -> Tensor:
    """GCN's matrix, D^-1/2 (A + I) D^-1/2, as sparse CSR [num_dst, num_src]: the sampled rows, with self-loops at their ends. Self-loops
    that A has count beside I, where PyG's GCNConv keeps one in all."""
    inverse_root = (degree + 1).rsqrt()
    sources, targets = layer.edge_index
    values = (inverse_root[: layer.num_dst] * scale(layer, degree))[targets] * inverse_root[sources]
    return layer.adj_t_with_loops(values, 1 / (degree[: layer.num_dst] + 1))
