"""Gather: ids -> rows, from wherever the rows are, into a given place."""

from penstock.gather.cached import CachedTier
from penstock.gather.fused import FusedCache
from penstock.gather.on_device import DeviceTable
from penstock.gather.rows import RowTable
from penstock.gather.table import RowKind, RowsUnderWay, TieredTable

__all__ = ["CachedTier", "DeviceTable", "FusedCache", "RowKind", "RowTable", "RowsUnderWay", "TieredTable"]
