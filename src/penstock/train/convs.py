"""PyG's layers, made so that the processor waits for no device.

In: `Layer.adj_t()`, for attention `Layer.edge_index`, and rows of its sources. Out: what PyG's layers give. torch's product of a CSR matrix
transposes it in the backward pass, and copies a number to the device for that, out of ordinary memory: who asks then waits for all that was
asked before (`sparse_compressed_to_flipped`). Here gradients go along the edges, and there is no transpose. Layers of attention are in
`train/attention.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, HGTConv, Linear, SAGEConv
from torch_geometric.typing import Adj, OptPairTensor
from torch_geometric.utils import spmm

from penstock.feed.layers import Layer, has_weights
from penstock.records import EdgeType, NodeType
from penstock.train.attention import attention, typed_attention


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

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x_dict: dict[NodeType, Tensor], edge_index_dict: dict[EdgeType, Tensor], num_dst: dict[NodeType, int] | None = None
    ) -> dict[NodeType, Tensor]:
        """Attention over int64[2, num_edges] of each relation; num_dst: the destinations, if they are fewer than the rows of their type."""
        return typed_attention(self, x_dict, edge_index_dict, num_dst)


def mapped_sums(conv: GCNConv, x: Tensor, sums: Callable[[Tensor], Tensor]) -> Tensor:
    """A layer of GCN: linear map, sums and bias.

    In either order the same, but for rounding, if the map is nothing else. Sums come first where rows do not get much wider by that: they
    are fewer, and no gradients are asked of features.
    """
    lin: Any = conv.lin
    is_linear = type(lin) in (Linear, nn.Linear) and lin.bias is None and not (lin._forward_hooks or lin._forward_pre_hooks)
    out = lin(sums(x)) if is_linear and conv.in_channels <= 2 * conv.out_channels else sums(lin(x))
    return out if conv.bias is None else out + conv.bias


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
