"""What a run does to its folder and to Ctrl-C: one run per folder, files whole or not at all, and a step that ends before the process."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.errors import StoreBusyError, StoreError, argument, reason_of
from penstock.store.files import open_locked
from penstock.store.whole_file import replacing

_LOCK = ".lock"


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write aside and rename. A file that says just that is left as it is."""
    text = json.dumps(values, indent=2) + "\n"
    with suppress(OSError, ValueError):
        if path.read_text() == text:
            return
    with replacing(path, f"free some space, or choose another {argument('out')}") as aside:
        aside.write_text(text)


@contextmanager
def interrupts_wait() -> Iterator[list[int]]:
    """Give a list that Ctrl-C, SIGTERM or SIGHUP puts something into, so that the step at work can end; the second one ends it at once,
    and the end of the block raises what the first one would have. A signal that somebody else handles stays his."""
    interrupted: list[int] = []

    def remember(number: int, frame: Any) -> None:
        if interrupted and number != signal.SIGHUP:  # of a terminal that is closed it comes twice, from the system and from the shell
            raise KeyboardInterrupt
        interrupted.append(number)

    either = (signal.SIG_DFL, signal.default_int_handler)
    usual = {signal.SIGINT: either[1:], signal.SIGTERM: either, signal.SIGHUP: either}
    is_main = threading.current_thread() is threading.main_thread()
    ours = {number: before for number in usual if is_main and (before := signal.getsignal(number)) in usual[number]}
    try:
        for number in ours:
            signal.signal(number, remember)
        yield interrupted
    finally:
        for number, before in ours.items():
            signal.signal(number, before)
    if interrupted:
        raise KeyboardInterrupt


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder of a run; made if need be. What was made is gone again where nothing came of it."""
    was_locked, made = os.path.exists(folder / _LOCK), [path for path in (folder, *folder.parents) if not os.path.exists(path)]

    def clear() -> None:
        with suppress(OSError):
            if not was_locked and os.listdir(folder) == [_LOCK]:
                os.unlink(folder / _LOCK)
                for path in made:
                    path.rmdir()

    advice = f"choose another {argument('out')}"
    try:
        lock = open_locked(folder / _LOCK)
    except BlockingIOError:
        raise StoreBusyError(f"another process trains in {folder}; {advice}") from None
    except OSError as error:
        clear()
        raise StoreError(f"cannot write in {folder}: {reason_of(error)}; {advice}") from error
    try:
        yield
    finally:
        clear()
        os.close(lock)
