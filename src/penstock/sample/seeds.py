"""What batches begin from: sets of seeds. Here that of nodes; that of links is in `penstock.feed.links`.

In: positions in a set, and the place of a batch. Out: node ids to sample from, and what the batch says of its seeds. Invariant: a pure
function of these.
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
class Begun:
    """What a batch begins from.

    Attributes:
        nodes: node type -> int64[n], ids to sample from.
        times: likewise, when each looks at the graph; None where samples are not by time.
        metadata: what PyG calls so, arrays and tensors: `input_id`, int64[number of seeds], and what else the kind of seeds has.
        notes: what the batch says beyond PyG, by name.
        left_out: edge type -> int64[2, n], ids of the ends of edges that are taken out of the sample.
    """

    nodes: dict[NodeType, np.ndarray]
    times: dict[NodeType, np.ndarray] | None
    metadata: tuple[Any, ...]
    notes: dict[str, Any] = field(default_factory=dict)
    left_out: dict[EdgeType, np.ndarray] = field(default_factory=dict)

    @property
    def num_seeds(self) -> int:
        """Of their kind: nodes, or links."""
        return len(self.metadata[0])


class SeedSet(Protocol):
    """A set of seeds, by position.

    Attributes:
        node_types: of the nodes that batches begin from.
    """

    @property
    def node_types(self) -> tuple[NodeType, ...]: ...  # noqa: D102

    def __len__(self) -> int: ...

    def at(self, positions: np.ndarray, *, seed: int, epoch: int, batch: int) -> Begun:
        """What the batch of the seeds at int64[n] `positions` begins from; the other numbers select what is drawn for it."""
        ...

    def nodes(self) -> tuple[NodeType, np.ndarray]:
        """One node for each seed, for orders that look at the graph: a type, and int64[len] ids."""
        ...

    def by_place(self, books: Mapping[NodeType, Book]) -> tuple[Any, Book]:
        """int[len] positions in the order of the places of those nodes, an array or what gives elements as one does; and their book."""
        ...

    def share(self, batch_size: int, num_nodes: Mapping[NodeType, int]) -> dict[NodeType, np.ndarray]:
        """float64[num_nodes] of each of its types: the probability that a random batch begins from each node."""
        ...

    def finish(self, sample: Sample | DeviceSample, begun: Begun) -> None:
        """Number the trees of a sample, where it has any, as the batch shall say it."""
        ...

    def mark(self, store_of: Callable[[NodeType | EdgeType], Any], begun: Begun) -> None:
        """Say of the seeds in a batch what PyG says; `store_of`: type -> where attributes go."""
        ...

    def describe(self, fingerprint: Callable[[Any], str]) -> dict[str, Any]:
        """What decides the seeds."""
        ...


@dataclass(frozen=True, slots=True)
class NodeSeeds:
    """Nodes of one type.

    Attributes:
        node_type, ids: theirs, int64[n].
        input_ids: int64[n] or None: what the batch's `input_id` says; None for the position in the set.
        times: int64[n], when each looks at the graph, where samples are by time; else None.
        is_strict: what came at that very time is too late.
    """

    node_type: NodeType
    ids: np.ndarray
    input_ids: np.ndarray | None = None
    times: np.ndarray | None = None
    is_strict: bool = False

    @property
    def node_types(self) -> tuple[NodeType, ...]:
        """The one."""
        return (self.node_type,)

    def __len__(self) -> int:
        return self.ids.size

    def at(self, positions: np.ndarray, *, seed: int, epoch: int, batch: int) -> Begun:
        """The nodes at these positions."""
        ids = np.ascontiguousarray(self.ids[positions], dtype=np.int64)
        times = None if self.times is None else self.times[positions]
        input_id = positions if self.input_ids is None else self.input_ids[positions]
        until = None if times is None else {self.node_type: times - self.is_strict}
        return Begun({self.node_type: ids}, until, (input_id, times))

    def nodes(self) -> tuple[NodeType, np.ndarray]:
        """All of them."""
        return self.node_type, self.ids

    def by_place(self, books: Mapping[NodeType, Book]) -> tuple[np.ndarray, Book]:
        """An array."""
        book = books[self.node_type]
        return book.sort(self.ids), book

    def share(self, batch_size: int, num_nodes: Mapping[NodeType, int]) -> dict[NodeType, np.ndarray]:
        """The same for each seed: what part of the set a batch is. Ids are distinct."""
        found = np.zeros(num_nodes[self.node_type])
        found[self.ids] = min(1.0, batch_size / max(self.ids.size, 1))
        return {self.node_type: found}

    def finish(self, sample: Sample | DeviceSample, begun: Begun) -> None:
        """Nothing is to be done: the sampler numbers trees by seed."""

    def mark(self, store_of: Callable[[NodeType | EdgeType], Any], begun: Begun) -> None:
        """`input_id`, `batch_size`, and `seed_time` where there is one."""
        store, (input_id, times) = store_of(self.node_type), begun.metadata
        store.input_id, store.batch_size = input_id, input_id.numel()
        if times is not None:
            store.seed_time = times

    def describe(self, fingerprint: Callable[[Any], str]) -> dict[str, Any]:
        """Their ids, what a batch says of them, and their times."""
        told = {"input_nodes": f"{self.node_type} {self.ids.size} {fingerprint(self.ids)}"}
        told |= {} if self.input_ids is None else {"input_id": fingerprint(self.input_ids)}
        return told | ({} if self.times is None else {"input_time": fingerprint(self.times)}) | rule_of(self)


def rule_of(seeds: Any) -> dict[str, str]:
    """What the description of seeds says of the rule by which edges are in time: nothing of the usual one."""
    return {"temporal_rule": "<"} if seeds.is_strict else {}
