"""Rows read ahead onto a disk equal the arrays, whatever the groups, the passes and the room; and what goes wrong says so."""

import errno
import gc
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cache import Static
from penstock.errors import TierError, UsageError
from penstock.gather import CachedTier, SpooledTier, spooled
from penstock.gather.spool_file import BLOCK, MOST_ROWS, SpoolFile, cut, piece_rows_of
from penstock.gather.stack import around
from penstock.store.tiers import HostTier, SlowTier
from tests.contract.tiers import FailingTier

SEEDS = st.integers(0, 2**32 - 1)
WIDTHS = [[4], [100, 512], [1000], [4096, 8], [0, 16]]


def draw_batches(random, num_rows, count):
    return [random.permutation(num_rows)[: random.integers(0, num_rows + 1)] for _ in range(count)]


def arrays_of(random, num_rows, widths):
    return [random.integers(0, 256, (num_rows, width), dtype=np.uint8) for width in widths]


@given(SEEDS)
def test_pieces_are_cut_at_the_same_rows(seed):
    random = np.random.default_rng(seed)
    num_rows, count = int(random.integers(1, 3000)), int(random.integers(1, 12))
    batches = [np.sort(rows) for rows in draw_batches(random, num_rows, count)]
    piece, step = int(random.integers(4 * count, 600)), int(random.choice([1, 8, 64]))
    half = int(random.integers(0, 2 * sum(rows.size for rows in batches) + 40 * step))
    pieces = cut(batches, piece, half, step)
    assert pieces.cuts.shape == (pieces.num_batches, pieces.num_pieces + 1)
    taken = 0
    for p in range(pieces.num_pieces):
        parts = [rows[low:high] for rows, (low, high) in zip(batches, pieces.cuts[:, p : p + 2], strict=False)]
        whole = np.concatenate(parts)
        assert whole.size <= piece
        taken += -(-whole.size // step) * step
        if p and whole.size:
            before = [rows[:low] for rows, low in zip(batches, pieces.cuts[:, p], strict=False)]
            assert max((part.max() for part in before if part.size), default=-1) < whole.min()
    assert taken <= half or not pieces.num_batches
    assert all(cuts[0] == 0 and cuts[-1] == rows.size for cuts, rows in zip(pieces.cuts, batches, strict=False))
    if pieces.num_batches < count:  # the next one might not fit
        total = sum(rows.size for rows in batches[: pieces.num_batches + 1])
        assert total + (2 * total // piece + 2) * step > half


@given(SEEDS, st.sampled_from(WIDTHS), st.integers(1, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_equals_the_arrays(tmp_path_factory, seed, widths, group_size, is_cached):
    random = np.random.default_rng(seed)
    num_rows = int(random.integers(1, 4000))
    arrays, folder = arrays_of(random, num_rows, widths), tmp_path_factory.mktemp("spool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spooled, "PIECE_BYTES", int(random.choice([1, 1 << 14, 1 << 20])))
        tier = spool = SpooledTier(HostTier(arrays), folder, int(random.choice([20, 64])) << 20, group_size)
    if is_cached:
        content = random.permutation(num_rows)[: random.integers(0, num_rows + 1)]
        tier = CachedTier(lambda: Static(num_rows, content.size), spool, content)
    old = []
    for _ in range(2):  # the second pass begins where the first was left
        batches = draw_batches(random, num_rows, int(random.integers(1, 25)))
        announced, under_way = 0, []
        for number in range(int(random.integers(1, len(batches) + 1))):
            while announced < min(len(batches), number + 2 * group_size):
                tier.announce(batches[announced])
                announced += 1
            rows = batches[number]
            outs, places = [np.zeros(rows.size * width, np.uint8) for width in widths], random.permutation(rows.size)
            under_way.append((tier.submit(rows, outs, places), rows, outs, places))
            while under_way and (random.random() < 0.5 or len(under_way) > 2):
                check(under_way.pop(random.integers(len(under_way))), arrays, widths)
        for each in old:
            check(each, arrays, widths)
        old = under_way
        tier.restart()
    for each in old:
        check(each, arrays, widths)
    assert os.listdir(folder) == []
    assert tier.num_rows == num_rows


def check(read, arrays, widths):
    under_way, rows, outs, places = read
    assert under_way.wait() == rows.size * sum(widths)
    for array, out, width in zip(arrays, outs, widths, strict=True):
        assert out.reshape(rows.size, width)[places].tobytes() == array[rows].tobytes()


def make(tmp_path, slow=None, num_rows=3000, group_size=3, **options):
    arrays = arrays_of(np.random.default_rng(0), num_rows, [512])
    return SpooledTier(slow or HostTier(arrays), tmp_path, 16 << 20, group_size, **options), arrays


def read(tier, rows):
    out = np.zeros(rows.size * 512, np.uint8)
    tier.submit(rows, [out], np.arange(rows.size)).wait()
    return out.reshape(-1, 512)


def test_what_is_announced_comes_from_the_spool_in_long_reads(tmp_path):
    tier, arrays = make(tmp_path)
    batches = [np.random.default_rng(n).permutation(3000)[:1000] for n in range(8)]
    for rows in batches[:6]:
        tier.announce(rows)
    for number, rows in enumerate(batches):
        assert read(tier, rows).tobytes() == arrays[0][rows].tobytes()
        if number + 6 < len(batches):
            tier.announce(batches[number + 6])
    assert tier.stats.num_rows == 6000  # two groups; the last two batches make none
    assert tier.slow.stats.num_rows == 8000
    assert tier.written_bytes == 6000 * 512
    assert tier.stats.num_requests < 6 * (1000 * 512 // (1 << 16) + 2) * 2


@pytest.mark.parametrize("num_announced", [0, 3, 6])
def test_nothing_is_left(tmp_path, num_announced):
    before = set(os.listdir("/proc/self/fd"))
    gc.disable()  # its disk is wanted by the next loader, and not when the garbage is looked at
    try:
        tier, _ = make(tmp_path)
        for _ in range(num_announced):
            tier.announce(np.arange(1000))
        if num_announced:
            read(tier, np.arange(1000))
        assert os.listdir(tmp_path) == []
        maker = tier._maker
        del tier
        maker.shutdown(wait=True)  # what it is at comes to its end
        assert set(os.listdir("/proc/self/fd")) <= before
    finally:
        gc.enable()


def test_around_it(tmp_path):
    tier, arrays = make(tmp_path)
    tier.announce(np.arange(5))
    assert around(tier) is tier.slow
    assert read(around(tier), np.arange(7)).tobytes() == arrays[0][:7].tobytes()
    assert read(tier, np.arange(5)).tobytes() == arrays[0][:5].tobytes()  # nobody took its turn
    assert read(tier, np.arange(9)).tobytes() == arrays[0][:9].tobytes()  # and this was never announced


def test_other_rows_than_announced(tmp_path):
    tier, _ = make(tmp_path)
    tier.announce(np.arange(10))
    with pytest.raises(TierError, match="asks for other rows than were announced"):
        read(tier, np.arange(1, 11))


def test_a_disk_that_fails_while_a_group_is_made(tmp_path):
    fault = {"on": True}
    arrays = arrays_of(np.random.default_rng(0), 3000, [512])
    slow = SlowTier(FailingTier(HostTier(arrays), lambda number: OSError(errno.EIO, "torn") if fault["on"] else None), delay_s=1e-5)
    tier, _ = make(tmp_path, slow)
    rows = np.arange(1000)
    for _ in range(6):
        tier.announce(rows)
    with pytest.raises(TierError, match="torn"):
        read(tier, rows)
    fault["on"] = False
    tier.restart()
    for _ in range(6):
        tier.announce(rows)
    assert read(tier, rows).tobytes() == arrays[0][rows].tobytes()
    assert tier.stats.num_rows == 1000


def test_each_batch_of_a_group_that_failed_says_of_its_own_where(tmp_path):
    arrays = arrays_of(np.random.default_rng(0), 3000, [512])
    tier, _ = make(tmp_path, SlowTier(FailingTier(HostTier(arrays), lambda number: OSError(errno.EIO, "torn")), delay_s=1e-5))
    for _ in range(3):
        tier.announce(np.arange(1000))
    errors = []
    for _ in range(2):
        with pytest.raises(TierError, match="torn") as caught:
            read(tier, np.arange(1000))
        errors.append(caught.value)
    assert errors[0] is not errors[1]


def test_what_else_was_read_for_a_group_that_failed_is_dropped(tmp_path, monkeypatch):
    """A device that is not told to stop writes to the buffers that the next group has."""

    class Torn:
        def __init__(self, number):
            self.number, self.since = number, None

        def wait(self):
            raise TierError(f"piece {self.number} is torn")

    class Slow:
        row_bytes, num_rows = (512,), 3000

        def submit(self, *_):
            reads.append(weakref.ref(read := Torn(len(reads))))
            return read

    reads = []
    monkeypatch.setattr(spooled, "PIECE_BYTES", 1)
    tier = SpooledTier(Slow(), tmp_path, 16 << 20, 3)
    for _ in range(3):
        tier.announce(np.arange(1000))
    with pytest.raises(TierError, match="piece 0 is torn"):
        read(tier, np.arange(1000))
    assert len(reads) == 2
    assert reads[1]() is None


def test_a_spool_that_cannot_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tier, _ = make(tmp_path)
    monkeypatch.setattr(os, "pwrite", full)
    for _ in range(3):
        tier.announce(np.arange(1000))
    with pytest.raises(TierError, match=r"spool: it cannot be written in .*: No space left on device; give less spool, or a folder on an"):
        read(tier, np.arange(1000))


def test_a_group_waits_until_the_one_before_it_is_read(tmp_path):
    tier, arrays = make(tmp_path, group_size=1)
    batches = [np.random.default_rng(n).permutation(3000) for n in range(9)]
    for rows in batches[:2]:
        tier.announce(rows)
    for number, rows in enumerate(batches):
        out = np.zeros(rows.size * 512, np.uint8)
        under_way = tier.submit(rows, [out], np.arange(rows.size))  # its half is in use until it is ended
        if number + 2 < len(batches):
            tier.announce(batches[number + 2])
            threading.Event().wait(0.01)
            assert tier._groups
            assert tier._groups[-1].made is None
        under_way.wait()
        assert out.reshape(-1, 512).tobytes() == arrays[0][rows].tobytes()
    assert tier.stats.num_rows == 27_000


def test_a_forked_child_reads_by_itself(tmp_path):
    tier, arrays = make(tmp_path)
    rows = np.arange(1000)
    for _ in range(6):
        tier.announce(rows)
    has_it, may_go = threading.Event(), threading.Event()

    def hold():
        with tier._lock:
            has_it.set()
            may_go.wait(30)

    threading.Thread(target=hold).start()
    has_it.wait(30)
    child = os.fork()
    if child == 0:
        is_right = read(tier, rows[::-1].copy()).tobytes() == arrays[0][rows[::-1]].tobytes()
        tier.restart()
        os._exit(0 if is_right and tier.resident_bytes else 1)
    may_go.set()
    assert os.waitpid(child, 0)[1] == 0
    assert read(tier, rows).tobytes() == arrays[0][rows].tobytes()


def test_no_room_no_folder_too_little(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"cannot be made in .*gone: No such file or directory; give less, or a folder on another"):
        make(tmp_path / "gone")
    with pytest.raises(UsageError, match=r"spool of 1 KiB holds no rows: give at least \d+,\d+ bytes"):
        SpooledTier(HostTier([np.zeros((9, 512), np.uint8)]), tmp_path, 1024, 2)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UsageError, match=r"No space left on device: .* are free; give less, or a folder on another disk \(spool_folder\)"):
        make(tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_is_free_is_said_without_the_files_that_were_made(tmp_path, monkeypatch):
    """The second field finds no room: the first one's file counts as free again."""
    allocate, free, sizes = os.posix_fallocate, os.statvfs, []

    def allocate_once(descriptor, offset, size):
        if sizes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sizes.append(size)
        allocate(descriptor, offset, size)

    def handles_of_files_without_a_name():
        links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
        return [link for link in links if link.is_symlink() and os.readlink(link).startswith(f"{tmp_path}/")]

    def measure(folder):
        assert handles_of_files_without_a_name() == []
        return free(folder)

    monkeypatch.setattr(os, "posix_fallocate", allocate_once)
    monkeypatch.setattr(os, "statvfs", measure)
    with pytest.raises(UsageError, match=r"No space left on device: .* are free"):
        SpoolFile(tmp_path, [512, 2048], 1 << 20, num_buffers=1, piece_bytes=1 << 16)
    assert len(sizes) == 1


def test_a_file_system_without_direct_writes(tmp_path, monkeypatch):
    opened = os.open

    def open_buffered(path, flags, *others):
        if flags & os.O_DIRECT and flags & os.O_RDWR:
            raise OSError(errno.EINVAL, "no")
        return opened(path, flags, *others)

    monkeypatch.setattr(os, "open", open_buffered)
    tier, arrays = make(tmp_path)
    rows = np.arange(0, 3000, 2)
    for _ in range(6):
        tier.announce(rows)
    assert read(tier, rows).tobytes() == arrays[0][rows].tobytes()
    assert tier.stats.num_rows == rows.size
    assert tier.written_bytes % BLOCK == 0


def test_pieces_of_narrow_rows_are_small():
    """The plan of reading a piece takes many times more than rows of two bytes do."""
    assert MOST_ROWS <= piece_rows_of([2], 16 << 20, 1) <= MOST_ROWS + BLOCK
    assert piece_rows_of([512], 16 << 20, 1) == (16 << 20) // 512


def test_a_spool_is_read_by_blocks_that_any_disk_takes(tmp_path):
    """What was never written is answered without a look at the disk's blocks, so that nothing is found out by it."""
    spool = SpoolFile(tmp_path, [512], 1 << 20, num_buffers=1, piece_bytes=1 << 16)
    assert f"blocks of {BLOCK} bytes" in spool.tier.describe()
