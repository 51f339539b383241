"""Edges of a randomised Kronecker product of a small graph and a large one."""
