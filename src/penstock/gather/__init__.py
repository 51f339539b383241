"""Gather: ids -> rows. Copies rows from the tiers that hold them into given memory."""

from penstock.gather.cached import CachedTier
from penstock.gather.device_rows import DeviceTable
from penstock.gather.fused import FusedCache
from penstock.gather.rows import RowTable
from penstock.gather.seats import Seat, shard_seat_of_group, shard_seats
from penstock.gather.shard_peers import ShardGroup
from penstock.gather.sharded import ShardedCache, open_shards
from penstock.gather.spooled import SpooledTier
from penstock.gather.table import RowKind, RowsUnderWay, TieredTable, sizes_of

__all__ = [
    "CachedTier",
    "DeviceTable",
    "FusedCache",
    "RowKind",
    "RowTable",
    "RowsUnderWay",
    "Seat",
    "ShardGroup",
    "ShardedCache",
    "SpooledTier",
    "TieredTable",
    "open_shards",
    "shard_seat_of_group",
    "shard_seats",
    "sizes_of",
]
