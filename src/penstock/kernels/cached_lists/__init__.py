"""Read sampled neighbours from the lists that a neighbour cache keeps, and report the misses."""
