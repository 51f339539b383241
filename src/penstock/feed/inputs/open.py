"""Which input it is that the user gave."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData

from penstock.errors import UsageError
from penstock.exchange import PartitionedGraph
from penstock.feed.inputs.arrays import StoreInput
from penstock.feed.inputs.base import Input
from penstock.feed.inputs.parts import PartsInput
from penstock.feed.inputs.pyg import PyGInput
from penstock.feed.inputs.remote import RemoteInput
from penstock.store import Store


def open_input(data: Any, *, is_sorted: bool, custom_cls: Callable[[], Any] | None = None, split: str | None = None) -> Input:
    """Choose the input for what the user gave."""
    if isinstance(data, (str, os.PathLike)) and not isinstance(data, Store):
        data = Store.open(data)
    if isinstance(data, Store):
        return StoreInput(data, split)
    if isinstance(data, PartitionedGraph):
        return PartsInput(data, split)
    if split is not None:
        raise UsageError("split names a split of a store; for other data give the ids or the mask as input_nodes")
    if isinstance(data, Input):
        return data
    if isinstance(data, (Data, HeteroData)):
        return PyGInput(data, is_sorted=is_sorted)
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], FeatureStore) and isinstance(data[1], GraphStore):
        return RemoteInput(*data, custom_cls=custom_cls)
    raise UsageError(
        "data must be a torch_geometric Data or HeteroData, a (FeatureStore, GraphStore) pair, a penstock Store or the path of one, or a "
        f"partition that was joined; got {type(data).__name__}"
    )
