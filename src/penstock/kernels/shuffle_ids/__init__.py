"""A random permutation of [0, n) as a pure function of one id, and its inverse."""
