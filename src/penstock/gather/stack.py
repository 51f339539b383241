"""Stacks of tiers: what lies beneath what, and the way past caches.

In: the topmost tier; a tier that asks another has it as `slow`. Out: tiers. A cache with another one beneath it sees all reads, and the one
beneath sees what the upper one misses: nothing else, or it would not be what a simulation says of it.
"""

from __future__ import annotations

import copy
from typing import Any

from penstock.store.tiers import Tier


def stack_of(tier: Tier | None) -> list[Tier]:
    """A tier and those beneath it."""
    found = []
    while tier is not None:
        found.append(tier)
        tier = getattr(tier, "slow", None)
    return found


def around(tier: Any) -> Any:
    """The same rows, read past every cache of the stack that reads would change."""
    slow = getattr(tier, "slow", None)
    if slow is None:
        return tier
    beneath = around(slow)
    if not getattr(tier, "is_static", True):
        return beneath
    if beneath is slow:
        return tier
    past = copy.copy(tier)  # with the same content and the same counts
    past.slow = beneath
    return past
