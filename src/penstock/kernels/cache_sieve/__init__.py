"""SIEVE over a batch of ids."""
