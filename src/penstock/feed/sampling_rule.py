"""`SamplingRule`: how a loader samples neighbourhoods, by the arguments of the loader that say so.

In: arguments of a loader. Out: a sampler over a graph. Invariant: with the seeds, their order and the loader's seed, a rule decides which
nodes and edges each batch has; nothing else does.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from penstock.errors import UsageError, argument
from penstock.feed.inputs import Input
from penstock.feed.inputs.base import edge_type_of
from penstock.records import EdgeType
from penstock.sample import NeighborSampler
from penstock.sample.budget import NumSamples
from penstock.sample.times import TimeRule, Timestamps, check_times
from penstock.sample.walks import Walks

STRATEGIES = ("uniform", "last")
RULES = ("<=", "<")
"""Temporal rules: an edge is in time if its time is in this relation to the seed's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRule:
    """How neighbourhoods are sampled. Attributes are the arguments of `NeighborLoader`, which documents them.

    Raises:
        UsageError: an argument that no graph could make right.
    """

    num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]]
    replace: bool
    subgraph_type: SubgraphType
    disjoint: bool
    temporal_strategy: str
    temporal_rule: str
    time_window: int | None
    time_attr: str | None
    weight_attr: str | None
    shared_draws: bool | int
    walks: Walks | None
    layer_wise: bool
    num_samples: NumSamples | None

    def __post_init__(self) -> None:
        if self.temporal_strategy not in STRATEGIES:
            raise UsageError(f"temporal_strategy must be one of {', '.join(STRATEGIES)}; got {self.temporal_strategy!r}")
        if self.temporal_rule not in RULES:
            raise UsageError(f"temporal_rule must be one of {', '.join(RULES)}; got {self.temporal_rule!r}")
        if self.time_attr is not None and not isinstance(self.time_attr, str):
            raise UsageError(f"time_attr must be the name of an attribute, got {type(self.time_attr).__name__}")
        if self.time_window is not None:
            self._check_window()
        if not isinstance(self.shared_draws, (bool, int, np.integer)) or self.shared_draws < 0:
            raise UsageError(f"{argument('shared_draws')} is True, False or a number of batches in a row, got {self.shared_draws!r}")
        if not isinstance(self.layer_wise, (bool, np.bool_)):
            how_many = f"{argument('num_neighbors')} says how many nodes"
            raise UsageError(f"{argument('layer_wise')} is True or False, got {self.layer_wise!r}: {how_many}")

        if self.num_samples is not None and (self.subgraph_type != SubgraphType.induced or len(self.num_neighbors) or self.time_attr):
            raise UsageError(
                "num_samples says how many nodes each hop adds, and edges belong to no hop: give num_neighbors=[], "
                "subgraph_type='induced', and no time_attr (HGTLoader does)"
            )

    def _check_window(self) -> None:
        window, least = self.time_window, int(self.temporal_rule == "<")
        if isinstance(window, (bool, np.bool_)) or not isinstance(window, (int, np.integer)) or not least <= window < 1 << 63:
            raise UsageError(
                f"time_window must be a number of Python's or NumPy's, whole and from {least} to 2**63 - 1, in the unit of the times, "
                f"or None (any earlier time); got {window!r}"
            )
        if self.time_attr is None:
            raise UsageError("time_window needs time_attr, the attribute that says when nodes or edges came")

    def times(self, source: Input) -> Timestamps | None:
        """Return the times of nodes or edges that samples go by; None where they go by none."""
        if self.time_attr is None:
            return None
        rule = TimeRule(self.temporal_rule == "<", None if self.time_window is None else int(self.time_window))
        times = dataclasses.replace(source.times(self.time_attr), rule=rule)
        check_times(source.graph, times)
        return times

    def sampler(self, source: Input, times: Timestamps | None, seed: int) -> NeighborSampler:
        """Return what samples the graph of `source` by this rule. `times`: by `times`."""
        graph = source.graph if self.weight_attr is None else source.weighted(self.weight_attr)
        return NeighborSampler(
            graph if times is None else source.timed(graph, times),
            as_fanouts(self.num_neighbors, source.graph.edge_types),
            replace=self.replace,
            disjoint=self.disjoint or times is not None,
            induced=self.subgraph_type == SubgraphType.induced,
            takes_last=self.temporal_strategy == "last",
            reach=-1 if times is None else times.rule.reach,
            shared_draws=int(self.shared_draws),
            walks=self.walks,
            layer_wise=bool(self.layer_wise),
            num_samples=self.num_samples,
            seed=seed,
        )


def as_fanouts(num_neighbors: Any, edge_types: list[EdgeType]) -> Any:
    """Return fanouts as a list or by edge type. Edge types may also be given by their ends, or as strings ("author__writes__paper"), as
    PyG's own wrapper keeps them."""
    if isinstance(num_neighbors, NumNeighbors):
        mapped = num_neighbors.get_mapped_values(edge_types)
        return {e: mapped if isinstance(mapped, list) else mapped["__".join(e)] for e in edge_types}
    if isinstance(num_neighbors, Mapping):
        named = {"__".join(e): e for e in edge_types}
        return {named.get(key, edge_type_of(key, edge_types)): fanouts for key, fanouts in num_neighbors.items()}
    return num_neighbors


def choose_subgraph(name: SubgraphType | str, *, directed: bool = True) -> SubgraphType:
    """Return which edges a batch has, by PyG's name. `directed=False` is PyG's older way to say "induced".

    Called by the constructors of loaders, whose callers a warning names."""
    if not directed:
        warnings.warn("directed=False is deprecated: use subgraph_type='induced'", stacklevel=3)
        return SubgraphType.induced
    try:
        return SubgraphType(name)
    except ValueError:
        raise UsageError(f"subgraph_type must be one of {', '.join(kind.value for kind in SubgraphType)}; got {name!r}") from None
