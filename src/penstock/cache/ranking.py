"""Ranking nodes hottest first, block by block: for graphs in which sorting all nodes would take more memory than anything else.

In: hotness. Out: ids, hottest first, ties by id, in blocks. Invariant: the same order as a stable sort of all, for any size of blocks.
How: a histogram over the leading 16 bits of all numbers gives the range of numbers of the next block; one pass over the hotness gathers its
ids, which are then sorted. A range of equal leading bits with too many ids is divided by the next 16 bits; equal numbers are in order of
ids already. So no array of eight bytes per node is needed, at the cost of one pass per block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

BLOCK = 1 << 18
"""Numbers processed at a time."""
LEAST, SHARE = 1 << 18, 1 / 16
"""Ids per block: SHARE of all, or LEAST if that is more. Sorting a block takes about 30 bytes per id."""

_DIGIT = 16


def rank(hotness: Sequence[np.ndarray], *, most: int | None = None) -> Iterator[np.ndarray]:
    """Yield the ids of all entries, hottest first, ties by id.

    Args:
        hotness: vectors of numbers without NaN; ids of the second continue after those of the first, and so on.
        most: most ids of a block; None: see SHARE.
    Yields:
        int64[n].
    Cost: one or two bytes per node, and about 30 bytes per id of a block; O(n) time per block.
    """
    keys = _Keys(hotness)
    yield from _walk(keys, 0, keys.num_bits, max(1, most or max(LEAST, int(SHARE * keys.size))))


class _Keys:
    """Unsigned keys whose ascending order is the descending order of the numbers, made block by block."""

    def __init__(self, hotness: Sequence[np.ndarray]) -> None:
        self._arrays, self.size = list(hotness), sum(array.size for array in hotness)
        dtype = np.result_type(*self._arrays) if self._arrays else np.dtype(np.uint16)
        dtype = np.result_type(dtype, np.float32 if dtype.kind == "f" else np.uint16 if dtype.kind in "ub" else np.int16)
        self._dtype, self.num_bits = dtype, 8 * dtype.itemsize

    def blocks(self, prefix: int, shift: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (ids, keys) of the entries whose keys begin with a prefix: key >> shift == prefix."""
        begin = 0
        for array in self._arrays:
            for first in range(0, array.size, BLOCK):
                keys = self._of(array[first : first + BLOCK])
                if shift == self.num_bits:
                    yield np.arange(begin + first, begin + first + keys.size), keys
                    continue
                at = np.flatnonzero(keys >> keys.dtype.type(shift) == prefix)
                if at.size:
                    yield at + (begin + first), keys[at]
            begin += array.size

    def _of(self, block: np.ndarray) -> np.ndarray:
        values, word = block.astype(self._dtype), np.dtype(f"u{self._dtype.itemsize}")
        top = word.type(1 << (self.num_bits - 1))
        if self._dtype.kind == "u":
            return ~values
        if self._dtype.kind == "i":
            return ~(values.view(word) ^ top)
        bits = (values + 0).view(word)  # -0.0 + 0 is 0.0
        return np.where(bits >= top, bits, ~(bits ^ top))


def _walk(keys: _Keys, prefix: int, shift: int, most: int) -> Iterator[np.ndarray]:
    """Yield the entries under a prefix, in blocks."""
    low = shift - _DIGIT
    counts = np.zeros(1 << _DIGIT, np.int64)
    for _, some in keys.blocks(prefix, shift):
        counts += np.bincount((some >> some.dtype.type(low)).astype(np.uint16), minlength=counts.size)
    for first, last in _ranges(counts, most):
        if last - first > 1 or counts[first] <= most:
            found = [_within(*block, low, first, last) for block in keys.blocks(prefix, shift)]
            ids, some = (np.concatenate(each) for each in zip(*found, strict=True))
            yield ids[np.argsort(some, kind="stable")]
        elif low:
            yield from _walk(keys, prefix << _DIGIT | first, low, most)
        else:
            for ids, some in keys.blocks(prefix, shift):
                ids, _ = _within(ids, some, low, first, last)
                if ids.size:
                    yield ids


def _within(ids: np.ndarray, keys: np.ndarray, low: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Select the entries whose digit is in [first, last)."""
    digits = (keys >> keys.dtype.type(low)) & keys.dtype.type(0xFFFF)
    at = np.flatnonzero((digits >= first) & (digits <= last - 1))
    return ids[at], keys[at]


def _ranges(counts: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of digits that have entries: each a single digit, or with at most `most` entries."""
    used = np.flatnonzero(counts)
    ends, done, first = np.cumsum(counts[used]), 0, 0
    while first < used.size:
        last = max(first + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield int(used[first]), int(used[last - 1]) + 1
        done, first = int(ends[last - 1]), last
