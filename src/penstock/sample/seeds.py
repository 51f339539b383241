"""What batches begin from: sets of seeds. Here the set of nodes; the set of links is in `penstock.feed.links`.

In: positions in a set, and (seed, epoch, batch). Out: node ids to sample from, and the attributes of a batch that are about its seeds.
Invariant: a pure function of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.partition import Book
from penstock.records import EdgeType, NodeType, Sample

if TYPE_CHECKING:
    from penstock.sample.device_sample import DeviceSample


@dataclass(slots=True)
class BatchSeeds:
    """The seeds of one batch.

    Attributes:
        nodes: node type -> int64[n], ids to sample from.
        times: node type -> int64[n], the time of each: later edges are not sampled; None where samples are not by time.
        metadata: PyG's sampler metadata, arrays and tensors: `input_id`, int64[number of seeds], and what else this kind of seeds has.
        notes: name -> value of attributes that the batch has beyond PyG's.
        left_out: edge type -> int64[2, n], ids of the ends of edges to take out of the sample.
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
        """The seeds of the batch of int64[n] `positions`; the other numbers select the random draws, of negatives."""
        ...

    def nodes(self) -> tuple[NodeType, np.ndarray]:
        """(node type, int64[len] ids): a node for each seed, for orders that look at the graph."""
        ...

    def by_place(self, books: Mapping[NodeType, Book]) -> tuple[Any, Book]:
        """(int[len] positions in the order in which a partition has those nodes, an array or what is indexed like one; its book)."""
        ...

    def share(self, batch_size: int, num_nodes: Mapping[NodeType, int]) -> dict[NodeType, np.ndarray]:
        """float64[num_nodes] of each of its types: the probability that a random batch begins from each node."""
        ...

    def finish(self, sample: Sample | DeviceSample, seeds: BatchSeeds) -> None:
        """Number the trees of a disjoint sample by seeds."""
        ...

    def mark(self, store_of: Callable[[NodeType | EdgeType], Any], seeds: BatchSeeds) -> None:
        """Set PyG's attributes about the seeds in a batch; `store_of`: type -> the store that takes them."""
        ...

    def describe(self, fingerprint: Callable[[Any], str]) -> dict[str, Any]:
        """All that decides the seeds, for states."""
        ...


@dataclass(frozen=True, slots=True)
class NodeSeeds:
    """Nodes of one type as seeds.

    Attributes:
        node_type: their type.
        ids: int64[n].
        input_ids: int64[n], the `input_id` of each in its batch; None: the position in the set.
        times: int64[n], the time of each, where samples are by time; else None.
        is_strict: edges of that very time are too late.
    """

    node_type: NodeType
    ids: np.ndarray
    input_ids: np.ndarray | None = None
    times: np.ndarray | None = None
    is_strict: bool = False

    @property
    def node_types(self) -> tuple[NodeType, ...]:
        """Their type alone."""
        return (self.node_type,)

    def __len__(self) -> int:
        return self.ids.size

    def at(self, positions: np.ndarray, *, seed: int, epoch: int, batch: int) -> BatchSeeds:
        """The nodes at these positions."""
        ids = np.ascontiguousarray(self.ids[positions], dtype=np.int64)
        times = None if self.times is None else self.times[positions]
        input_id = positions if self.input_ids is None else self.input_ids[positions]
        until = None if times is None else {self.node_type: times - self.is_strict}
        return BatchSeeds({self.node_type: ids}, until, (input_id, times))

    def nodes(self) -> tuple[NodeType, np.ndarray]:
        """All of them."""
        return self.node_type, self.ids

    def by_place(self, books: Mapping[NodeType, Book]) -> tuple[np.ndarray, Book]:
        """Positions as an array."""
        book = books[self.node_type]
        return book.sort(self.ids), book

    def share(self, batch_size: int, num_nodes: Mapping[NodeType, int]) -> dict[NodeType, np.ndarray]:
        """The same probability for each seed, the share of the set that a batch is. Ids are distinct."""
        found = np.zeros(num_nodes[self.node_type])
        found[self.ids] = min(1.0, batch_size / max(self.ids.size, 1))
        return {self.node_type: found}

    def finish(self, sample: Sample | DeviceSample, seeds: BatchSeeds) -> None:
        """Nothing to do: the sampler numbers trees by seed."""

    def mark(self, store_of: Callable[[NodeType | EdgeType], Any], seeds: BatchSeeds) -> None:
        """`input_id`, `batch_size`, and `seed_time` where there is one."""
        store, (input_id, times) = store_of(self.node_type), seeds.metadata
        store.input_id, store.batch_size = input_id, input_id.numel()
        if times is not None:
            store.seed_time = times

    def describe(self, fingerprint: Callable[[Any], str]) -> dict[str, Any]:
        """Their ids, `input_id`s and times."""
        told = {"input_nodes": f"{self.node_type} {self.ids.size} {fingerprint(self.ids)}"}
        told |= {} if self.input_ids is None else {"input_id": fingerprint(self.input_ids)}
        return told | ({} if self.times is None else {"input_time": fingerprint(self.times)}) | rule_of(self)


def rule_of(seeds: Any) -> dict[str, str]:
    """What `describe` says of the temporal rule: nothing of PyG's."""
    return {"temporal_rule": "<"} if seeds.is_strict else {}
