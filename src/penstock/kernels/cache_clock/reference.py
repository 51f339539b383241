"""CLOCK: the definition. A queue whose front goes to the back, without its mark, if it was hit since it came there."""

from __future__ import annotations

from collections import deque


class Model:
    """Rows come in unmarked; a hit marks; the first unmarked row from the front leaves."""

    def __init__(self, capacity):
        self.capacity, self.queue, self.marked = capacity, deque(), set()

    def fill(self, ids):
        """Start with ids, best first: the worst is at the front."""
        self.queue = deque(list(ids[: self.capacity])[::-1])

    def access(self, node):
        """Ask for one id; returns whether it hits."""
        if node in self.queue:
            self.marked.add(node)
            return True
        if self.capacity:
            while len(self.queue) == self.capacity:
                front = self.queue.popleft()
                if front in self.marked:
                    self.marked.remove(front)
                    self.queue.append(front)
            self.queue.append(node)
        return False

    def content(self):
        """The resident ids."""
        return set(self.queue)
