"""A set of ids, as hashes of 128 bits, that lets each id through once."""
