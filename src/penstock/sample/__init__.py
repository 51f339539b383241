"""Samplers: which nodes and edges belong to a batch of seeds. NumPy in and out, torch tensors on a device; only packages above use PyG."""

from penstock.sample.neighbor import NeighborSampler
from penstock.sample.workspace import Workspace

__all__ = ["NeighborSampler", "Workspace"]
