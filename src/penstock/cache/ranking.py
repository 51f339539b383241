"""Numbers of nodes ranked hottest first, some at a time: for graphs of which a sort of all nodes would be the largest thing in memory.

In: hotness. Out: ids, hottest first, equal ones by id, in blocks. Invariant: the same order as a stable sort of all, whatever the blocks.
How: a histogram over the leading 16 bits of every number says which range of numbers the next block is; one pass over the hotness gathers
its ids, which are then sorted. A range of equal leading bits with too many ids is divided by the next 16 bits; equal numbers come in order
of ids as they are. So nothing of eight bytes a node is made, at the price of a pass a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

BLOCK = 1 << 18
"""Numbers looked at at a time."""
LEAST, SHARE = 1 << 18, 1 / 16
"""Ids in a block: a share of all, or so many if that is more. Sorting one takes about 30 bytes an id."""

_DIGIT = 16


def rank(hotness: Sequence[np.ndarray], *, most: int | None = None) -> Iterator[np.ndarray]:
    """Yield the ids of all entries, hottest first, equal ones by id.

    Args:
        hotness: vectors of numbers without NaN; the ids of the second go on after those of the first, and so on.
        most: ids of a block at most; None: see SHARE.
    Yields:
        int64[n].
    Cost: a byte or two a node where nothing is taken of it, about 30 bytes an id of a block; O(n) time per block.
    """
    keys = _Keys(hotness)
    yield from _walk(keys, 0, keys.num_bits, max(1, most or max(LEAST, int(SHARE * keys.size))))


class _Keys:
    """Unsigned keys whose ascending order is the descending one of the numbers, made block by block."""

    def __init__(self, hotness: Sequence[np.ndarray]) -> None:
        self._arrays, self.size = list(hotness), sum(array.size for array in hotness)
        dtype = np.result_type(*self._arrays) if self._arrays else np.dtype(np.uint16)
        dtype = np.result_type(dtype, np.float32 if dtype.kind == "f" else np.uint16 if dtype.kind in "ub" else np.int16)
        self._dtype, self.num_bits = dtype, 8 * dtype.itemsize

    def blocks(self, prefix: int, shift: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (ids, keys) of the entries whose key begins with a prefix: whose bits from `shift` on are it."""
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
    """The entries under a prefix, in blocks."""
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
    """Select those whose digit lies in [first, last)."""
    digits = (keys >> keys.dtype.type(low)) & keys.dtype.type(0xFFFF)
    at = np.flatnonzero((digits >= first) & (digits <= last - 1))
    return ids[at], keys[at]


def _ranges(counts: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of digits with entries, each of one digit or of at most `most` entries."""
    used = np.flatnonzero(counts)
    ends, done, first = np.cumsum(counts[used]), 0, 0
    while first < used.size:
        last = max(first + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield int(used[first]), int(used[last - 1]) + 1
        done, first = int(ends[last - 1]), last
