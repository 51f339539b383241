"""Gather the rows of a table by id."""
