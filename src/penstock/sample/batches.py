"""Which batches there are, as far as sampling goes: whose neighbourhoods are drawn, for which seeds.

In: a sampler, and seeds in an order. Out: the seeds of any batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.order import Order
from penstock.records import NodeType, Sample
from penstock.sample.neighbor import NeighborSampler
from penstock.sample.seeds import Begun, SeedSet
from penstock.sample.workspace import Workspace


@dataclass(frozen=True, slots=True)
class SampledBatches:
    """The batches of a loader, as far as sampling goes.

    Attributes:
        sampler: of their neighbourhoods.
        seeds: the set of seeds.
        order, batch_size: which of them make a batch.
    """

    sampler: NeighborSampler
    seeds: SeedSet
    order: Order
    batch_size: int

    @property
    def num_batches(self) -> int:
        """Of an epoch."""
        return self.order.num_batches(self.batch_size, False)

    def begin(self, epoch: int, batch: int) -> Begun:
        """What a batch begins from."""
        return self.seeds.at(self.order.batch(epoch, batch, self.batch_size), seed=self.sampler.seed, epoch=epoch, batch=batch)

    def first_share(self) -> dict[NodeType, np.ndarray]:
        """float64[num_nodes] of the types of the seeds: the probability that a random batch begins from each node."""
        return self.seeds.share(self.batch_size, self.sampler.graph.num_nodes)

    def draw(self, epoch: int, batch: int, workspace: Workspace) -> Sample:
        """The neighbourhood of a batch."""
        begun = self.begin(epoch, batch)
        return self.sampler.sample(begun.nodes, epoch=epoch, batch=batch, workspace=workspace, times=begun.times)
