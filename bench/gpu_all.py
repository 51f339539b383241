"""All that is measured on a GPU, in the order of what it tells, as far as time goes.

    python -m bench.gpu_all FOLDER [--minutes 90] [--out FOLDER] [--memory GIB]

Graphs are made in FOLDER if they are not there (17 GB). Given again, it goes on where it was, also after it was stopped: each benchmark has
what was measured in its result file at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from bench.common import ROOT
from bench.gpu_common import Deadline

GRACE_S = 20.0
"""After a benchmark should have ended by itself."""
LEAST_S = 60.0
"""That a benchmark needs to begin at all."""


def steps(folder: str, memory: int | None) -> list[list[str]]:
    """Words of each command, the figures that matter most first."""
    room = [] if memory is None else ["--memory", str(memory)]
    recipes = ["gpu_recipes", folder, *room, "--rounds", "1"]  # all configurations once tell more than half of them twice
    return [
        [*recipes, "--dims", "128", "--contenders", "gnnlab", "PyG"],
        ["gpu_busy", folder, "--recipes", "gnnlab", "recorded"],
        [*recipes, "--dims", "128", "--batches", "8000"],
        [*recipes, "--dims", "128", "--batches", "1024"],
        ["gpu_link"],
        ["gpu_sampling", folder, "--graphs", "ten-128"],
        [*recipes, "--dims", "256", "--batches", "1024"],
        [*recipes, "--dims", "256", "--batches", "8000"],
        ["gpu_sampling", folder, "--graphs", "small"],
    ]


def run(command: list[str], patience_s: float) -> int:
    """Run a command; returns its code. One that takes longer is ended with all that it has begun: what it has measured is in its file."""
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        try:
            return process.wait(patience_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return 1
            raise


def main(arguments: list[str] | None = None) -> None:
    """Run them one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the graphs are, or are made")
    parser.add_argument("--minutes", type=float, default=90.0, help="begin nothing that would end later; run again for the rest")
    parser.add_argument("--out", type=Path, help="folder of the result files; default bench/results")
    parser.add_argument("--memory", type=int, help="of the machine, in GiB, where the system says less than there will be")
    options = parser.parse_args(arguments)
    deadline, out, failed = Deadline(options.minutes), [] if options.out is None else ["--out", str(options.out.resolve())], []
    for name, *words in steps(str(options.folder.resolve()), options.memory):
        if not deadline.allows(LEAST_S, " ".join([name, *words])):
            break
        command = [sys.executable, "-m", f"bench.{name}", *words, "--minutes", f"{deadline.left_s() / 60:.2f}", *out]
        if run(command, deadline.left_s() + GRACE_S):
            failed.append(" ".join([name, *words]))
    if failed:
        sys.exit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
