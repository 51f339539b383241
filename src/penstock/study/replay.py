"""Replaying recorded accesses through policies: hits of every batch at every capacity.

In: a trace and names of policies. Out: curves. Invariant: results equal those of `penstock.cache.simulate` over the same batches.
Static rankings take one pass for all capacities; dynamic policies start empty and take one pass per capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.cache import Belady, plan_static, simulate, static_hits
from penstock.cache.choose import DYNAMIC, STATIC, hotness_by_name
from penstock.cache.workload import Workload
from penstock.records import NodeType
from penstock.study.config import ALL, LOOK_AHEAD, ORACLE, PLAIN, SUPERBATCH, TWICE
from penstock.study.trace import Trace

BYTES_PER_USE = 25
"""Memory per access in Belady's window: its log, and the waiting ids."""


@dataclass(slots=True)
class Replay:
    """The accesses of one order.

    Attributes:
        trace: the accesses.
        workload, node_type: the basis of hotness.
        warm_epochs: simulated but not counted.
        capacities: in rows.
        memory_bytes: most memory for Belady's window.
        advance: called with numbers of simulated accesses.
        hotness: name -> hotness computed so far.
    """

    trace: Trace
    workload: Workload
    node_type: NodeType
    warm_epochs: int
    capacities: list[int]
    memory_bytes: int
    advance: Callable[[int], None]
    hotness: dict[str, np.ndarray] = field(default_factory=dict)

    def hotness_of(self, name: str) -> np.ndarray:
        """Return the hotness of all nodes."""
        if name not in self.hotness:
            if name == ORACLE:
                self.hotness[name] = self.trace.visits(self.warm_epochs, self.trace.num_epochs)
            elif name == TWICE:
                self.hotness[name] = hotness_by_name("presample", replace(self.workload, num_epochs=2), self.node_type)
            else:
                self.hotness[name] = hotness_by_name(name, self.workload, self.node_type)
        return self.hotness[name]

    def play(self, name: str, window: int | None) -> np.ndarray:
        """Return int64[num_capacities, num_batches]: hits of the measured epochs."""
        if name in (*STATIC, TWICE, ORACLE):
            ranking = plan_static(self.hotness_of(name), max(self.capacities))
            batches = self._counted(self.trace.batches(self.warm_epochs))
            return static_hits(ranking, batches, self.capacities, self.trace.num_nodes)[0].T
        first = self.warm_epochs * (self.trace.num_batches // self.trace.num_epochs)
        return np.stack([self._play_dynamic(name, window, capacity)[first:] for capacity in self.capacities])

    def _play_dynamic(self, name: str, window: int | None, capacity: int) -> np.ndarray:
        batches, num_nodes = self._counted(self.trace.batches()), self.trace.num_nodes
        if name in DYNAMIC:
            return simulate(DYNAMIC[name](num_nodes, capacity), batches)[0]
        hotness = None if name == PLAIN else self.hotness_of("presample")
        policy = Belady(num_nodes, capacity, window or max(self.trace.num_batches, 1), hotness)
        return simulate(policy, batches, superbatch=name == SUPERBATCH)[0]

    def _counted(self, batches: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        for ids in batches:
            yield ids
            self.advance(ids.size)

    def fits(self, window: int | None) -> bool:
        """Whether Belady's state for a window stays within memory."""
        if window is None:
            return True
        trace = self.trace
        known = trace.num_accesses if window == ALL else window * max(trace.sizes, default=0)
        return min(known, trace.num_accesses) * BYTES_PER_USE <= self.memory_bytes

    def cost(self, name: str) -> int:
        """Return the number of accesses simulated for a policy, as counted by `advance`."""
        if name in (*STATIC, TWICE, ORACLE):
            per_epoch = self.trace.num_batches // self.trace.num_epochs
            return sum(self.trace.sizes[self.warm_epochs * per_epoch :])
        return self.trace.num_accesses * len(self.capacities)


def expand(policies: tuple[str, ...], windows: tuple[int, ...]) -> dict[str, tuple[str, int | None]]:
    """Return label -> (name, window or None): a policy that looks ahead is simulated once per window; a window of one batch only with
    Belady."""
    curves: dict[str, tuple[str, int | None]] = {}
    for name in policies:
        if name not in LOOK_AHEAD:
            curves[name] = (name, None)
            continue
        for window in windows:
            if name != SUPERBATCH or window > 1:
                curves[f"{name} {'all' if window == ALL else window}"] = (name, window)
    return curves
