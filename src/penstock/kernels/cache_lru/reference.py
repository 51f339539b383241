"""Least recently used: the definition."""

from __future__ import annotations


class Model:
    """The row that was not asked for during the longest time leaves."""

    def __init__(self, capacity):
        self.capacity, self.stack = capacity, []

    def fill(self, ids):
        """Start with ids, best first, as if they had been asked for from the worst to the best."""
        self.stack = list(ids[: self.capacity])[::-1]

    def access(self, node):
        """Ask for one id; returns whether it hits."""
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
