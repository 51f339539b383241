"""FIFO on a device over FIFO in memory of the host over something slow (BGL 3.2.3): tiers stacked, the contract of any tier."""

import numpy as np
import pytest

from penstock.cache import FIFO
from penstock.errors import NodeIdError
from penstock.gather import CachedTier
from penstock.store.tiers import HostTier, SlowTier, UploadTier
from tests.contract.test_device_tiers import OnDevice


class TestTwoLevels(OnDevice):
    near, far = 7, 21

    @pytest.fixture(autouse=True)
    def _rows(self, _reader):
        self.rows_are_on = str(self.reader)

    def make(self, arrays):
        below = CachedTier(lambda: FIFO(50, self.far), SlowTier(HostTier(arrays), delay_s=1e-4), name="host cache")
        return CachedTier(lambda: FIFO(50, self.near), UploadTier(below, self.reader), name="device cache", reader=self.reader)

    def rows_counted(self, tier):
        below = tier.slow.slow
        return tier.stats.num_rows + below.stats.num_rows + below.slow.stats.num_rows

    def test_rows_out_of_range_are_refused(self, arrays):
        tier = self.make(arrays)
        for row in (-1, 50):
            with pytest.raises(NodeIdError, match=f"ids\\[0\\] = {row}"):
                tier.submit(np.array([row]), [self.empty(width) for width in tier.row_bytes], np.zeros(1, np.int64))

    def test_each_level_counts_what_a_simulation_of_it_counts(self, arrays):
        """The host's level sees the misses of the device's, and nothing else."""
        random, tier = np.random.default_rng(2), self.make(arrays)
        near, far = FIFO(50, self.near), FIFO(50, self.far)
        hits = [0, 0]
        for _ in range(20):
            rows = random.permutation(50)[: random.integers(1, 30)]
            self.read(tier, arrays, rows, np.arange(rows.size), rows.size)
            missed = rows[near.access(rows).hit_slots < 0]
            hits[0] += rows.size - missed.size
            hits[1] += int(np.count_nonzero(far.access(missed).hit_slots >= 0))
        assert [tier.stats.num_rows, tier.slow.slow.stats.num_rows] == hits
        assert min(hits) > 0
