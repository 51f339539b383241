"""Pad the hops of a sample to given sizes."""
