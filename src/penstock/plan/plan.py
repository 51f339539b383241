"""A plan: in which order seeds come, where rows live, what is kept in faster memory, and how far the pipeline looks ahead.

A recipe is a plan that has a name: a system of the papers as a setting of this machine, never a code path of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.cache.choose import POLICIES
from penstock.errors import UsageError, argument
from penstock.plan.capacity import parse_capacity, slow_options

ORDERS = ("random", "proximity", "community", "sequential")
FEATURES = ("given", "memory", "disk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a loader is fed.

    Attributes:
        recipe: name it came from, for reports.
        order: of the seeds.
        features: where rows are read from: "given" leaves them (a store's are mapped files), "memory" reads them in at the start, "disk"
            reads them past the page cache, by many requests at once (see `store.tiers.DiskTier`).
        policy: which rows are kept in memory above that; None keeps none.
        cache: how many: "10%" of the rows of each type, "2GiB" with all that the policy needs, or "5000 rows".
        window: batches that a policy which looks ahead is told of.
        presample_epochs: epochs sampled to find out what is hot.
        slow: a device to be played beneath the cache: "1GB/s,100us" (see `slow_options`); None for none.
    """

    recipe: str = "custom"
    order: str = "random"
    features: str = "given"
    policy: str | None = None
    cache: str = "0"
    window: int = 16
    presample_epochs: int = 1
    slow: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name, allowed in (("order", ORDERS), ("features", FEATURES)):
            if getattr(self, name) not in allowed:
                raise UsageError(f"{argument(name)} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}")
        if self.policy is not None and self.policy not in POLICIES:
            raise UsageError(f"{argument('policy')} must be one of {', '.join(POLICIES)}; got {self.policy!r}")
        if self.window < 1 or self.presample_epochs < 1:
            raise UsageError(f"{argument('window')} and presample_epochs must be at least 1")
        parse_capacity(self.cache)
        if self.slow is not None:
            slow_options(self.slow)

    @property
    def is_plain(self) -> bool:
        """Nothing stands between the loader and the arrays."""
        return self.policy is None and self.features == "given" and self.slow is None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
