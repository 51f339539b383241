"""Draws by weight or by time from lists of other parts: the process that has a list draws from it.

In: nodes, and how to draw from each. Out: positions. Invariant: the positions are those of the whole graph, since a draw depends on its
list and a counter, but not on any order of work. A list costs 8 bytes to request (16 with the number of its tree, 24 by time) and 4 per
edge drawn, however long it is. Each process keeps running sums, or the order of time, for its own part only. Source: DistDGLv2 5.5.1, which
makes all draws this way.

A request is int64 numbers: fanout, replace, takes_last, reach, key (2), batch, hop, number of the edge type, whether copies follow, whether
times follow; then nodes, copies and times. The answer has a slot for each edge that a list may give, node after node: the index of the edge
drawn in its list, or NONE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from penstock.errors import InputError, damaged_list
from penstock.exchange import wire
from penstock.exchange.peers import Asked, Peer
from penstock.kernels.sample_neighbors.cpu import count_neighbors
from penstock.partition import EdgeShares
from penstock.records import CSC, EdgeType, index_dtype
from penstock.sample.draws import Draw, Frontier, MakeRoom, draw_positions
from penstock.sample.workspace import Scratch
from penstock.store.tiers import TierStats
from penstock.store.tiers.host import ReadByHost
from penstock.threads import Guard

NONE = -1
_HEADER = 11


def to_numbers(how: Draw, lists: Frontier) -> np.ndarray:
    """Return a request as int64[...]."""
    place = how.batch, how.hop, how.number, lists.copies is not None, lists.until is not None
    header = np.array([how.fanout, how.replace, how.takes_last, how.reach, *how.key.view(np.int64), *place], np.int64)
    given = [each for each in (lists.nodes, lists.copies, lists.until) if each is not None]
    return np.concatenate([header, *given]).astype("<i8", copy=False)


def from_numbers(numbers: np.ndarray) -> tuple[Draw, Frontier]:
    """Inverse of `to_numbers`; InputError if the numbers are not a valid request."""
    header, rest = numbers[:_HEADER], numbers[_HEADER:]
    num_given = 1 + int(np.count_nonzero(header[-2:]))
    if header.size < _HEADER or rest.size % num_given:
        raise InputError(f"a question of {numbers.size} numbers: are all processes of one version?")
    fanout, replace, takes_last, reach, _, _, batch, hop, number, has_copies, has_until = header.tolist()
    given = iter(rest.reshape(num_given, -1))
    lists = Frontier(next(given), next(given) if has_copies else None, next(given) if has_until else None)
    return Draw(fanout, bool(replace), bool(takes_last), reach, header[4:6].view(np.uint64), batch, hop, number), lists


def most_drawn(how: Draw, degrees: np.ndarray) -> np.ndarray:
    """Return int64[n]: the most edges that lists of int64[n] `degrees` may give."""
    if how.fanout < 0:
        return degrees
    return np.where(degrees > 0, how.fanout, 0) if how.replace else np.minimum(degrees, how.fanout)


@dataclass(frozen=True, slots=True)
class DrawTable:
    """Answers requests of other processes for draws, as a `Table` answers requests for rows.

    Attributes:
        key: identifies the table. lists: the lists of this part.
    """

    key: tuple[str, EdgeType]
    lists: OwnLists

    id_dtype: ClassVar[np.dtype[Any]] = np.dtype("<i8")

    def answer(self, numbers: np.ndarray, part: int) -> Iterator[list[np.ndarray]]:
        """Yield slots, in pieces (see `wire`)."""
        slots = self.lists.draw(*from_numbers(numbers))
        step = wire.rows_of_a_piece(slots.itemsize)
        for first in range(0, slots.size, step):
            yield [slots[first : first + step].view(np.uint8)]


class OwnLists:
    """This part's lists of an edge type, prepared for draws by a field at the first request.

    Args:
        edge_type: edge type of the lists. num_src: number of nodes of the source type.
        shares: which part has which edges. part: number of this part.
        neighbors: int[edges of this part].
        prepare: adds to the lists what the draws need: running sums, or the order of time.
    """

    def __init__(
        self, edge_type: EdgeType, num_src: int, shares: EdgeShares, part: int, neighbors: np.ndarray, prepare: Callable[[CSC], CSC]
    ) -> None:
        self.edge_type = edge_type
        self.shares = shares
        self.part = part
        self._num_src = num_src
        self._neighbors, self._prepare, self._guard = neighbors, prepare, Guard()
        self._csc: CSC | None = None

    @property
    def num_edges(self) -> int:
        """Number of edges of this part."""
        return self._neighbors.size

    @property
    def resident_bytes(self) -> int:
        """Memory of the prepared arrays."""
        csc = self._csc
        arrays = () if csc is None else (csc.indptr, csc.sums, csc.guide, csc.times, csc.by_time)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Integer type of slots when they are sent."""
        return np.dtype(index_dtype(self.shares.num_rows)).newbyteorder("<")

    def csc(self) -> CSC:
        """Return this part's lists as a CSC over all nodes, with empty lists for other parts. Takes 8 bytes per node, beside prepared
        arrays."""
        with self._guard.lock:
            if self._csc is None:
                shares = self.shares
                is_own = shares.book.owners(np.arange(shares.indptr.size - 1)) == self.part
                indptr = np.concatenate([[0], np.cumsum(np.where(is_own, np.diff(shares.indptr), 0))])
                self._csc = self._prepare(CSC(indptr, self._neighbors))
            return self._csc

    def draw(self, how: Draw, lists: Frontier) -> np.ndarray:
        """Return int[slots]: draws from lists of this part; InputError if a list belongs to another part."""
        nodes, csc = lists.nodes, self.csc()
        if nodes.size and not (nodes.min() >= 0 and nodes.max() < csc.num_dst and (self.shares.book.owners(nodes) == self.part).all()):
            raise InputError(f"lists were asked for that part {self.part} does not own")
        offsets, make_room = np.zeros(nodes.size + 1, np.int64), partial(np.empty, dtype=np.int64)
        positions, _, _ = draw_positions(self.edge_type, csc, self._num_src, how, lists, Scratch(), offsets, make_room, are_read=False)
        most, counts = most_drawn(how, csc.degrees(nodes)), np.diff(offsets)
        found = np.full(int(most.sum()), NONE, self.dtype)
        found[_places(np.cumsum(most) - most + counts, counts)] = positions - np.repeat(csc.indptr[nodes], counts)
        return found


class SumsTier(ReadByHost):
    """A tier of the running sums of this part's edges: a row is one sum."""

    name, resident_bytes = "own part", 0

    def __init__(self, lists: OwnLists) -> None:
        self._lists = lists
        self.num_rows = lists.num_edges
        self.row_bytes: tuple[int, ...] = (8,)
        self.stats = TierStats()

    def _move(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> None:
        sums = self._lists.csc().sums
        assert sums is not None
        outs[0].view("<i8")[places] = sums[rows]


class RemoteDraws:
    """Draws from the lists of all parts.

    Args:
        own: the lists of this part. number: of the table of draws.
        peers: part -> the process to ask; None for this process's own part.
    """

    def __init__(self, own: OwnLists, number: int, peers: Sequence[Peer | None]) -> None:
        self._own, self._number, self._peers = own, number, peers

    @property
    def resident_bytes(self) -> int:
        """Memory of this part's prepared arrays."""
        return self._own.resident_bytes

    def prepare(self, nodes: np.ndarray) -> None:
        """Make the owners of these nodes prepare their lists now: request one edge of each node, and do not use it."""
        how = Draw(1, False, False, -1, np.zeros(2, np.uint64), 0, 0, 0)
        self._ask(how, Frontier(nodes, until=np.zeros(nodes.size, np.int64)), np.ones(nodes.size, np.int64))

    def draw(self, how: Draw, lists: Frontier, offsets: np.ndarray, make_room: MakeRoom) -> np.ndarray:
        """Return int64[m] positions, list after list; sets `offsets`, see `penstock.sample.draws.draw_positions`."""
        nodes, shares = lists.nodes, self._own.shares
        total, bad = count_neighbors(shares.indptr, shares.num_rows, nodes, how.fanout, how.replace)
        if total < 0:
            raise damaged_list(self._own.edge_type, int(nodes[bad]), shares.num_rows)
        most = most_drawn(how, shares.indptr[nodes + 1] - shares.indptr[nodes])
        ends, slots = np.cumsum(most), np.empty(total, self._own.dtype)
        for at, answer in self._ask(how, lists, most):
            slots[_places(ends[at], most[at])] = answer
        is_drawn = slots != NONE
        offsets[1 : nodes.size + 1] = offsets[0] + np.concatenate([[0], np.cumsum(is_drawn)])[ends]
        positions = make_room(total)[: int(np.count_nonzero(is_drawn))]
        positions[:] = (np.repeat(shares.indptr[nodes], most) + slots)[is_drawn]
        return positions

    def _ask(self, how: Draw, lists: Frontier, most: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Yield (which of the lists, their slots) for each part; all parts are asked before any is waited for."""
        owners, asked, found = self._own.shares.book.owners(lists.nodes), list[tuple[np.ndarray, Asked]](), []
        try:
            for part, peer in enumerate(self._peers):
                if peer is not None and (at := np.flatnonzero((owners == part) & (most > 0))).size:
                    asked.append((at, peer.ask(self._number, to_numbers(how, _some(lists, at)))))
            at = np.flatnonzero((owners == self._own.part) & (most > 0))
            found.append((at, self._own.draw(how, _some(lists, at))))
            while asked:
                at, answer = asked.pop(0)
                slots = np.empty(int(most[at].sum()), self._own.dtype)
                for first, piece in answer.pieces(slots.size, slots.itemsize):
                    slots.view(np.uint8)[first * slots.itemsize :][: piece.size] = piece
                found.append((at, slots))
        finally:
            for _, answer in asked:
                answer.drop()
        return found


def _some(lists: Frontier, at: np.ndarray) -> Frontier:
    copies, until = (None if each is None else each[at] for each in (lists.copies, lists.until))
    return Frontier(lists.nodes[at], copies, until)


def _places(ends: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return int64[counts.sum()]: for each i, the `counts[i]` places before `ends[i]`."""
    return np.repeat(ends - np.cumsum(counts), counts) + np.arange(int(counts.sum()))
