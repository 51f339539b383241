"""Gather rows by id, from a cache or the table beneath it."""
