"""Read ahead on a thread: decoding a file and sorting its edges then share two cores.

Invariants: items arrive in order; what the reader raises arrives at the consumer; a consumer that stops early leaves no thread behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_END: Any = object()


def prefetch(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield the items of an iterator that runs in a thread of its own: one is ready, and the next in the making."""
    pool = ThreadPoolExecutor(1, "penstock-read")
    try:
        ahead = deque(pool.submit(next, items, _END) for _ in range(2))
        while True:
            item = ahead.popleft().result()
            if item is _END:
                return
            ahead.append(pool.submit(next, items, _END))
            yield item
            del item  # nor is it held while the next is waited for
    finally:
        pool.shutdown(cancel_futures=True)
