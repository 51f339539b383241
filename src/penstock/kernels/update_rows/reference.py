"""A step of Adam over some rows of a table: the definition. Source: Kingma and Ba 2015; the moments of other rows do not change, as in
torch's SparseAdam."""

from __future__ import annotations

import numpy as np


def update(
    weight: np.ndarray, mean: np.ndarray, square: np.ndarray, ids: np.ndarray, gradient: np.ndarray,
    rates: tuple[np.float32, np.float32], decay: np.float32, size: np.float32, eps: np.float32,
) -> None:  # fmt: skip
    """Update rows in place.

    Args:
        weight, mean, square: float32[num_rows, width]: the table, and the first and second moments of its gradients.
        ids: int64[n], distinct. gradient: float32[n, width], of these rows.
        rates: (1 - beta_1, 1 - beta_2).
        decay: weight decay, added to the gradient. size: step size, eps: added to the root; both with Adam's bias correction.
    """
    change = gradient + decay * weight[ids]
    mean[ids] += (change - mean[ids]) * rates[0]
    square[ids] += (change * change - square[ids]) * rates[1]
    weight[ids] -= size * mean[ids] / (np.sqrt(square[ids]) + eps)
