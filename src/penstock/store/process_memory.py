"""Memory that this process holds, memory that is left, and cores that it may use: for budgets and for choosing numbers of threads.

In: nothing, or a piece of work. Out: bytes, or cores. Exact on Linux; elsewhere the figures are as coarse as the system provides them.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import psutil

_HEADER = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)")
_LIBRARY = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-[x-]p \S+ \S+ \S+\s*/.*\.so(\.[0-9.]+)?")
_ARRAY = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r--[ps] \S+ \S+ \S+\s*/.*\.npy")
_DONTNEED = 4
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_MOST_MAPS, _LEAST_MAPPED = 65536, 128 << 10
_NO_LIMIT = 1 << 60
_forgotten_peak = 0
_is_kept = False


def aligned_bytes(num_bytes: int) -> np.ndarray:
    """Return uint8[num_bytes], zeros, page-aligned; freed with its last view. A forked child has its own copy."""
    return np.frombuffer(mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    return psutil.Process().memory_info().rss


def peak_resident_bytes() -> int:
    """Return the most memory that this process ever held.

    Unlike `getrusage`, which counts what the parent held when it forked: a small process started by a large one would seem large.
    """
    peak = _current_peak()
    if peak is not None:
        return max(_forgotten_peak, peak)
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def free_bytes() -> int:
    """Return the memory that this machine, or the container around this process, has left."""
    return min([psutil.virtual_memory().available, *_container_limits()])


def free_in_container() -> int | None:
    """Return the memory that the container around this process has left, including what can be swapped out; None without a container with a
    memory limit. A process that needs more is killed."""
    left = min(_container_limits(), default=None)
    return None if left is None else left + psutil.swap_memory().free


def usable_cores() -> int:
    """Return how many cores this process may use: by its CPU affinity and by the CPU quota of its container."""
    counts = [len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1]
    for folder, is_new in _groups("cpu"):
        names = ("cpu.max",) if is_new else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota = [word for name in names for line in _read_lines(folder / name) for word in line.split()]
        if len(quota) == 2 and quota[0].isdigit():  # "max" or -1 mean no quota
            counts.append(-(-int(quota[0]) // int(quota[1])))
    return max(1, min(counts))


def processes_here(num_ranks: int) -> int:
    """Return how many of the cooperating processes are on this machine (and in one container with this process), according to
    `torchrun`."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if num_ranks > 1 else 1


def own_file_bytes() -> int:
    """Return the bytes of file pages that this process holds, such as libraries; `free_bytes` counts them as free."""
    pages = [line.split()[1] for line in _read_lines(Path("/proc/self/status")) if line.startswith("RssFile")]
    return int(pages[0]) * 1024 if pages else 0


def anonymous_bytes() -> int:
    """Return the bytes that this process holds itself, without pages of files. Takes 0.1 ms."""
    pages = [line.split()[1] for line in _read_lines(Path("/proc/self/status")) if line.startswith("RssAnon")]
    return int(pages[0]) * 1024 if pages else resident_bytes()


def resident_bytes_outside(suffix: str) -> int:
    """Return the memory that this process holds now, without pages of mapped files with this suffix, which the system may drop."""
    total, counts = 0, True
    for line in _read_lines(Path("/proc/self/smaps")):
        if line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024 if counts else 0
        elif match := _HEADER.fullmatch(line):
            counts = not match[1].endswith(suffix)
    return total or resident_bytes()


def peak_growth(work: Callable[[], object]) -> int:
    """Do some work; returns by how many bytes the memory of this process grew meanwhile, at its peak."""
    global _forgotten_peak
    before = resident_bytes()
    _forgotten_peak = peak_resident_bytes()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak that the system records
    work()
    return max(0, (_current_peak() or resident_bytes()) - before)


def keep_freed_memory() -> bool:
    """Ask malloc to keep freed memory; from then on the process holds its peak. Returns whether this libc can (glibc).

    Each step of a large model frees hundreds of megabytes and allocates them again; without this, the system maps and zeroes their pages in
    every step (docs/tuning.md has the times).
    """
    global _is_kept
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    _is_kept = bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
    return _is_kept


def keeps_freed_memory() -> bool:
    """Whether `keep_freed_memory` is in effect."""
    return _is_kept


def stop_keeping_freed_memory() -> None:
    """Undo `keep_freed_memory`: the process then holds little more than the memory in use, and steps that free large pieces take up to
    twice as long."""
    global _is_kept
    if _is_kept:
        _map_large_pieces()
        _is_kept = False
        give_back_freed_memory()


def _map_large_pieces() -> None:
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_MMAP_THRESHOLD, _LEAST_MAPPED)
    mallopt(_M_MMAP_MAX, _MOST_MAPS)


@contextlib.contextmanager
def letting_freed_memory_go() -> Iterator[None]:
    """Suspend `keep_freed_memory` within the block: large pieces that do not fit into malloc's free memory are mapped, and returned one by
    one when freed, so that memory grows by little more than what is in use. Without `keep_freed_memory`, nothing changes."""
    if not _is_kept:
        yield
        return
    _map_large_pieces()
    try:
        yield
    finally:
        ctypes.CDLL(None).mallopt(_M_MMAP_MAX, 0)


def is_in_heap(address: int) -> bool:
    """Whether an address is in malloc's heap, where pieces share pages. Large pieces are mapped instead, unless malloc was told not to."""
    heaps = (line.split()[0].split("-") for line in _read_lines(Path("/proc/self/maps")) if line.endswith("[heap]"))
    return any(int(first, 16) <= address < int(end, 16) for first, end in heaps)


def give_back_freed_memory() -> None:
    """Ask malloc to return free memory to the system, also from the middle of its heap (glibc; elsewhere nothing happens)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return


def let_go_of_libraries() -> None:
    """Drop the pages of libraries from this process' memory: most were read only once, at import. Pages in use are loaded again on access.

    They are a third of a process that has loaded torch. Only maps without written pages are dropped, so nothing is lost. Takes 40 ms.
    """
    _let_go(_LIBRARY)


def let_go_of_arrays() -> None:
    """Likewise those of mapped arrays (`.npy`): where memory is short the system drops them itself while other memory grows, of which
    nothing would be seen then."""
    _let_go(_ARRAY)


def _let_go(files: re.Pattern[str]) -> None:
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    file: re.Match[str] | None = None
    written = 0
    for line in _read_lines(Path("/proc/self/smaps")):
        name, _, value = line.partition(":")
        if name in ("Anonymous", "Swap"):
            written += int(value.split()[0])
        elif name == "VmFlags":
            if file and not written:
                start, end = int(file[1], 16), int(file[2], 16)
                advise(start, end - start, _DONTNEED)
        elif "-" in name:
            file, written = files.fullmatch(line), 0


def _current_peak() -> int | None:
    """Return the peak memory since the process began or the peak was reset; None if the system does not provide it."""
    peak = [line.split()[1] for line in _read_lines(Path("/proc/self/status")) if line.startswith("VmHWM")]
    return int(peak[0]) * 1024 if peak else None


def _container_limits() -> list[int]:
    """Return the limits of control groups minus the memory in use. The page cache counts as free, since it gives way, except for files in
    memory (tmpfs), which are part of its sum."""
    found = []
    for folder, is_new in _groups("memory"):
        if is_new:
            names, kinds, shmem = ("memory.max", "memory.current"), ("file", "slab_reclaimable"), "shmem"
        else:
            names, kinds, shmem = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("total_cache",), "total_shmem"
        limit, used = (next(iter(_read_lines(folder / name)), "") for name in names)
        counts = dict(line.split()[:2] for line in _read_lines(folder / "memory.stat"))
        cache = sum(int(counts.get(kind, 0)) for kind in kinds)
        if limit.isdigit() and used.isdigit() and int(limit) < _NO_LIMIT:
            found.append(max(0, int(limit) - int(used) + cache - int(counts.get(shmem, 0))))
    return found


def _groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """Yield (folder, whether it is of version 2) for this process' control groups and their parents."""
    root = Path("/sys/fs/cgroup")
    for line in _read_lines(Path("/proc/self/cgroup")):
        _, controllers, group = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            base = root / controller if controllers else root
            for path in (PurePosixPath(group), *PurePosixPath(group).parents):
                yield base / str(path).lstrip("/"), not controllers


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
