"""Orders by name, as used by plans, trainings and studies. A new order is a line here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.order.orders import Order, RandomOrder, SequentialOrder
from penstock.order.proximity import proximity_order, read_seeds
from penstock.records import NodeType

PLAIN: dict[str, Callable[[int, int], Order]] = {
    "random": RandomOrder,
    "sequential": lambda num_seeds, seed: SequentialOrder(num_seeds),
}
"""(number of seeds, seed) -> the order."""

NEAR: dict[str, Callable[..., Order]] = {
    "proximity": proximity_order,
    "community": partial(proximity_order, by_community=True),
}
"""Orders that depend on the graph and the ids of the seeds: (a `Graph`, (node type, int64 ids), labels or None, *, seed, batch_size) -> the
order."""

SPLIT = "split"
"""Name of the order that follows the parts of a partition; loaders make it, see `penstock.feed.arguments.choose_order`."""

ORDERS = (*PLAIN, *NEAR)


def order_by_name(
    name: str, graph: Any, seeds: tuple[NodeType, Any], labels: np.ndarray | None = None, *, seed: int, batch_size: int
) -> Order:
    """Make the order with a given name; arguments as for `proximity_order`. Orders that are not in `NEAR` use only the number of seeds and
    `seed`. Raises UsageError for an unknown name."""
    if name in PLAIN:
        return PLAIN[name](len(seeds[1]), seed)
    if name in NEAR:
        graph, node_type, ids, labels = read_seeds(graph, seeds, labels)
        return NEAR[name](graph, (node_type, ids), labels, seed=seed, batch_size=batch_size)
    raise UsageError(f"order must be one of {', '.join(ORDERS)}; got {name!r}")
