"""The places of rows in a batch whose hops are padded to given sizes.

In: `hops`, int64[n, 2]: per hop, its number of rows and its size in the batch (see `penstock.kernels.pad_hops`). Out: places. Padding
places are zero or, for floating-point rows, copies of the first row. Some models divide by the norm of a row, so zero rows would make all
gradients NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def size_of(hops: np.ndarray | None, num_rows: int) -> int:
    """Return the size of a padded batch; without hops, `num_rows`."""
    return num_rows if hops is None else int(hops[:, 1].sum())


def runs_of(hops: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """Yield (first row, first place, number of rows, number of places) of each hop."""
    first = place = 0
    for count, size in hops.tolist():
        yield first, place, count, size
        first += count
        place += size


def places_of(hops: np.ndarray) -> np.ndarray:
    """Return int64[num_rows]: the place of each row."""
    counts, sizes = hops[:, 0], hops[:, 1]
    return np.arange(counts.sum()) + np.repeat(np.cumsum(sizes - counts) - (sizes - counts), counts)


def places_on(hops: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return the same as `places_of`, computed on a device."""
    import torch

    from penstock.kernels.pad_hops import gpu
    from penstock.store.tiers.pinned import to_device

    num_rows = int(hops[:, 0].sum())
    places = torch.empty(num_rows, dtype=torch.int64, device=device)
    gpu.place(to_device(hops, device), places)
    return places


def clear_between(rows: Any, hops: np.ndarray, width: int = 1) -> None:
    """Write zeros to all padding places; `rows`: an array or tensor with `width` elements per place."""
    for _, place, count, size in runs_of(hops):
        rows[(place + count) * width : (place + size) * width] = 0


def repeat_first(rows: torch.Tensor, hops: np.ndarray) -> None:
    """Write the first row to all padding places. Does nothing for integers."""
    if not rows.is_floating_point() and not rows.is_complex():
        return
    first = next((place for _, place, count, _ in runs_of(hops) if count), None)
    for _, place, count, size in runs_of(hops) if first is not None else ():
        rows[place + count : place + size] = rows[first]


def spread(rows: Any, hops: np.ndarray) -> Any:
    """Return a copy of rows [n, ...], an array or a tensor, at their places, with zeros at padding places."""
    shape = size_of(hops, 0), *rows.shape[1:]
    found = np.zeros(shape, rows.dtype) if isinstance(rows, np.ndarray) else rows.new_zeros(shape)
    for first, place, count, _ in runs_of(hops):
        found[place : place + count] = rows[first : first + count]
    return found
