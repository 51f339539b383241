"""Least frequently used: the definition. Requests are counted while a row is resident, up to `MOST`."""

from __future__ import annotations

MOST = 255
"""Counts stop here."""


class Model:
    """The row with the fewest requests since it entered leaves; among equals, the one whose last request is longest ago."""

    def __init__(self, capacity, most=MOST):
        self.capacity, self.most, self.rows, self.now = capacity, most, {}, 0

    def fill(self, ids):
        """Start with these ids as content, best first, as if each had been requested once, from the worst to the best."""
        for node in list(ids[: self.capacity])[::-1]:
            self.access(node)

    def access(self, node):
        """Request one id. Returns whether it hits."""
        self.now += 1
        is_hit = node in self.rows
        if not is_hit and self.capacity and len(self.rows) == self.capacity:
            del self.rows[min(self.rows, key=self.rows.__getitem__)]
        if self.capacity:
            accesses = self.rows[node][0] + 1 if is_hit else 1
            self.rows[node] = (min(accesses, self.most), self.now)
        return is_hit

    def content(self):
        """The resident ids."""
        return set(self.rows)
