"""The graph of a data set that GraphBolt has preprocessed (`fused_csc_sampling_graph.pt`). Nothing of DGL is imported.

In: the file, in which torch saved an object of DGL: the neighbour lists of all nodes in one numbering, and the type of each edge. Out: the
number of nodes and the ends of the edges, by type. No code of the file runs: its two classes are replaced by one that keeps what was saved.
Invariant: edges are in the order of the raw files, so that features of edges fit, if the file has their ids (`include_original_edge_id`).
Memory: the graph, and 8 to 16 bytes an edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.records import EDGE, NODE, EdgeType, NodeType
from penstock.sources.source import DST, SRC, ArrayTable, Table

_CLASSES = ("dgl.graphbolt.impl.fused_csc_sampling_graph.FusedCSCSamplingGraph", "torch.ScriptObject")
_EDGE_IDS = "_ORIGINAL_EDGE_ID"


class _Saved:
    """Stands in for the classes in the file."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def open_fused(path: Path) -> tuple[dict[NodeType, int], dict[EdgeType, Table], bool]:
    """Read a graph.

    Returns:
        node type -> number of nodes; edge type -> ends; whether edges are in their original order.
    """
    import torch

    with torch.serialization.safe_globals([(_Saved, name) for name in _CLASSES]):
        try:
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True).state["_c_csc_graph"].state[0]
            parts = {key: {name: tensor.numpy() for name, tensor in tensors.items()} for key, tensors in state.items()}
            return _split_by_type(parts, str(path))
        except MemoryError:
            raise
        except Exception as error:  # of a file that holds something else nearly anything is raised
            raise InputError(f"{path}: not a graph of GraphBolt that is loaded without DGL; give the folder with its raw files") from error


def _split_by_type(parts: Mapping[str, Mapping[str, np.ndarray]], name: str) -> tuple[dict[NodeType, int], dict[EdgeType, Table], bool]:
    arrays, edge_ids = parts["independent_tensors"], parts.get("edge_attributes", {}).get(_EDGE_IDS)
    indptr, indices = arrays["indptr"], arrays["indices"]
    counts = np.diff(indptr)
    if indptr[0] != 0 or indptr[-1] != len(indices) or (counts < 0).any():
        raise ValueError(f"{name}: lists of neighbours overlap, or pass the end")
    destinations = np.repeat(np.arange(len(counts), dtype=indices.dtype), counts)
    if "type_per_edge" not in arrays:
        table = _table(indices, destinations, edge_ids, name)
        return {NODE: len(counts)}, {EDGE: table}, edge_ids is not None
    first, type_of_edge = arrays["node_type_offset"], arrays["type_per_edge"]
    number = {node_type: int(value) for node_type, value in parts["node_type_to_id"].items()}
    tables: dict[EdgeType, Table] = {}
    for key, value in parts["edge_type_to_id"].items():
        source_type, relation, target_type = key.split(":")
        rows = np.flatnonzero(type_of_edge == int(value))
        ends = indices[rows] - first[number[source_type]], destinations[rows] - first[number[target_type]]
        tables[source_type, relation, target_type] = _table(*ends, None if edge_ids is None else edge_ids[rows], f"{name}: {key}")
    return {node_type: int(first[i + 1] - first[i]) for node_type, i in number.items()}, tables, edge_ids is not None


def _table(sources: np.ndarray, destinations: np.ndarray, edge_ids: np.ndarray | None, name: str) -> Table:
    """Return edges in the order of their ids."""
    if edge_ids is not None:
        order = np.argsort(edge_ids)
        if not np.array_equal(edge_ids[order], np.arange(len(sources))):
            raise ValueError(f"{name}: ids of edges are not 0 to {len(sources) - 1}, each once")
        sources, destinations = sources[order], destinations[order]
    return ArrayTable({SRC: sources, DST: destinations}, name)
