"""Stable grouping of records by key, in passes: count the keys, assign a position to each record, move the columns there."""
