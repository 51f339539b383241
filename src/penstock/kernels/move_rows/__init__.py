"""Rows of one table to places in another."""
