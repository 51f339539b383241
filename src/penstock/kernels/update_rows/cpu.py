"""A step of Adam over some rows, each read and written once. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import kernel


@kernel
def update(weight, mean, square, ids, gradient, rates, decay, size, eps):
    """Update rows in place; arguments as in `reference.update`."""
    for i in range(ids.size):
        row = ids[i]
        for j in range(weight.shape[1]):
            change = gradient[i, j] + decay * weight[row, j]
            mean[row, j] += (change - mean[row, j]) * rates[0]
            square[row, j] += (change * change - square[row, j]) * rates[1]
            weight[row, j] -= size * mean[row, j] / (np.sqrt(square[row, j]) + eps)
