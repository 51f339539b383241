"""Belady's policy over a window of batches to come."""
