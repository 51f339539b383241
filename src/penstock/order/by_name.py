"""Orders by their names: what a plan, a training and a study call them. A new one is a line here."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.order.orders import Order, RandomOrder, SequentialOrder
from penstock.order.proximity import proximity_order
from penstock.records import NodeType

NEAR = ("proximity", "community")
"""Orders that look at the graph."""

SPLIT = "split"
"""That of a partition, which knows its parts: of a loader only."""

ORDERS = ("random", *NEAR, "sequential")


def order_by_name(
    name: str, graph: Any, seeds: tuple[NodeType, Any], labels: np.ndarray | None = None, *, seed: int, batch_size: int
) -> Order:
    """Make the order of that name; arguments as of `proximity_order`. Of orders that are not `NEAR`, only the number of seeds counts."""
    if name == "random":
        return RandomOrder(len(seeds[1]), seed)
    if name == "sequential":
        return SequentialOrder(len(seeds[1]))
    if name in NEAR:
        return proximity_order(graph, seeds, labels, seed=seed, batch_size=batch_size, by_community=name == "community")
    raise UsageError(f"order must be one of {', '.join(ORDERS)}; got {name!r}")
