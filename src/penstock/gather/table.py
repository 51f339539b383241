"""Rows of one type by id, from a stack of tiers, several fields at once.

In: ids. Out: arrays in the order of the ids. Invariant: equal to indexing the plain arrays, for any stack.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.gather.hops import clear_between, places_of, size_of, spread
from penstock.gather.stack import around as way_around
from penstock.gather.stack import stack_of
from penstock.records import Allocator, Span
from penstock.store.format import row_bytes
from penstock.store.tiers import Read, Tier, TierStats


@dataclass(frozen=True, slots=True)
class RowKind:
    """The type of a field's rows.

    Attributes:
        name: of the field.
        dtype, shape: of one row.
        is_bfloat16: the dtype holds the bits of bfloat16, which NumPy lacks.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    is_bfloat16: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return row_bytes(self.dtype, self.shape)


class TieredTable:
    """Fields of one node or edge type over a stack of tiers.

    Args:
        tier: the topmost tier; rows that it does not hold come from lower tiers.
        kinds: the fields, in the tier's order.
    Raises:
        InputError: the tier's rows have other sizes than the fields.
    """

    def __init__(self, tier: Tier, kinds: Sequence[RowKind]) -> None:
        wanted = tuple(kind.row_bytes for kind in kinds)
        if wanted != tuple(tier.row_bytes):
            raise InputError(
                f"tier {tier.name} holds rows of {tuple(tier.row_bytes)} bytes, the fields {[k.name for k in kinds]} need {wanted}"
            )
        self.tier, self.kinds = tier, tuple(kinds)

    @property
    def num_rows(self) -> int:
        """Number of rows of each field."""
        return self.tier.num_rows

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of all fields together."""
        return sum(self.tier.row_bytes)

    def submit(
        self,
        ids: np.ndarray,
        allocate: Allocator = np.empty,
        *,
        are_distinct: bool = True,
        around: bool = False,
        marks: np.ndarray | None = None,
        hops: np.ndarray | None = None,
    ) -> RowsUnderWay:
        """Begin to read.

        Args:
            ids: int64[n], in range.
            allocate: makes the arrays of the result.
            are_distinct: no id is repeated; otherwise repeated ids are read once.
            around: bypass dynamic caches and spools, since a read would change their state.
            marks: int32[n], cache slots of distinct ids in the topmost tier, a static cache; None: they are looked up.
            hops: see `penstock.gather.hops`; the result then has a row per place.
        """
        wanted, again, late = ids, None, None
        if not are_distinct:  # rows are copied to their places when they have arrived
            (wanted, again), hops, late = np.unique(ids, return_inverse=True), None, hops
        num_rows = size_of(hops, wanted.size)
        outs, places = self.make_room(num_rows, allocate, hops), np.arange(num_rows) if hops is None else places_of(hops)
        known = {} if marks is None else {"marks": marks}
        return RowsUnderWay(self, self.asked(around).submit(wanted, outs, places, **known), outs, num_rows, again, late)

    def asked(self, around: bool) -> Tier:
        """Return the tier to read from: the topmost one, or, if `around`, the stack without dynamic caches and spools."""
        return way_around(self.tier) if around else self.tier

    def make_room(self, num_rows: int, allocate: Allocator, hops: np.ndarray | None = None) -> list[Any]:
        """Return uint8[num_rows * row_bytes] per field, zero in the places between `hops`."""
        outs = [allocate(num_rows * kind.row_bytes, np.uint8)[: num_rows * kind.row_bytes] for kind in self.kinds]
        if hops is not None:
            for out, kind in zip(outs, self.kinds, strict=True):
                clear_between(out, hops, kind.row_bytes)
        return outs

    def shaped(self, outs: list[Any], num_rows: int, again: np.ndarray | None) -> list[Any]:
        """View the bytes of rows as arrays of their fields; `again`: int64[n], the row that each row of the result repeats."""
        rows = [out.view(kind.dtype).reshape(num_rows, *kind.shape) for out, kind in zip(outs, self.kinds, strict=True)]
        return rows if again is None else [values[again] for values in rows]

    def settle(self) -> None:
        """Wait until a device has finished all reads for which `wait` was called; nothing to do in host memory."""

    def stats(self) -> dict[str, TierStats]:
        """Return the counts of each tier of the stack, from the top down; with shared caches, also of reads from other ranks' devices."""
        found: dict[str, TierStats] = {}
        for tier in stack_of(self.tier):
            found |= {tier.name: tier.stats} | getattr(tier, "peers", {})
        return found


def sizes_of(tables: Mapping[Any, TieredTable]) -> tuple[dict[Any, int], dict[Any, int]]:
    """Return (number of rows of each table, bytes of a row of each)."""
    return {key: table.num_rows for key, table in tables.items()}, {key: table.row_bytes for key, table in tables.items()}


class RowsUnderWay:
    """A gather under way. Call `wait` once.

    Attributes:
        spans: work done so far, see `penstock.records.Span`.
    """

    def __init__(
        self, table: TieredTable, read: Read, outs: list[Any], num_rows: int, again: np.ndarray | None, hops: np.ndarray | None = None
    ) -> None:
        self._table = table
        self._read = read
        self._outs = outs
        self._num_rows = num_rows
        self._again = again
        self._hops = hops
        self.spans: list[Span] = getattr(read, "spans", [])

    def wait(self) -> list[Any]:
        """Wait for the rows. Returns dtype[n, *shape] per field. Raises TierError."""
        waited = time.perf_counter()
        self._read.wait()
        if not self.spans:  # no cache has recorded details
            since = waited if self._read.since is None else self._read.since
            self.spans.append(("read", since, time.perf_counter(), threading.get_ident()))
        rows = self._table.shaped(self._outs, self._num_rows, None if self._again is None else self._again.reshape(-1))
        return rows if self._hops is None else [spread(each, self._hops) for each in rows]
