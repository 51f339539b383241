"""A set of ids by 128 bits of hash, to let each id through once."""
