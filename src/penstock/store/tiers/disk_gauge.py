"""A short measurement of a disk: up to which gap between two rows one request that reads the gap along is faster than two requests.

A request costs a fixed time and a time per byte. A hole is worth reading if its bytes cost less than the request that they save. Both costs
follow from the times of many short and many long reads, at full depth.
"""

from __future__ import annotations

import time

import numpy as np

from penstock.kernels.read_pages import rules
from penstock.store.tiers.disk_device import Channel, Job
from penstock.store.tiers.disk_files import OpenRows
from penstock.store.tiers.disk_plan import ReadPlan

DEFAULT_GAP_BYTES = 1 << 14
"""Used if nothing can be measured: for small files, and if all reads are short."""

CACHED_GAP_BYTES = 4096
"""Used for reads through the page cache, where a request costs a microsecond and bytes come at the speed of memory."""

_SHORT_BYTES, _NUM_READS, _ROUNDS = 4096, 128, 3
_SMALLEST_FILE = 64 << 20
_MOST_S = 0.5


def measure_gap(channel: Channel, file: OpenRows, max_bytes: int) -> tuple[int, bool]:
    """Measure by 384 short and 384 long reads, 27 MiB at most, or less in half a second; takes 50 ms on a disk of 1 GB/s.

    Args:
        channel: to read through.
        file: read at random places.
        max_bytes: of a read.
    Returns:
        (largest hole worth reading, in bytes, in [0, max_bytes / 2] or `DEFAULT_GAP_BYTES`; whether the channel may be used again).
    """
    if max_bytes <= _SHORT_BYTES or file.end < max(_SMALLEST_FILE, _NUM_READS * max_bytes):
        return DEFAULT_GAP_BYTES, True
    random, seconds, until = np.random.default_rng(0), {_SHORT_BYTES: [], max_bytes: []}, time.monotonic() + _MOST_S
    for _ in range(_ROUNDS):
        for length in seconds:
            starts = np.sort(random.choice(file.end // max_bytes, _NUM_READS, replace=False)) * max_bytes
            started = time.perf_counter()
            if not _read(channel, file, starts, length, until):
                return DEFAULT_GAP_BYTES, False
            seconds[length].append(time.perf_counter() - started)
        if time.monotonic() > until:
            break
    return gap_of(min(seconds[_SHORT_BYTES]) / _NUM_READS, min(seconds[max_bytes]) / _NUM_READS, max_bytes), True


def gap_of(short_s: float, long_s: float, max_bytes: int) -> int:
    """Return the bytes whose transfer takes as long as an empty request, from the seconds of a read of 4096 bytes and one of
    `max_bytes`."""
    per_byte = (long_s - short_s) / (max_bytes - _SHORT_BYTES)
    per_request = short_s - _SHORT_BYTES * per_byte
    if per_byte <= 0:
        return max_bytes // 2
    return int(min(max(per_request / per_byte, 0), max_bytes // 2)) // 512 * 512


def _read(channel: Channel, file: OpenRows, starts: np.ndarray, length: int, until: float) -> bool:
    """Read and discard. Returns whether all reads ended in time."""
    none = np.zeros(starts.size, np.int64)
    plan = ReadPlan(none[:0], none[:0], starts.astype(np.int64), np.full(starts.size, length, np.int64), none, none)
    job = Job(file.descriptor, file.block_bytes, plan, file.end, 1, 0, none[:0], np.empty(0, np.uint8))
    channel.begin(job)
    while True:
        verdict = channel.go_on().verdict
        if verdict != rules.RUNNING:
            return verdict == rules.DONE
        if time.monotonic() > until:
            return False
