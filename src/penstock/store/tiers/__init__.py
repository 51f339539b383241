"""Tiers: where rows live, and how they are read. Tiers only move bytes; which rows live where is decided elsewhere."""

from penstock.store.tiers.device import DeviceTier
from penstock.store.tiers.disk import DiskOptions, DiskStats, DiskTier
from penstock.store.tiers.disk_files import RowFile
from penstock.store.tiers.elements import Elements
from penstock.store.tiers.host import HostTier, MappedTier, advise_in_order, advise_random, is_map
from penstock.store.tiers.packed import PackedTier
from penstock.store.tiers.pinned import PinnedTier
from penstock.store.tiers.slow import Link, SlowTier
from penstock.store.tiers.tier import Deferred, Read, Tier, TierStats
from penstock.store.tiers.upload import UploadTier

__all__ = [
    "Deferred",
    "DeviceTier",
    "DiskOptions",
    "DiskStats",
    "DiskTier",
    "Elements",
    "HostTier",
    "Link",
    "MappedTier",
    "PackedTier",
    "PinnedTier",
    "Read",
    "RowFile",
    "SlowTier",
    "Tier",
    "TierStats",
    "UploadTier",
    "advise_in_order",
    "advise_random",
    "is_map",
]
