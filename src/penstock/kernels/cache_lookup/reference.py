"""The directory of a cache, looked up for a batch of ids: the definition."""

from __future__ import annotations

import numpy as np


def lookup(ids, slots):
    """Return int32[n]: the slot of each of ids int64[n], -1 where `slots` int32[num_nodes] is negative."""
    return np.array([max(int(slots[node]), -1) for node in ids], dtype=np.int32)


def lies_inside(ids, num_nodes):
    """Whether all ids int64[n] lie in [0, num_nodes)."""
    return all(0 <= int(node) < num_nodes for node in ids)
