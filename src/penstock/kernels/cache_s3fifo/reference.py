"""S3-FIFO: the definition. Source: Yang et al., FIFO queues are all you need for cache eviction (SOSP'23), Algorithm 1 and 4.2.

An id is in the ghost queue while it is among the last `ghost_size` ids that went there and did not come back.
"""

from __future__ import annotations

from collections import deque

MOST = 3
"""Hits are counted up to this."""


def share_out(capacity):
    """Return (rows of the small queue, rows of the main queue and ids of the ghost queue): a tenth, and what is left."""
    small = min(max(capacity // 10, 1), capacity)
    return small, capacity - small


class Model:
    """New rows enter a small queue; those hit twice there, and those that come back soon after leaving it, go to the main queue."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.small_size, self.ghost_size = share_out(capacity)
        self.small, self.main, self.hits = deque(), deque(), {}
        self.ghost = deque(maxlen=self.ghost_size)

    def fill(self, ids):
        """Start with ids, best first: the best in the main queue, the worst at the front of each."""
        ids = list(ids[: self.capacity])
        self.main, self.small = deque(ids[: self.ghost_size][::-1]), deque(ids[self.ghost_size :][::-1])
        self.hits = dict.fromkeys(ids, 0)

    def access(self, node):
        """Ask for one id; returns whether it hits."""
        if node in self.hits:
            self.hits[node] = min(self.hits[node] + 1, MOST)
            return True
        if self.capacity:
            if len(self.hits) == self.capacity:
                self._evict()
            if node in self.ghost:
                self.ghost[self.ghost.index(node)] = None
                self.main.append(node)
            else:
                self.small.append(node)
            self.hits[node] = 0
        return False

    def _evict(self):
        """Make room for one row."""
        while True:
            if len(self.small) >= self.small_size:
                node = self.small.popleft()
                if self.hits[node] <= 1:
                    del self.hits[node]
                    self.ghost.append(node)
                    return
                self.hits[node] = 0
                self.main.append(node)
            else:
                node = self.main.popleft()
                if self.hits[node] == 0:
                    del self.hits[node]
                    return
                self.hits[node] -= 1
                self.main.append(node)

    def content(self):
        """The resident ids."""
        return set(self.hits)
