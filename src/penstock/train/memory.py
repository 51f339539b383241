"""Keep freed memory in the process, so that the next step finds its pages mapped.

Each step of a large model allocates and frees the same hundreds of megabytes. glibc gives such pieces back to the kernel at once, and
every step pays for mapping and zeroing them again (docs/tuning.md has what that takes).
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Ask malloc to keep what is freed; the process holds its peak from then on. Returns whether this libc can (glibc)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
