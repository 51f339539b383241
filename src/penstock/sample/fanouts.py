"""Checks fanouts, as the user gives them, against a graph."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from penstock import rng
from penstock.errors import UsageError, argument
from penstock.kernels.sample_weighted import cpu as weighted
from penstock.records import EdgeType, Graph


def whole_numbers(name: str, fanouts: Sequence[int]) -> tuple[int, ...]:
    """Return a number for each hop, as whole numbers. `name`: of the argument, for the UsageError."""
    try:
        return tuple(operator.index(fanout) for fanout in fanouts)
    except TypeError:
        raise UsageError(f"{name} is a list of whole numbers, one per hop, for instance [15, 10]; got {fanouts!r}") from None


def check_fanouts(
    graph: Graph, num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]], *, are_hops_needed: bool = True
) -> dict[EdgeType, tuple[int, ...]]:
    """Return edge type -> fanouts, one per hop, all of the same length; raises UsageError. `are_hops_needed`: seeds alone are no sample."""
    name = argument("num_neighbors")
    if isinstance(num_neighbors, Mapping):
        missing = [edge_type for edge_type in graph.adjacency if edge_type not in num_neighbors]
        unknown = [edge_type for edge_type in num_neighbors if edge_type not in graph.adjacency]
        if missing or unknown:
            what = f"{unknown[0]} is not an edge type of this graph" if unknown else f"none given for {missing[0]}"
            raise UsageError(f"{name}: {what}; the edge types are {list(graph.adjacency)}")
        fanouts = {edge_type: whole_numbers(name, num_neighbors[edge_type]) for edge_type in graph.adjacency}
    else:
        fanouts = {edge_type: whole_numbers(name, num_neighbors) for edge_type in graph.adjacency}
    lengths = sorted({len(values) for values in fanouts.values()})
    if len(lengths) > 1:
        raise UsageError(f"{name}: the number of hops must be the same across all edge types, got lists of {lengths} elements")
    has_edges = any(csc.num_edges for csc in graph.adjacency.values())
    if fanouts and not (has_edges and are_hops_needed) <= lengths[0] <= rng.MAX_HOPS:  # a graph without edges loses nothing by 0 hops
        raise UsageError(f"{name} needs 1 to {rng.MAX_HOPS} hops, got {lengths[0]}; for instance [15, 10]")
    for hop in range(lengths[0] if lengths else 0):
        wanted = [values[hop] for values in fanouts.values()]
        if max((values[hop] for e, values in fanouts.items() if graph.adjacency[e].sums is not None), default=0) > weighted.MAX_DRAWS:
            raise UsageError(f"{name} at hop {hop} must be at most {weighted.MAX_DRAWS} by weight, or -1 = all; got {wanted}")
        if min(wanted) < -1 or max(wanted) > rng.MAX_DRAWS:
            raise UsageError(f"{name} at hop {hop} must lie in [-1, {rng.MAX_DRAWS}], -1 = all neighbours; got {wanted}")
        if not any(wanted):
            raise UsageError(f"{name} is 0 at hop {hop}: nothing would be sampled there; drop the hop, or use -1 for all neighbours")
    if len(fanouts) > rng.MAX_EDGE_TYPES:
        raise UsageError(f"{len(fanouts)} edge types; at most {rng.MAX_EDGE_TYPES} are supported")
    return fanouts
