"""Order ids by the region of the table that their rows lie in."""
