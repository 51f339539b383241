"""Weights of edges as integers, summed up within each neighbour list."""
