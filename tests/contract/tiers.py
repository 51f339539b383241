"""What every tier must do. A tier joins by subclassing `TierContract` and making itself over arrays."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import TierError
from penstock.store.tiers import Deferred

POISON = 0xAB
PACKAGE = str(Path(penstock.__file__).parent)


class FailingTier:
    """Rows of another tier, but for reads that fail: `fail` returns the error of a read, by its number from 0, or None."""

    def __init__(self, tier, fail):
        self._tier, self._fail, self._numbers = tier, fail, itertools.count()

    def __getattr__(self, name):
        return getattr(self._tier, name)

    def submit(self, rows, outs, places):
        number, read = next(self._numbers), self._tier.submit(rows, outs, places)
        return Deferred(lambda: self._end(number, read), read.since)

    def _end(self, number, read):
        num_bytes, error = read.wait(), self._fail(number)
        if error is not None:
            raise TierError(f"{self.name}: {error}") from error
        return num_bytes


@contextmanager
def changing_at_every_line():
    """New threads let others go on at every line of the package that is not a kernel's."""

    def step(frame, event, argument):
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE) or "kernels" in name:
            return None
        time.sleep(0)
        return step

    before = threading.gettrace()
    threading.settrace(step)
    try:
        yield
    finally:
        threading.settrace(before)


class TierContract:
    """Subclass and implement `make`."""

    def make(self, arrays):
        """Return a tier with the rows of `arrays`, one per field."""
        raise NotImplementedError

    @pytest.fixture
    def arrays(self):
        random = np.random.default_rng(11)
        return [random.random((50, 3), np.float32), random.integers(0, 99, 50), random.integers(0, 9, (50, 2, 2)).astype(np.int16)]

    rows_are_on = "cpu"
    num_reads = 20

    def empty(self, num_bytes):
        """Where a tier puts its rows; undefined content."""
        return np.full(num_bytes, POISON, np.uint8)

    def as_array(self, out):
        """What is in it."""
        return out

    def submitting(self):
        """Where reads are submitted; they are waited for elsewhere."""
        return nullcontext()

    def read(self, tier, arrays, rows, places, num_places):
        outs = [self.empty(num_places * width) for width in tier.row_bytes]
        with self.submitting():
            read = tier.submit(rows, outs, places)
        moved = read.wait()
        assert moved == rows.size * sum(tier.row_bytes)
        for array, out, width in zip(arrays, outs, tier.row_bytes, strict=True):
            expected = np.full((num_places, width), POISON, np.uint8)
            expected[places] = np.frombuffer(array[rows].tobytes(), np.uint8).reshape(-1, width)
            assert (self.as_array(out) == expected.reshape(-1)).all()

    def test_it_says_what_it_is(self, arrays):
        tier = self.make(arrays)
        assert tier.num_rows == 50
        assert tuple(tier.row_bytes) == (12, 8, 8)
        assert tier.device == self.rows_are_on
        assert tier.name
        assert tier.resident_bytes >= 0

    def test_rows_arrive_at_their_places(self, arrays):
        tier, random = self.make(arrays), np.random.default_rng(3)
        for _ in range(self.num_reads):
            count = int(random.integers(0, 40))
            self.read(tier, arrays, random.permutation(50)[:count], random.permutation(60)[:count], 60)

    def test_rows_of_any_width(self):
        """A byte, a number of bytes that divides nothing, and more than a page."""
        random, widths = np.random.default_rng(6), (1, 13, 5000)
        arrays = [random.integers(0, 256, (50, width), np.uint8) for width in widths]
        tier = self.make(arrays)
        assert tuple(tier.row_bytes) == widths
        self.read(tier, arrays, random.permutation(50), random.permutation(50), 50)
        self.read(tier, arrays, np.array([49]), np.array([0]), 1)

    def test_nothing_asked_nothing_read(self, arrays):
        self.read(self.make(arrays), arrays, np.empty(0, np.int64), np.empty(0, np.int64), 4)

    def test_several_reads_under_way(self, arrays):
        tier, random = self.make(arrays), np.random.default_rng(4)
        batches = [random.permutation(50)[:20] for _ in range(6)]
        outs = [[self.empty(20 * width) for width in tier.row_bytes] for _ in batches]
        reads = [tier.submit(rows, out, np.arange(20)) for rows, out in zip(batches, outs, strict=True)]
        for read in reads:
            read.wait()
        self.check_all(arrays, batches, outs)

    def check_all(self, arrays, batches, outs):
        """Every field of every batch, whose rows are in the order in which they were asked for."""
        for rows, out in zip(batches, outs, strict=True):
            for array, rows_out in zip(arrays, out, strict=True):
                assert self.as_array(rows_out).tobytes() == array[rows].tobytes()

    def test_reads_end_on_other_threads_in_any_order(self, arrays):
        tier, random = self.make(arrays), np.random.default_rng(4)
        batches = [random.permutation(50)[:20] for _ in range(8)]
        outs = [[self.empty(20 * width) for width in tier.row_bytes] for _ in batches]
        reads = [tier.submit(rows, out, np.arange(20)) for rows, out in zip(batches, outs, strict=True)]
        threads = [threading.Thread(target=read.wait) for read in reversed(reads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        self.check_all(arrays, batches, outs)

    def test_reads_end_at_the_same_time(self, arrays):
        """Nothing that a read needs on its way is another's too."""
        tier, random = self.make(arrays), np.random.default_rng(7)
        batches = [random.permutation(50) for _ in range(self.num_reads)]
        outs = [[self.empty(50 * width) for width in tier.row_bytes] for _ in batches]
        reads = [tier.submit(rows, out, np.arange(50)) for rows, out in zip(batches, outs, strict=True)]
        with changing_at_every_line(), ThreadPoolExecutor(4) as threads:
            assert list(threads.map(lambda read: read.wait(), reads)) == [50 * sum(tier.row_bytes)] * len(batches)
        self.check_all(arrays, batches, outs)

    def test_rows_out_of_range_are_refused(self, arrays):
        tier = self.make(arrays)
        outs = [self.empty(width) for width in tier.row_bytes]
        for row in (-1, 50):
            with pytest.raises(TierError, match=f"row {row}"):
                tier.submit(np.array([row]), outs, np.zeros(1, np.int64)).wait()

    def test_it_counts(self, arrays):
        tier = self.make(arrays)
        self.read(tier, arrays, np.arange(10), np.arange(10), 10)
        assert self.rows_counted(tier) == 10
        self.read(tier, arrays, np.arange(20, 25), np.arange(5), 10)
        assert self.rows_counted(tier) == 15
        assert tier.stats.num_bytes == tier.stats.num_rows * sum(tier.row_bytes)

    def rows_counted(self, tier):
        return tier.stats.num_rows
