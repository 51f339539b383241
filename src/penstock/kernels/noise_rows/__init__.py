"""Rows of random features around the centre of their class."""
