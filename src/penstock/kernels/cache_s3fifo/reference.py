"""S3-FIFO: the definition. Source: Yang et al., FIFO queues are all you need for cache eviction (SOSP'23), Algorithm 1 and 4.2.

An id is in the ghost queue while it is one of the last `ghost_size` ids that entered it and has not come back to the cache since.
"""

from __future__ import annotations

from collections import deque

MOST = 3
"""Hits of a row are counted up to this."""


def share_out(capacity):
    """Return (rows of the small queue, rows of the main queue): a tenth of the capacity, and the rest. The ghost queue has as many ids as
    the main queue has rows."""
    small = min(max(capacity // 10, 1), capacity)
    return small, capacity - small


class Model:
    """New rows enter a small queue. Rows that are hit twice there, or come back soon after they left it, go to the main queue."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.small_size, self.ghost_size = share_out(capacity)
        self.small, self.main, self.hits = deque(), deque(), {}
        self.ghost = deque(maxlen=self.ghost_size)

    def fill(self, ids):
        """Start with these ids as content, best first: the best in the main queue, the worst of each queue at its front."""
        ids = list(ids[: self.capacity])
        self.main, self.small = deque(ids[: self.ghost_size][::-1]), deque(ids[self.ghost_size :][::-1])
        self.hits = dict.fromkeys(ids, 0)

    def access(self, node):
        """Request one id. Returns whether it hits."""
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
