"""The batches to be sampled, and numbers by which rows and lists are ranked: visits, degrees, inclusion probabilities; computed once.

In: the batches of a loader. Out: numbers per row and per neighbour list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penstock.cache.expected import expected_visits
from penstock.cache.hotness import degree_hotness
from penstock.cache.inclusion import draws_uniformly, spread_inclusion
from penstock.cache.presample import ROOM, Visits, presample_visits, reads_again
from penstock.records import EdgeType, NodeType
from penstock.sample.batches import SampledBatches
from penstock.store.process_memory import free_bytes

if TYPE_CHECKING:
    from penstock.sample import NeighborSampler
    from penstock.sample.device import DeviceSampler

INCLUSION_BYTES = 24
"""Memory per node while inclusion probabilities are calculated."""


@dataclass(frozen=True, slots=True)
class Workload(SampledBatches):
    """The batches to be sampled, as the basis of hotness.

    Attributes:
        num_epochs: epochs to presample.
        max_batches: batches to presample of each epoch, spread evenly; None: all.
        num_threads: most threads that presample.
        by_inclusion: whether expected visits may be corrected by inclusion probabilities, if draws are uniform: this takes a pass over the
            edges per hop, and 24 bytes per node, which must be a small part of the free memory.
        drawn_by: sampler -> the device's sampler for it; None: the CPU samples.
    """

    max_batches: int | None = None
    num_threads: int = 1
    by_inclusion: bool = True
    num_epochs: int = 1
    drawn_by: Callable[[NeighborSampler], DeviceSampler] | None = None
    _visits: list[Visits] = field(default_factory=list, init=False, repr=False, compare=False)
    _degrees: dict[NodeType, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)
    _again: dict[NodeType | EdgeType, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _inclusion: dict[int, dict[NodeType, np.ndarray]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def visits(self) -> Visits:
        """Return the visits of every row and list, counted in samples; sampled once."""
        if not self._visits:
            how, visits = {"num_epochs": self.num_epochs, "max_batches": self.max_batches}, None
            if self.drawn_by is not None:
                from penstock.cache.presample_device import count_on_device

                visits = count_on_device(self, self.drawn_by, **how)
            self._visits.append(presample_visits(self, **how, num_threads=self.num_threads) if visits is None else visits)
        return self._visits[0]

    def degree(self, node_type: NodeType) -> np.ndarray:
        """Return out-degrees (`degree_hotness`); counted once."""
        if node_type not in self._degrees:
            self._degrees[node_type] = degree_hotness(self.sampler.graph, node_type)
        return self._degrees[node_type]

    def inclusion(self, node_type: NodeType, num_hops: int) -> np.ndarray | None:
        """Return float32[num_nodes]: the probability that `num_hops` hops reach each node; calculated once. None: see `by_inclusion`."""
        num_nodes = sum(self.sampler.graph.num_nodes.values())
        if num_hops not in self._inclusion:
            is_wanted = self.by_inclusion and draws_uniformly(self.sampler) and not self.sampler.graph.is_partitioned
            if not is_wanted or INCLUSION_BYTES * num_nodes > ROOM * free_bytes():
                return None
            found = spread_inclusion(self.sampler, self.first_share(), num_hops)
            self._inclusion[num_hops] = {t: probability.astype(np.float32) for t, probability in found.items()}
        return self._inclusion[num_hops][node_type]

    def row_visits(self, node_type: NodeType) -> np.ndarray:
        """Return float32[num_nodes]: the expected visits of each row."""
        return self.expected_rows(self.visits().nodes[node_type], node_type, self.max_batches)

    def list_visits(self, edge_type: EdgeType) -> np.ndarray:
        """Return float32[num_dst]: the expected visits of each neighbour list."""
        return self.expected_lists(self.visits().lists[edge_type], edge_type, self.max_batches)

    def expected_rows(self, visits: np.ndarray, node_type: NodeType, num_batches: int | None) -> np.ndarray:
        """Return float32[n]: expected visits of the rows of a type, from `visits` counted in `num_batches` of an epoch (None: all)."""
        return self._expected(visits, node_type, self.inclusion(node_type, self.sampler.num_hops), num_batches, node_type)

    def expected_lists(self, visits: np.ndarray, edge_type: EdgeType, num_batches: int | None) -> np.ndarray:
        """Return float32[num_dst]: likewise for the neighbour lists of an edge type."""
        inclusion = self.inclusion(edge_type[2], self.sampler.num_hops - 1)
        return self._expected(visits, edge_type[2], inclusion, num_batches, edge_type)

    def _expected(
        self, visits: np.ndarray, node_type: NodeType, inclusion: np.ndarray | None, num_batches: int | None, key: NodeType | EdgeType
    ) -> np.ndarray:
        is_whole = num_batches is None or num_batches >= self.num_batches
        if is_whole and not self._again:
            self._again.update(reads_again(self))
        return expected_visits(visits, self.degree(node_type), inclusion, again=self._again[key] if is_whole else 0.0)
