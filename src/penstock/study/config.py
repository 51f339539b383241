"""The settings of a study of caches."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.cache.choose import POLICIES
from penstock.errors import UsageError, argument
from penstock.plan.capacity import parse_capacity
from penstock.plan.settings import check_positive, settle, show
from penstock.store import parse_bytes
from penstock.study.orders import ORDERS

TWICE = "presample-2"
ORACLE = "oracle"
PLAIN = "belady-plain"
SUPERBATCH = "superbatch"
STUDIED = (*POLICIES, TWICE, ORACLE, PLAIN, SUPERBATCH)
"""presample-2: ranked by two sampled epochs, not one (GNNLab's PreSC#2). oracle: the best static content, from the measured accesses
themselves. belady-plain: Belady without hotness as a tie-break. superbatch: Belady to which a whole window of batches is announced at once,
and the next window only when it is used up (Ginex)."""

LOOK_AHEAD = ("belady", PLAIN, SUPERBATCH)
ALL = 0
"""A window over all batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStudy:
    """Settings of a study.

    Attributes:
        num_neighbors: fanout of each hop, element 0 next to the seeds.
        batch_size: seeds per batch.
        orders, policies: names, of ORDERS and STUDIED.
        capacities: shares ("10%"), rows ("5000 rows") or bytes ("2GiB").
        windows: batches that look-ahead policies know, including the current one; ALL for every batch.
        epochs: number of measured epochs. One more is simulated before them to warm the caches, and not counted.
        train_fraction: share of all nodes, drawn at random, to use as seeds in place of a split; None: use the split.
        split: name of the split; None for the only one.
        seed_type, node_type: the types of the train nodes and of the rows; None if there is only one.
        row_bytes: bytes of a row; None: those of field x.
        weight: edge field by which neighbours are drawn; None: uniformly.
        memory: bound on the recorded accesses, and on Belady's state.
        seed: of everything random.
    """

    num_neighbors: tuple[int, ...] = (15, 10)
    batch_size: int = 1024
    orders: tuple[str, ...] = ("random",)
    policies: tuple[str, ...] = ("random", "degree", "presample", "oracle", "fifo", "lru", "belady")
    capacities: tuple[str, ...] = ("1%", "5%", "10%", "20%")
    windows: tuple[int, ...] = (16, ALL)
    epochs: int = 2
    train_fraction: float | None = None
    split: str | None = None
    seed_type: str | None = None
    node_type: str | None = None
    row_bytes: int | None = None
    weight: str | None = None
    memory: str | int = "2GiB"
    seed: int = 0

    def __post_init__(self) -> None:
        settle(self)
        for what, chosen, known in (("orders", self.orders, ORDERS), ("policies", self.policies, STUDIED)):
            unknown = [name for name in chosen if name not in known]
            if unknown or not chosen:
                raise UsageError(f"{argument(what)} must be one of {', '.join(known)}; got {unknown[0] if unknown else 'none'!r}")
        for text in self.capacities:
            parse_capacity(text, "capacities")
        parse_bytes(self.memory)
        check_positive(self, "batch_size", "epochs", "row_bytes")
        if not self.capacities:
            raise UsageError(f"{argument('capacities')} must be one or more, for instance 10%")
        if any(window < 0 for window in self.windows) or (not self.windows and set(self.policies) & set(LOOK_AHEAD)):
            raise UsageError(f"{argument('windows')} must be numbers of batches, at least 1, or {ALL} for all; got {self.windows}")
        if self.train_fraction is not None and not 0 < self.train_fraction <= 1:
            raise UsageError(f"{argument('train_fraction')} is a share of the nodes, above 0 and at most 1; got {self.train_fraction}")

    __repr__ = show

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)
