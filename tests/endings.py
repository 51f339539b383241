"""Programs that end, and how soon they do on a machine that has other work as well."""

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from signal import SIGKILL

END_S = 2.0
TRIES = 3
HANG_S = 100
_BARE = """
    import penstock.feed, time
    print("ready")
    time.sleep({pause_s})
"""


@dataclass(frozen=True)
class Ending:
    """How a program ended.

    Attributes:
        code: its exit code.
        output: all that it said.
        seconds: from its word "ready" on until it was gone, and whoever else held its output.
    """

    code: int
    output: str
    seconds: float


def run(*arguments, signal=None):
    """Run an interpreter with `arguments`, and send it `signal` when it says "ready"."""
    program = subprocess.Popen(
        [sys.executable, "-u", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,  # no line is read ahead: `communicate` would not have it
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert program.stdout is not None
    lines = []
    for line in program.stdout:
        lines.append(line)
        if line.startswith(b"ready"):
            break
    started = time.monotonic()
    if signal is not None:
        program.send_signal(signal)
    try:
        rest, _ = program.communicate(timeout=HANG_S)
    finally:
        program.kill()
    return Ending(program.returncode, (b"".join(lines) + rest).decode(), time.monotonic() - started)


def assert_soon(make, signal=None):
    """`make` returns an `Ending` of END_S, beyond what a bare interpreter takes that ends in the same way at that time.

    Other work on the machine only ever adds to either, so that one try of a few decides. What never ends, `run` finds out.
    """
    seconds = []
    for _ in range(TRIES):
        seconds.append(make().seconds)
        if seconds[-1] < END_S:
            return
        seconds[-1] -= run("-c", textwrap.dedent(_BARE.format(pause_s=0 if signal is None else 10 * HANG_S)), signal=signal).seconds
        if seconds[-1] < END_S:
            return
    raise AssertionError(f"took {seconds} s longer to end than an interpreter does")


def is_killed_at(work, delay_s):
    """Do some work in a child, and kill it after so long. Returns whether it was still at work."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    time.sleep(delay_s)
    os.kill(pid, SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
