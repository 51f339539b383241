"""Where rows go in a batch whose hops are filled up to given sizes.

In: `hops`, int64[n, 2], the number of rows of each hop and its size in the batch (see `penstock.kernels.pad_hops`). Out: places. Places
that no row goes to are zero, or, with floating-point numbers, the first row: some models divide by a norm, of which a zero row has none,
and their gradients over all rows would be NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def size_of(hops: np.ndarray | None, num_rows: int) -> int:
    """Rows that the batch has for `num_rows` asked for; without hops, the same number."""
    return num_rows if hops is None else int(hops[:, 1].sum())


def runs_of(hops: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """(its first row, its first place, its rows, its places) of each hop."""
    first = place = 0
    for count, size in hops.tolist():
        yield first, place, count, size
        first += count
        place += size


def places_of(hops: np.ndarray) -> np.ndarray:
    """int64[rows]: the place of each."""
    counts, sizes = hops[:, 0], hops[:, 1]
    return np.arange(counts.sum()) + np.repeat(np.cumsum(sizes - counts) - (sizes - counts), counts)


def places_on(hops: np.ndarray, device: torch.device) -> torch.Tensor:
    """The same, computed on a device."""
    import torch

    from penstock.kernels.pad_hops import gpu
    from penstock.store.tiers.pinned import to_device

    num_rows = int(hops[:, 0].sum())
    places = torch.empty(num_rows, dtype=torch.int64, device=device)
    gpu.place(to_device(hops, device), places)
    return places


def clear_between(rows: Any, hops: np.ndarray, width: int = 1) -> None:
    """Write zeros to all places that no row goes to; `rows`: an array or tensor with `width` elements for each place."""
    for _, place, count, size in runs_of(hops):
        rows[(place + count) * width : (place + size) * width] = 0


def repeat_first(rows: torch.Tensor, hops: np.ndarray) -> None:
    """Write the first row to all places that no row goes to, in place; rows of integers stay as they are."""
    if not rows.is_floating_point() and not rows.is_complex():
        return
    first = next((place for _, place, count, _ in runs_of(hops) if count), None)
    for _, place, count, size in runs_of(hops) if first is not None else ():
        rows[place + count : place + size] = rows[first]


def spread(rows: Any, hops: np.ndarray) -> Any:
    """Rows [n, ...], an array or a tensor, at their places among zeros."""
    shape = size_of(hops, 0), *rows.shape[1:]
    found = np.zeros(shape, rows.dtype) if isinstance(rows, np.ndarray) else rows.new_zeros(shape)
    for first, place, count, _ in runs_of(hops):
        found[place : place + count] = rows[first : first + count]
    return found
