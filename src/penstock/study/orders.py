"""Orders by name. One line makes another one known to the study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.order import Order, RandomOrder, SequentialOrder, proximity_order
from penstock.records import Graph, NodeType


@dataclass(frozen=True, slots=True)
class Seeds:
    """What an order is over.

    Attributes:
        graph: of the seeds.
        node_type, ids: int64[num_seeds] of that type.
        labels: of all nodes of the type, or None.
        batch_size, seed: of the run.
    """

    graph: Graph
    node_type: NodeType
    ids: np.ndarray
    labels: np.ndarray | None
    batch_size: int
    seed: int


def _near(seeds: Seeds, **options: Any) -> Order:
    of_type = (seeds.node_type, seeds.ids)
    return proximity_order(seeds.graph, of_type, seeds.labels, seed=seeds.seed, batch_size=seeds.batch_size, **options)


ORDERS: dict[str, Callable[[Seeds], Order]] = {
    "random": lambda seeds: RandomOrder(seeds.ids.size, seeds.seed),
    "sequential": lambda seeds: SequentialOrder(seeds.ids.size),
    "proximity": _near,
    "community": lambda seeds: _near(seeds, by_community=True),
    "one-sequence": lambda seeds: _near(seeds, num_sequences=1),
}
"""one-sequence is a bound: neighbours follow neighbours, and batches are too little mixed to train on."""


def make_order(name: str, seeds: Seeds) -> Order:
    """Make the order of that name."""
    if name not in ORDERS:
        raise UsageError(f"order must be one of {', '.join(ORDERS)}; got {name!r}")
    return ORDERS[name](seeds)
