"""Stable grouping of records by key, in passes: count the keys, take a position for each record, move the columns there."""
