"""First in, first out: the definition."""

from __future__ import annotations

from collections import deque


class Model:
    """The oldest row leaves."""

    def __init__(self, capacity):
        self.capacity, self.queue = capacity, deque()

    def fill(self, ids):
        """Start with these ids as content, best first: the worst is the oldest."""
        self.queue = deque(list(ids[: self.capacity])[::-1])

    def access(self, node):
        """Request one id. Returns whether it hits."""
        if node in self.queue:
            return True
        if self.capacity:
            if len(self.queue) == self.capacity:
                self.queue.popleft()
            self.queue.append(node)
        return False

    def content(self):
        """The resident ids."""
        return set(self.queue)
