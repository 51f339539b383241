"""One hop of neighbour sampling over one edge type, by random numbers that all lists share."""
