"""Belady's policy over a window of coming batches."""
