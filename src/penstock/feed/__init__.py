"""Feed: from an order of seeds to PyG batches, made ahead by threads."""

from penstock.feed.digest import digest
from penstock.feed.hgt_loader import HGTLoader
from penstock.feed.layers import Layer, TypedLayer, layers
from penstock.feed.link_loader import LinkNeighborLoader
from penstock.feed.neighbor_loader import NeighborLoader
from penstock.feed.padding import Padding
from penstock.feed.recorded import RecordedStep
from penstock.sample.walks import Walks

__all__ = [
    "HGTLoader",
    "Layer",
    "LinkNeighborLoader",
    "NeighborLoader",
    "Padding",
    "RecordedStep",
    "TypedLayer",
    "Walks",
    "digest",
    "layers",
]
