"""One hop of neighbour sampling over one edge type, by numbers that all lists share."""
