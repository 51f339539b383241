"""A table that delivers rows in device memory: `TieredTable` over tiers that deliver there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import InputError
from penstock.gather.hops import places_on, size_of
from penstock.gather.table import RowKind, RowsUnderWay, TieredTable
from penstock.records import Allocator
from penstock.store.device_memory import settle
from penstock.store.tiers import Tier
from penstock.store.tiers.pinned import to_device, to_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


class DeviceTable(TieredTable):
    """Fields of one node or edge type over a stack of tiers that deliver to a device; rows come as tensors.

    Args:
        tier: the topmost tier, with a `reader`.
        kinds: the fields, in the tier's order.
        are_mostly_distinct: few ids are repeated, so the host does not search for repetitions if the tier can read a row twice.
    Raises:
        InputError: the tier delivers to the host.
    """

    def __init__(self, tier: Tier, kinds: Sequence[RowKind], *, are_mostly_distinct: bool = False) -> None:
        super().__init__(tier, kinds)
        self._are_mostly_distinct = are_mostly_distinct
        reader = getattr(tier, "reader", None)
        if reader is None:
            raise InputError(f"tier {tier.name} delivers to the host: put an UploadTier over it")
        self.reader: torch.device = reader

    @property
    def is_asked_by_device(self) -> bool:
        """Whether the host does not need the ids, since the device itself reads rows and decides which to keep."""
        return bool(getattr(self.tier, "takes_device_rows", False))

    def submit(
        self,
        ids: Any,
        allocate: Allocator = np.empty,
        *,
        are_distinct: bool = True,
        around: bool = False,
        marks: np.ndarray | None = None,
        hops: np.ndarray | None = None,
    ) -> RowsUnderWay:
        """Begin to read, as `TieredTable.submit`. `ids` may be a tensor on the device. If the host does not need the ids, a repeated id is
        read twice; it needs them if a policy must get distinct ids."""
        tier, is_array = self.asked(around), isinstance(ids, np.ndarray)
        is_taken = are_distinct or getattr(tier, "is_static", True)
        if getattr(tier, "takes_device_rows", False) and is_taken and (self._are_mostly_distinct or not is_array):
            num_rows = size_of(hops, ids.size if is_array else ids.numel())
            outs, places = self.make_room(num_rows, allocate, hops), None if hops is None else places_on(hops, self.reader)
            return RowsUnderWay(self, tier.submit(ids, outs, places), outs, num_rows, None)  # pyright: ignore[reportArgumentType]
        ids = ids if is_array else to_host(ids)[0]
        return super().submit(ids, allocate, are_distinct=are_distinct, around=around, marks=marks, hops=hops)

    def make_room(self, num_rows: int, allocate: Allocator, hops: np.ndarray | None = None) -> list[Any]:
        """Return uint8[num_rows * row_bytes] per field, tensors on the device. `allocate` allocates host memory, and is not used. With
        `hops`, all bytes are zero: that takes one launch, rather than one per hop."""
        import torch

        make = torch.empty if hops is None else torch.zeros
        return [make(num_rows * kind.row_bytes, dtype=torch.uint8, device=self.reader) for kind in self.kinds]

    def shaped(self, outs: list[Any], num_rows: int, again: np.ndarray | None) -> list[Any]:
        """View the bytes of rows as tensors of their fields, see `TieredTable.shaped`."""
        import torch

        rows = []
        for out, kind in zip(outs, self.kinds, strict=True):
            dtype = torch.from_numpy(np.empty(0, kind.dtype)).dtype
            values = out.view(dtype) if kind.row_bytes else out.new_empty(0, dtype=dtype)
            rows.append(values.view(num_rows, *kind.shape))
        return rows if again is None else [values[to_device(again, self.reader)] for values in rows]

    def settle(self) -> None:
        """Wait until the device has finished all reads for which `wait` was called."""
        settle(self.reader)
