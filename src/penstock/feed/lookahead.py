"""Samples held ahead of the gather, for policies that know what comes.

In: samples in order. Out: what `announce` keeps of each, in the same order. When one is given out, it and those after it, `window` in all,
have been announced to the caches. Invariants: what is announced is exactly what will be asked for, in that order; an error in sampling is
raised where its batch would have come.
Source: Ginex 3.4, with a window that slides by one batch in place of superbatches, and no spool files: a batch is a pure function of its
place and can be sampled again, so little of it need be held, or nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from penstock.feed.maker import Sampled

T = TypeVar("T")


class LookAhead(Generic[T]):
    """Call `take` once per batch, in order; it is not safe from several threads at once.

    Args:
        samples: in order; may block.
        announce: called with each sample as soon as it is there; returns what to hold of it.
        window: samples held, the one that is taken included.
    """

    def __init__(self, samples: Iterator[Sampled], announce: Callable[[Sampled], T], window: int) -> None:
        self._samples, self._announce, self._window = samples, announce, window
        self._held: deque[T | Exception] = deque()
        self._is_over = False

    def take(self) -> T:
        """Return what is held of the next sample, once the window behind it is full."""
        while len(self._held) < self._window and not self._is_over:
            self._hold_one_more()
        first = self._held.popleft()
        if isinstance(first, Exception):
            raise first
        return first

    def _hold_one_more(self) -> None:
        try:
            self._held.append(self._announce(next(self._samples)))
        except StopIteration:
            self._is_over = True
        except Exception as error:
            self._held.append(error)
            self._is_over = True
