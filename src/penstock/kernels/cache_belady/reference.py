"""Belady's policy over a window of coming batches: the definition, which searches the window for every row.

Source: Belady 1966; Ginex (VLDB'22) 3.4: of the cache's content and the batch, keep the rows whose next use is nearest.
"""

from __future__ import annotations

from collections import deque


class Model:
    """A row is worth more the nearer its next use in the window. Any row with a use is worth more than a row without; rows without one
    are worth more the higher their class.

    Among rows of one class without a use, a resident row is worth more than one that is not resident. Of the residents, the one requested
    last is worth most; within a batch, hits count as requested before misses.
    """

    def __init__(self, capacity, classes):
        self.capacity, self.classes = capacity, classes
        self.window, self.rows, self.now, self.time = deque(), {}, 0, 0

    def fill(self, ids):
        """Start with these ids as content, best first."""
        for node in list(ids[: self.capacity])[::-1]:
            self._value(node)

    def announce(self, ids):
        """Add a batch to the window."""
        self.window.append(list(ids))
        for node in ids:
            if node in self.rows and self._worth(node) > self.rows[node]:
                self._value(node)

    def access(self, ids):
        """Request the oldest batch of the window. Returns whether each id hits."""
        self.window.popleft()
        self.now += 1
        hits = [node in self.rows for node in ids]
        for node, is_hit in zip(ids, hits, strict=True):
            if is_hit:
                self._value(node)
        for node, is_hit in zip(ids, hits, strict=True):
            if is_hit or not self.capacity:
                continue
            if len(self.rows) == self.capacity:
                worst = min(self.rows, key=self.rows.__getitem__)
                if self._worth(node) <= self.rows[worst]:
                    continue
                del self.rows[worst]
            self._value(node)
        return hits

    def _worth(self, node):
        """(0, class, 0) if the node has no use in the window, else (1, -number of the batch of its next use, -place in that batch)."""
        for distance, batch in enumerate(self.window):
            if node in batch:
                return 1, -(self.now + distance), -batch.index(node)
        return 0, self.classes[node], 0

    def _value(self, node):
        self.time += 1
        is_used, worth, place = self._worth(node)
        self.rows[node] = (is_used, worth, place if is_used else self.time)

    def content(self):
        """The resident ids."""
        return set(self.rows)
