"""Definition: a step of Adam over some rows of a table. Source: Kingma and Ba 2015; moments of rows that are not read wait, as in torch's
SparseAdam."""

from __future__ import annotations

import numpy as np


def update(
    weight: np.ndarray, mean: np.ndarray, square: np.ndarray, ids: np.ndarray, gradient: np.ndarray,
    rates: tuple[np.float32, np.float32], decay: np.float32, size: np.float32, eps: np.float32,
) -> None:  # fmt: skip
    """Change rows in place.

    Args:
        weight, mean, square: float32[num_rows, width]: the table, and the moments of its gradients.
        ids: int64[n], distinct. gradient: float32[n, width], of these rows.
        rates: shares of the new in the moments, 1 - beta.
        decay: of the rows. size: of the step, the moments' bias corrected. eps: beside the root, corrected likewise.
    """
    change = gradient + decay * weight[ids]
    mean[ids] += (change - mean[ids]) * rates[0]
    square[ids] += (change * change - square[ids]) * rates[1]
    weight[ids] -= size * mean[ids] / (np.sqrt(square[ids]) + eps)
