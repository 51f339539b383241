"""Least frequently used, over a batch of ids."""
