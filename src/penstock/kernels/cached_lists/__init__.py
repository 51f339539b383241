"""Sampled neighbours out of lists that are kept in memory; what is not kept is told."""
