"""The book: which part of a partitioned graph owns each node and edge, and as which row.

In: an owner for each node. Out: for nodes and edges, their owner and their row there. Invariants: nodes keep their ids, and edges their
positions; a part's rows are its nodes in the order of their ids, and their in-neighbour lists one after the other.
Source: DistDGLv2 5.3, which renumbers nodes so that each part owns a range. Here that new number, the place, is looked up, for 4 bytes per
node in each process, so that partitions do not change ids, random draws or batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import xxhash

from penstock.errors import InputError
from penstock.kernels.find_lists import cpu
from penstock.records import index_dtype


class Shares(Protocol):
    """Which part has which rows of a table; rows are numbered as in the whole graph.

    Attributes:
        num_rows: of the whole graph.
    """

    @property
    def num_rows(self) -> int: ...  # noqa: D102

    def owners(self, rows: np.ndarray) -> np.ndarray:
        """Return int64[n]: the part that has each of int64[n] `rows`."""
        ...

    def local(self, rows: np.ndarray, part: int) -> np.ndarray:
        """Return int64[n]: the row of each of int64[n] `rows` in the table of `part`, the part of this process; InputError if it lacks
        one."""
        ...


@dataclass(frozen=True, slots=True)
class Book:
    """The owners of the nodes of one type.

    Attributes:
        places: int32 or int64[num_nodes]: the number of each node, counted part after part, within a part in the order of ids.
        starts: int64[num_parts + 1]: part p has the places from starts[p] to starts[p + 1].
        trainers: int16[num_nodes]: which trainer of its part has each node as a seed; None: each part has one trainer.
        num_trainers: trainers of each part.
    """

    places: np.ndarray
    starts: np.ndarray
    trainers: np.ndarray | None = None
    num_trainers: int = 1

    @property
    def num_rows(self) -> int:
        """Number of nodes."""
        return self.places.size

    def owners(self, rows: np.ndarray) -> np.ndarray:
        """Return the part that owns each node."""
        return np.searchsorted(self.starts, self.places[rows], side="right") - 1

    def local(self, rows: np.ndarray, part: int) -> np.ndarray:
        """Return the row of each node among those of the part."""
        found = self.places[rows] - self.starts[part]  # int64
        if found.size and not (int(found.min()) >= 0 and int(found.max()) < self.size_of(part)):
            raise InputError(f"rows were asked for that part {part} does not own")
        return found

    def sort(self, nodes: np.ndarray) -> np.ndarray:
        """Return int[n]: the permutation that sorts int64[n] nodes by part, trainer and place; stable."""
        order = np.argsort(self.places[nodes], kind="stable").astype(index_dtype(nodes.size))
        return order if self.trainers is None else order[self._by_trainer(nodes[order])]

    @property
    def nodes(self) -> np.ndarray:
        """Return int32 or int64[num_nodes]: all nodes, sorted as by `sort`."""
        nodes = np.empty_like(self.places)
        nodes[self.places] = np.arange(self.num_rows, dtype=self.places.dtype)
        return nodes if self.trainers is None else nodes[self._by_trainer(nodes)]

    def _by_trainer(self, nodes: np.ndarray) -> np.ndarray:
        """Return the permutation that sorts nodes, already sorted by place, by trainer within their part."""
        assert self.trainers is not None
        return np.argsort(self.owners(nodes) * self.num_trainers + self.trainers[nodes], kind="stable")

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return self.starts.size - 1

    @property
    def digest(self) -> str:
        """16 hex digits computed from its content."""
        digest = xxhash.xxh3_64(self.places.data)
        digest.update(self.starts.data)
        if self.trainers is not None:
            digest.update(self.trainers.data)
        return digest.hexdigest()

    def size_of(self, part: int) -> int:
        """Return the number of nodes of a part."""
        return int(self.starts[part + 1] - self.starts[part])


@dataclass(frozen=True, slots=True)
class EdgeShares:
    """The owners of the edges of one type, by position: an edge belongs to the owner of its destination.

    Attributes:
        indptr: int64[num_dst + 1], of the whole graph.
        list_ptr: int64[nodes of this part + 1], where the list of each of this part's nodes begins among its edges.
        book: of the destinations.
    """

    indptr: np.ndarray
    list_ptr: np.ndarray
    book: Book

    @property
    def num_rows(self) -> int:
        """Number of edges."""
        return int(self.indptr[-1])

    def owners(self, rows: np.ndarray) -> np.ndarray:
        """Return the part that has each edge."""
        return self.book.owners(self._destinations(rows))

    def local(self, rows: np.ndarray, part: int) -> np.ndarray:
        """Return the number of each edge among those of the part."""
        nodes = self._destinations(rows)
        return self.list_ptr[self.book.local(nodes, part)] + (rows - self.indptr[nodes])

    def _destinations(self, positions: np.ndarray) -> np.ndarray:
        nodes = np.empty(positions.size, np.int64)
        cpu.find_lists(self.indptr, positions, nodes)
        return nodes


class EdgesByPlace:
    """Positions of all edges of a type, sorted by destination in the order of `Book.sort`. Each position is computed on access, so this
    takes 12 bytes per node, rather than 4 to 8 per edge.

    Args:
        indptr: int64[num_dst + 1], of the whole graph. book: of the destinations.
    """

    def __init__(self, indptr: np.ndarray, book: Book) -> None:
        self._indptr, self._nodes = indptr, book.nodes
        self._ends = np.cumsum(np.diff(indptr)[self._nodes])
        self.size = int(indptr[-1])

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        at = np.searchsorted(self._ends, numbers, side="right")
        return self._indptr[self._nodes[at] + 1] - (self._ends[at] - numbers)


def make_book(owners: np.ndarray, num_parts: int, trainers: np.ndarray | None = None, num_trainers: int = 1) -> Book:
    """Make the book of an assignment: int[num_nodes] `owners`, in [0, num_parts), and `trainers`, in [0, num_trainers). Takes 16 bytes per
    node beside the result."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=num_parts))])
    places = np.empty(owners.size, index_dtype(owners.size))
    places[np.argsort(owners, kind="stable")] = np.arange(owners.size, dtype=places.dtype)
    return Book(places, starts, None if trainers is None else trainers.astype(np.int16), num_trainers)
