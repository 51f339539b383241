"""Splits: named sets of parts ("train", "val", "test") of the nodes of one type.

In: ids per part. Out: int64 arrays, ascending. Invariants: ids are in range, no id occurs twice, no node is in two parts of one split.
Parts that already ascend are not copied, and are compared block by block: they may be as long as the graph, and the memory bound of an
ingestion does not include a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from penstock.errors import InputError
from penstock.sources.splits import BLOCK, index_part
from penstock.store.format import ArraySpec, file_name, folder_of_nodes
from penstock.store.writer import StoreWriter


def write_splits(
    writer: StoreWriter, node_type: str, splits: Mapping[str, Mapping[str, np.ndarray]], num_nodes: int
) -> dict[str, dict[str, ArraySpec]]:
    """Check and write the splits of one node type: split name -> part -> node ids."""
    written: dict[str, dict[str, ArraySpec]] = {}
    for split, parts in splits.items():
        name = f"split '{split}' of {node_type}"
        checked = {part: index_part(np.asarray(ids), num_nodes, f"{name}, part '{part}'") for part, ids in parts.items()}
        refuse_overlap(checked, name)
        written[split] = {}
        for part, ids in checked.items():
            array = writer.array(f"{folder_of_nodes(node_type)}/splits/{file_name(split)}/{file_name(part)}.npy", "int64")
            array.append(ids)
            written[split][part] = array.finish()
    return written


def refuse_overlap(parts: Mapping[str, np.ndarray], name: str) -> None:
    """Raise if two parts share a node; parts must ascend."""
    for (one, ids), (other, others) in combinations(parts.items(), 2):
        shared = shared_nodes(ids, others)
        if shared.size:
            raise InputError(f"{name}: node {shared[0]} is in '{one}' and in '{other}' ({shared.size} nodes are): parts must not overlap")


def shared_nodes(ids: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the common elements of two ascending arrays."""
    blocks = (ids[first : first + BLOCK] for first in range(0, ids.size, BLOCK))
    found = (block[np.searchsorted(others, block, "right") > np.searchsorted(others, block)] for block in blocks)
    return np.concatenate([ids[:0], *found])
