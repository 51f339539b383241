"""Orders: which seeds are in batch `index` of an epoch. They are pure functions of (seed, epoch, index), so a state is a few integers."""

from penstock.order.by_name import NEAR, ORDERS, order_by_name
from penstock.order.orders import FirstBatches, GivenOrder, GivenPass, LocalOrder, Order, RandomOrder, SequentialOrder
from penstock.order.proximity import ProximityOrder, proximity_order

__all__ = [
    "NEAR",
    "ORDERS",
    "FirstBatches",
    "GivenOrder",
    "GivenPass",
    "LocalOrder",
    "Order",
    "ProximityOrder",
    "RandomOrder",
    "SequentialOrder",
    "order_by_name",
    "proximity_order",
]
