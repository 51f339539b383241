"""Fit: one budget of host memory, divided by a short profile among caches, look-ahead and batches."""

from penstock.feed.fit.device import device_use
from penstock.feed.fit.memory import Fitted, fit_memory

__all__ = ["Fitted", "device_use", "fit_memory"]
