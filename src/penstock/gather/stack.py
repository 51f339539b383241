"""Stacks of tiers: the tiers below a tier, and reads that bypass caches.

In: the topmost tier. A cached or spooled tier names the tier below it `slow`. Out: tiers. The upper of two caches sees all reads; the lower
one sees only the misses of the upper one, as in a simulation.
"""

from __future__ import annotations

import copy
from typing import Any

from penstock.store.tiers import Tier


def stack_of(tier: Tier | None) -> list[Tier]:
    """Return a tier and all tiers below it, from the top down; [] for None."""
    found = []
    while tier is not None:
        found.append(tier)
        tier = getattr(tier, "slow", None)
    return found


def around(tier: Any) -> Any:
    """Return a stack of the same rows without dynamic caches and spools: a read would change the state of these."""
    slow = getattr(tier, "slow", None)
    if slow is None:
        return tier
    beneath = around(slow)
    if not getattr(tier, "is_static", True):
        return beneath
    if beneath is slow:
        return tier
    past = copy.copy(tier)  # shares content and counts with the original
    past.slow = beneath
    return past
