"""The orders of a study: those of training, and one that is a bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.order import ORDERS as TRAINED
from penstock.order import Order, order_by_name, proximity_order
from penstock.records import Graph, NodeType

ORDERS = (*TRAINED, "one-sequence")
"""one-sequence is the bound: neighbours follow neighbours, but batches are not mixed enough for training."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """The seeds that an order arranges.

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


def make_order(name: str, seeds: Seeds) -> Order:
    """Make the order with a given name."""
    of = seeds.graph, (seeds.node_type, seeds.ids), seeds.labels
    if name == "one-sequence":
        return proximity_order(*of, seed=seeds.seed, batch_size=seeds.batch_size, num_sequences=1)
    return order_by_name(name, *of, seed=seeds.seed, batch_size=seeds.batch_size)
