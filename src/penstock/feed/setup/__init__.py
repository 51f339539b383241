"""Setup: what a loader is made of before its first batch, by its plan: tiers, caches, lists, and who draws samples."""

from penstock.feed.setup.device_cache import CacheToCome
from penstock.feed.setup.make import make_engine, make_maker
from penstock.feed.setup.shards import check_shards

__all__ = ["CacheToCome", "check_shards", "make_engine", "make_maker"]
