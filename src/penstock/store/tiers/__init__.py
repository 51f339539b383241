"""Tiers: where rows live, and how they are read. Bytes only; which rows live where is decided elsewhere."""

from penstock.store.tiers.host import HostTier, MappedTier
from penstock.store.tiers.packed import PackedTier
from penstock.store.tiers.slow import SlowTier
from penstock.store.tiers.tier import Deferred, Read, Tier, TierStats

__all__ = ["Deferred", "HostTier", "MappedTier", "PackedTier", "Read", "SlowTier", "Tier", "TierStats"]
