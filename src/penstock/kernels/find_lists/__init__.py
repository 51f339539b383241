"""Find the node whose neighbour list contains a position."""
