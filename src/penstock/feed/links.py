"""Links as seeds: pairs of nodes, with labels, times and negatives, in the form that PyG's LinkNeighborLoader gives them.

In: positions in a set of links, and (seed, epoch, batch). Out: the nodes at their ends, to sample from, and their places in the batch.
Invariants: a pure function of these; unless trees are disjoint, each node is a seed once, however many links end in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from penstock.errors import damaged_list
from penstock.kernels.build_csc import cpu as build_kernels
from penstock.kernels.links import cpu
from penstock.partition import Book, EdgesByPlace
from penstock.records import CSC, EdgeType, NodeType, Sample, SampledEdges, check_neighbors
from penstock.sample.negatives import Candidates, Negatives
from penstock.sample.seeds import BatchSeeds, Told
from penstock.sample.times import ANY_EARLIER, TimeRule
from penstock.store.tiers import Elements
from penstock.store.tiers.pinned import to_device

if TYPE_CHECKING:
    from penstock.sample.device_sample import DeviceSample

BLOCK = 1 << 22
"""Edges of a store that are read at a time."""
COUNTS = FALSE_NEGATIVES, EXCLUDED_EDGES = "num_false_negatives", "num_excluded_edges"
"""Attributes of batches: counts of negatives that may be edges, and of edges left out."""


class Ends(Protocol):
    """Links by number."""

    def __len__(self) -> int: ...

    def at(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64[n] sources and int64[n] targets of the links of these numbers."""
        ...

    def targets_of(self, numbers: np.ndarray) -> np.ndarray:
        """The targets alone."""
        ...

    def by_place(self, book: Book) -> Any:
        """int[len]: the numbers of the links, sorted by the places of their targets."""
        ...

    def count(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Add to int64[num_nodes] of the types of either end the number of links of each node; both may be the same array."""
        ...

    def fingerprint(self, of: Callable[[np.ndarray], str]) -> str:
        """A text that differs for other links."""
        ...


@dataclass(frozen=True, slots=True)
class GivenEnds:
    """Ends in two arrays, int[n], all of them nodes of their types."""

    sources: np.ndarray
    targets: np.ndarray

    def __len__(self) -> int:
        return self.sources.size

    def at(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Ends`."""
        return self.sources[numbers].astype(np.int64), self.targets_of(numbers)

    def targets_of(self, numbers: np.ndarray) -> np.ndarray:
        """See `Ends`."""
        return self.targets[numbers].astype(np.int64)

    def by_place(self, book: Book) -> np.ndarray:
        """See `Ends`."""
        return book.sort(self.targets)

    def count(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """See `Ends`."""
        build_kernels.count_degrees(self.sources, sources)
        build_kernels.count_degrees(self.targets, targets)

    def fingerprint(self, of: Callable[[np.ndarray], str]) -> str:
        """See `Ends`."""
        return f"{len(self)} {of(self.sources)} {of(self.targets)}"


@dataclass(frozen=True, slots=True)
class EdgeEnds:
    """All edges of an edge type, by position; nothing is copied.

    Attributes:
        edge_type, csc: the type, and its lists.
        num_sources: number of nodes of the source type.
        sources: int[num_edges], the neighbours in the lists, or elements that other processes have.
    """

    edge_type: EdgeType
    csc: CSC
    num_sources: int
    sources: np.ndarray | Elements

    def __len__(self) -> int:
        return self.csc.num_edges

    def at(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Ends`; CorruptStoreError where the lists are damaged."""
        targets = self.targets_of(numbers)
        return self._sources(numbers), targets

    def targets_of(self, numbers: np.ndarray) -> np.ndarray:
        """See `Ends`; CorruptStoreError where the lists are damaged."""
        targets = np.searchsorted(self.csc.indptr, numbers, side="right") - 1
        if targets.size and not 0 <= targets.min() <= targets.max() < self.csc.num_dst:
            raise damaged_list(self.edge_type, max(0, int(targets.min())), len(self))
        return targets

    def by_place(self, book: Book) -> EdgesByPlace:
        """See `Ends`."""
        return EdgesByPlace(self.csc.indptr, book)

    def count(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """See `Ends`; CorruptStoreError where the lists are damaged."""
        for first in range(0, len(self), BLOCK):
            build_kernels.count_degrees(self._sources(np.arange(first, min(first + BLOCK, len(self)))), sources)
        targets += np.diff(self.csc.indptr)

    def _sources(self, numbers: np.ndarray) -> np.ndarray:
        sources = self.sources[numbers].astype(np.int64)
        check_neighbors(self.edge_type, self.num_sources, numbers, sources)
        return sources

    def fingerprint(self, of: Callable[[np.ndarray], str]) -> str:
        """See `Ends`."""
        return "all"


@dataclass(frozen=True, slots=True)
class ChosenLinks:
    """What a choice of links comes to.

    Attributes:
        edge_type: of all of them.
        ends: the nodes that they join.
        field: name -> what reads rows of that field by int64[n] numbers of links; None where nothing is known of them but their ends.
        input_ids: the `input_id` of each; None: its number.
        are_all: they are all edges of their type.
        is_part: they were chosen by the name of a part.
        known: returns all links that are known to be positive, if there are others beside these.
    """

    edge_type: EdgeType
    ends: Ends
    field: Callable[[str], Callable[[np.ndarray], Any]] | None = None
    input_ids: np.ndarray | Elements | None = None
    are_all: bool = False
    is_part: bool = False
    known: Callable[[], GivenEnds] | None = None


@dataclass(frozen=True, slots=True)
class FieldLabels:
    """Labels in a field of edges or links; they are read for each batch.

    Attributes:
        name: of the field.
        read: int64[n] numbers of links -> [n, ...].
        leave_room: add 1 to each, since 0 is the label of negatives.
    """

    name: str
    read: Callable[[np.ndarray], torch.Tensor]
    leave_room: bool

    def __getitem__(self, numbers: torch.Tensor) -> torch.Tensor:
        rows = self.read(numbers.numpy())
        return rows + 1 if self.leave_room else rows


@dataclass(slots=True)
class BatchLinks(BatchSeeds):
    """What a batch of links begins from.

    Attributes:
        owners: int64[number of seeds], the link that each tree belongs to.
    """

    owners: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class LinkSeeds:
    """A set of links of one edge type.

    Attributes:
        edge_type: their type, which need not be one of the graph's.
        ends: the nodes that they join.
        disjoint: every end gets a tree of its own.
        labels: [n, ...], or an edge field, or None.
        input_ids: int[n], the `input_id` of each in its batch; None: the position in the set.
        times: int64[n], the time of each, where samples are by time; else None.
        rule: which edges are in time for a link.
        negatives: how negative links are drawn; None: none are.
        left_out: (edge type, whether its edges run the other way), for types from which the links of a batch are left out.
    """

    edge_type: EdgeType
    ends: Ends
    disjoint: bool
    labels: torch.Tensor | FieldLabels | None = None
    input_ids: np.ndarray | Elements | None = None
    times: np.ndarray | None = None
    rule: TimeRule = ANY_EARLIER
    negatives: Negatives | None = None
    left_out: Sequence[tuple[EdgeType, bool]] = ()

    @property
    def node_types(self) -> tuple[NodeType, ...]:
        """Types of the ends."""
        return tuple(dict.fromkeys((self.edge_type[0], self.edge_type[2])))

    @property
    def is_triplet(self) -> bool:
        """Whether negatives keep the sources of their links."""
        return self.negatives is not None and self.negatives.sources is None

    def __len__(self) -> int:
        return len(self.ends)

    def at(self, positions: np.ndarray, *, seed: int, epoch: int, batch: int) -> BatchLinks:
        """The ends of the links at these positions, and of negatives drawn for them."""
        sources, targets = self.ends.at(positions)
        left_out = self._like(np.stack([sources, targets]))
        times = None if self.times is None else self.times[positions]
        input_id, owners, notes = positions if self.input_ids is None else self.input_ids[positions], np.arange(positions.size), {}
        of_sources = of_targets = owners
        if self.negatives is not None:
            more, others, num_positives = self.negatives.draw(sources, times, seed=seed, epoch=epoch, batch=batch)
            targets = np.concatenate([targets, others])
            of_targets = np.concatenate([owners, np.arange(others.size) % owners.size])
            if not self.is_triplet:
                sources, of_sources = np.concatenate([sources, more]), of_targets
            if self.negatives.are_exact:
                notes[FALSE_NEGATIVES] = num_positives
        nodes, first, second = self._seeds(sources, targets)
        owners, moments = np.concatenate([of_sources, of_targets]), None
        if times is not None:  # always disjoint
            until = self.rule.until(times)
            moments = self._by_type(until[of_sources], until[of_targets])
        told: tuple[Any, ...] = self._told(positions, first, second, None if times is None else times[of_sources])
        return BatchLinks(nodes, moments, (input_id, *told), notes, left_out, owners)

    def _like(self, links: np.ndarray) -> dict[EdgeType, np.ndarray]:
        """The edges to leave out that are like int64[2, n] links."""
        found: dict[EdgeType, list[np.ndarray]] = {}
        for edge_type, is_reversed in self.left_out:
            found.setdefault(edge_type, []).append(links[::-1] if is_reversed else links)
        return {edge_type: np.concatenate(each, axis=1) for edge_type, each in found.items()}

    def _by_type(self, of_sources: np.ndarray, of_targets: np.ndarray) -> dict[NodeType, np.ndarray]:
        """Values of both ends, by node type."""
        if len(self.node_types) == 1:
            return {self.edge_type[0]: np.concatenate([of_sources, of_targets])}
        return dict(zip(self.node_types, (of_sources, of_targets), strict=True))

    def _seeds(self, sources: np.ndarray, targets: np.ndarray) -> tuple[dict[NodeType, np.ndarray], np.ndarray, np.ndarray]:
        """(nodes to sample from, where the sources are among those of their type, where the targets are)."""
        nodes, is_one = self._by_type(sources, targets), len(self.node_types) == 1
        if self.disjoint:
            return nodes, np.arange(sources.size), np.arange(targets.size) + (sources.size if is_one else 0)
        found = {node_type: np.unique(ids, return_inverse=True) for node_type, ids in nodes.items()}
        places = [place.reshape(-1) for _, place in found.values()]
        first, second = np.split(places[0], [sources.size]) if is_one else places
        return {node_type: ids for node_type, (ids, _) in found.items()}, first, second

    def _told(self, positions: np.ndarray, first: np.ndarray, second: np.ndarray, times: np.ndarray | None) -> tuple[Any, ...]:
        """What a batch says beside `input_id`, in PyG's order."""
        num_links = positions.size
        if self.negatives is not None and self.is_triplet:
            negatives = second[num_links:].reshape(int(self.negatives.amount), num_links).T
            negatives = negatives[:, 0] if negatives.shape[1] == 1 else negatives
            return first, second[:num_links], np.ascontiguousarray(negatives), times
        labels = None if self.labels is None else self.labels[torch.from_numpy(positions)]
        if self.negatives is not None:
            labels = torch.ones(num_links, device="cpu") if labels is None else labels
            labels = torch.cat([labels, labels.new_zeros((first.size - num_links, *labels.shape[1:]))])
        return np.stack([first, second]), labels, times

    def nodes(self) -> tuple[NodeType, np.ndarray]:
        """The targets."""
        return self.edge_type[2], self.ends.targets_of(np.arange(len(self)))

    def by_place(self, books: Mapping[NodeType, Book]) -> tuple[Any, Book]:
        """Positions in the order of the targets' places."""
        book = books[self.edge_type[2]]
        return self.ends.by_place(book), book

    def share(self, batch_size: int, num_nodes: Mapping[NodeType, int]) -> dict[NodeType, np.ndarray]:
        """By the number of links of a node, and the probability that a negative has it."""
        counts = {node_type: np.zeros(num_nodes[node_type], np.int64) for node_type in self.node_types}
        self.ends.count(counts[self.edge_type[0]], counts[self.edge_type[2]])
        missed = 1.0 - min(1.0, batch_size / max(1, len(self)))  # a link, by a batch
        avoided = {node_type: missed**count for node_type, count in counts.items()}
        if self.negatives is not None:
            drawn = self.negatives.count(min(batch_size, len(self)))
            for node_type, candidates in ((self.edge_type[0], self.negatives.sources), (self.edge_type[2], self.negatives.targets)):
                if candidates is not None:
                    avoided[node_type] *= (1.0 - _chances(candidates)) ** drawn
        return {node_type: np.subtract(1.0, each, out=each) for node_type, each in avoided.items()}

    def finish(self, sample: Sample | DeviceSample, seeds: BatchSeeds) -> None:
        """Number trees by the links that they belong to; the sampler does so by the ends."""
        assert isinstance(seeds, BatchLinks)
        owners: Any = seeds.owners
        all_trees: dict[NodeType, Any] = sample.trees or {}
        for node_type, trees in all_trees.items():
            if isinstance(trees, torch.Tensor) and isinstance(owners, np.ndarray):
                owners = to_device(owners, trees.device)
            all_trees[node_type] = owners[trees]

    def told(self, seeds: BatchSeeds) -> Told:
        """`edge_label_index`, `edge_label`, `edge_label_time`; of triplets `src_index`, `dst_pos_index`, `dst_neg_index`, `seed_time`."""
        links, (input_id, *values) = self.edge_type, seeds.metadata
        told: Told = [(links, "input_id", input_id), *((links, name, value) for name, value in seeds.notes.items())]
        if not self.is_triplet:
            names = "edge_label_index", "edge_label", "edge_label_time"
            return told + [(links, name, value) for name, value in zip(names, values, strict=True)]
        (source, _, target), (src_index, dst_pos_index, dst_neg_index, times) = links, values
        told += [(source, "src_index", src_index), (target, "dst_pos_index", dst_pos_index), (target, "dst_neg_index", dst_neg_index)]
        told += [(source, "seed_time", times), (target, "seed_time", times)]
        return told + [(links, name, None) for name in ("edge_label_index", "edge_label_time")]  # of the data itself

    def describe(self, fingerprint: Callable[[Any], str]) -> dict[str, Any]:
        """The links, what a batch says of them, and how negatives are drawn."""
        told = {"edge_label_index": f"{'/'.join(self.edge_type)} {self.ends.fingerprint(fingerprint)}"}
        given = {"input_id": self.input_ids, "edge_label_time": self.times, "edge_label": self.labels}
        for name, values in given.items():
            if isinstance(values, FieldLabels):
                told[name] = f"field {values.name}"
            elif isinstance(values, torch.Tensor):
                bits = values.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
                told[name] = f"{values.dtype} {list(values.shape)} {fingerprint(bits)}"
            elif values is not None:
                told[name] = fingerprint(values)
        told |= self.rule.describe()
        if (negatives := self.negatives) is not None:
            kind = "triplet" if self.is_triplet else "binary"
            told["neg_sampling"] = f"{kind} {negatives.amount}, exclude_positives={negatives.are_exact}"
            for name, pool in (("sources", negatives.sources), ("targets", negatives.targets)):
                if pool is not None:
                    parts = (pool.order, pool.times, pool.sums)
                    told[f"negative {name}"] = " ".join(fingerprint(part) if part.size else "any" for part in parts)
        if self.left_out:
            told["exclude_links"] = ", ".join(f"{'/'.join(e)}{' reversed' * is_reversed}" for e, is_reversed in self.left_out)
        return told


def _chances(candidates: Candidates) -> np.ndarray | float:
    """How likely a draw gives each node, whatever the time."""
    if not candidates.sums.size:
        return 1.0 / candidates.num_nodes
    found = np.diff(candidates.sums, prepend=0.0) / candidates.sums[-1]
    if candidates.order.size:
        by_node = np.empty_like(found)
        by_node[candidates.order] = found
        return by_node
    return found


def leave_out(sample: Sample, unwanted: Mapping[EdgeType, np.ndarray]) -> int:
    """Leave edges out of a sample: edge type -> int64[2, n], ids of their ends. Returns how many there were."""
    num_before = sum(edges.positions.size for edges in sample.edges.values())
    for edge_type, links in unwanted.items():
        edge_type = edge_type if edge_type in sample.edges else next(iter(sample.edges))  # walks make edges of one type
        edges, (source, _, target) = sample.edges[edge_type], edge_type
        parts = edges.edge_index, edges.row_ptr, edges.positions, edges.num_per_hop
        sample.edges[edge_type] = SampledEdges(*cpu.leave_out(sample.nodes[source], sample.nodes[target], links, *parts))
    return num_before - sum(edges.positions.size for edges in sample.edges.values())
