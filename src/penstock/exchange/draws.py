"""Draws by weight among lists of other parts: whoever has a list draws of it.

In: nodes, and what is drawn of each. Out: positions. Invariant: those of the whole graph, for a draw depends on its list and a counter, and
nobody's order of work. So a list costs 8 bytes to ask for and 4 an edge drawn, however long it is, and each process keeps the running sums
of its own part. Source: DistDGLv2 5.5.1, which has all draws made so.

A question is int64 numbers: fanout, replace, key (2), batch, hop, number of the edge type, whether copies follow; nodes; copies. The answer
is a slot for each edge that a list may give, node after node: which of its edges was drawn, or NONE.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.errors import InputError, damaged_list
from penstock.exchange import wire
from penstock.exchange.peers import Asked, Peer
from penstock.kernels.sample_weighted import cpu as weighted
from penstock.partition import EdgeShares
from penstock.records import CSC, EdgeType, index_dtype
from penstock.sample.draws import Draw, Frontier, MakeRoom, draw_positions
from penstock.sample.weights import Weights, weigh
from penstock.sample.workspace import Scratch
from penstock.store.tiers import Deferred, Read, TierStats
from penstock.store.tiers.tier import check_rows
from penstock.threads import Guard

NONE = -1
_HEADER = 8


def to_numbers(how: Draw, lists: Frontier) -> np.ndarray:
    """int64[...]: a question."""
    header = [how.fanout, how.replace, *how.key.view(np.int64), how.batch, how.hop, how.number, lists.copies is not None]
    copies = [] if lists.copies is None else [lists.copies]
    return np.concatenate([np.array(header, np.int64), lists.nodes, *copies]).astype("<i8", copy=False)


def from_numbers(numbers: np.ndarray) -> tuple[Draw, Frontier]:
    """What `to_numbers` was given; InputError where it was given nothing such."""
    header, rest = numbers[:_HEADER], numbers[_HEADER:]
    has_copies = bool(header[-1:].any())
    if header.size < _HEADER or (has_copies and rest.size % 2):
        raise InputError(f"a question of {numbers.size} numbers: are all processes of one version?")
    fanout, replace, _, _, batch, hop, number, _ = header.tolist()
    nodes, copies = (rest[: rest.size // 2], rest[rest.size // 2 :]) if has_copies else (rest, None)
    return Draw(fanout, bool(replace), False, header[2:4].view(np.uint64), batch, hop, number), Frontier(nodes, copies)


def most_drawn(how: Draw, degrees: np.ndarray) -> np.ndarray:
    """int64[n]: how many edges lists of int64[n] `degrees` may give."""
    if how.fanout < 0:
        return degrees
    return np.where(degrees > 0, how.fanout, 0) if how.replace else np.minimum(degrees, how.fanout)


@dataclass(frozen=True, slots=True)
class DrawTable:
    """What others ask, and are answered, of draws: see above. Served as rows are.

    Attributes:
        key: which. lists: of this part.
    """

    key: tuple[str, EdgeType]
    lists: WeighedLists

    id_dtype: ClassVar[np.dtype[Any]] = np.dtype("<i8")

    def answer(self, numbers: np.ndarray, part: int) -> Iterator[list[np.ndarray]]:
        """Yield slots, in pieces (see `wire`)."""
        slots = self.lists.draw(*from_numbers(numbers))
        step = wire.rows_of_a_piece(slots.itemsize)
        for first in range(0, slots.size, step):
            yield [slots[first : first + step].view(np.uint8)]


class WeighedLists:
    """This part's lists of an edge type with the running sums of a field of their edges, made when somebody first asks.

    Args:
        edge_type: which. num_src: nodes that its edges may come from.
        shares: whose the edges are. part: this one.
        neighbors: int[edges of this part].
        weights: gives those of these edges.
    """

    def __init__(
        self, edge_type: EdgeType, num_src: int, shares: EdgeShares, part: int, neighbors: np.ndarray, weights: Callable[[], Weights]
    ) -> None:
        self.edge_type, self.shares, self.part, self._num_src = edge_type, shares, part, num_src
        self._neighbors, self._weights, self._guard = neighbors, weights, Guard()
        self._csc: CSC | None = None

    @property
    def num_edges(self) -> int:
        """Of this part."""
        return self._neighbors.size

    @property
    def resident_bytes(self) -> int:
        """Memory of what was made."""
        csc = self._csc
        return 0 if csc is None else sum(array.nbytes for array in (csc.indptr, csc.sums, csc.guide) if array is not None)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of slots on their way."""
        return np.dtype(index_dtype(self.shares.num_rows)).newbyteorder("<")

    def csc(self) -> CSC:
        """Those lists, of all nodes: lists of others are empty. 8.5 bytes an edge of this part and 8 a node."""
        with self._guard.lock:
            if self._csc is None:
                shares = self.shares
                is_own = shares.book.owners(np.arange(shares.indptr.size - 1)) == self.part
                indptr = np.concatenate([[0], np.cumsum(np.where(is_own, np.diff(shares.indptr), 0))])
                self._csc = weigh(self.edge_type, CSC(indptr, self._neighbors), self._weights())
            return self._csc

    def draw(self, how: Draw, lists: Frontier) -> np.ndarray:
        """int[slots]: what is drawn of lists of this part; InputError where one is another's."""
        nodes, csc = lists.nodes, self.csc()
        if nodes.size and not (nodes.min() >= 0 and nodes.max() < csc.num_dst and (self.shares.book.owners(nodes) == self.part).all()):
            raise InputError(f"lists were asked for that part {self.part} does not own")
        offsets, room = np.zeros(nodes.size + 1, np.int64), list[np.ndarray]()

        def make_room(count: int) -> np.ndarray:
            room.append(np.empty(count, np.int64))
            return room[0]

        positions, _, _ = draw_positions(self.edge_type, csc, self._num_src, how, lists, Scratch(), offsets, make_room, are_read=False)
        most, counts = most_drawn(how, csc.degrees(nodes)), np.diff(offsets)
        found = np.full(int(most.sum()), NONE, self.dtype)
        found[_places(np.cumsum(most) - most + counts, counts)] = positions - np.repeat(csc.indptr[nodes], counts)
        return found


class SumsTier:
    """The running sums of this part's edges: a row is one of them."""

    device, name, resident_bytes, row_bytes = "cpu", "own part", 0, (8,)

    def __init__(self, lists: WeighedLists) -> None:
        self._lists, self.num_rows, self.stats = lists, lists.num_edges, TierStats()

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read."""
        check_rows(self, rows)
        return Deferred(lambda: self._copy(rows, outs[0], places))

    def _copy(self, rows: np.ndarray, out: np.ndarray, places: np.ndarray) -> int:
        started, sums = time.perf_counter(), self._lists.csc().sums
        assert sums is not None
        out.view("<i8")[places] = sums[rows]
        self.stats.add(rows.size, 8 * rows.size, time.perf_counter() - started)
        return 8 * rows.size


class RemoteDraws:
    """Draws by weight among the lists of all parts.

    Args:
        own: the lists of this part. number: of the table of draws.
        peers: part -> whom this process asks; None for its own.
    """

    def __init__(self, own: WeighedLists, number: int, peers: Sequence[Peer | None]) -> None:
        self._own, self._number, self._peers = own, number, peers

    @property
    def resident_bytes(self) -> int:
        """Memory of the sums of this part."""
        return self._own.resident_bytes

    def draw(self, how: Draw, lists: Frontier, offsets: np.ndarray, make_room: MakeRoom) -> np.ndarray:
        """int64[m] positions, list after list; sets `offsets`, see `penstock.sample.draws.draw_positions`."""
        nodes, shares = lists.nodes, self._own.shares
        total, bad = weighted.bound_neighbors(shares.indptr, shares.num_rows, nodes, how.fanout, how.replace)
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
        """(which of the lists, their slots) of each part: all are asked before anybody is waited for."""
        owners, asked, found = self._own.shares.book.owners(lists.nodes), list[tuple[np.ndarray, Asked]](), []
        try:
            for part, peer in enumerate(self._peers):
                at = np.flatnonzero((owners == part) & (most > 0))
                if peer is not None and at.size:
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
    return Frontier(lists.nodes[at], None if lists.copies is None else lists.copies[at])


def _places(ends: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """int64[counts.sum()]: the places that end at int64[n] `ends`, so many of each."""
    return np.repeat(ends - np.cumsum(counts), counts) + np.arange(int(counts.sum()))
