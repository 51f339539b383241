"""Ids in the order of the regions of a table that they lie in."""
