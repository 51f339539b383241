"""A short fingerprint of a batch: equal batches, equal digests, on any machine.

In: a batch. Out: 16 hex digits over its node ids, edges and every feature, each with its name, dtype and shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xxhash
from torch_geometric.data import Data, HeteroData

from penstock.errors import UsageError
from penstock.feed.tensors import tensors_of


def digest(batch: Data | HeteroData) -> str:
    """Return 16 hex digits over all tensors of a batch, in the order of their names.

    Args:
        batch: on any device; what is on one is copied to the host.
    Raises:
        UsageError: something else than a batch.
    """
    if not isinstance(batch, (Data, HeteroData)):
        raise UsageError(f"digest takes a batch (Data or HeteroData), got {type(batch).__name__}")
    state = xxhash.xxh3_64()
    for store in sorted(batch.stores, key=lambda store: str(store._key)):
        for name in sorted(store.keys()):
            _update(state, f"{store._key}/{name}", store[name])
    return state.hexdigest()


def digest_of(value: Any) -> str:
    """Return 16 hex digits over one attribute of a batch."""
    state = xxhash.xxh3_64()
    _update(state, "", value)
    return state.hexdigest()


def _update(state: xxhash.xxh3_64, name: str, value: Any) -> None:
    if isinstance(value, torch.Tensor) and (value.layout is not torch.strided or value.is_quantized):
        state.update(f"{name}:{value.dtype}{value.layout}{list(value.shape)}".encode())
        for number, part in enumerate(tensors_of(value) if not value.is_quantized else (value.int_repr(),)):
            _update(state, f"{name}/{number}", part)
    elif isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
        state.update(f"{name}:{tensor.dtype}{list(tensor.shape)}".encode())
        if tensor.numel():
            state.update(tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data)
    elif isinstance(value, (int, float, str, bool)) or (isinstance(value, list) and _is_plain(value)):
        state.update(f"{name}:{value!r}".encode())
    elif isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        state.update(f"{name}:{value.dtype}{list(value.shape)}".encode())
        state.update(value.tobytes())
    elif isinstance(value, (list, tuple, dict)):  # the text of a tensor in them shows some of its elements, to four digits
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            _update(state, f"{name}/{key}", part)
    else:
        for number, part in enumerate(tensors_of(value)):
            _update(state, f"{name}/{number}", part)


def _is_plain(value: Any) -> bool:
    """Whether all of a value is in its text."""
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, (int, float, str, bool, type(None)))
