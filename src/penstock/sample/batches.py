"""The seeds and samples of a loader's batches.

In: a sampler, a set of seeds and an order. Out: the seeds or the sample of any batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.order import Order
from penstock.records import NodeType, Sample
from penstock.sample.neighbor import NeighborSampler
from penstock.sample.seeds import BatchSeeds, SeedSet
from penstock.sample.workspace import Workspace


@dataclass(frozen=True, slots=True)
class SampledBatches:
    """Draws the seeds and samples of a loader's batches.

    Attributes:
        sampler: samples the neighbourhoods of batches.
        seeds: the set of seeds.
        order, batch_size: decide which seeds are in a batch.
    """

    sampler: NeighborSampler
    seeds: SeedSet
    order: Order
    batch_size: int

    @property
    def num_batches(self) -> int:
        """Batches in an epoch, including an incomplete last one."""
        return self.order.num_batches(self.batch_size, False)

    def seeds_of(self, epoch: int, batch: int) -> BatchSeeds:
        """The seeds of a batch."""
        return self.seeds.at(self.order.batch(epoch, batch, self.batch_size), seed=self.sampler.seed, epoch=epoch, batch=batch)

    def first_share(self) -> dict[NodeType, np.ndarray]:
        """Node type of seeds -> float64[num_nodes]: the probability that a random batch begins from each node."""
        return self.seeds.share(self.batch_size, self.sampler.graph.num_nodes)

    def draw(self, epoch: int, batch: int, workspace: Workspace) -> Sample:
        """Sample the neighbourhood of a batch."""
        seeds = self.seeds_of(epoch, batch)
        return self.sampler.sample(seeds.nodes, epoch=epoch, batch=batch, workspace=workspace, times=seeds.times)
