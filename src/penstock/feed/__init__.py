"""Feed: from an order of seeds to PyG batches, made ahead by threads."""

from penstock.feed.digest import digest
from penstock.feed.layers import Layer, TypedLayer, layers
from penstock.feed.neighbor_loader import NeighborLoader

__all__ = ["Layer", "NeighborLoader", "TypedLayer", "digest", "layers"]
