"""How many pages of a file hold given rows, and in how many runs."""
