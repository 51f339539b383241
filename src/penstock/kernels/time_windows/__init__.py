"""Neighbour lists in the order of time, and their windows: the part of a list up to a moment, and back to another."""
