"""Samplers: which nodes and edges belong to a batch of seeds. NumPy in and out, of a device torch's tensors; PyG begins above."""

from penstock.sample.neighbor import NeighborSampler
from penstock.sample.workspace import Workspace

__all__ = ["NeighborSampler", "Workspace"]
