"""Neighbour lists in the order of time, and the part of a list that is not later than a moment."""
