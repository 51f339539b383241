"""Passes over the edges of a batch: destinations from row pointers and the user's edge numbers."""
