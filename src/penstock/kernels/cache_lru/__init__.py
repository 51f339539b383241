"""Least recently used, over a batch of ids."""
