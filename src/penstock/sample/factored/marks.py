"""Marks: the cache slots of a sample's rows, looked up by the sampler for the trainer (GNNLab).

In: the directories of static caches, in a slot of shared memory. Out: cache slots of the rows of a sample. Invariant: marks follow the
published directories. A trainer whose caches have other content looks its rows up itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.kernels.cache_lookup import cpu as kernels
from penstock.records import Graph, NodeType
from penstock.sample.factored.slots import Slots

Directories = Mapping[NodeType, np.ndarray]
"""Node type -> int32[num_nodes]: cache slot of each node, negative if its row is not kept."""


def publish(directories: Directories, graph: Graph, slots: Slots, slot: int) -> None:
    """Write the directories into a slot of shared memory; not all node types of the graph need one."""
    counts, flags = graph.num_nodes, np.array([t in directories for t in graph.num_nodes], np.int64)
    out = slots.writable(slot, _num_bytes(flags, graph))
    out[: flags.nbytes] = flags.view(np.uint8)
    first = flags.nbytes
    for t in (t for t in counts if t in directories):
        out[first : first + 4 * counts[t]].view(np.int32)[:] = directories[t]
        first += 4 * counts[t]


def published(graph: Graph, slots: Slots, slot: int) -> Directories:
    """Return the published directories, as views of the slot."""
    flags = slots.readable(slot, 8 * len(graph.num_nodes)).view(np.int64)
    whole, first, found = slots.readable(slot, _num_bytes(flags, graph)), flags.nbytes, {}
    for t in (t for t, is_there in zip(graph.num_nodes, flags, strict=True) if is_there):
        found[t] = whole[first : first + 4 * graph.num_nodes[t]].view(np.int32)
        first += 4 * graph.num_nodes[t]
    return found


def mark(nodes: Mapping[NodeType, np.ndarray], directories: Directories) -> dict[NodeType, np.ndarray]:
    """Return node type -> int32[n], for types with a directory: cache slots of int64[n] `nodes`, -1 for a row that is not kept."""
    found = {}
    for t, directory in directories.items():
        found[t] = np.empty(nodes[t].size, np.int32)
        kernels.lookup(nodes[t], directory, found[t])
    return found


def _num_bytes(flags: np.ndarray, graph: Graph) -> int:
    return flags.nbytes + 4 * sum(count for count, is_there in zip(graph.num_nodes.values(), flags, strict=True) if is_there)
