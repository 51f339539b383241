"""Probability that nodes are sampled: one hop over one edge type."""
