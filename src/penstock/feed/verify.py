"""A delivered batch against the same one made plainly: on the CPU, by the thread that asks, out of the input's own arrays.

In: a batch, and its place. Out: nothing, or what differs first. Invariant: what is compared against has been through no cache, tier, plan,
thread or kernel of a device; it is what a loader without any of them delivers, which the tests compare with the definition of samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from penstock.errors import MismatchError
from penstock.feed.caches import Caches
from penstock.feed.digest import digest_of
from penstock.feed.maker import BatchMaker
from penstock.feed.tensors import is_frame


class PlainMaker:
    """Makes batches again.

    Args:
        maker: makes the same batches, by `BatchMaker.with_own_memory`, from the graph and fields as the user gave them.
        caches: tables of the fields that are not in arrays, by `Caches.only`.
    Attributes:
        maker, caches: as given.
    """

    def __init__(self, maker: BatchMaker, caches: Caches) -> None:
        self.maker, self.caches = maker, caches

    def over(self, maker: BatchMaker) -> PlainMaker:
        """The same with the seeds, order and padding of another maker."""
        other = self.maker.with_own_memory(seeds=maker.seeds, order=maker.order, padding=maker.padding)
        return PlainMaker(other, self.caches)

    def make(self, positions: np.ndarray, epoch: int, index: int) -> Any:
        """Make a batch of the seeds at `positions`, drawn as batch `index` of an epoch."""
        try:
            return self.maker.make(self.caches, positions, epoch, index)
        finally:
            self.maker.let_go()


def compare(batch: Any, expected: Any, place: str) -> None:
    """Raise MismatchError, which begins with `place`, unless two batches are the same, bit for bit."""
    if type(batch) is not type(expected):
        raise MismatchError(f"{place} is a {type(batch).__name__}, not a {type(expected).__name__}")
    ours, theirs = ({str(store._key): store for store in each.stores} for each in (batch, expected))
    for key in dict.fromkeys([*theirs, *ours]):
        store, other = dict(ours.get(key, {})), dict(theirs.get(key, {}))
        of_type = "" if key == "None" else f" of {key}"
        for name in dict.fromkeys([*other, *store]):
            if name not in other or name not in store:
                raise MismatchError(f"{place} {'lacks' if name in other else 'has more than it should:'} {name}{of_type}")
            if fault := _fault(store[name], other[name], other.get("n_id")):
                raise MismatchError(f"{place}: {name}{of_type} {fault}")


def _fault(value: Any, other: Any, ids: Any) -> str | None:
    """What is wrong with an attribute, in a few words; None for nothing. `ids`: of the nodes whose rows it may be."""
    if digest_of(value) == digest_of(other):
        return None
    if is_frame(value) and is_frame(other) and len(value) == len(other) > 0:
        frame, expected = value.cpu(), other.cpu()
        is_wrong = np.array([digest_of(frame[row]) != digest_of(expected[row]) for row in torch.arange(len(frame)).split(1)])
    elif not (isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor)) or not value.layout == other.layout == torch.strided:
        return f"is {_brief(value)}, not {_brief(other)}"
    elif (value.dtype, value.shape) != (other.dtype, other.shape):
        return f"is {value.dtype} {list(value.shape)}, not {other.dtype} {list(other.shape)}"
    else:
        is_wrong = (_bytes_of_rows(value) != _bytes_of_rows(other)).any(axis=1)
    first = int(is_wrong.argmax())
    node = f", which is node {int(ids[first])}" if isinstance(ids, torch.Tensor) and len(ids) == is_wrong.size else ""
    return f"differs in {is_wrong.sum():,} of {is_wrong.size:,} rows, first in row {first}{node}"


def _brief(value: Any) -> str:
    return " ".join(repr(value).split())[:60]


def _bytes_of_rows(tensor: torch.Tensor) -> np.ndarray:
    """uint8[n, bytes of a row]."""
    tensor = tensor.detach().cpu().contiguous()
    return tensor.view(-1).view(torch.uint8).numpy().reshape(tensor.shape[0] if tensor.dim() else 1, -1)
