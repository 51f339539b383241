"""Sets of seeds, from which batches begin. This module has the set of nodes; the set of links is in `penstock.feed.links`.

In: positions in a set, and (seed, epoch, batch). Out: node ids to sample from, and the attributes of a batch about its seeds. Invariant:
the output is a pure function of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.partition import Book
from penstock.records import EdgeType, NodeType, Sample
from penstock.sample.times import ANY_EARLIER, TimeRule

if TYPE_CHECKING:
    from penstock.sample.device_sample import DeviceSample

Told = list[tuple[NodeType | EdgeType, str, Any]]
"""Attributes of a batch: (node or edge type, name, value; None: the batch has none of that name)."""


@dataclass(slots=True)
class BatchSeeds:
    """The seeds of one batch.

    Attributes:
        nodes: node type -> int64[n], ids to sample from.
        times: node type -> int64[n], the time of each node; later edges are not sampled. None: sampling is not by time.
        metadata: PyG's sampler metadata, arrays and tensors: first `input_id`, int64[num_seeds], then attributes of this kind of seeds.
        notes: name -> value of batch attributes that PyG does not have.
        left_out: edge type -> int64[2, n], ids of the end nodes of edges to take out of the sample.
    """

    nodes: dict[NodeType, np.ndarray]
    times: dict[NodeType, np.ndarray] | None
    metadata: tuple[Any, ...]
    notes: dict[str, Any] = field(default_factory=dict)
    left_out: dict[EdgeType, np.ndarray] = field(default_factory=dict)

    @property
    def num_seeds(self) -> int:
        """Number of seeds, nodes or links."""
        return len(self.metadata[0])


class SeedSet(Protocol):
    """A set of seeds, by position.

    Attributes:
        node_types: types of the nodes that batches begin from.
    """

    @property
    def node_types(self) -> tuple[NodeType, ...]: ...  # noqa: D102

    def __len__(self) -> int: ...

    def at(self, positions: np.ndarray, *, seed: int, epoch: int, batch: int) -> BatchSeeds:
        """The seeds at int64[n] `positions`, as those of a batch. `seed`, `epoch` and `batch` select random draws, such as negatives."""
        ...

    def nodes(self) -> tuple[NodeType, np.ndarray]:
        """(node type, int64[len] ids): one node for each seed, for orders that depend on the graph."""
        ...

    def by_place(self, books: Mapping[NodeType, Book]) -> tuple[Any, Book]:
        """Sort the set by place in a partition, by the nodes of `nodes`.

        Returns:
            (int[len] positions in that order, an array or an object indexed like one; the book of the node type).
        """
        ...

    def share(self, batch_size: int, num_nodes: Mapping[NodeType, int]) -> dict[NodeType, np.ndarray]:
        """Node type of the seeds -> float64[num_nodes]: the probability that a random batch begins from each node."""
        ...

    def finish(self, sample: Sample | DeviceSample, seeds: BatchSeeds) -> None:
        """Number the trees of a disjoint sample by seed."""
        ...

    def told(self, seeds: BatchSeeds) -> Told:
        """PyG's attributes about the seeds of a batch."""
        ...

    def describe(self, fingerprint: Callable[[Any], str]) -> dict[str, Any]:
        """All that decides the seeds, for a loader's state."""
        ...


@dataclass(frozen=True, slots=True)
class NodeSeeds:
    """Nodes of one type as seeds.

    Attributes:
        node_type: their type.
        ids: int64[n].
        input_ids: int64[n], the `input_id` of each in its batch; None: the position in the set.
        times: int64[n], the time of each; None: sampling is not by time.
        rule: which edges are in time for a seed.
    """

    node_type: NodeType
    ids: np.ndarray
    input_ids: np.ndarray | None = None
    times: np.ndarray | None = None
    rule: TimeRule = ANY_EARLIER

    @property
    def node_types(self) -> tuple[NodeType, ...]:
        """The one type."""
        return (self.node_type,)

    def __len__(self) -> int:
        return self.ids.size

    def at(self, positions: np.ndarray, *, seed: int, epoch: int, batch: int) -> BatchSeeds:
        """The nodes at these positions."""
        ids = np.ascontiguousarray(self.ids[positions], dtype=np.int64)
        times = None if self.times is None else self.times[positions]
        input_id = positions if self.input_ids is None else self.input_ids[positions]
        until = None if times is None else {self.node_type: self.rule.until(times)}
        return BatchSeeds({self.node_type: ids}, until, (input_id, times))

    def nodes(self) -> tuple[NodeType, np.ndarray]:
        """The type, and all ids."""
        return self.node_type, self.ids

    def by_place(self, books: Mapping[NodeType, Book]) -> tuple[np.ndarray, Book]:
        """Positions sorted by place, as an array; and the book."""
        book = books[self.node_type]
        return book.sort(self.ids), book

    def share(self, batch_size: int, num_nodes: Mapping[NodeType, int]) -> dict[NodeType, np.ndarray]:
        """The same probability for each seed: batch size / number of seeds, at most 1. Ids are distinct."""
        found = np.zeros(num_nodes[self.node_type])
        found[self.ids] = min(1.0, batch_size / max(self.ids.size, 1))
        return {self.node_type: found}

    def finish(self, sample: Sample | DeviceSample, seeds: BatchSeeds) -> None:
        """Nothing to do: the sampler numbers trees by seed."""

    def told(self, seeds: BatchSeeds) -> Told:
        """`input_id`, `batch_size`, and `seed_time` if seeds have times."""
        input_id, times = seeds.metadata
        of_times = [] if times is None else [(self.node_type, "seed_time", times)]
        return [(self.node_type, "input_id", input_id), (self.node_type, "batch_size", input_id.numel()), *of_times]

    def describe(self, fingerprint: Callable[[Any], str]) -> dict[str, Any]:
        """Fingerprints of ids, `input_id`s and times, and the temporal rule."""
        told = {"input_nodes": f"{self.node_type} {self.ids.size} {fingerprint(self.ids)}"}
        told |= {} if self.input_ids is None else {"input_id": fingerprint(self.input_ids)}
        return told | ({} if self.times is None else {"input_time": fingerprint(self.times)}) | self.rule.describe()
