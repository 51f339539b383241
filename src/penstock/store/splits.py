"""Splits: named sets of parts ("train", "val", "test") of the nodes of one type.

In: ids per part. Out: int64 arrays, ascending. Invariants: in range, nothing twice, no node in two parts of one split. Parts that ascend
are taken as they are and compared by blocks: they may be as long as the graph, and a copy is not in the bound of an ingestion.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from penstock.errors import InputError, NodeIdError
from penstock.store.format import ArraySpec, file_name, folder_of_nodes
from penstock.store.writer import StoreWriter

_BLOCK = 1 << 16
"""Ids that a temporary array is made for at a time."""


def write_splits(
    writer: StoreWriter, node_type: str, splits: Mapping[str, Mapping[str, np.ndarray]], num_nodes: int
) -> dict[str, dict[str, ArraySpec]]:
    """Check and write the splits of one node type: split name -> part -> node ids."""
    written: dict[str, dict[str, ArraySpec]] = {}
    for split, parts in splits.items():
        checked = {part: sorted_part(ids, f"split '{split}' of {node_type}, part '{part}'", num_nodes) for part, ids in parts.items()}
        refuse_overlap(checked, f"split '{split}' of {node_type}")
        written[split] = {}
        for part, ids in checked.items():
            array = writer.array(f"{folder_of_nodes(node_type)}/splits/{file_name(split)}/{file_name(part)}.npy", "int64")
            array.append(ids)
            written[split][part] = array.finish()
    return written


def sorted_part(ids: np.ndarray, name: str, num_nodes: int) -> np.ndarray:
    """Return the ids of one part as int64, ascending."""
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise InputError(f"{name} must be a vector of node ids, got {ids.dtype} {list(ids.shape)}")
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= num_nodes):
        bad = np.flatnonzero((ids < 0) | (ids >= num_nodes))
        raise NodeIdError(f"{name}: {bad.size} of {ids.size} ids lie outside [0, {num_nodes}); first is entry {bad[0]} with {ids[bad[0]]}")
    blocks = (ids[first : first + _BLOCK + 1] for first in range(0, ids.size, _BLOCK))
    if ids.dtype == np.int64 and all((block[1:] > block[:-1]).all() for block in blocks):
        return ids
    ids = np.sort(ids.astype(np.int64))
    twice = np.flatnonzero(ids[1:] == ids[:-1])
    if twice.size:
        raise InputError(f"{name} has node {ids[twice[0]]} twice ({twice.size} repetitions): each node counts once")
    return ids


def refuse_overlap(parts: Mapping[str, np.ndarray], name: str) -> None:
    """Raise where two parts share a node; parts ascend."""
    for (one, ids), (other, others) in combinations(parts.items(), 2):
        blocks = (ids[first : first + _BLOCK] for first in range(0, ids.size, _BLOCK))
        found = (block[np.searchsorted(others, block, "right") > np.searchsorted(others, block)] for block in blocks)
        shared = np.concatenate([ids[:0], *found])
        if shared.size:
            raise InputError(f"{name}: node {shared[0]} is in '{one}' and in '{other}' ({shared.size} nodes are): parts must not overlap")
