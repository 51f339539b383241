"""CLOCK: the definition. A queue; when room is needed, a marked row at the front loses its mark and goes to the back."""

from __future__ import annotations

from collections import deque


class Model:
    """Rows enter unmarked; a hit marks its row; the first unmarked row from the front leaves."""

    def __init__(self, capacity):
        self.capacity, self.queue, self.marked = capacity, deque(), set()

    def fill(self, ids):
        """Start with these ids as content, best first: the worst is at the front."""
        self.queue = deque(list(ids[: self.capacity])[::-1])

    def access(self, node):
        """Request one id. Returns whether it hits."""
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
