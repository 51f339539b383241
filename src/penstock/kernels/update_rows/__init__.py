"""A keyed random permutation of [0, n), one element at a time."""
