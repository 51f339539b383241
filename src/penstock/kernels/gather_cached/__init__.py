"""Rows by id, out of a cache where they are in it."""
