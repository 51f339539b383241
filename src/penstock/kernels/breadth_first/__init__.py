"""Breadth-first traversal over the undirected view of a graph of in-neighbour lists."""
