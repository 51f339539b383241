"""Marks: where a trainer's caches have the rows of a sample, looked up by the process that draws it (GNNLab).

In: the directories of caches whose content stays, in a slot of shared memory. Out: slots of the rows of a sample. Invariant: a mark is what
the directories that were published say; a trainer that keeps anything else looks its rows up itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.kernels.cache_lookup import cpu as kernels
from penstock.records import Graph, NodeType
from penstock.sample.factored.slots import Slots

Directories = Mapping[NodeType, np.ndarray]
"""Node type -> int32[num_nodes]: slot of each node whose row is kept, negative for the others."""


def publish(directories: Directories, graph: Graph, slots: Slots, slot: int) -> None:
    """Write directories of some node types of a graph into a slot."""
    counts, flags = graph.num_nodes, np.array([t in directories for t in graph.num_nodes], np.int64)
    out = slots.writable(slot, _num_bytes(flags, graph))
    out[: flags.nbytes] = flags.view(np.uint8)
    first = flags.nbytes
    for t in (t for t in counts if t in directories):
        out[first : first + 4 * counts[t]].view(np.int32)[:] = directories[t]
        first += 4 * counts[t]


def published(graph: Graph, slots: Slots, slot: int) -> Directories:
    """What was published, where it lies."""
    flags = slots.readable(slot, 8 * len(graph.num_nodes)).view(np.int64)
    whole, first, found = slots.readable(slot, _num_bytes(flags, graph)), flags.nbytes, {}
    for t in (t for t, is_there in zip(graph.num_nodes, flags, strict=True) if is_there):
        found[t] = whole[first : first + 4 * graph.num_nodes[t]].view(np.int32)
        first += 4 * graph.num_nodes[t]
    return found


def mark(nodes: Mapping[NodeType, np.ndarray], directories: Directories) -> dict[NodeType, np.ndarray]:
    """Return int32[n] per node type that has a directory: slots of int64[n] nodes, -1 where there is none."""
    found = {}
    for t, directory in directories.items():
        found[t] = np.empty(nodes[t].size, np.int32)
        kernels.lookup(nodes[t], directory, found[t])
    return found


def _num_bytes(flags: np.ndarray, graph: Graph) -> int:
    return flags.nbytes + 4 * sum(count for count, is_there in zip(graph.num_nodes.values(), flags, strict=True) if is_there)
