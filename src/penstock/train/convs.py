"""PyG's layers over sparse matrices, made so that the processor waits for no device in a backward pass.

In: `Layer.adj_t()`, and rows of its sources. Out: what PyG's layers give. torch's product of a CSR matrix transposes it in the backward
pass, and copies a number to the device for that, out of ordinary memory: who asks then waits for all that was asked before
(`sparse_compressed_to_flipped`). Here the transpose is made of what is on the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, GINConv, SAGEConv
from torch_geometric.typing import Adj, OptPairTensor
from torch_geometric.utils import spmm


class Sage(SAGEConv):
    """PyG's SAGEConv, of means."""

    def message_and_aggregate(self, adj_t: Adj, x: OptPairTensor) -> Tensor:
        """Means of the rows of sources."""
        if not x[0].is_cuda:
            return spmm(adj_t, x[0], reduce="mean")
        assert isinstance(adj_t, Tensor)
        return product(adj_t, x[0]) / adj_t.crow_indices().diff().clamp(min=1).unsqueeze(1)


class Gcn(GCNConv):
    """PyG's GCNConv."""

    def message_and_aggregate(self, adj_t: Adj, x: Tensor) -> Tensor:
        """Sums of the rows of sources, by weight."""
        return product(adj_t, x)


class Gin(GINConv):
    """PyG's GINConv."""

    def message_and_aggregate(self, adj_t: Adj, x: OptPairTensor) -> Tensor:
        """Sums of the rows of sources, by weight."""
        return product(adj_t, x[0])


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
        return None, torch.sparse.mm(transposed(ctx.adj_t), gradients[0])


def transposed(matrix: Tensor) -> Tensor:
    """The transpose of a CSR matrix as one, without a look at what is in it."""
    (num_rows, num_columns), row_ptr, columns = matrix.shape, matrix.crow_indices(), matrix.col_indices()
    rows = torch.arange(num_rows, device=matrix.device).repeat_interleave(row_ptr.diff(), output_size=columns.numel())
    ascending, order = columns.sort(stable=True)
    starts = torch.searchsorted(ascending, torch.arange(num_columns + 1, device=matrix.device))
    return torch.sparse_csr_tensor(
        starts, rows[order], matrix.values()[order], size=(num_columns, num_rows), dtype=matrix.dtype, check_invariants=False
    )
