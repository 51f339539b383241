"""The static policy: the initial content stays."""

from __future__ import annotations

import numpy as np

from penstock.cache.policy import Policy
from penstock.kernels.cache_lookup import cpu as kernels


class Static(Policy):
    """Keeps its initial content; misses are never inserted, so the order of batches does not matter. Takes 4 bytes per node, none per
    row."""

    name = "static"

    def _access(self, ids: np.ndarray, hit_slots: np.ndarray, inserted: np.ndarray, into: np.ndarray) -> int:
        kernels.lookup(ids, self._directory, hit_slots)
        return 0
