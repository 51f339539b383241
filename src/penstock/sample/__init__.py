"""Samplers: which nodes and edges belong to a batch of seeds. NumPy in, NumPy out; the user's framework begins above."""

from penstock.sample.neighbor import NeighborSampler, Workspace

__all__ = ["NeighborSampler", "Workspace"]
