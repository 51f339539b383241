"""Plan which pages of a file to read for given rows."""
