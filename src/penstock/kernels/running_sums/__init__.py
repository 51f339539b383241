"""Weights of edges as integers, as running sums within each neighbour list."""
