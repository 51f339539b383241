"""For each node, the neighbour through which it is read most often."""
