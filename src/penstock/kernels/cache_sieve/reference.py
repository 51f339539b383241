"""SIEVE: the definition. Source: Zhang et al., SIEVE is simpler than LRU (NSDI'24), Algorithm 1."""

from __future__ import annotations


class Model:
    """A queue in order of arrival. A hand moves from the oldest row to the newest, removes marks and evicts the first unmarked row. From
    the newest it goes back to the oldest."""

    def __init__(self, capacity):
        self.capacity, self.queue, self.marked, self.hand = capacity, [], set(), 0

    def fill(self, ids):
        """Start with these ids as content, best first: the worst is the oldest."""
        self.queue = list(ids[: self.capacity])[::-1]

    def access(self, node):
        """Request one id. Returns whether it hits."""
        if node in self.queue:
            self.marked.add(node)
            return True
        if self.capacity:
            if len(self.queue) == self.capacity:
                self._evict()
            self.queue.append(node)
        return False

    def _evict(self):
        while self.queue[self.hand] in self.marked:
            self.marked.remove(self.queue[self.hand])
            self.hand = (self.hand + 1) % len(self.queue)
        del self.queue[self.hand]
        if self.hand == len(self.queue):  # the newest has left, before another one enters
            self.hand = 0

    def content(self):
        """The resident ids."""
        return set(self.queue)
