"""Read ahead on a thread, so that decoding a file and sorting its edges use two cores.

Invariants: items arrive in order; an exception of the reader is raised in the consumer; no thread is left when a consumer stops early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_END: Any = object()


def prefetch(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield the items of an iterator that runs in its own thread: one item is ready while the next is being made."""
    pool = ThreadPoolExecutor(1, "penstock-read")
    try:
        ahead = deque(pool.submit(next, items, _END) for _ in range(2))
        while True:
            item = ahead.popleft().result()
            if item is _END:
                return
            ahead.append(pool.submit(next, items, _END))
            yield item
            del item  # so that it is not kept alive while the next one is awaited
    finally:
        pool.shutdown(cancel_futures=True)
