"""The order of a partitioned graph: each process trains on seeds of its own part, as far as parts have equally many.

In: the seeds and the book of their part. Out: an order. Invariant: every position comes once an epoch, and which batch it is in depends on
the partition and the seed alone: one process that takes all batches gets the same. Source: DistDGLv2 5.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.order.orders import LocalOrder


class SplitOrder(LocalOrder):
    """Seeds in the order of their places, cut into as many shares as there are parts; each is shuffled within itself. Shares differ by one
    seed at most, so that all processes have work: where parts have unequally many seeds, some of a share are those of a neighbouring part.

    Args:
        positions: int[num_seeds], those of the seeds in the order of their places (see `penstock.partition.Book`); an array, or what gives
            elements as one does.
        num_parts: shares; batch i is of share i mod num_parts.
        partition: what tells it from others.
        seed: of the shuffling.
    """

    def __init__(self, positions: Any, num_parts: int, partition: str, seed: int) -> None:
        sizes = np.full(num_parts, positions.size // num_parts)
        sizes[: positions.size % num_parts] += 1
        super().__init__(sizes.tolist(), seed)
        self._positions = positions
        self.name = f"split over {num_parts} parts {partition}, seed {seed}"

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Positions of batch `index`."""
        return self._positions[super().batch(epoch, index, batch_size)].astype(np.int64)
