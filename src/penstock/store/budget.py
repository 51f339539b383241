"""The declared memory of an ingestion: a bound for the whole process, and the share of each part of the work.

In: the bound, and the memory that the process holds already. Out: shares, or a refusal with the sum written out. Invariant: the shares and
the baseline add up to no more than the bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import BudgetError, UsageError, argument
from penstock.store.process_memory import free_in_container

MIB = 1 << 20
RESERVE_BYTES = 64 * MIB
"""Reserve beside the shares, for compiled kernels, the allocator's slack, and the state of the Parquet and CSV readers."""
MIN_WORK_BYTES = 24 * MIB
MAX_CHUNK_BYTES = 16 * MIB
STREAM_CHUNKS = 8
"""Chunks in memory while a table is streamed: one being read (which the reader holds twice), one waiting, and one at work with its
converted and its sorted copy."""
LEAST_BYTES = RESERVE_BYTES + STREAM_CHUNKS * MIB + MIN_WORK_BYTES
"""The least that an ingestion takes beside the baseline."""
TORCH_BYTES = 320 * MIB
"""Memory of torch, PyG and the smallest work with them: training on 2,000 nodes takes 325 MiB, 260 of them for loading the libraries."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def parse_bytes(text: str | int) -> int:
    """Parse a number of bytes: 1024, "512MiB", "16GiB", "1.5 GB"."""
    match = re.fullmatch(r"\s*(\d{1,30}(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", str(text), re.IGNORECASE)
    if not match or match[2].lower() not in _UNITS:
        raise UsageError(f"cannot read {text!r} as a number of bytes: write for instance 768MiB, 16GiB or 2GB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def format_bytes(count: float) -> str:
    """Write a number of bytes for people: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit in ("B", "KiB") else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Memory that an ingestion may hold.

    Attributes:
        bound_bytes: for the whole process.
        baseline_bytes: resident before the work begins: interpreter, libraries, the user's own data.
        chunk_bytes: size of one chunk of a table.
        work_bytes: for degrees, unfinished lists and look-up tables, beside the streamed chunks.
        readers_bytes: what readers of wide tables hold for their columns.
    """

    bound_bytes: int
    baseline_bytes: int
    chunk_bytes: int
    work_bytes: int
    readers_bytes: int = 0

    @property
    def stream_bytes(self) -> int:
        """Memory for the chunks of a table while it is streamed."""
        return STREAM_CHUNKS * self.chunk_bytes

    def describe(self) -> str:
        """Describe the bound and how it is divided."""
        parts = [
            f"{format_bytes(self.baseline_bytes)} held at the start",
            f"{format_bytes(RESERVE_BYTES)} reserve",
            *_readers(self.readers_bytes),
            f"up to {format_bytes(self.stream_bytes)} for chunks in flight",
            f"up to {format_bytes(self.work_bytes)} for the work",
        ]
        return f"at most {format_bytes(self.bound_bytes)}, the bound of the whole process: {', '.join(parts)}"


def default_bound(baseline_bytes: int, free_bytes: int, file_bytes: int, readers_bytes: int = 0) -> int:
    """Return the bound if none is declared: half of the free memory, not counting pages of files that this process holds (the system counts
    them as free); if that is too little, what an ingestion needs, as far as it is free."""
    left_bytes = max(0, free_bytes - file_bytes)
    return baseline_bytes + min(free_bytes, max(left_bytes // 2, LEAST_BYTES + readers_bytes))


def plan_budget(bound_bytes: int, baseline_bytes: int, readers_bytes: int = 0, left_bytes: int | None = None) -> Budget:
    """Divide a bound.

    Args:
        bound_bytes, baseline_bytes, readers_bytes: see `Budget`.
        left_bytes: the free memory from which a default bound was derived, for the message; None if the bound was declared.
    Raises:
        BudgetError: the bound is too small; the message shows the sum.
    """
    free_bytes = bound_bytes - baseline_bytes - RESERVE_BYTES - readers_bytes
    chunk_bytes = min(MAX_CHUNK_BYTES, free_bytes // (3 * STREAM_CHUNKS), (free_bytes - MIN_WORK_BYTES) // STREAM_CHUNKS)
    chunk_bytes = max(MIB, chunk_bytes)
    work_bytes = free_bytes - STREAM_CHUNKS * chunk_bytes
    if work_bytes < MIN_WORK_BYTES:
        needed_bytes = baseline_bytes + LEAST_BYTES + readers_bytes
        parts = [
            f"{format_bytes(baseline_bytes)} are held already",
            f"{format_bytes(RESERVE_BYTES)} reserve",
            *_readers(readers_bytes),
            f"{format_bytes(STREAM_CHUNKS * MIB)} for chunks",
            f"{format_bytes(MIN_WORK_BYTES)} for the work",
        ]
        declare = f". Declare more by {argument('memory')}, or ingest in a process of its own"
        raise BudgetError(
            f"{format_bytes(bound_bytes)} of memory is too little: {' + '.join(parts)} = {format_bytes(needed_bytes)} at least"
            + (declare if left_bytes is None else f", and {format_bytes(left_bytes)} are free")
        )
    return Budget(
        bound_bytes=bound_bytes, baseline_bytes=baseline_bytes, readers_bytes=readers_bytes, chunk_bytes=chunk_bytes, work_bytes=work_bytes
    )


def require_room(num_bytes: int, what: str, advice: str) -> None:
    """Raise BudgetError if the container around this process has less than `num_bytes` left, and would kill it.

    Args:
        what: what needs the memory. advice: what the user can do instead.
    """
    left = free_in_container()
    if left is not None and num_bytes > left:
        room = f"the container around this process has {format_bytes(left)} left"
        raise BudgetError(f"{what} takes {format_bytes(num_bytes)}, and {room}: {advice}")


def _readers(num_bytes: int) -> list[str]:
    return [f"{format_bytes(num_bytes)} for the readers of many columns"] if num_bytes else []
