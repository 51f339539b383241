"""Rows of random features around the centre of their class: the definition.

The noise is the sum of the four bytes of a word, minus its mean: bell-shaped, 1021 values. It is computed in integers until the last step,
so it is the same on every machine (the usual transforms to a normal distribution depend on the mathematics library).
"""

from __future__ import annotations

import numpy as np

from penstock import rng

MEAN = 510
DEVIATION = float(np.sqrt(4 * (256**2 - 1) / 12))
"""Standard deviation of the sum of four bytes: 147.8."""


def noise_rows(key, first, stream, scale, centers, classes):
    """Make feature rows.

    Args:
        key: uint64[2]. stream: separates uses under one key.
        first: number of the first row; the counter holds row, stream and block.
        scale: float32, factor of the integer noise: the wanted standard deviation divided by `DEVIATION`.
        centers: float32[num_classes, num_columns].
        classes: int64[num_rows], row of `centers` for each row.
    Returns:
        float32[num_rows, num_columns]: centre + scale * noise, product and sum each rounded to float32. Of the num_blocks =
        ceil(num_columns / 4) blocks of a row, the first num_blocks columns take word 0, the next ones word 1, and so on.
    """
    num_blocks = -(-centers.shape[1] // 4)
    out = np.empty((len(classes), centers.shape[1]), dtype=np.float32)
    for i, center in enumerate(centers[classes]):
        row = first + i
        for column in range(centers.shape[1]):
            c0, c1, c2, c3 = (np.uint64(word) for word in (row & 0xFFFFFFFF, row >> 32, stream, column % num_blocks))
            word = int(rng.philox(c0, c1, c2, c3, key[0], key[1])[column // num_blocks])
            noise = sum(word.to_bytes(4, "little")) - MEAN
            out[i, column] = center[column] + np.float32(scale) * np.float32(noise)
    return out
