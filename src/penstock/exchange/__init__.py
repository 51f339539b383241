"""Graphs whose parts are held by several processes, on one machine or on several."""

from penstock.exchange.join import PartitionedGraph, join
from penstock.exchange.remote import RemoteTier

__all__ = ["PartitionedGraph", "RemoteTier", "join"]
