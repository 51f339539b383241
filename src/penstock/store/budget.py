"""The declared memory of an ingestion: a bound for the whole process, and what each part of the work may take of it.

In: the bound, and what the process holds already. Out: shares, or a refusal with the sum written out. Invariant: the shares and the
baseline add up to no more than the bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import BudgetError, UsageError, argument
from penstock.store.process_memory import free_in_container

MIB = 1 << 20
RESERVE_BYTES = 64 * MIB
"""Beside the shares: compiled kernels, the allocator's slack, the Parquet and CSV readers' own state."""
MIN_WORK_BYTES = 24 * MIB
MAX_CHUNK_BYTES = 16 * MIB
STREAM_CHUNKS = 8
"""How many chunks are in memory while a table streams: one being read (twice, inside the reader), one waiting, one in work with its
converted and its sorted copy."""
LEAST_BYTES = RESERVE_BYTES + STREAM_CHUNKS * MIB + MIN_WORK_BYTES
"""What an ingestion takes beside what is held already."""
TORCH_BYTES = 320 * MIB
"""What torch, PyG and the smallest work with them take: 325 MiB of a training of 2,000 nodes, 260 of them once they are loaded."""

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
    """What an ingestion may hold.

    Attributes:
        bound_bytes: for the whole process.
        baseline_bytes: resident before the work begins: interpreter, libraries, the user's own data.
        chunk_bytes: of one chunk of a table.
        work_bytes: for degrees, lists in the making and look-up tables, beside the streaming chunks.
        readers_bytes: what readers of wide tables hold of each column.
    """

    bound_bytes: int
    baseline_bytes: int
    chunk_bytes: int
    work_bytes: int
    readers_bytes: int = 0

    @property
    def stream_bytes(self) -> int:
        """For the chunks of a table that streams."""
        return STREAM_CHUNKS * self.chunk_bytes

    def describe(self) -> str:
        """Write out the bound, and how it is shared out."""
        parts = [
            f"{format_bytes(self.baseline_bytes)} held at the start",
            f"{format_bytes(RESERVE_BYTES)} reserve",
            *_readers(self.readers_bytes),
            f"up to {format_bytes(self.stream_bytes)} for chunks in flight",
            f"up to {format_bytes(self.work_bytes)} for the work",
        ]
        return f"at most {format_bytes(self.bound_bytes)}, the bound of the whole process: {', '.join(parts)}"


def default_bound(baseline_bytes: int, free_bytes: int, file_bytes: int, readers_bytes: int = 0) -> int:
    """The bound where none is declared: half of what is free beside the pages of files that are held, which count as free; where that is
    too little, as much as it takes, of all that is free."""
    left_bytes = max(0, free_bytes - file_bytes)
    return baseline_bytes + min(free_bytes, max(left_bytes // 2, LEAST_BYTES + readers_bytes))


def plan_budget(bound_bytes: int, baseline_bytes: int, readers_bytes: int = 0, left_bytes: int | None = None) -> Budget:
    """Divide a bound; `left_bytes`: of which it was made, where none was declared.

    Raises:
        BudgetError: too small; the message has the sum.
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
            f"{format_bytes(bound_bytes)} of memory are too few: {' + '.join(parts)} = {format_bytes(needed_bytes)} at least"
            + (declare if left_bytes is None else f", and {format_bytes(left_bytes)} are free")
        )
    return Budget(
        bound_bytes=bound_bytes, baseline_bytes=baseline_bytes, readers_bytes=readers_bytes, chunk_bytes=chunk_bytes, work_bytes=work_bytes
    )


def require_room(num_bytes: int, what: str, advice: str) -> None:
    """Raise BudgetError where the container around this process would kill it for so many bytes more.

    Args:
        what: takes them. advice: what to do instead.
    """
    left = free_in_container()
    if left is not None and num_bytes > left:
        room = f"the container around this process has {format_bytes(left)} left"
        raise BudgetError(f"{what} takes {format_bytes(num_bytes)}, and {room}: {advice}")


def _readers(num_bytes: int) -> list[str]:
    return [f"{format_bytes(num_bytes)} for the readers of many columns"] if num_bytes else []
