"""The accesses of some epochs, recorded once and replayed through any number of policies.

In: a sampler and an order. Out: per batch the distinct rows that it reads, and how often each neighbour list was read. Invariant: a trace
equals the batches of `sample_batches`. Ids are kept as int32, in memory up to a bound; the rest goes to a nameless temporary file, which
does not outlive the process. Sampling again for each policy would need no space, but takes several times as long.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.cache.policy import MAX_NODES
from penstock.cache.presample import distinct_nodes, iterate_samples, oracle_hotness
from penstock.errors import StoreError, UsageError, argument, reason_of
from penstock.order import Order
from penstock.records import Graph, NodeType
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import NodeSeeds


class Trace:
    """Batches of ids, appended once and read as often as needed.

    Args:
        num_nodes: ids lie in [0, num_nodes), which int32 can hold.
        num_epochs: number of epochs, all with the same number of batches.
        memory_bytes: most memory for ids; later ones are in a temporary file.
    """

    def __init__(self, num_nodes: int, num_epochs: int, memory_bytes: int) -> None:
        if num_nodes > MAX_NODES:
            raise UsageError(f"a study takes at most {MAX_NODES:,} nodes of a type, there are {num_nodes:,}")
        self.num_nodes, self.num_epochs = num_nodes, num_epochs
        self.sizes: list[int] = []
        self._left = memory_bytes // 4
        self._kept: list[np.ndarray] = []
        self._file: Any = None
        self._spilled = np.empty(0, dtype=np.int32)

    def append(self, ids: np.ndarray) -> None:
        """Add the next batch: int[n], distinct."""
        ids = ids.astype(np.int32)
        self.sizes.append(ids.size)
        if self._file is None and ids.size <= self._left:
            self._left -= ids.size
            self._kept.append(ids)
            return
        try:
            self._file = self._file or tempfile.TemporaryFile(prefix="penstock-study-")  # noqa: SIM115
            ids.tofile(self._file)
        except OSError as error:
            where = f"{tempfile.gettempdir()}: {reason_of(error)}"
            raise StoreError(f"cannot write the accesses to {where}; give more {argument('memory')}, or free space") from error

    def finish(self) -> None:
        """Call this after the last batch."""
        if self._file is not None:
            with self._file as file:  # the map outlives the file
                file.flush()
                if size := file.tell():
                    self._spilled = np.memmap(file, dtype=np.int32, mode="r", shape=(size // 4,))

    @property
    def num_batches(self) -> int:
        """Number of batches of all epochs."""
        return len(self.sizes)

    @property
    def num_accesses(self) -> int:
        """Number of rows requested by all batches."""
        return sum(self.sizes)

    @property
    def spilled_bytes(self) -> int:
        """Bytes that did not fit into memory."""
        return self._spilled.nbytes

    def batches(self, first_epoch: int = 0, stop_epoch: int | None = None) -> Iterator[np.ndarray]:
        """Yield int32[n] of each batch of some epochs."""
        per_epoch = self.num_batches // self.num_epochs
        stop = self.num_epochs if stop_epoch is None else stop_epoch
        place = sum(self.sizes[len(self._kept) : max(first_epoch * per_epoch, len(self._kept))])
        for number in range(first_epoch * per_epoch, stop * per_epoch):
            if number < len(self._kept):
                yield self._kept[number]
                continue
            yield self._spilled[place : place + self.sizes[number]]
            place += self.sizes[number]

    def visits(self, first_epoch: int, stop_epoch: int) -> np.ndarray:
        """Return int64[num_nodes]: how many batches of some epochs read each node."""
        return oracle_hotness(self.batches(first_epoch, stop_epoch), self.num_nodes)


@dataclass(frozen=True, slots=True)
class ListReads:
    """How the neighbour lists of one node type are read, over all edge types that end in it, in the measured epochs.

    Attributes:
        reads: int64[num_nodes]: times each node's list was read.
        entries: int64[num_nodes]: neighbours taken from it.
        list_bytes: int64[num_nodes]: its length in bytes.
    """

    reads: np.ndarray
    entries: np.ndarray
    list_bytes: np.ndarray


def record(
    sampler: NeighborSampler, seeds: tuple[NodeType, np.ndarray], order: Order, *, batch_size: int, num_epochs: int, measured_from: int,
    node_type: NodeType, memory_bytes: int, advance: Callable[[int], None],
) -> tuple[Trace, ListReads]:  # fmt: skip
    """Sample epochs 0 to `num_epochs` - 1 and record their accesses.

    Args:
        sampler: not disjoint.
        seeds: (node type, int64[num_seeds] ids).
        order, batch_size: determine the seeds of each batch.
        measured_from: the first epoch whose reads of lists count.
        node_type: whose rows and lists are recorded.
        memory_bytes: see `Trace`.
        advance: called for every batch.
    """
    graph = sampler.graph
    trace = Trace(graph.num_nodes[node_type], num_epochs, memory_bytes)
    reads, entries = (np.zeros(trace.num_nodes, dtype=np.int64) for _ in range(2))
    lists = ListReads(reads, entries, _list_bytes(graph, node_type))
    batches = SampledBatches(sampler, NodeSeeds(*seeds), order, batch_size)
    warm_batches = measured_from * batches.num_batches
    for number, sample in enumerate(iterate_samples(batches, epochs=range(num_epochs))):
        trace.append(distinct_nodes(sampler, sample)[node_type])
        if number >= warm_batches:
            expanded = sample.nodes[node_type][: sum(sample.num_nodes_per_hop[node_type][:-1])]
            np.add.at(lists.reads, expanded, 1)
            for counts in (np.diff(edges.row_ptr) for edge_type, edges in sample.edges.items() if edge_type[2] == node_type):
                np.add.at(lists.entries, expanded[: counts.size], counts)
        advance(1)
    trace.finish()
    return trace, lists


def _list_bytes(graph: Graph, node_type: NodeType) -> np.ndarray:
    total = np.zeros(graph.num_nodes[node_type], dtype=np.int64)
    for edge_type, csc in graph.adjacency.items():
        if edge_type[2] == node_type:
            total += np.diff(csc.indptr) * csc.indices.itemsize
    return total
