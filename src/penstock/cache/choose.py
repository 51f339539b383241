"""Policies by name, for one node type of a workload.

In: a name and the workload to be sampled. Out: how to make the policy, and its initial content. A static policy keeps its initial content;
Belady starts with the hottest rows, by the hotness that it is given; other dynamic policies start empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock.cache.belady import NUM_CLASSES, Belady, hotness_classes
from penstock.cache.clock import CLOCK
from penstock.cache.fifo import FIFO
from penstock.cache.hotness import check_hotness, degree_hotness, in_out_ratio, list_ratio, plan_static, random_hotness
from penstock.cache.inclusion import spread_inclusion
from penstock.cache.lfu import LFU
from penstock.cache.lru import LRU
from penstock.cache.policy import Policy
from penstock.cache.s3fifo import S3FIFO
from penstock.cache.sieve import SIEVE
from penstock.cache.static import Static
from penstock.cache.workload import Workload
from penstock.errors import UsageError
from penstock.records import CSC, EdgeType, NodeType

DYNAMIC = {policy.name: policy for policy in (FIFO, LRU, LFU, CLOCK, SIEVE, S3FIFO)}


@dataclass(frozen=True, slots=True)
class Ranking:
    """How a static policy ranks rows.

    Attributes:
        hotness: (workload, node type) -> a number per node, higher is hotter.
        node_bytes: memory per node while rows are chosen, before the cache is made: the numbers, and a block of their ranking.
        is_of_all_types: the nodes of all types take this memory, not only those of the type that is ranked.
    """

    hotness: Callable[[Workload, NodeType], np.ndarray]
    node_bytes: int
    is_of_all_types: bool = False


RANKINGS = {
    "random": Ranking(lambda of, t: random_hotness(of.sampler.graph.num_nodes[t], of.sampler.seed), 15),
    "degree": Ranking(lambda of, t: degree_hotness(of.sampler.graph, t), 6),
    "ratio": Ranking(lambda of, t: in_out_ratio(of.sampler.graph, t), 6),
    # visits of a budget's profile exist already, and are corrected by degrees
    "presample": Ranking(lambda of, t: of.row_visits(t), 11),
    "inclusion": Ranking(lambda of, t: spread_inclusion(of.sampler, of.first_share(), of.sampler.num_hops)[t], 34, is_of_all_types=True),
}
"""Name of a static policy -> how it ranks rows."""


def _presampled_per_edge(of: Workload, e: EdgeType, csc: CSC) -> np.ndarray:
    values = list_ratio(of.list_visits(e), [csc.indptr])
    values /= of.num_epochs
    return values


LIST_VALUES: dict[str, Callable[[Workload, EdgeType, CSC], np.ndarray]] = {
    "random": lambda of, e, csc: random_hotness(csc.num_dst, of.sampler.seed),
    "degree": lambda of, e, csc: of.degree(e[2]),
    "ratio": lambda of, e, csc: list_ratio(of.degree(e[2]), [csc.indptr]),
    "presample": _presampled_per_edge,
}
"""Name of a policy of neighbour lists -> (workload, edge type, its lists) -> the value of keeping each list, per edge in it: "ratio" is
out-neighbours / length (AliGraph; Ginex 3.2), "presample" sampled reads / length (DUCATI), "degree" out-neighbours regardless of length."""

STATIC, LIST_POLICIES = tuple(RANKINGS), tuple(LIST_VALUES)
BY_VISITS = ("presample", Belady.name)
"""Policies that rank rows by sampled visits."""
POLICIES = (*STATIC, *DYNAMIC, Belady.name)


def hotness_by_name(name: str, workload: Workload, node_type: NodeType) -> np.ndarray:
    """Return the hotness of each node of a type: a number per node, higher is hotter."""
    if name not in RANKINGS:
        raise UsageError(f"hotness must be one of {', '.join(RANKINGS)}; got {name!r}")
    return check_hotness(RANKINGS[name].hotness(workload, node_type), workload.sampler.graph.num_nodes[node_type])


def ranking_bytes(name: str | None, num_nodes: Mapping[NodeType, int], kept_types: Sequence[NodeType]) -> int:
    """Return the memory for choosing the rows of types that are kept, one type after the other, before their caches are made.

    Args:
        name: a policy; None: no rows are kept.
        num_nodes: of all types.
    """
    ranking = RANKINGS.get("presample" if name in BY_VISITS else name or "")
    if ranking is None:
        return 0
    if ranking.is_of_all_types:
        return ranking.node_bytes * sum(num_nodes.values())
    return ranking.node_bytes * max((num_nodes[t] for t in kept_types), default=0)


def list_values(name: str, workload: Workload) -> dict[EdgeType, np.ndarray]:
    """Return the value of keeping each neighbour list, per edge in it: edge type -> numbers[num_dst], higher is better.

    Args:
        name: one of LIST_POLICIES.
        workload: the batches to be sampled.
    """
    if name not in LIST_VALUES:
        raise UsageError(f"neighbor_policy must be one of {', '.join(LIST_VALUES)}; got {name!r}")
    return {e: LIST_VALUES[name](workload, e, csc) for e, csc in workload.sampler.graph.adjacency.items()}


@dataclass(frozen=True, slots=True)
class Choice:
    """How to make a policy.

    Attributes:
        make: returns an empty policy.
        content: int64[n], ids of its initial content, best first; None for none.
        window: batches to announce to it, including the current one; 0 if it does not look ahead.
    """

    make: Callable[[], Policy]
    content: np.ndarray | None = None
    window: int = 0

    @property
    def always_kept(self) -> np.ndarray | None:
        """The initial content if the policy never changes it; else None."""
        return None if self.window else self.content


def choose_policy(
    name: str,
    workload: Workload,
    node_type: NodeType,
    capacity: int,
    *,
    window: int = 1,
    above: np.ndarray | None = None,
) -> Choice:
    """Choose a policy by its name.

    Args:
        name: one of POLICIES.
        workload: the batches to be sampled.
        node_type: the type whose rows are cached.
        capacity: rows to keep.
        window: batches known ahead, for Belady.
        above: int64[n], ids that a cache above this one always has; static policies, and Belady's initial content, leave them out.
    """
    num_nodes = workload.sampler.graph.num_nodes[node_type]
    if name in DYNAMIC:
        return Choice(lambda: DYNAMIC[name](num_nodes, capacity))
    if name == Belady.name:
        return belady_choice(workload.row_visits(node_type), capacity, window, above)
    return fixed_choice(num_nodes, plan_beneath(hotness_by_name(name, workload, node_type), capacity, above))


def belady_choice(hotness: np.ndarray, capacity: int, window: int, above: np.ndarray | None = None) -> Choice:
    """Belady's policy with visits, counted or expected, as its hotness: int or float[num_nodes].

    It starts with the hottest rows, except int64 ids `above`: reading them at once, in the order of the file, costs much less than reading
    them one by one as they are missed. Rows without a visit are left out.
    """
    content = plan_beneath(hotness, min(capacity, int(np.count_nonzero(hotness))), above)
    classes = hotness_classes(hotness, NUM_CLASSES)  # only one byte per node is kept
    return Choice(partial(Belady, hotness.size, capacity, window, classes), content, window)


def plan_beneath(hotness: np.ndarray, capacity: int, above: np.ndarray | None) -> np.ndarray:
    """Choose what a static cache keeps, as `plan_static`, among all nodes except int64 ids `above`."""
    if above is None or above.size == 0:
        return plan_static(hotness, capacity)
    is_left = np.ones(hotness.size, dtype=bool)
    is_left[above] = False
    ranked = plan_static(hotness, capacity + above.size)
    return ranked[is_left[ranked]][:capacity]


def fixed_choice(num_nodes: int, content: np.ndarray) -> Choice:
    """Return a static policy that keeps the int64 ids `content`."""
    capacity = content.size  # the closure must not keep the ids alive
    return Choice(lambda: Static(num_nodes, capacity), content)
