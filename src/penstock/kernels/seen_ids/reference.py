"""A set of ids, as hashes of 128 bits: the definition."""

from __future__ import annotations

import numpy as np


def add_new(first, second, seen):
    """Add ids to a set and mark the new ones.

    Args:
        first, second: uint64[n] each, two independent hashes of each id. A first hash of 0 counts as 1.
        seen: set of pairs.
    Returns:
        (fresh uint8[n], seen): fresh is 1 if the id was neither in the set before nor earlier in this call.
    """
    seen, fresh = set(seen), np.zeros(first.size, dtype=np.uint8)
    for i, pair in enumerate(zip((max(int(h), 1) for h in first), map(int, second), strict=True)):
        fresh[i] = pair not in seen
        seen.add(pair)
    return fresh, seen
