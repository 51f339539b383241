"""Least recently used: the definition."""

from __future__ import annotations


class Model:
    """The row whose last request is longest ago leaves."""

    def __init__(self, capacity):
        self.capacity, self.stack = capacity, []

    def fill(self, ids):
        """Start with these ids as content, best first, as if each had been requested, from the worst to the best."""
        self.stack = list(ids[: self.capacity])[::-1]

    def access(self, node):
        """Request one id. Returns whether it hits."""
        is_hit = node in self.stack
        if is_hit:
            self.stack.remove(node)
        elif self.capacity and len(self.stack) == self.capacity:
            del self.stack[0]
        if self.capacity:
            self.stack.append(node)
        return is_hit

    def content(self):
        """The resident ids."""
        return set(self.stack)
