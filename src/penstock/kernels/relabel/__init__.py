"""Compaction: global ids -> positions in the batch's list of nodes, in first-seen order."""
