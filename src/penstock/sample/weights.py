"""Weights of edges. They are converted to integers once, before the first draw, so that draws are exact.

In: a graph, and one number per edge of some edge types. Out: the same graph, with running sums of weights. Invariant: the integers are a
function of the weights alone (see `penstock.kernels.running_sums.reference`), so samples are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.errors import InputError, MissingFieldError, damaged_list
from penstock.kernels.running_sums import cpu
from penstock.kernels.running_sums.reference import STEP_BITS
from penstock.records import CSC, EDGE, EdgeType, Graph
from penstock.sample.shared import pieces
from penstock.store import Store
from penstock.store.budget import require_room
from penstock.store.format import BFLOAT16

PYG_NAMES = {"edge_weight": "weight"}
"""PyG's name of a field -> its name in a store."""

PIECE = 1 << 22
"""Edges whose weights are read at a time; a longer list is one piece."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one edge type.

    Attributes:
        values: number[num_edges].
        name: the user's name of the field, for messages.
        by_position: `values` is in CSC order; else it is indexed by the user's numbers of the edges.
        indptr: int64[num_dst + 1] of the whole graph, where `values` belongs to a part of it; for messages.
    """

    values: np.ndarray
    name: str = "weight"
    by_position: bool = False
    indptr: np.ndarray | None = None


def with_weights(graph: Graph, weights: Mapping[EdgeType, Weights]) -> Graph:
    """Return the same graph; samplers draw the neighbours of the edge types in `weights` by weight.

    Raises:
        InputError: weights are not one finite number, 0 or more, per edge.
        BudgetError: the sums do not fit into the memory limit of this process's container.
        CorruptStoreError: a damaged list.
    Cost: two passes over the edges. Memory: 8.5 bytes an edge, and 24 bytes per edge of a piece while it runs.
    """
    if weights:
        what = f"drawing by {next(iter(weights.values())).name}"
        require_room(declare_weights(weights), what, "draw uniformly, or take more memory")
    adjacency = {e: weigh(e, csc, weights[e]) if e in weights else csc for e, csc in graph.adjacency.items()}
    return replace(graph, adjacency=adjacency)


def weigh(edge_type: EdgeType, csc: CSC, weights: Weights) -> CSC:
    """Return the lists of one edge type with running sums and the guide to these; raises as `with_weights`."""
    sums = sum_up(edge_type, csc, weights)
    guide = np.zeros((csc.num_edges >> STEP_BITS) + 1, dtype=np.uint32)
    cpu.guide(csc.indptr, sums, guide)
    return replace(csc, sums=sums, guide=guide)


def choose_weights(fields: Mapping[EdgeType, Mapping[str, Any]], name: str, source: str) -> dict[EdgeType, Any]:
    """Return edge type -> its field `name`, for the edge types that have it. Raises MissingFieldError if none has.

    If an edge type has no field with exactly this name, PyG's name means the store's: `edge_weight` means `weight`.
    """
    found = {}
    for edge_type, of_type in fields.items():
        stored = name if name in of_type else PYG_NAMES.get(name, name)
        if stored in of_type:
            found[edge_type] = of_type[stored]
    if not found:
        known = ", ".join(dict.fromkeys(repr(field) for of_type in fields.values() for field in of_type))
        raise MissingFieldError(f"{source}: edges have no field {name!r} to weigh them by; they have {known or 'none'}")
    return found


def store_weights(store: Store, name: str) -> dict[EdgeType, Weights]:
    """Return edge type -> the weights in a store's field `name`. Raises MissingFieldError."""
    chosen = choose_weights({e: store.edge_fields(e) for e in store.edge_types}, name, str(store.path))
    return {e: Weights(decoded(store.map(spec), spec.dtype == BFLOAT16), name, by_position=True) for e, spec in chosen.items()}


def decoded(values: np.ndarray, is_bfloat16: bool) -> np.ndarray:
    """The values of a field; bfloat16, stored as its bits, becomes float32."""
    return (values.astype(np.uint32) << 16).view(np.float32) if is_bfloat16 else values


def declare_weights(weights: Mapping[EdgeType, Weights]) -> int:
    """Most bytes that `with_weights` takes, for what is kept and for one piece. A list longer than a piece takes more."""
    sizes = [each.values.size for each in weights.values()]
    return sum(8 * size + size // 2 for size in sizes) + 24 * min(PIECE, max(sizes))


def weight_bytes(graph: Graph) -> int:
    """Bytes that the running sums of a graph take, with their guides."""
    weighed = [csc for csc in graph.adjacency.values() if csc.sums is not None]
    of_others = [csc.draws.resident_bytes for csc in weighed if csc.draws is not None]
    return sum(of_others) + sum(
        array.nbytes for csc in weighed if csc.draws is None for array in (csc.sums, csc.guide) if array is not None
    )


def sum_up(edge_type: EdgeType, csc: CSC, weights: Weights) -> np.ndarray:
    """Return int64[num_edges]: the running sums of one edge type, within each list. Raises InputError and CorruptStoreError."""
    values, label = weights.values, label_of(weights.name, edge_type)
    if values.shape != (csc.num_edges,) or values.dtype.kind not in "buif":
        raise weights_are_none(label, csc.num_edges, values.dtype, values.shape)
    numbers = None if weights.by_position else csc.edge_ids
    sums = np.empty(csc.num_edges, dtype=np.int64)
    for first, last in pieces(csc.indptr, PIECE):
        start, end = int(csc.indptr[first]), int(csc.indptr[last])
        piece = np.asarray(values[start:end] if numbers is None else values[numbers[start:end]], dtype=np.float64)
        bad, damaged = cpu.running_sums(csc.indptr, first, last, start, piece, sums[start:end])
        if damaged >= 0:
            raise damaged_list(edge_type, damaged, csc.num_edges)
        if bad >= 0:
            number = bad if numbers is None else int(numbers[bad])
            target = int(np.searchsorted(csc.indptr, bad, side="right")) - 1
            number += 0 if weights.indptr is None else int(weights.indptr[target] - csc.indptr[target])
            ends = f"from {csc.indices[bad]} to {target}"
            raise InputError(
                f"{label} is {piece[bad - start]:g} at edge {number} ({ends}): weights are finite, and 0 (never drawn) or more"
            )
    return sums


def weights_are_none(label: str, num_edges: int, dtype: object, shape: Sequence[int]) -> InputError:
    """Return the error for weights that are not one number for each edge."""
    return InputError(f"{label} must be one number per edge, [{num_edges}]; got {dtype} {list(shape)}")


def label_of(name: str, edge_type: EdgeType) -> str:
    """The name of an edge type's weights in messages."""
    return name if edge_type == EDGE else f"{name} of {edge_type}"
