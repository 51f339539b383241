"""What caches of a given size would miss, according to a short profile: for dividing a budget between rows, lists and look-ahead.

In: a plan, the profile's visits and trace. Out: ways to look ahead, the reads that remain with a given number of bytes, and what these
bytes keep. Lists are judged by their visits, rows by simulation over the trace; misses above a spool by what they cost there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.cache.belady import Belady
from penstock.cache.hotness import plan_static
from penstock.cache.simulate import simulate
from penstock.cache.static import Static
from penstock.feed.fit.device import DeviceUse
from penstock.feed.fit.profile import THINNING, Profile
from penstock.feed.fit.spool import GROUPS, SpooledRows, distinct_rows
from penstock.plan import Plan
from penstock.plan.capacity import STATE_BYTES_PER_ROW
from penstock.plan.memory import Ahead
from penstock.plan.visited import VisitedLists
from penstock.records import EdgeType, Graph, NodeType

WINDOWS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
LIST_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
"""Shares of the caches' bytes for neighbour lists that are tried."""
MARGIN = 1.15
"""Safety factor: batches vary, and buffers are slightly larger than their contents."""
ROW_NUMBER_BYTES = 8
"""Memory per row that a batch ahead will ask a spool for."""
USE_BYTES = 17
"""Memory per row asked for by a batch ahead, in Belady's log."""


class CacheSearch:
    """Misses as a function of the caches' bytes: for lists by the visits of the profile, for rows by simulation over its trace."""

    def __init__(
        self,
        plan: Plan,
        graph: Graph,
        profile: Profile,
        row_bytes: Mapping[NodeType, int],
        use: DeviceUse | None,
        spooled: Mapping[NodeType, SpooledRows],
    ) -> None:
        self._plan, self._profile, self._spooled = plan, profile, spooled
        self._is_drawn_on_device = use is not None and use.is_drawing
        self._on_device = dict(use.rows or {}) if use is not None and plan.device_policy == Belady.name else {}
        self.is_ahead = bool(spooled) or Belady.name in (plan.policy, plan.device_policy)
        self._row_bytes = {t: width + STATE_BYTES_PER_ROW for t, width in row_bytes.items()}
        self._num_nodes = {t: graph.num_nodes[t] for t in row_bytes}
        self._lists = VisitedLists(profile.list_visits, graph.adjacency) if plan.neighbor_policy is not None else None
        self._with_lists = False
        self._share: float | None = None
        self._known: dict[Any, float] = {}
        windows, most = (WINDOWS, profile.num_batches // 2) if not spooled else ([2 * group for group in GROUPS], 2 * profile.num_batches)
        self._windows = [window for window in windows if window <= max(windows[0], most)]

    def use_lists(self, with_lists: bool) -> None:
        """Set whether neighbour lists may be kept."""
        self._with_lists, self._share = with_lists, None

    def ways(self, num_threads: int) -> list[Ahead]:
        """Return ways to look ahead. If only ids are held, the threads that make batches sample again, and need memory for that."""
        profile = self._profile
        if not self.is_ahead:
            return [Ahead(1, "samples", 0)]
        if self._spooled:
            held = int(MARGIN * (profile.held_bytes + ROW_NUMBER_BYTES * sum(profile.num_nodes.get(t, 0) for t in self._spooled)))
            return [Ahead(window, "samples", window * held) for window in self._windows]
        uses = int(MARGIN * USE_BYTES * sum(profile.num_nodes.values()))
        if self._is_drawn_on_device:  # samples are held there too
            return [Ahead(window, "samples", window * uses) for window in self._windows]
        ways = [Ahead(window, "samples", window * (int(MARGIN * profile.held_bytes) + uses)) for window in self._windows]
        return ways + [Ahead(window, "ids", window * uses + num_threads * profile.workspace_bytes) for window in self._windows]

    def misses(self, way: Ahead, cache_bytes: int) -> float:
        """Return the reads per batch that remain."""
        if self._share is None:
            middle = self._windows[len(self._windows) // 2]
            self._share = min(LIST_SHARES if self._with_lists else (0.0,), key=lambda share: self._misses(middle, cache_bytes, share, 1))
        return self._misses(way.window, cache_bytes, self._share, 1 if way.hold == "samples" else 2)

    def divide(self, cache_bytes: int) -> tuple[dict[EdgeType, np.ndarray], dict[NodeType, int]]:
        """Return (nodes whose lists are kept, rows kept). If all rows fit, lists get the rest."""
        rows = self._rows(cache_bytes - self._list_bytes(cache_bytes, self._share or 0.0))
        left = cache_bytes - sum(count * self._row_bytes[t] for t, count in rows.items())
        return self._lists.keep(left) if self._lists and self._with_lists else {}, rows

    def _misses(self, window: int, cache_bytes: int, share: float, times_sampled: int) -> float:
        list_bytes = self._list_bytes(cache_bytes, share)
        lists = self._lists.misses(list_bytes) / self._profile.num_batches if self._lists else 0.0
        kept = sum(self._row_misses(t, n, window, self._plan.policy) for t, n in self._rows(cache_bytes - list_bytes).items())
        on_device = sum(self._row_misses(t, n, window, self._plan.device_policy) for t, n in self._on_device.items())
        return times_sampled * lists + kept + on_device

    def _list_bytes(self, cache_bytes: int, share: float) -> int:
        if self._lists is None or not self._with_lists:
            return 0
        return min(int(share * cache_bytes) if self._row_bytes else cache_bytes, self._lists.num_bytes)

    def _rows(self, num_bytes: int) -> dict[NodeType, int]:
        """Return the rows to keep by type, the same share of each."""
        whole = sum(self._num_nodes[t] * width for t, width in self._row_bytes.items())
        return {t: int(min(1.0, num_bytes / max(whole, 1)) * self._num_nodes[t]) for t in self._row_bytes}

    def _row_misses(self, node_type: NodeType, num_rows: int, window: int, name: str | None) -> float:
        """Return the misses per batch over the second half of the trace; the first half warms the cache. `name`: of the policy."""
        key = node_type, num_rows, window, name
        if key not in self._known:
            trace, visits = self._profile.traces[node_type], self._profile.trace_visits[node_type]
            capacity = num_rows // THINNING
            is_ahead, content = name == Belady.name, plan_static(visits, capacity)
            policy = Belady(visits.size, capacity, window, visits) if is_ahead else Static(visits.size, capacity)
            policy.fill(content)
            hits, asked = simulate(policy, (ids.astype(np.int64) for ids in trace))
            missed = THINNING * float((asked - hits)[len(trace) // 2 :].mean())
            spooled = self._spooled.get(node_type)
            self._known[key] = missed if spooled is None else self._through_spool(node_type, spooled, window // 2, content, missed)
        return self._known[key]

    def _through_spool(self, node_type: NodeType, spooled: SpooledRows, group: int, content: np.ndarray, missed: float) -> float:
        """Return the cost per batch, in requests; distinct rows are taken from the half of the trace that did not choose the content."""
        trace = self._profile.traces[node_type]
        half = trace[len(trace) // 2 :]
        visits = np.bincount(np.concatenate(half), minlength=self._profile.trace_visits[node_type].size)
        visits[content] = 0
        return spooled.requests(group, missed, THINNING * distinct_rows(visits, min(2.0, group / len(half))))
