"""The order of a partitioned graph: each process trains on seeds of its own part, as far as parts have equal numbers of seeds. If the
partition has a second level, the processes that share a part each train on seeds that are near each other.

In: the seeds and their book. Out: an order. Invariant: every position occurs once per epoch, in a batch that depends only on the partition
and the seed, so that one process that takes all batches gets the same ones. Source: DistDGLv2 5.3, 5.4, 5.6.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.order.orders import LocalOrder


class SplitOrder(LocalOrder):
    """Seeds sorted by part and trainer, and cut into a share per trainer; each share is shuffled within itself. The sizes of shares differ
    by at most one, so that all have equal work; if parts have different numbers of seeds, a share has some of a neighbouring part.

    Args:
        positions: int[num_seeds], positions of the seeds, sorted by `penstock.partition.Book.sort`; an array, or an object indexed like
            one.
        num_parts: batch i belongs to part i mod num_parts,
        num_trainers: and to trainer i div num_parts mod num_trainers.
        partition: digest of the partition.
        seed: of the shuffling.
    """

    def __init__(self, positions: Any, num_parts: int, partition: str, seed: int, *, num_trainers: int = 1) -> None:
        sizes = np.full(num_parts * num_trainers, positions.size // (num_parts * num_trainers))
        turns = np.arange(sizes.size).reshape(num_parts, num_trainers).T.ravel()  # the first trainer of each part, then the second ones
        sizes[turns[: positions.size % sizes.size]] += 1  # the first in turn, so that no turn is left out before the last batch
        super().__init__(sizes[turns].tolist(), seed)
        self._offsets = (np.cumsum(sizes) - sizes)[turns]
        self._positions = positions
        trainers = "" if num_trainers == 1 else f" of {num_trainers} trainers, larger shares first"
        self.name = f"split over {num_parts} parts{trainers} {partition}, seed {seed}"

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Positions of batch `index`."""
        return self._positions[super().batch(epoch, index, batch_size)].astype(np.int64)
