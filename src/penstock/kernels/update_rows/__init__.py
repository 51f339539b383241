"""A step of Adam over some rows of a table."""
