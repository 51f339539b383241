"""The order of a partitioned graph: each process trains on seeds of its own part, as far as parts have equally many; of several processes
of a part each on seeds that are near each other, where the partition has a second level.

In: the seeds and the book of their part. Out: an order. Invariant: every position comes once an epoch, and which batch it is in depends on
the partition and the seed alone: one process that takes all batches gets the same. Source: DistDGLv2 5.3, 5.4, 5.6.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.order.orders import LocalOrder


class SplitOrder(LocalOrder):
    """Seeds in the order of parts and trainers, cut into a share for each trainer of a part; each is shuffled within itself. Shares differ
    by one seed at most, so that all have work: where parts have unequally many seeds, some of a share are those of a neighbouring one.

    Args:
        positions: int[num_seeds], those of the seeds in the order of `penstock.partition.Book.sort`; an array, or what gives elements as
            one does.
        num_parts: batch i is of part i mod num_parts,
        num_trainers: and of trainer i div num_parts mod num_trainers.
        partition: what tells it from others.
        seed: of the shuffling.
    """

    def __init__(self, positions: Any, num_parts: int, partition: str, seed: int, *, num_trainers: int = 1) -> None:
        sizes = np.full(num_parts * num_trainers, positions.size // (num_parts * num_trainers))
        sizes[: positions.size % sizes.size] += 1
        turns = np.arange(sizes.size).reshape(num_parts, num_trainers).T.ravel()  # the first trainer of each part, then the second one
        super().__init__(sizes[turns].tolist(), seed)
        self._offsets = (np.cumsum(sizes) - sizes)[turns]
        self._positions = positions
        trainers = "" if num_trainers == 1 else f" of {num_trainers} trainers"
        self.name = f"split over {num_parts} parts{trainers} {partition}, seed {seed}"

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Positions of batch `index`."""
        return self._positions[super().batch(epoch, index, batch_size)].astype(np.int64)
