"""The benchmarks that need no other library, one after the other: `make bench`, or `python -m bench [FOLDER]`.

FOLDER keeps the generated graphs (8 GB); without it they are made in a temporary folder and removed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from bench.common import ROOT
from bench.graphs import make

USAGE = 2


def main() -> None:
    """Run them, each in a process of its own."""
    if len(sys.argv) > USAGE:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) == USAGE else Path(temporary)
        small = str(make("small", folder))
        modes = [["bench.peers", small, "--mode", mode, "--name", f"alone-{mode}"] for mode in ("sample", "features", "train")]
        for command in (["bench.kernels", str(folder)], ["bench.opening", str(folder)], *modes):
            print(f"== python -m {' '.join(command)}", flush=True)
            subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
