"""Count the edges that cross from one part of a graph to another, and the halo nodes that they come from."""
