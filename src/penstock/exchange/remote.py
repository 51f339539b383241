"""A tier whose rows are spread over the processes of a partition: those of this part in local memory, the others over the network.

In: rows, numbered as in the whole graph. Out: the rows, from their owners. Requests are sent to all owners when a read is submitted, and
own rows are copied while they answer. A cache above it keeps rows of other parts as for any slow tier. Source: DistDGLv2 5.4, BGL 3.2.3.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from penstock.exchange.peers import Asked, Peer
from penstock.exchange.tables import Table
from penstock.kernels.move_rows import cpu
from penstock.store.tiers import Read, TierStats
from penstock.store.tiers.tier import check_rows


class RemoteTier:
    """Rows of all parts.

    Args:
        table: of this part. number: of the table.
        part: number of this part.
        peers: part -> the process to ask for its rows; None for this process's own part.
    Attributes:
        stats: of rows of other parts only.
    """

    device, name, resident_bytes = "cpu", "remote", 0

    def __init__(self, table: Table, number: int, part: int, peers: Sequence[Peer | None]) -> None:
        own = table.tier()
        self.num_rows, self.row_bytes, self.stats = table.shares.num_rows, tuple(own.row_bytes), TierStats()
        self._table = table
        self._own = own
        self._number = number
        self._part = part
        self._peers = peers
        self.peers = {own.name: own.stats}

    def submit(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> Read:
        """Begin to read."""
        check_rows(self, rows)
        owners, asked = self._table.shares.owners(rows), list[tuple[Asked, np.ndarray]]()
        own = np.flatnonzero(owners == self._part)
        read = _RemoteRead(self, asked, (rows[own], outs, places[own]), time.perf_counter())
        try:
            for part, peer in enumerate(self._peers):
                if peer is not None and (at := np.flatnonzero(owners == part)).size:
                    asked.append((peer.ask(self._number, rows[at].astype(self._table.id_dtype)), places[at]))
        except BaseException:
            read.drop()
            raise
        return read

    def is_own(self, rows: np.ndarray) -> np.ndarray:
        """Return bool[n]: whether rows belong to this part."""
        return self._table.shares.owners(rows) == self._part

    def read_own(self, rows: np.ndarray, outs: Sequence[np.ndarray], places: np.ndarray) -> int:
        """Copy rows of this part."""
        return self._own.submit(self._table.shares.local(rows, self._part), outs, places).wait() if rows.size else 0


class _RemoteRead:
    """A read under way."""

    def __init__(
        self,
        tier: RemoteTier,
        asked: list[tuple[Asked, np.ndarray]],
        own: tuple[np.ndarray, Sequence[np.ndarray], np.ndarray],
        since: float,
    ) -> None:
        self._tier = tier
        self._asked = asked
        self._own = own
        self.since = since

    def wait(self) -> int:
        """Complete the read."""
        started, num_rows, num_bytes = time.perf_counter(), 0, 0
        try:
            own_bytes = self._tier.read_own(*self._own)
            while self._asked:
                asked, places = self._asked.pop(0)
                num_bytes += self._put(asked, places)
                num_rows += places.size
        finally:
            self.drop()
        if num_rows:
            self._tier.stats.add(num_rows, num_bytes, time.perf_counter() - started)
        return own_bytes + num_bytes

    def drop(self) -> None:
        """Drop all requests that are still under way."""
        while self._asked:
            self._asked.pop()[0].drop()

    def _put(self, asked: Asked, places: np.ndarray) -> int:
        """Write the rows of one owner to their places."""
        widths, row_bytes = self._tier.row_bytes, sum(self._tier.row_bytes)
        for first, rows in asked.pieces(places.size, row_bytes):
            to, begin = places[first : first + rows.size // max(row_bytes, 1)], 0
            for width, out in zip(widths, self._own[1], strict=True):
                cpu.move_rows(rows[begin:], np.arange(to.size), out, to, width)
                begin += to.size * width
        return places.size * row_bytes
