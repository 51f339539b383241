"""A cache on the device, sized by the memory that training leaves free there: ranked at the start, made once, after the first steps.

In: a plan with `device_policy` and without `device_cache`, and the tables of a loader. Out: caches in these tables. Invariant: batches are
the same before and after; memory is taken once and never grows. Source: PaGraph 4, which measures after the first mini-batch; here after
the second: an optimizer makes its state in the first step, and only a step with that state shows the peak.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch

from penstock.cache.choose import STATIC, Choice, choose_policy, fixed_choice
from penstock.errors import UsageError
from penstock.feed.caches import Caches
from penstock.feed.maker import BatchMaker
from penstock.feed.setup.choices import with_caches, workload_of
from penstock.gather import sizes_of
from penstock.plan import Plan, plan_rows
from penstock.plan.device import plan_device_cache, reserve_of
from penstock.records import NodeType
from penstock.store.budget import format_bytes
from penstock.store.device_memory import look_at_device_memory

logger = logging.getLogger("penstock")

AFTER_STEPS = 2


class CacheToCome:
    """Puts caches over the tables of a loader after `AFTER_STEPS` steps.

    Args:
        plan: see above.
        maker: of the batches; what is hot is found out at construction.
        caches: the loader's.
    Attributes:
        report: the outcome, in words; empty before it.
    """

    def __init__(self, plan: Plan, maker: BatchMaker, caches: Caches) -> None:
        assert plan.device_policy is not None
        assert maker.delivery.device is not None
        self._plan, self._policy, self._caches = plan, plan.device_policy, caches
        self._delivery, self._device = maker.delivery, maker.delivery.device
        self._workload = workload_of(plan, maker)
        self._over = caches.of_nodes
        self._fixed_bytes = maker.device_topology_bytes
        self._is_static, self._num_asked, self.report = self._policy in STATIC, 0, ""
        with self._delivery.working():  # on the stream that will take the cache: torch reuses memory of a stream on that stream only
            self._ranked = {t: self._choose(t, table.num_rows) for t, table in self._over.items()} if self._is_static else {}

    def batch_asked(self) -> None:
        """Count a batch that the user asks for, when his steps on those before are done."""
        if self._num_asked == AFTER_STEPS:
            self._make()
        self._num_asked += 1

    @torch.inference_mode(False)
    def _make(self) -> None:
        memory, fixed = look_at_device_memory(self._device), self._fixed_bytes
        budget, (num_rows, row_bytes) = plan_device_cache(memory, fixed), sizes_of(self._over)
        found = f"{format_bytes(memory.free)} free after {AFTER_STEPS} steps, {format_bytes(reserve_of(memory, fixed))} of it in reserve"
        try:
            rows = plan_rows(f"{budget} B", num_rows, row_bytes, "device_cache", is_static=self._is_static) if budget else {}
            self._put(rows)
        except (UsageError, torch.OutOfMemoryError) as error:  # no room for the directory, the rows, or for filling them
            self.report = f"none: {found}; {error}"
        else:
            kept = sum(count * row_bytes[t] for t, count in rows.items())
            share = sum(rows.values()) / max(1, sum(num_rows.values()))
            self.report = f"{format_bytes(kept)}, {share:.1%} of the rows: {found}"
        logger.info("device_cache: %s", self.report)
        self._ranked = {}

    def _put(self, rows: Mapping[NodeType, int]) -> None:
        made = {}
        with self._delivery.working():  # the filling precedes all later reads on that stream
            for node_type, num_rows in rows.items():
                if num_rows:
                    table = self._over[node_type]
                    made[node_type] = with_caches(self._plan, table, self._choice_of(node_type, num_rows), None, self._device)
        self._caches.put(made)

    def _choice_of(self, node_type: NodeType, num_rows: int) -> Choice:
        """A policy of `num_rows` rows: the best of those ranked, or a dynamic one."""
        if not self._is_static:
            return self._choose(node_type, num_rows)
        best = self._ranked[node_type].content
        assert best is not None
        return fixed_choice(self._over[node_type].num_rows, best[:num_rows])

    def _choose(self, node_type: NodeType, num_rows: int) -> Choice:
        return choose_policy(self._policy, self._workload, node_type, num_rows)
