"""Random words for a range of indices: what generators draw from."""
