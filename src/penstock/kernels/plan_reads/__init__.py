"""Which pages of a file to read for given rows."""
