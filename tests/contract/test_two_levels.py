"""A cache on a device over one in memory of the host over something slow (BGL 3.2.3): tiers stacked, the contract of any tier."""

import numpy as np
import pytest
import torch

from penstock.cache import FIFO, LRU, Belady, Static
from penstock.errors import NodeIdError, TierError
from penstock.gather import CachedTier
from penstock.gather.stack import around, stack_of
from penstock.kernels import _triton
from penstock.store.tiers import HostTier, SlowTier, UploadTier
from tests.contract.test_device_tiers import OnDevice
from tests.contract.tiers import FailingTier
from tests.devices import DEVICES


class Levels(OnDevice):
    """Subclass and say which policies, and what static ones keep."""

    contents = (None, None)
    num_reads = 2

    @pytest.fixture(autouse=True)
    def _rows(self, _reader):
        self.rows_are_on = str(self.reader)

    def policies(self):
        """(of the device, of the host), empty."""
        return FIFO(50, 7), FIFO(50, 21)

    def make(self, arrays, fail=lambda number: None):
        near, far = self.contents
        below = CachedTier(lambda: self.policies()[1], SlowTier(FailingTier(HostTier(arrays), fail)), far, "host cache")
        return CachedTier(lambda: self.policies()[0], UploadTier(below, self.reader), near, "device cache", reader=self.reader)

    def hits(self, tier):
        return [level.stats.num_rows for level in stack_of(tier) if isinstance(level, CachedTier)]

    def rows_counted(self, tier):
        filled = sum(content.size for content in self.contents if content is not None)
        return sum(self.hits(tier)) + tier.slow.slow.slow.stats.num_rows - filled

    def simulated(self, batches):
        """Hits of each level: the misses of the first are what the second is asked for."""
        policies, hits = self.policies(), [0, 0]
        for policy, content in zip(policies, self.contents, strict=True):
            if content is not None:
                policy.fill(content)
        for rows in batches:
            asked = rows
            for level, policy in enumerate(policies):
                missed = asked[policy.access(asked).hit_slots < 0]
                hits[level], asked = hits[level] + asked.size - missed.size, missed
        return hits

    def test_rows_out_of_range_are_refused(self, arrays):
        tier = self.make(arrays)
        for row in (-1, 50):
            with pytest.raises(NodeIdError, match=f"ids\\[0\\] = {row}"):
                tier.submit(np.array([row]), [self.empty(width) for width in tier.row_bytes], np.zeros(1, np.int64))

    def test_each_level_counts_what_a_simulation_of_it_counts(self, arrays):
        """Also while others read around what they would change."""
        random, tier, before = np.random.default_rng(2), self.make(arrays), np.zeros(2, np.int64)
        batches = [random.permutation(50)[: random.integers(1, 30)] for _ in range(6)]
        for rows in batches:
            self.read(tier, arrays, rows, np.arange(rows.size), rows.size)
            counted = self.hits(tier)
            self.read(around(tier), arrays, random.permutation(50)[:9], np.arange(9), 9)
            before += np.subtract(self.hits(tier), counted)
        hits = self.simulated(batches)
        assert list(self.hits(tier) - before) == hits
        assert min(hits) > 0
        is_static = [isinstance(policy, Static) for policy in self.policies()]
        assert [count > 0 for count in before] == is_static

    def test_a_read_that_fails_leaves_right_rows(self, arrays):
        random = np.random.default_rng(7)
        filled = sum(content is not None for content in self.contents)
        tier = self.make(arrays, fail=lambda number: OSError("unplugged") if number == filled + 2 else None)
        batches, failures = [random.permutation(50)[:30] for _ in range(4)], []
        outs = [[self.empty(30 * width) for width in tier.row_bytes] for _ in batches]
        reads = [tier.submit(rows, out, np.arange(30)) for rows, out in zip(batches, outs, strict=True)]
        for read, rows, out in zip(reads, batches, outs, strict=True):
            try:
                read.wait()
            except TierError as error:
                failures.append(str(error))
                continue
            for array, values in zip(arrays, out, strict=True):
                assert self.as_array(values).tobytes() == array[rows].tobytes()
        assert [failure.split(": ")[-1] for failure in failures] == ["unplugged"]
        self.read(tier, arrays, np.arange(50), np.arange(50), 50)


class TestFIFOOverFIFO(Levels):
    pass


class TestLRUOverStatic(Levels):
    contents = (None, np.arange(20, 41))

    def policies(self):
        return LRU(50, 7), Static(50, 21)


class TestStaticOverFIFO(Levels):
    contents = (np.arange(3, 17), None)

    def policies(self):
        return Static(50, 14), FIFO(50, 21)


@pytest.mark.parametrize("device", DEVICES)
def test_one_beneath_that_looks_ahead_is_told_what_the_one_above_will_miss(device):
    random, reader, array, hits = np.random.default_rng(2), _triton.tensor_device(device), np.arange(50) ** 2, 0
    below = CachedTier(lambda: Belady(50, 12, 3), HostTier([array]), name="host cache")
    tier = CachedTier(lambda: Static(50, 9), UploadTier(below, reader), np.arange(9), reader=reader)
    batches, alone = [random.permutation(50)[:20] for _ in range(6)], Belady(50, 12, 3)

    def read(rows):
        out = torch.zeros(20, dtype=torch.int64, device=reader)
        tier.submit(rows, [out.view(torch.uint8)], np.arange(20)).wait()
        assert (out.cpu().numpy() == array[rows]).all()

    for rows in batches[:2]:
        tier.announce(rows)
        alone.announce(rows[rows >= 9])
    for number, rows in enumerate(batches):
        for ahead in batches[number + 2 : number + 3]:
            tier.announce(ahead)
            alone.announce(ahead[ahead >= 9])
        read(rows)
        hits += int(np.count_nonzero(alone.access(rows[rows >= 9]).hit_slots >= 0))
    assert below.stats.num_rows == hits > 0
    tier.announce(batches[0])
    tier.restart()  # what was announced never comes
    tier.announce(batches[1])
    read(batches[1])


def test_the_way_around_keeps_what_stays():
    slow = HostTier([np.arange(50)])
    far, kept = CachedTier(lambda: FIFO(50, 9), slow), CachedTier(lambda: Static(50, 9), slow, np.arange(9))
    assert around(far) is slow
    assert around(kept) is kept
    over = CachedTier(lambda: Static(50, 3), far, np.arange(40, 43))
    past = around(over)
    assert past is not over
    assert (past.slow, past.stats) == (slow, over.stats)
    assert stack_of(over) == [over, far, slow]
    assert far.stats.num_rows == far.policy.slots.max() + 1 == 0  # filled past it
