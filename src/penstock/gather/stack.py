"""Stacks of tiers: the tiers below a tier, and reads that bypass caches.

In: the topmost tier; a tier that reads from another has it as its `slow`. Out: tiers. Of two caches, the upper one sees all reads, and the
lower one only what the upper one misses, so that it behaves as in a simulation.
"""

from __future__ import annotations

import copy
from typing import Any

from penstock.store.tiers import Tier


def stack_of(tier: Tier | None) -> list[Tier]:
    """Yield a tier and those below it."""
    found = []
    while tier is not None:
        found.append(tier)
        tier = getattr(tier, "slow", None)
    return found


def around(tier: Any) -> Any:
    """Return a stack of the same rows without dynamic caches and spools, whose state reads would change."""
    slow = getattr(tier, "slow", None)
    if slow is None:
        return tier
    beneath = around(slow)
    if not getattr(tier, "is_static", True):
        return beneath
    if beneath is slow:
        return tier
    past = copy.copy(tier)  # it shares content and counts
    past.slow = beneath
    return past
