"""One hop of neighbour sampling over one edge type, by weight."""
