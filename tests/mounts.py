"""File systems of their own, in memory: small ones to fill, and read-only ones."""

import subprocess
from contextlib import contextmanager

import pytest


@contextmanager
def mounted(folder, options="size=1m"):
    """Mount one at a folder, which is made if need be. Skips the test where that is not allowed: it needs root."""
    folder.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
