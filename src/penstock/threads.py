"""Threads and locks that survive a Ctrl-C and a fork.

The user's thread may be interrupted between any two steps. So it shares with our threads only queues, whose calls happen whole or not at
all, and plain locks; not the conditions that Python's executors and futures are made of: if one is left locked, everybody who needs it
waits until the process is killed, the interpreter's exit included. And if a process is forked while a thread holds a lock, nobody releases
it in the child: the locks of `Guard`s are free there.
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
    """Holds a `lock`, which is a new one in a forked child. For data that a child can use whenever the fork came."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _guards.add(self)

    def __deepcopy__(self, memo: Any) -> Guard:
        return Guard()


def finalize_here(owner: object, work: Callable[..., object], *arguments: Any) -> weakref.finalize:
    """As `weakref.finalize`, in this process alone: a forked child has a copy of the owner, and not all that the work may need."""
    return weakref.finalize(owner, _do_in, os.getpid(), work, *arguments)


def _do_in(pid: int, work: Callable[..., object], *arguments: Any) -> None:
    if os.getpid() == pid:
        work(*arguments)


class Pending(Generic[T]):
    """A piece of work for a thread. Its result is asked for once."""

    __slots__ = ("_done", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run(self) -> None:
        """Do the work; called on a thread."""
        work, self._work = self._work, None
        try:
            assert work is not None
            self._done.put((work(), None))
        except BaseException as error:
            self._done.put((None, error))
        del self, work  # an error knows this frame

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the result; raises what the work raised, and `queue.Empty` after `timeout_s`."""
        result, error = self._done.get(timeout=timeout_s)
        if error is None:
            return result
        try:
            raise error
        finally:
            del error  # it knows this frame


class Threads:
    """Threads that live as long as their owner; started at the first use and again in a forked child.

    Args:
        num_threads: threads to start; where the system does not allow that many, as many as it does.
        name: of the threads.
    """

    def __init__(self, num_threads: int, name: str) -> None:
        self.num_threads, self._name = num_threads, name
        self._crew: _Crew | None = None
        self._pid = 0

    def submit(self, work: Callable[[], T]) -> Pending[T]:
        """Have one of the threads do the work; work is begun in the order of the calls. PipelineError where no thread can be started."""
        pending = Pending(work)
        if _are_ending:
            pending.run()
            return pending
        if self._crew is None or self._pid != os.getpid():
            self._crew, self._pid = _Crew(self.num_threads, self._name), os.getpid()
            weakref.finalize(self, self._crew.dismiss)
        self._crew.tasks.put(pending)
        if _are_ending:  # since just now: the work may be behind the threads' order to end
            self._crew.finish()
        return pending


class _Crew:
    """Threads and the queue that they share. They end when they are dismissed, after all that was submitted before."""

    def __init__(self, num_threads: int, name: str) -> None:
        self.tasks: SimpleQueue[Pending[Any] | None] = SimpleQueue()
        self.threads: list[threading.Thread] = []
        try:
            for _ in range(num_threads):
                thread = threading.Thread(target=self._work, name=name, daemon=True)  # `_end_all` waits for it at exit
                thread.start()
                self.threads.append(thread)
        except RuntimeError as error:  # a limit of threads, or of memory
            if not self.threads:
                raise PipelineError(f"no thread can be started ({error}): raise the limit of threads, or take num_workers=0") from error
        except BaseException:
            self.dismiss()
            raise
        _crews.add(self)

    def dismiss(self) -> None:
        """Let the threads end."""
        for _ in range(len(self.threads) + 1):  # one more: of the thread whose start was interrupted
            self.tasks.put(None)

    def finish(self) -> None:
        """Do in this thread all work that the others have not begun."""
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
            del task  # and what it has made, which must not be kept while this thread waits


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()
_crews: weakref.WeakSet[_Crew] = weakref.WeakSet()
_are_ending = False


def _free_guards() -> None:
    """In a forked child: the threads that held a lock are not here."""
    for guard in list(_guards):
        guard.lock = threading.Lock()


def are_ending() -> bool:
    """Whether the interpreter is waiting for the threads to end, so that long work need not begin."""
    return _are_ending


def _end_all() -> None:
    """At exit: a daemon thread that returns from compiled code after the interpreter is gone would crash the process."""
    global _are_ending
    _are_ending = True
    crews = list(_crews)
    for crew in crews:
        crew.dismiss()
    for crew in crews:
        for thread in crew.threads:
            with suppress(RuntimeError):  # one of these threads ends the process
                thread.join()


os.register_at_fork(after_in_child=_free_guards)
atexit.register(_end_all)
