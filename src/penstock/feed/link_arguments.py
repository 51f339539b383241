"""What the arguments of a loader of links come to: a set of links, their labels and times, negatives, and what is left out of samples."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch_geometric.sampler import NegativeSampling

from penstock.errors import InputError, NodeIdError, UsageError
from penstock.feed.inputs import Input
from penstock.feed.inputs.base import IDS_GIVEN, as_numbers, as_seed_ids
from penstock.feed.links import Ends, GivenEnds, LinkSeeds
from penstock.records import EdgeType, Graph
from penstock.sample.negatives import Adjacency, Candidates, Negatives, adjacency_of, make_candidates
from penstock.sample.times import Timestamps, as_moments

logger = logging.getLogger("penstock")

WAYS = ("self", "reverse")

LOOKED_AT = 32
"""Links, to know whether they are edges."""


def choose_links(
    source: Input,
    times: Timestamps | None,
    edge_label_index: Any,
    *,
    edge_label: Any = None,
    edge_label_time: Any = None,
    input_id: Any = None,
    neg_sampling: NegativeSampling | None = None,
    exclude_positives: bool = True,
    exclude_links: str | Sequence[EdgeType] | None = None,
    disjoint: bool = False,
) -> LinkSeeds:
    """The set of links; there must be some. Arguments as of `LinkNeighborLoader`; `times` where samples are by time."""
    edge_type, ends, numbers, are_all = source.links(edge_label_index)
    if len(ends) == 0:
        raise UsageError("edge_label_index is empty: there is nothing to load; check the split or the edge type")
    if isinstance(ends, GivenEnds):
        _check_ends(source.graph, edge_type, ends)
    left_out = choose_left_out(source.graph, edge_type, exclude_links)
    if not left_out and (are_all or _are_edges(source.graph, edge_type, ends)):
        _warn_of_leaks()
    negatives = None
    if neg_sampling is not None:
        negatives = _negatives(source.graph, edge_type, neg_sampling, times, None if are_all else ends, exclude_positives)
    return LinkSeeds(
        edge_type=edge_type,
        ends=ends,
        disjoint=disjoint or times is not None,
        labels=_labels(edge_label, len(ends), neg_sampling),
        input_ids=numbers if input_id is None else _input_ids(input_id, len(ends)),
        times=_moments(edge_label_time, len(ends), times),
        negatives=negatives,
        left_out=left_out,
    )


def choose_negatives(neg_sampling: Any, neg_sampling_ratio: Any) -> NegativeSampling | None:
    """How negatives are drawn, in any of PyG's forms."""
    if neg_sampling_ratio is not None and not isinstance(neg_sampling_ratio, (int, float)):
        raise UsageError(f"neg_sampling_ratio is a number, negatives for each link; got {neg_sampling_ratio!r}")
    try:
        if neg_sampling_ratio:
            return NegativeSampling("binary", neg_sampling_ratio)
        return cast(Any, NegativeSampling.cast(neg_sampling))
    except (TypeError, ValueError) as error:
        raise UsageError(f"neg_sampling: {error}") from None


def choose_left_out(graph: Graph, edge_type: EdgeType, exclude_links: Any) -> list[tuple[EdgeType, bool]]:
    """Which edges like the links of a batch are left out of its sample: (edge type, whether they run the other way)."""
    if exclude_links is None:
        return []
    source, _, target = edge_type
    if isinstance(exclude_links, str):
        if exclude_links not in WAYS:
            raise UsageError(f"exclude_links must be one of {', '.join(WAYS)}, or edge types; got {exclude_links!r}")
        chosen = [(edge_type, False)]
        if exclude_links == "reverse":
            chosen += [(e, True) for e in _reverses(graph, edge_type)]
        return [(e, is_reversed) for e, is_reversed in chosen if e in graph.adjacency]
    chosen = []
    for each in exclude_links:
        if each not in graph.adjacency:
            raise UsageError(f"exclude_links: {each!r} is no edge type of the graph, which are {list(graph.adjacency)}")
        ways = [((source, target), False), ((target, source), True)]
        found = [(tuple(each), is_reversed) for ends, is_reversed in ways if ends == (each[0], each[2])]
        if not found:
            raise UsageError(f"exclude_links: edges {'/'.join(each)} do not join the types of links {'/'.join(edge_type)}")
        chosen += found
    return chosen


def _reverses(graph: Graph, edge_type: EdgeType) -> list[EdgeType]:
    """The edge types that hold the reverses of one, by PyG's names (`ToUndirected`), or the only one that joins its types the other way."""
    source, name, target = edge_type
    named = [(target, f"rev_{name}", source), (target, name.removeprefix("rev_"), source)]
    if source == target:
        return [edge_type, *(e for e in named if e != edge_type and e in graph.adjacency)]
    others = [e for e in graph.adjacency if (e[0], e[2]) == (target, source)]
    found = [e for e in others if e in named] or others
    if len(found) > 1:
        raise UsageError(f"exclude_links='reverse': which of {found} are the reverses of {edge_type}? Give a list of edge types")
    return found


def _are_edges(graph: Graph, edge_type: EdgeType, ends: Ends) -> bool:
    """Whether most of a few links are edges of their type."""
    csc = graph.adjacency.get(edge_type)
    if csc is None:
        return False
    links = zip(*ends.at(np.linspace(0, len(ends) - 1, min(LOOKED_AT, len(ends)), dtype=np.int64)), strict=True)
    found = [source in csc.indices[csc.indptr[target] : csc.indptr[target + 1]] for source, target in links]
    return 2 * sum(found) > len(found)


@functools.cache
def _warn_of_leaks() -> None:
    logger.warning(
        "links that a batch asks about are among the edges of its sample, as in PyG, and a model can see the answer there: "
        "exclude_links='reverse' leaves them and their reverses out"
    )


def _check_ends(graph: Graph, edge_type: EdgeType, ends: GivenEnds) -> None:
    for what, node_type, ids in (("source", edge_type[0], ends.sources), ("target", edge_type[2], ends.targets)):
        count = graph.num_nodes[node_type]
        if ids.min() < 0 or ids.max() >= count:
            bad = np.flatnonzero((ids < 0) | (ids >= count))
            raise NodeIdError(
                f"edge_label_index: {bad.size} of {ids.size} {what} ids lie outside [0, {count}), the ids of node type '{node_type}'; "
                f"first is link {bad[0]} with {ids[bad[0]]}"
            )


def _labels(edge_label: Any, num_links: int, neg_sampling: NegativeSampling | None) -> torch.Tensor | None:
    """Labels, from 1 on where 0 says negative, as in PyG."""
    if edge_label is None:
        return None
    if neg_sampling is not None and neg_sampling.is_triplet():
        raise UsageError("edge_label has no place in triplets, whose index tells links from negatives: leave it out")
    labels = torch.as_tensor(edge_label, device="cpu")
    if labels.dim() == 0 or labels.shape[0] != num_links:
        raise InputError(f"edge_label must have an entry for each of the {num_links} links, got {list(labels.shape)}")
    return labels + 1 if neg_sampling is not None and labels.min() == 0 else labels


def _input_ids(input_id: Any, num_links: int) -> np.ndarray:
    ids = as_seed_ids(torch.as_tensor(input_id, device="cpu"), IDS_GIVEN)
    if ids.size != num_links:
        raise UsageError(f"input_id must have an entry for each of the {num_links} links, got {ids.size}")
    return ids


def _moments(edge_label_time: Any, num_links: int, times: Timestamps | None) -> np.ndarray | None:
    """int64[num_links]: when each link looks at the graph."""
    if times is None:
        if edge_label_time is not None:
            raise UsageError("'edge_label_time' is set and 'time_attr' is not, the attribute that says when nodes or edges came")
        return None
    if edge_label_time is None:
        raise UsageError("'time_attr' is set and 'edge_label_time' is not set, when each link looks at the graph")
    given = edge_label_time.cpu() if isinstance(edge_label_time, torch.Tensor) else edge_label_time
    return as_moments(as_numbers(given, "edge_label_time"), num_links, "edge_label_time", "link")


def _negatives(
    graph: Graph, edge_type: EdgeType, how: NegativeSampling, times: Timestamps | None, given: Any, exclude_positives: bool
) -> Negatives:
    """How negatives are drawn. `given`: ends of links that are not all edges."""

    def candidates(node_type: str, weight: Any) -> Candidates:
        weight = None if weight is None else np.asarray(weight.detach().cpu() if isinstance(weight, torch.Tensor) else weight)
        moments = None if times is None else times.of_nodes.get(node_type)
        return make_candidates(node_type, graph.num_nodes[node_type], weight, moments)

    targets, positives = candidates(edge_type[2], how.dst_weight), []
    sources = None if how.is_triplet() else targets
    if sources is not None and not (edge_type[0] == edge_type[2] and how.src_weight is how.dst_weight):
        sources = candidates(edge_type[0], how.src_weight)
    if exclude_positives:
        if edge_type in graph.adjacency:
            graph.check_lists()
            csc = graph.adjacency[edge_type]
            positives.append(Adjacency(csc.indptr, csc.indices))
        if given is not None:
            positives.append(adjacency_of(given.sources, given.targets, graph.num_nodes[edge_type[0]], graph.num_nodes[edge_type[2]]))
    return Negatives(how.amount, sources, targets, positives)
