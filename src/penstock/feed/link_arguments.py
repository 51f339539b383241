"""What the arguments of a loader of links come to: a set of links, their labels and times, negatives, and what is left out of samples."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch_geometric.sampler import NegativeSampling
from torch_geometric.sampler.base import NegativeSamplingMode

from penstock.errors import InputError, MissingFieldError, NodeIdError, UsageError
from penstock.feed.inputs import Input
from penstock.feed.inputs.base import IDS_GIVEN, as_numbers, as_seed_ids, edge_type_of
from penstock.feed.links import ChosenLinks, FieldLabels, GivenEnds, LinkSeeds
from penstock.records import EdgeType, Graph, reverses_of
from penstock.sample.negatives import Candidates, Negatives, adjacency_of, known_edges, make_candidates
from penstock.sample.times import ANY_EARLIER, Timestamps, as_moments, check_moments

logger = logging.getLogger("penstock")

WAYS = ("self", "reverse")

LABELS = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)

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
    exclude_links: Any = None,
    bidirectional: bool = False,
    disjoint: bool = False,
) -> LinkSeeds:
    """The set of links; there must be some. Arguments as of `LinkNeighborLoader`; `times` where samples are by time; `bidirectional`: the
    reverses of edges are put to a sample."""
    links = source.links(edge_label_index)
    edge_type, ends, are_all = links.edge_type, links.ends, links.are_all
    if len(ends) == 0:
        raise UsageError("edge_label_index is empty: there is nothing to load; check the split or the edge type")
    if isinstance(ends, GivenEnds) and not are_all:
        _check_ends(source.graph, edge_type, ends)
    left_out = choose_left_out(source.graph, edge_type, exclude_links)
    if bidirectional:
        _check_reverses(source.graph, edge_type, left_out)
    moments = _moments(edge_label_time, links, times)
    if not left_out and _are_shown(source.graph, edge_type, links, times, moments):
        _warn_of_leaks()
    negatives = None
    if neg_sampling is not None:
        given = None if are_all or not exclude_positives else ends if links.known is None else links.known()
        negatives = _negatives(source.graph, edge_type, neg_sampling, times, given, exclude_positives)
    return LinkSeeds(
        edge_type=edge_type,
        ends=ends,
        disjoint=disjoint or times is not None,
        labels=_labels(edge_label, len(ends), neg_sampling, links.field),
        input_ids=links.input_ids if input_id is None else _input_ids(input_id, len(ends)),
        times=moments,
        rule=ANY_EARLIER if times is None else times.rule,
        negatives=negatives,
        left_out=left_out,
    )


def all_edges(graph: Graph, edge_type: EdgeType, reverses: Iterable[EdgeType]) -> dict[str, Any]:
    """Arguments of a `LinkNeighborLoader` of all edges of a type, whose batches show neither these nor their reverses.

    Args:
        reverses: edge types that have some of these; where the graph has not got them, nothing is left out.
    """
    left_out = [e for e in dict.fromkeys((edge_type, *reverses)) if e in graph.adjacency]
    return {"edge_label_index": None if graph.is_homogeneous else edge_type, "exclude_links": left_out}


def choose_negatives(neg_sampling: Any, neg_sampling_ratio: Any) -> NegativeSampling | None:
    """How negatives are drawn, in any of PyG's forms; the ratio comes first, as in PyG."""
    try:
        ratio = 0.0 if neg_sampling_ratio is None else float(neg_sampling_ratio)
    except (TypeError, ValueError):
        raise UsageError(f"neg_sampling_ratio is a number, negatives for each link; got {neg_sampling_ratio!r}") from None
    try:
        how: Any = NegativeSampling("binary", ratio) if ratio else NegativeSampling.cast(neg_sampling)
    except (TypeError, ValueError) as error:
        modes = ", ".join(mode.value for mode in NegativeSamplingMode)
        raise UsageError(f"neg_sampling: {error}; modes are {modes}") from None
    if how is not None and not math.isfinite(how.amount):
        raise UsageError(f"neg_sampling: a link has so many negatives, or a share of one; got {how.amount}")
    return how


def choose_left_out(graph: Graph, edge_type: EdgeType, exclude_links: Any) -> list[tuple[EdgeType, bool]]:
    """Which edges like the links of a batch are left out of its sample: (edge type, whether they run the other way)."""
    if exclude_links is None:
        return []
    if exclude_links in WAYS:
        chosen = [(edge_type, False)]
        if exclude_links == "reverse":
            chosen += [(e, True) for e in _reverses(graph, edge_type)]
        return [(e, is_reversed) for e, is_reversed in chosen if e in graph.adjacency]
    if isinstance(exclude_links, str) or not isinstance(exclude_links, Iterable):
        raise UsageError(f"exclude_links must be one of {', '.join(WAYS)}, or edge types; got {exclude_links!r}")
    chosen, given = [], list(exclude_links)
    for each in [given] if all(isinstance(part, str) for part in given) else given:
        name = edge_type_of(tuple(each) if isinstance(each, (tuple, list)) else each, graph.adjacency)
        if name not in graph.adjacency:
            raise UsageError(f"exclude_links: {name!r} is no edge type of the graph, which are {list(graph.adjacency)}")
        ways = [((edge_type[0], edge_type[2]), False), ((edge_type[2], edge_type[0]), True)]
        found = [(name, is_reversed) for ends, is_reversed in ways if ends == (name[0], name[2])]
        if not found:
            raise UsageError(f"exclude_links: edges {'/'.join(name)} do not join the types of links {'/'.join(edge_type)}")
        chosen += found
    return chosen


def _reverses(graph: Graph, edge_type: EdgeType) -> list[EdgeType]:
    """The edge types that hold the reverses of one, by PyG's names (`ToUndirected`); a type that joins a node type to itself may hold its
    own. Others that join the types the other way may or may not be reverses: who leaves them out says so."""
    named, others = reverses_of(edge_type, graph.adjacency)
    if others and not named:
        raise UsageError(
            f"exclude_links='reverse': any of {others} may hold the reverses of {edge_type}: give the edge types to leave links out of, or "
            "'self'"
        )
    return named


def _check_reverses(graph: Graph, edge_type: EdgeType, left_out: Sequence[tuple[EdgeType, bool]]) -> None:
    """Raise where edges that are left out would come back as the reverses of others."""
    has_others = any((e[0], e[2]) == (edge_type[2], edge_type[0]) for e in graph.adjacency)
    if left_out and has_others and not any(is_reversed for _, is_reversed in left_out):
        raise UsageError(
            "exclude_links with subgraph_type='bidirectional', which adds the reverses of edges, would leave answers in: take "
            "exclude_links='reverse', or the edge types of both directions"
        )


def _are_shown(graph: Graph, edge_type: EdgeType, links: ChosenLinks, times: Timestamps | None, moments: np.ndarray | None) -> bool:
    """Whether most of a few links are edges of their type, in time for their own samples."""
    csc, ends = graph.adjacency.get(edge_type), links.ends
    if csc is None or (times is None and links.are_all):
        return csc is not None
    looked_at = np.linspace(0, len(ends) - 1, min(LOOKED_AT, len(ends)), dtype=np.int64)
    sources, targets = ends.at(looked_at)
    if csc.are_edges is not None:  # other processes have their times
        return not (times is not None and times.rule.is_strict) and 2 * csc.are_edges(sources, targets).sum() > looked_at.size
    num_shown = 0
    for number, source, target in zip(looked_at, sources, targets, strict=True):
        first = csc.indptr[target]
        positions = first + np.flatnonzero(csc.indices[first : csc.indptr[target + 1]] == source)
        is_shown = times is None or moments is None or times.in_time(edge_type, csc, positions, int(moments[number])).any()
        num_shown += positions.size > 0 and bool(is_shown)
    return 2 * num_shown > looked_at.size


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


def _labels(
    edge_label: Any, num_links: int, neg_sampling: NegativeSampling | None, field: Callable[[str], Any] | None
) -> torch.Tensor | FieldLabels | None:
    """Labels, from 1 on where 0 says negative, as in PyG. `field`: of `ChosenLinks`."""
    if edge_label is None:
        return None
    if neg_sampling is not None and neg_sampling.is_triplet():
        raise UsageError("edge_label has no place in triplets, whose index tells links from negatives: leave it out")
    if isinstance(edge_label, str):
        if field is None:
            raise UsageError(f"edge_label={edge_label!r} is a field of edges, and the links are not all edges of a type: give a tensor")
        labels = FieldLabels(edge_label, field(edge_label), leave_room=neg_sampling is not None)
        _check_labels(labels[torch.zeros(1, dtype=torch.int64, device="cpu")])
        return labels
    try:
        labels = torch.as_tensor(edge_label, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"edge_label is no tensor: {error}") from None
    _check_labels(labels)
    if labels.dim() == 0 or labels.shape[0] != num_links:
        raise InputError(f"edge_label must have an entry for each of the {num_links} links, got {list(labels.shape)}")
    return labels + 1 if neg_sampling is not None and labels.numel() and labels.min() == 0 else labels


def _check_labels(labels: Any) -> None:
    is_tensor = isinstance(labels, torch.Tensor)
    if not is_tensor or labels.layout != torch.strided or labels.dtype not in LABELS:
        what = type(labels).__name__ if not is_tensor else labels.dtype if labels.layout == torch.strided else labels.layout
        raise InputError(f"edge_label is {what}: labels are dense, of bool, of integers with a sign or uint8, or of floating point")


def _input_ids(input_id: Any, num_links: int) -> np.ndarray:
    ids = as_seed_ids(torch.as_tensor(input_id, device="cpu"), IDS_GIVEN)
    if ids.size != num_links:
        raise UsageError(f"input_id must have an entry for each of the {num_links} links, got {ids.size}")
    return ids


def _moments(edge_label_time: Any, links: ChosenLinks, times: Timestamps | None) -> np.ndarray | None:
    """int64[num_links]: when each link looks at the graph."""
    num_links = len(links.ends)
    if times is None:
        if edge_label_time is not None:
            raise UsageError("'edge_label_time' is set and 'time_attr' is not, the attribute that says when nodes or edges came")
        return None
    if edge_label_time is None and links.is_part and links.field is not None:
        with suppress(MissingFieldError):  # nodes have times, and edges have none
            edge_label_time = links.field(times.name)(np.arange(num_links))
    if edge_label_time is None:
        raise UsageError("'time_attr' is set and 'edge_label_time' is not set: give it, the time of each link")
    given = edge_label_time.cpu() if isinstance(edge_label_time, torch.Tensor) else edge_label_time
    return check_moments(as_moments(as_numbers(given, "edge_label_time"), num_links, "edge_label_time", "link"), times)


def _negatives(
    graph: Graph, edge_type: EdgeType, how: NegativeSampling, times: Timestamps | None, given: Any, exclude_positives: bool
) -> Negatives:
    """How negatives are drawn. `given`: ends of links that are not all edges."""

    def candidates(node_type: str, weight: Any) -> Candidates:
        weight = None if weight is None else as_numbers(weight, "neg_sampling: weight")
        moments = None if times is None else times.of_nodes.get(node_type)
        return make_candidates(node_type, graph.num_nodes[node_type], weight, moments)

    targets = candidates(edge_type[2], how.dst_weight)
    sources = None if how.is_triplet() else targets
    if sources is not None and not (edge_type[0] == edge_type[2] and how.src_weight is how.dst_weight):
        sources = candidates(edge_type[0], how.src_weight)
    edges = links = are_edges = None
    if exclude_positives:
        if edge_type in graph.adjacency:
            edges, are_edges = known_edges(graph, edge_type, "neg_sampling without exclude_positives=False")
        if given is not None:
            links = adjacency_of(given.sources, given.targets, graph.num_nodes[edge_type[0]], graph.num_nodes[edge_type[2]])
    return Negatives(how.amount, sources, targets, edges, links, are_edges)
