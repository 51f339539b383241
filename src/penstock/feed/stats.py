"""What a loader counts: batches, bytes, and where the time went. Always on: it takes a few additions per batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from penstock.feed.buffers import Loan
from penstock.records import Span

T = TypeVar("T")


@dataclass(slots=True)
class BatchStats:
    """Counts of one batch, filled in where it is made. Seconds are those of the threads that worked; `event`: see `Delivery.record`;
    `loan`: the memory of its rows."""

    num_seeds: int = 0
    num_nodes: int = 0
    num_edges: int = 0
    gathered_bytes: int = 0
    stage_s: dict[str, float] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    event: Any = None
    loan: Loan | None = None
    padding_nodes: int = 0
    padding_edges: int = 0
    padding_step: int = 0


@dataclass(slots=True)
class LoaderStats:
    """Sums over the batches delivered since the loader was made.

    Attributes:
        num_batches, num_seeds, num_nodes, num_edges, gathered_bytes: totals.
        padding_nodes, padding_edges: nodes and edges added to fill up the hops of batches, see `penstock.feed.Padding`.
        padding_steps: step of the padding's sizes -> number of batches of that size.
        stage_s: seconds per stage, summed over the threads: order, sample, gather, assemble, move (to a device), transform (there);
            deliver, in the caller's thread: transform (here), pinning.
        wait_s: seconds that the caller waited for batches.
        user_s: seconds that the caller had a batch before asking for the next; where a device is behind, the time of a step there.
        buffer_bytes, peak_buffer_bytes: recycled memory held now, and at most so far.
        cache_bytes: memory of all that the plan keeps: rows with their directories and states, neighbour lists with their tables, buffers
            of disks.
        device_bytes: memory of a device for rows, their tables, the topology, and sampling (tables, a batch in the making); without batches
            that wait, and without the model.
        devices: what rows are -> how they reach the device.
        sampling: who draws the samples of batches for a device, and the reason where it is the CPU; empty without a device.
        device_cache: the size chosen for a cache that is sized by free memory, and why; empty before that, and for other caches.
        list_bytes: the neighbour lists' part of cache_bytes.
        weight_bytes: memory of the running sums by which edges are drawn.
        time_bytes: memory of the times of edges, and of the order of their lists.
        loaded_bytes: memory of rows and topology that were read into it as a whole.
        disks: name of a tier on a disk -> how it is read.
        memory: how a budget of memory is shared out, in words; empty without one.
        tiers: name of a tier -> its counts since the loader was made (`TierStats`); those of a cache are its hits.
        lists: the same for neighbour lists (`penstock.sample.lists.ListStats`); empty where the sampler reads plain arrays.
    """

    num_batches: int = 0
    num_seeds: int = 0
    num_nodes: int = 0
    num_edges: int = 0
    gathered_bytes: int = 0
    padding_nodes: int = 0
    padding_edges: int = 0
    padding_steps: dict[int, int] = field(default_factory=dict)
    stage_s: dict[str, float] = field(default_factory=dict)
    wait_s: float = 0.0
    user_s: float = 0.0
    buffer_bytes: int = 0
    peak_buffer_bytes: int = 0
    cache_bytes: int = 0
    device_bytes: int = 0
    weight_bytes: int = 0
    time_bytes: int = 0
    list_bytes: int = 0
    loaded_bytes: int = 0
    tiers: dict[str, dict[str, Any]] = field(default_factory=dict)
    lists: dict[str, dict[str, Any]] = field(default_factory=dict)
    disks: dict[str, str] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    memory: str = ""
    sampling: str = ""
    device_cache: str = ""

    def add(self, batch: BatchStats) -> None:
        """Count one more batch."""
        self.num_batches += 1
        self.num_seeds += batch.num_seeds
        self.num_nodes += batch.num_nodes
        self.num_edges += batch.num_edges
        self.gathered_bytes += batch.gathered_bytes
        self.padding_nodes += batch.padding_nodes
        self.padding_edges += batch.padding_edges
        if batch.padding_nodes:
            self.padding_steps[batch.padding_step] = self.padding_steps.get(batch.padding_step, 0) + 1
        for stage, seconds in batch.stage_s.items():
            self.stage_s[stage] = self.stage_s.get(stage, 0.0) + seconds

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def sources_of(tiers: dict[str, T]) -> dict[str, T]:
    """The tiers that rows came from, without those that only passed rows of others on: to a device, or through a spool."""
    return {name: counts for name, counts in tiers.items() if "upload of " not in name and not name.endswith("spool")}


def share_of_caches(tiers: dict[str, dict[str, Any]], counted: str) -> float | None:
    """Share of the rows or lists, by their name in the counts of tiers, that came from a cache; None without one."""
    sources = sources_of(tiers)
    hits = [counts[counted] for name, counts in sources.items() if name.endswith("cache")]
    asked = sum(counts[counted] for counts in sources.values())
    return sum(hits) / asked if hits and asked else None
