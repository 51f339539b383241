"""Threads and locks that survive a Ctrl-C and a fork.

Ctrl-C may interrupt the user's thread between any two steps. So it shares only two things with our threads: queues, whose calls happen
whole or not at all, and plain locks. Python's executors and futures use conditions instead. A condition that stays locked blocks every
thread that needs it, and the interpreter's exit, until the process is killed. If a process forks while a thread holds a lock, no thread of
the child releases it. So the child replaces the lock of each `Guard` by a free one.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from penstock.errors import PipelineError

T = TypeVar("T")


class Guard:
    """Holds a `lock`; a forked child gets a new one. For data that a child can use at whatever moment the process forked."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _guards.add(self)

    def __deepcopy__(self, memo: Any) -> Guard:
        return Guard()


def finalize_here(owner: object, work: Callable[..., object], *arguments: Any) -> weakref.finalize:
    """As `weakref.finalize`, but only in this process: a forked child has a copy of the owner, but may lack what the work needs."""
    return weakref.finalize(owner, _do_in, os.getpid(), work, *arguments)


def _do_in(pid: int, work: Callable[..., object], *arguments: Any) -> None:
    if os.getpid() == pid:
        work(*arguments)


class Pending(Generic[T]):
    """A piece of work for a thread. Call `result` once."""

    __slots__ = ("_done", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run(self) -> None:
        """Do the work. A thread of `Threads` calls this."""
        work, self._work = self._work, None
        try:
            assert work is not None
            self._done.put((work(), None))
        except BaseException as error:
            self._done.put((None, error))
        del self, work  # an error keeps this frame alive

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the result. Raises what the work raised, or `queue.Empty` after `timeout_s` seconds; None: waits without a limit."""
        result, error = self._done.get(timeout=timeout_s)
        if error is None:
            return result
        try:
            raise error
        finally:
            del error  # it keeps this frame alive


class Threads:
    """Threads that live as long as their owner. They start at the first use, and again in a forked child.

    Args:
        num_threads: threads to start; fewer start if the system allows fewer.
        name: of the threads.
    """

    def __init__(self, num_threads: int, name: str) -> None:
        self.num_threads, self._name = num_threads, name
        self._crew: _Crew | None = None
        self._pid = 0

    def submit(self, work: Callable[[], T]) -> Pending[T]:
        """Let a thread do the work. Threads begin work in the order of the calls. Raises PipelineError if no thread can be started."""
        pending = Pending(work)
        if _are_ending:
            pending.run()
            return pending
        if self._crew is None or self._pid != os.getpid():
            self._crew, self._pid = _Crew(self.num_threads, self._name), os.getpid()
            weakref.finalize(self, self._crew.dismiss)
        self._crew.tasks.put(pending)
        if _are_ending:  # it was set meanwhile: in the queue, the work may come after the order to end
            self._crew.finish()
        return pending


class _Crew:
    """Threads and their shared queue. After `dismiss` they finish the work submitted before, then end."""

    def __init__(self, num_threads: int, name: str) -> None:
        self.tasks: SimpleQueue[Pending[Any] | None] = SimpleQueue()
        self.threads: list[threading.Thread] = []
        try:
            for _ in range(num_threads):
                thread = threading.Thread(target=self._work, name=name, daemon=True)  # `_end_all` waits for it at exit
                thread.start()
                self.threads.append(thread)
        except RuntimeError as error:  # a limit on threads or memory
            if not self.threads:
                raise PipelineError(f"no thread can be started ({error}): raise the limit of threads, or take num_workers=0") from error
        except BaseException:
            self.dismiss()
            raise
        _crews.add(self)

    def dismiss(self) -> None:
        """Tell the threads to end."""
        for _ in range(len(self.threads) + 1):  # one more, for a thread whose start was interrupted
            self.tasks.put(None)

    def finish(self) -> None:
        """Do, in the calling thread, all work that the crew has not begun."""
        num_words = 0
        with suppress(Empty):
            while True:
                task = self.tasks.get_nowait()
                if task is None:
                    num_words += 1
                else:
                    task.run()
        for _ in range(num_words):
            self.tasks.put(None)

    def _work(self) -> None:
        while True:
            task = self.tasks.get()
            if task is None:
                return
            task.run()
            del task  # else its result stays in memory while this thread waits


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()
_crews: weakref.WeakSet[_Crew] = weakref.WeakSet()
_are_ending = False


def _free_guards() -> None:
    """In a forked child: replace all locks, since the threads that held them do not exist there."""
    for guard in list(_guards):
        guard.lock = threading.Lock()


def are_ending() -> bool:
    """Whether the interpreter is exiting and waits for the threads; long work need not begin then."""
    return _are_ending


def _end_all() -> None:
    """At exit: wait for all threads. A daemon thread that returns from compiled code after the interpreter is gone crashes the process."""
    global _are_ending
    _are_ending = True
    crews = list(_crews)
    for crew in crews:
        crew.dismiss()
    for crew in crews:
        for thread in crew.threads:
            with suppress(RuntimeError):  # raised if one of these threads is the one that ends the process
                thread.join()


os.register_at_fork(after_in_child=_free_guards)
atexit.register(_end_all)
