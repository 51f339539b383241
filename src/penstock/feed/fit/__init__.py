"""Divide one budget of host memory among caches, look-ahead and batches, by a short profile."""

from penstock.feed.fit.device import device_use
from penstock.feed.fit.memory import Fitted, fit_memory
from penstock.feed.fit.room import check_room

__all__ = ["Fitted", "check_room", "device_use", "fit_memory"]
