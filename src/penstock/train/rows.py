"""Rows that nodes learn in place of features: those of a batch are read, get gradients, and are updated; the others stay as they are.

In: ids of distinct nodes. Out: their rows; after the backward pass, gradients of these alone. So a step takes as long on a large graph as
on a small one. Source: DistDGLv2 5.4, sparse embeddings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from penstock.kernels.update_rows.cpu import update

BETAS, EPS = (0.9, 0.999), 1e-8
"""As of torch's Adam."""

MOMENTS = "exp_avg", "exp_avg_sq"
"""What Adam keeps beside each row."""

_RATES = np.float32(1 - BETAS[0]), np.float32(1 - BETAS[1])

_DRAWN = 1 << 16
"""Rows that are drawn at a time."""

Gradient = tuple[Tensor, Tensor]
"""int64[n] distinct ids, float[n, width] gradients of their rows."""


class LearntRows(nn.Module):
    """A row for each node, or for some, where several processes have shares of one table.

    Args:
        num_nodes, width: of the table; rows begin as those of torch's Embedding.
        nodes: int64[n], ascending, whose rows these are, numbered in their order; None: of all.
    """

    def __init__(self, num_nodes: int, width: int, nodes: np.ndarray | None = None) -> None:
        super().__init__()
        rows = torch.randn(num_nodes, width) if nodes is None else _drawn(num_nodes, width, nodes)
        self.weight = nn.Parameter(rows, requires_grad=False)  # autograd sees the rows that were read
        self._read: Gradient | None = None

    def forward(self, ids: Tensor, rows: Tensor | None = None) -> Tensor:
        """float[n, width]: the rows of int64[n] distinct nodes, or those given, which others have; their gradient is `take_gradient`'s."""
        rows = self.weight.index_select(0, ids) if rows is None else rows  # many times as fast as by []
        rows = rows.requires_grad_(torch.is_grad_enabled())
        self._read = (ids, rows) if rows.requires_grad else None
        return rows

    def take_gradient(self) -> Gradient | None:
        """Take the gradient of the rows read last, and clear it; None where no loss depends on them."""
        read, self._read = self._read, None
        return None if read is None or read[1].grad is None else (read[0], read[1].grad.contiguous())


class RowAdam:
    """Adam over the rows of a batch: moments of the others wait, as in torch's SparseAdam.

    Args:
        tables: whose rows are learnt.
        lr, decay: as of Adam; rows decay when they are read.
    """

    def __init__(self, tables: list[LearntRows], lr: float, decay: float) -> None:
        self._tables, self._lr, self._decay = tables, lr, decay
        self._kept: list[dict[str, Any]] = [{} for _ in tables]

    def step(self, gradients: list[Gradient | None]) -> None:
        """Update the rows that have gradients, table by table."""
        for table, kept, gradient in zip(self._tables, self._kept, gradients, strict=True):
            if gradient is None:
                continue
            weight = table.weight.detach()
            if not kept:
                kept |= {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight), "step": 0}
            kept["step"] += 1
            of_mean, of_square = (1 - beta ** kept["step"] for beta in BETAS)
            root = of_square**0.5
            tensors = weight, kept["exp_avg"], kept["exp_avg_sq"], *gradient
            numbers = self._decay, self._lr * root / of_mean, EPS * root
            if weight.device.type == "cpu":
                update(*(tensor.numpy() for tensor in tensors), _RATES, *map(np.float32, numbers))
            else:
                _update_on_device(*tensors, *numbers)

    def state(self) -> list[dict[str, Any]]:
        """What is kept of each table; nothing where no loss came to it."""
        return [dict(kept) for kept in self._kept]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Go on from there; ValueError where that could not be what is kept of these tables."""
        if len(state) != len(self._tables):
            raise ValueError("what Adam kept of learnt rows is of another model")
        for table, kept in zip(self._tables, state, strict=True):
            moments = [kept[name] for name in MOMENTS] if kept else []
            if any(form(one) != form(table.weight) for one in moments):
                raise ValueError("what Adam kept of learnt rows is of another model")
            if kept and not (type(kept["step"]) is int and kept["step"] > 0):
                raise ValueError(f"rows were updated {kept['step']!r} times")
        self._kept = [
            {name: one.to(table.weight.device) if torch.is_tensor(one) else one for name, one in kept.items()}
            for table, kept in zip(self._tables, state, strict=True)
        ]


def _drawn(num_nodes: int, width: int, nodes: np.ndarray) -> Tensor:
    """float32[n, width]: of `torch.randn(num_nodes, width)` the rows of int64[n] nodes, which ascend; never all of them at once."""
    own, done = torch.empty(nodes.size, width), 0
    for start in range(0, num_nodes, _DRAWN):  # torch draws 16 numbers at a time, and what is left over in another way
        end = num_nodes if num_nodes - start < 2 * _DRAWN else start + _DRAWN
        here = nodes[done : np.searchsorted(nodes, end)]
        own[done : done + here.size] = torch.randn(end - start, width)[torch.from_numpy(here - start)]
        done += here.size
        if end == num_nodes:
            break
    return own


def form(tensor: Tensor) -> Any:
    """What a tensor must have in common with another to stand in its place."""
    return tensor.layout, tensor.shape, tensor.dtype, tensor.stride()


def _update_on_device(
    weight: Tensor, mean: Tensor, square: Tensor, ids: Tensor, gradient: Tensor, decay: float, size: float, eps: float
) -> None:
    """As `kernels.update_rows`, up to the last bits, without waiting for the device."""
    rows = weight.index_select(0, ids)
    change = gradient.add(rows, alpha=decay)
    means, squares = mean.index_select(0, ids).lerp_(change, 1 - BETAS[0]), square.index_select(0, ids).lerp_(change * change, 1 - BETAS[1])
    for table, new in ((mean, means), (square, squares), (weight, rows.addcdiv(means, squares.sqrt().add_(eps), value=-size))):
        table.index_copy_(0, ids, new)
