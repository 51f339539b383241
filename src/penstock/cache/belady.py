"""Belady's policy over the batches that are known in advance (Ginex 3.3, 3.4), with a window that slides by one batch at a time.

In: batches, announced in the order in which they are accessed later. Out: changes. Invariant: after every batch the content is the best
`capacity` rows of the content before and the batch: those whose next use in the window is nearest, then the hottest ones.

Ginex' superbatch is the same policy under another caller: announce S batches, access all S, announce the next S. Towards its end little
is known of the future; `simulate(..., superbatch=True)` compares the two.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from penstock.cache.hotness import check_hotness
from penstock.cache.lists import link_all, make_rows
from penstock.cache.policy import BasePolicy, Change
from penstock.errors import UsageError
from penstock.kernels.cache_belady import cpu as kernels

NUM_CLASSES = 32
"""Classes of hotness for rows without a use in the window."""

MAX_PLACE = (1 << 31) - 1
"""Places in the log before they are counted anew."""

_CHUNK = 1 << 20


class Belady(BasePolicy):
    """Keeps what is needed soonest. A miss that is worth no more than the worst row is not taken in.

    Args:
        num_nodes, capacity: as for every policy.
        window: batches that may be announced and not accessed yet, at least 1.
        hotness: float or int[num_nodes]: ranks rows without a use in the window, in classes of equal numbers of nodes; None: the one
            valued longest ago goes first. Not kept.
    8 bytes a node and 16 a row, and 4 to 8 for every use in the window.
    """

    name = "belady"

    def __init__(self, num_nodes: int, capacity: int, window: int, hotness: np.ndarray | None = None) -> None:
        super().__init__(num_nodes, capacity)
        if window < 1:
            raise UsageError(f"belady needs a window of at least 1 batch, got {window}")
        self.window = window
        self._num_classes = 1
        if hotness is not None:
            self._num_classes = NUM_CLASSES
            np.invert(hotness_classes(check_hotness(hotness, num_nodes), NUM_CLASSES), out=self.slots, dtype=np.int32)
        self._rows = make_rows(self.num_slots, self._num_classes + window + 1)
        self._last_use = np.full(num_nodes, -1, dtype=np.int32)
        self._log = np.empty(1, dtype=np.int32)
        self._cursor = np.zeros(1, dtype=np.int64)
        self._announced: deque[tuple[int, int]] = deque()
        self._start, self._end, self._now = 0, 0, 0

    def announce(self, ids: np.ndarray) -> None:
        """Add the next batch to the window: int64[n], distinct."""
        ids = self._checked(ids)
        if len(self._announced) == self.window:
            raise UsageError(f"belady: {self.window} batches are announced and not accessed yet, which is the whole window")
        self._touched = True
        self._make_room(ids.size)
        use_list = self._list_of(self._now + len(self._announced))
        rows = self._rows.reshape(-1)
        kernels.announce(ids, self.slots, self._last_use, self._log, rows, self._start, self._end, use_list, self.num_slots)
        self._announced.append((ids.size, kernels.digest(ids)))
        self._end += ids.size

    def access(self, ids: np.ndarray) -> Change:
        """Ask for the oldest batch announced; ids as they were announced."""
        if not self._announced:
            raise UsageError("belady: no batch is announced; call announce(ids) before access(ids)")
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if self._announced[0] != (ids.size, kernels.digest(ids)):
            raise UsageError("belady: this is not the oldest batch announced; batches are accessed in the order of their announcements")
        change = super().access(ids)
        self._start += self._announced.popleft()[0]
        self._now += 1
        return change

    def _list_of(self, batch: int) -> int:
        return self._num_classes + batch % (self.window + 1)

    def _make_room(self, count: int) -> None:
        """Make the log long enough for `count` more uses, and its places fit into 31 bits."""
        if self._end + count > MAX_PLACE:
            shift = self._start - self._start % self._log.size
            kernels.renew_places(self._last_use, shift)
            self._start, self._end = self._start - shift, self._end - shift
        needed = self._end - self._start + count
        if needed > self._log.size:
            grown = np.empty(1 << (needed - 1).bit_length(), dtype=np.int32)
            places = np.arange(self._start, self._end)
            grown[places % grown.size] = self._log[places % self._log.size]
            self._log = grown

    def _fill(self, ids: np.ndarray) -> None:
        self._rows[: ids.size, 2], self._rows[: ids.size, 3] = ids, -1 - self.slots[ids]
        for number in range(self._num_classes):
            link_all(self._rows, self.num_slots + number, np.flatnonzero(self._rows[: ids.size, 3] == number))
        self._cursor[0] = ids.size
        super()._fill(ids)

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        state = ids, self.slots, self._log, self._rows.reshape(-1), self.num_slots, self._start, self._list_of(self._now)
        num_missed = kernels.look_up(*state, hit_slots, inserted, into)
        return kernels.insert(*state, self._num_classes, num_missed, self._cursor, inserted, into)


def hotness_classes(hotness: np.ndarray, num_classes: int) -> np.ndarray:
    """Return uint8[n], below `num_classes` (256 at most), hotter ones higher, equal hotness, equal class.

    A class for every number where there are no more numbers than that, else classes of about equal numbers of nodes.
    """
    sample = hotness[:: max(hotness.size // 1_000_000, 1)]
    limits = np.unique(sample)[1:]
    if limits.size >= num_classes:
        limits = np.quantile(sample, np.arange(1, num_classes) / num_classes)
        side = "left"
    else:
        side = "right"
    classes = np.zeros(hotness.size, dtype=np.uint8)
    for first in range(0, hotness.size, _CHUNK):  # in pieces: positions are eight bytes each
        classes[first : first + _CHUNK] = np.searchsorted(limits, hotness[first : first + _CHUNK], side=side)
    return classes
