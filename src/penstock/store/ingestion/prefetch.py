"""Read ahead by one item on a thread: decoding a file and sorting its edges then share two cores.

Invariants: items arrive in order; what the reader raises arrives at the consumer; a consumer that stops early leaves no thread behind.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_POLL_S = 0.1


def prefetch(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield the items of an iterator that runs in a thread of its own, one ahead."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=1)
    stop = threading.Event()

    def deliver(kind: str, value: Any) -> None:
        while not stop.is_set():
            try:
                ready.put((kind, value), timeout=_POLL_S)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                deliver("item", item)
                del item
                if stop.is_set():
                    return
        except BaseException as error:
            deliver("error", error)
        else:
            deliver("end", None)

    thread = threading.Thread(target=work, name="penstock-read", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
            del value
    finally:
        stop.set()
        thread.join()
