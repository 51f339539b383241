"""What attributes of a graph or a batch are made of: the tensors in sparse ones, in frames of torch_frame, in lists and in objects.

In: any value. Out: its dense tensors, always in the same order. torch_frame is not imported: PyG says what its `TensorFrame` is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch_geometric.typing import TensorFrame  # pyright: ignore[reportAttributeAccessIssue]


def is_frame(value: Any) -> bool:
    """Whether a value is a frame of torch_frame: a table with a row for each node or edge."""
    return isinstance(value, TensorFrame)


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield the dense tensors that a value is made of: of sparse ones, frames, lists, dicts, dataclasses (layers) and PyG's data."""
    parts: Any = ()
    if isinstance(value, torch.Tensor):
        if value.layout is torch.sparse_coo:
            parts = (value._indices(), value._values())
        elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = (value.crow_indices(), value.col_indices(), value.values())
        elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
            parts = (value.ccol_indices(), value.row_indices(), value.values())
        else:
            yield value
    elif isinstance(value, (tuple, list)):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    elif is_frame(value):
        parts = (value.feat_dict, value.y)
    elif isinstance(getattr(value, "offset", None), torch.Tensor):  # columns of a frame whose entries differ in length
        parts = (value.offset, value.values)
    elif hasattr(value, "stores"):
        parts = [list(store.values()) for store in value.stores]
    elif hasattr(storage := getattr(value, "storage", None), "_rowptr"):  # torch_sparse's SparseTensor
        parts = vars(storage).values()
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in fields(value)]
    for part in parts:
        yield from tensors_of(part)
