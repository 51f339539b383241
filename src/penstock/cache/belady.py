"""Belady's policy over batches that are known in advance (Ginex 3.3, 3.4), with a window that slides by one batch at a time.

In: batches, announced in the order in which they are accessed later. Out: changes. Invariant: after every batch the cache holds the best
`capacity` rows among its previous content and the batch: those whose next use in the window is nearest, then the hottest ones.

This class owns the log of the window and the queues of rows without a use in it; the kernel fills and reads them.

Ginex' superbatch is the same policy with another caller: announce S batches, access all S, announce the next S. Towards the end of a
superbatch little is known of the future; `simulate(..., superbatch=True)` compares the two.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from penstock.cache.hotness import check_hotness
from penstock.cache.policy import Change, Policy, make_table
from penstock.errors import UsageError
from penstock.kernels.cache_belady import cpu as kernels

NUM_CLASSES = 32
"""Classes of hotness for rows without a use in the window."""

MAX_PLACE = (1 << 31) - 1
"""Largest place in the log before places are renumbered."""

_CHUNK = 1 << 20


class Belady(Policy):
    """Keeps the rows that are needed soonest. A miss that is worth no more than the worst kept row is not kept.

    Args:
        num_nodes, capacity: as for every policy.
        window: most batches that are announced but not accessed yet, at least 1.
        hotness: float or int[num_nodes]: ranks rows without a use in the window, by `NUM_CLASSES` classes of about equally many nodes;
            None: of these rows, the least recently used is evicted first. The array is not kept.
    Takes 8 bytes per node, 12 per row (23 while queues are squeezed), and 8 to 16 per use in the window.
    """

    name = "belady"
    node_numbers = 2
    most_rows = 1 << 29

    def __init__(self, num_nodes: int, capacity: int, window: int, hotness: np.ndarray | None = None) -> None:
        super().__init__(num_nodes, capacity)
        if window < 1:
            raise UsageError(f"belady needs a window of at least 1 batch, got {window}")
        self.window = window
        self._num_classes = 1
        if hotness is not None:
            self._num_classes = NUM_CLASSES
            np.invert(hotness_classes(check_hotness(hotness, num_nodes), NUM_CLASSES), out=self._directory[::2], dtype=np.int32)
        self._classes = make_table(self.num_slots if self._num_classes > 1 else 1, np.uint8)
        self._shift = max(3, min(10, self.num_slots.bit_length() - 7))
        self._chunks, self._ends = self._make_queues()
        self._log = _make_log(64)
        self._cursor = np.zeros(3, dtype=np.int64)
        self._announced: deque[tuple[int, int]] = deque()
        self._start, self._end = 0, 0

    @property
    def state_bytes(self) -> int:
        """Bytes of the directory and of all other state of the policy."""
        return super().state_bytes + sum(each.nbytes for each in self._log)

    def announce(self, ids: np.ndarray) -> None:
        """Add the next batch to the window: int64[n], distinct."""
        ids = self._checked(ids)
        if len(self._announced) == self.window:
            raise UsageError(f"belady: {self.window} batches are announced and not accessed yet, which is the whole window")
        self._touched = True
        self._make_room(ids.size)
        kernels.announce(ids, self._directory, *self._log, self._start, self._end)
        self._announced.append((ids.size, kernels.digest(ids)))
        self._end += ids.size

    def access(self, ids: np.ndarray) -> Change:
        """Look up the oldest announced batch, see `Policy.access`; ids in the order in which they were announced."""
        if not self._announced:
            raise UsageError("belady: no batch is announced; call announce(ids) before access(ids)")
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        if self._announced[0] != (ids.size, kernels.digest(ids)):
            raise UsageError("belady: this is not the oldest batch announced; batches are accessed in the order of their announcements")
        change = super().access(ids)
        self._start += self._announced.popleft()[0]
        return change

    def _make_room(self, count: int) -> None:
        """Make the log long enough for `count` more uses, and keep its places below 2**31."""
        size, needed = self._log[0].size, self._end - self._start + count
        is_counted_anew = self._end + count > MAX_PLACE
        settled = self._start if is_counted_anew or needed > size else self._end + count - size
        kernels.settle(*self._log[1:], self._cursor, settled, self._start)
        if is_counted_anew:
            shift = self._start - self._start % size
            kernels.count_anew(self._directory, self._log[1], shift)
            self._start, self._end = self._start - shift, self._end - shift
            self._cursor[kernels.SETTLED] -= shift
        if needed > size:
            grown = _make_log(1 << (needed - 1).bit_length())
            kernels.copy_window(self._start, self._end, *self._log, *grown)
            self._log = grown

    def _make_queues(self) -> tuple[np.ndarray, np.ndarray]:
        """Make empty queues of 11 entries for every 4 rows, so that a batch may add as many entries as there are rows before a squeeze."""
        num_chunks = (11 * self.num_slots >> 2 + self._shift) + 2 * self._num_classes
        chunks, ends = make_table(num_chunks * ((1 << self._shift) + 2), np.int32), np.empty(2 * self._num_classes + 1, np.int64)
        ends[:-1] = np.repeat(np.arange(self._num_classes) << self._shift, 2)
        ends[-1] = num_chunks - self._num_classes
        chunks[num_chunks * ((1 << self._shift) + 1) :][: ends[-1]] = np.arange(self._num_classes, num_chunks)[::-1]
        return chunks, ends

    def _fill(self, ids: np.ndarray) -> None:
        classes = -1 - self._directory[2 * ids]
        self._classes[: ids.size] = classes[: self._classes.size]
        kernels.enqueue(ids[::-1].copy(), classes[::-1].copy(), self._directory, self._chunks, self._ends, self._shift)
        self._cursor[kernels.USED] = ids.size
        super()._fill(ids)

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        if int(self._ends[-1]) << self._shift < min(ids.size, self.num_slots) + (self._num_classes << self._shift):
            chunks, ends = self._make_queues()
            kernels.squeeze(self._num_classes, self._directory, self._chunks, self._ends, chunks, ends, self._shift)
            self._chunks, self._ends = chunks, ends
        (nodes, nexts, bits), queues = self._log, (self._chunks, self._ends, self._shift)
        num_missed = kernels.look_up(
            ids, self._directory, nexts, bits, self._classes, *queues, self._start, self._cursor, hit_slots, inserted, into
        )
        return kernels.insert(
            ids, self._directory, nodes, nexts, bits, self._classes, self.num_slots, *queues, self._num_classes, self._start, self._end,
            num_missed, self._cursor, inserted, into,
        )  # fmt: skip


def _make_log(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an empty log: nodes, places of next uses, bits."""
    return make_table(size, np.int32), make_table(size, np.int32), make_table(size // 64, np.uint64)


def hotness_classes(hotness: np.ndarray, num_classes: int) -> np.ndarray:
    """Return uint8[n]: classes in [0, num_classes), at most 256, higher for hotter nodes, equal for equal hotness.

    Each distinct hotness has its own class if there are few enough, else classes have about equally many nodes.
    """
    sample = hotness[:: max(hotness.size // 1_000_000, 1)]
    limits = np.unique(sample)[1:]
    if limits.size >= num_classes:
        limits = np.quantile(sample, np.arange(1, num_classes) / num_classes)
        side = "left"
    else:
        side = "right"
    classes = np.zeros(hotness.size, dtype=np.uint8)
    for first in range(0, hotness.size, _CHUNK):  # in pieces, since positions take eight bytes each
        classes[first : first + _CHUNK] = np.searchsorted(limits, hotness[first : first + _CHUNK], side=side)
    return classes
