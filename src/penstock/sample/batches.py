"""Which batches there are, as far as sampling goes: whose neighbourhoods are drawn, for which seeds.

In: a sampler, and seeds in an order. Out: the seeds of any batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.order import Order
from penstock.records import NodeType, Sample
from penstock.sample.neighbor import NeighborSampler
from penstock.sample.workspace import Workspace


@dataclass(frozen=True, slots=True)
class SampledBatches:
    """The batches of a loader, as far as sampling goes.

    Attributes:
        sampler: of their neighbourhoods.
        seed_type, seeds: node type and int64[order.num_seeds] ids.
        order, batch_size: which seeds make a batch.
        times: int64[order.num_seeds], when each seed looks at the graph, where its edges have times; else None.
    """

    sampler: NeighborSampler
    seed_type: NodeType
    seeds: np.ndarray
    order: Order
    batch_size: int
    times: np.ndarray | None = field(default=None, kw_only=True)

    @property
    def num_batches(self) -> int:
        """Of an epoch."""
        return self.order.num_batches(self.batch_size, False)

    def seeds_of(self, epoch: int, batch: int) -> np.ndarray:
        """int64[n]: the seeds of a batch."""
        return np.ascontiguousarray(self.seeds[self.order.batch(epoch, batch, self.batch_size)], dtype=np.int64)

    def draw(self, epoch: int, batch: int, workspace: Workspace) -> Sample:
        """The neighbourhood of a batch."""
        at = self.order.batch(epoch, batch, self.batch_size)
        seeds, times = np.ascontiguousarray(self.seeds[at], dtype=np.int64), None if self.times is None else self.times[at]
        return self.sampler.sample(self.seed_type, seeds, epoch=epoch, batch=batch, workspace=workspace, times=times)
