"""A disk that fails: short reads, errors, interruptions, truncation, stalls. Right bytes or an error that helps; never a hang."""

import errno
import os
import signal
import threading
import time

import numpy as np
import pytest
from tests.disks import DEVICES, FaultyDevice, again, has_uring, make_tier, read, write_rows

from penstock.errors import TierError, UsageError
from penstock.kernels.read_pages import cpu
from penstock.store.tiers import DiskOptions, DiskTier, RowFile, disk, disk_gauge
from penstock.store.tiers.disk_device import Channels
from penstock.store.tiers.disk_gauge import gap_of

ROWS = np.arange(6000, dtype=np.int64).reshape(3000, 2)


def again_slow(depth, slot_bytes):
    """A disk that takes a minute for its first read."""
    return FaultyDevice(lambda number, offset, length: ("stall", 60))


needs_uring = pytest.mark.skipif(not has_uring(), reason="the kernel refuses io_uring")


def assert_rows(tier, rows):
    assert (read(tier, rows)[0].view(np.int64).reshape(-1, 2) == ROWS[rows]).all()


@pytest.mark.parametrize(
    "fault",
    [
        again(1),
        again(16),
        again(5, errno.EAGAIN),
        lambda number, offset, length: ("short", 512),
        lambda number, offset, length: ("short", 700) if number % 3 else None,
        lambda number, offset, length: ("end", 0) if number == 10**9 else None,
        lambda number, offset, length: ("stall", 0.2) if number == 2 else None,
    ],
)
def test_what_passes_is_tried_again(fault, tmp_path):
    device = FaultyDevice(fault)
    tier = make_tier(tmp_path, [ROWS], device=device, block_bytes=512, max_read_bytes=8192)
    assert_rows(tier, np.random.default_rng(0).permutation(3000)[:700])
    assert all(offset % 512 == 0 for offset, _ in device.offsets)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            lambda number, offset, length: errno.EIO if number == 3 else None,
            "at byte 16384 .row 768.: Input/output error: the disk is failing",
        ),
        (again(17), "Interrupted system call: see the system's log"),
        (again(17, errno.EAGAIN), "Resource temporarily unavailable"),
        (
            lambda number, offset, length: ("end", 0) if offset == 8192 else None,
            "ends at byte 8192, its rows go on to 52096: it was truncated",
        ),
        (lambda number, offset, length: ("end", 100) if offset >= 8192 else None, "ends at byte 8292"),
    ],
)
def test_what_stays_is_an_error(fault, message, tmp_path):
    tier = make_tier(tmp_path, [ROWS], device=FaultyDevice(fault), block_bytes=4096, max_read_bytes=4096)
    with pytest.raises(TierError, match=f"disk: .*rows.*{message}"):
        read(tier, np.arange(3000)[::-1])


def test_a_stall_beyond_patience_is_an_error(tmp_path):
    device = FaultyDevice(lambda number, offset, length: ("stall", 60) if number == 1 else None)
    tier = make_tier(tmp_path, [ROWS], device=device, patience_s=0.3)
    assert_rows(tier, [5])
    started = time.monotonic()
    with pytest.raises(TierError, match=r"nothing has come for 0.3 s, 0 of 1 reads are over: the disk does not answer"):
        read(tier, [6])
    assert time.monotonic() - started < 20
    assert_rows(tier, [7])  # the next read has a channel of its own


@pytest.mark.parametrize("device", DEVICES)
def test_a_file_truncated_while_open(device, tmp_path):
    tier = make_tier(tmp_path, [ROWS], device=device, depth=4, block_bytes=4096, max_read_bytes=4096)
    assert_rows(tier, np.arange(3000))
    path = tier._files[0].file.path
    for size in (52_000, 20_480, 9000):
        os.truncate(path, size)
        with pytest.raises(TierError, match=f"{path} ends at byte {size}, its rows go on to 52096: it was truncated"):
            read(tier, np.arange(3000))
    assert_rows(tier, np.arange(100))  # what is left can be read
    os.truncate(path, 0)
    for _ in range(20):
        with pytest.raises(TierError, match="ends at byte 0"):
            read(tier, [0])
    assert tier.resident_bytes <= tier._channels.device.resident_bytes + 5 * 4096


@pytest.mark.parametrize("device", DEVICES)
def test_an_error_of_the_system(device, tmp_path):
    """Memory that is not mapped, read as a file: the system answers with EIO."""
    tier = make_tier(tmp_path, [ROWS], device=device)
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    os.dup2(memory, tier._files[0].descriptor)
    os.close(memory)
    with pytest.raises(TierError, match=r"at byte \d+ .row 0.: Input/output error: the disk is failing"):
        read(tier, [0])


def over_a_pipe(folder, **options):
    """A tier whose descriptor became the end of a pipe: what comes, and when, is up to the test. Returns (tier, the other end)."""
    tier = make_tier(folder, [ROWS], **{"device": "io_uring", "block_bytes": 512, **options})
    ours, theirs = os.pipe()
    os.dup2(ours, tier._files[0].descriptor)
    os.close(ours)
    return tier, theirs


@needs_uring
def test_a_ring_that_waits(tmp_path):
    tier, pipe = over_a_pipe(tmp_path, offset=0)
    data = ROWS.tobytes()
    feeder = threading.Thread(target=lambda: [(time.sleep(0.3), os.write(pipe, data[a : a + 512])) for a in range(0, 2048, 512)])
    feeder.start()
    assert_rows(tier, np.arange(128))  # one read of 2048 bytes, which come in four pieces
    feeder.join()
    os.close(pipe)
    with pytest.raises(TierError, match="ends at byte 0"):
        read(tier, [0])


@needs_uring
def test_a_ring_that_waits_in_vain(tmp_path):
    tier, pipe = over_a_pipe(tmp_path, patience_s=0.5)
    started = time.monotonic()
    with pytest.raises(TierError, match=r"nothing has come for 0.5 s"):
        read(tier, [0, 1000, 2000])
    assert time.monotonic() - started < 20
    os.close(pipe)


@needs_uring
def test_a_ring_that_is_interrupted(tmp_path):
    tier, pipe = over_a_pipe(tmp_path, offset=0)
    heard, data = [], ROWS.tobytes()
    before = signal.signal(
        signal.SIGALRM, lambda *signal: heard.append(time.monotonic()) or (len(heard) == 5 and os.write(pipe, data[:512]))
    )
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        assert_rows(tier, np.arange(32))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(heard) >= 5  # Python was let at its signals while the ring waited
    os.close(pipe)


@pytest.mark.parametrize("most", [0, 2])
def test_threads_that_cannot_be_started(most, tmp_path, monkeypatch):
    """A limit of processes, or of memory: those there are read everything."""
    start, started = threading.Thread.start, []

    def limited(thread):
        if thread.name == "penstock-pread" and len(started) == most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    tier = make_tier(tmp_path, [ROWS], device="pread", depth=8)
    monkeypatch.setattr(threading.Thread, "start", limited)
    if most:
        assert_rows(tier, np.arange(0, len(ROWS), 7))
    else:
        with pytest.raises(TierError, match="no thread to read from the disk can be started"):
            assert_rows(tier, np.arange(10))


def test_a_thread_that_comes_back_too_late_writes_nowhere(tmp_path, monkeypatch):
    late, kernel = threading.Event(), cpu.read_pages
    done = threading.Event()

    def stalled(*arguments):
        late.wait(60)
        kernel(*arguments)
        done.set()

    tier = make_tier(tmp_path, [ROWS], device="pread", depth=1, patience_s=0.3)
    monkeypatch.setattr(cpu, "read_pages", stalled)
    out = [np.full(160, 0xAB, np.uint8)]
    under_way = tier.submit(np.arange(10), out, np.arange(10))
    with pytest.raises(TierError, match=r"nothing has come for 0.3 s"):
        under_way.wait()
    late.set()
    assert done.wait(30)
    assert (out[0] == 0xAB).all()
    monkeypatch.undo()
    assert_rows(tier, np.arange(10))


@pytest.mark.parametrize("device", DEVICES)
def test_reads_that_nobody_ends(device, tmp_path):
    tier = make_tier(tmp_path, [ROWS], device=device, depth=2, max_channels=2)
    for _ in range(10):
        tier.submit(np.arange(3000), [np.empty(48_000, np.uint8)], np.arange(3000))
    outs = [[np.empty(48_000, np.uint8)] for _ in range(6)]
    under_way = [tier.submit(np.arange(3000), out, np.arange(3000)) for out in outs]
    for one, (out,) in reversed(list(zip(under_way, outs, strict=True))):
        one.wait()
        assert out.tobytes() == ROWS.tobytes()
    del under_way, one
    assert tier.resident_bytes <= tier._channels.device.resident_bytes + 2 * 3 * 65536


def test_a_read_that_is_collected_while_a_channel_is_taken(tmp_path):
    tier = make_tier(tmp_path, [ROWS], max_channels=1)
    under_way = tier.submit(np.arange(3000), [np.empty(48_000, np.uint8)], np.arange(3000))
    with tier._channels._lock:
        del under_way
    assert_rows(tier, np.arange(9))


def test_the_thread_that_submitted_is_gone(tmp_path):
    for device in DEVICES:
        tier, outs, begun = make_tier(tmp_path, [ROWS], device=device), [np.empty(48_000, np.uint8)], []
        thread = threading.Thread(target=lambda t=tier, o=outs, b=begun: b.append(t.submit(np.arange(3000), o, np.arange(3000))))
        thread.start()
        thread.join()
        begun[0].wait()
        assert outs[0].tobytes() == ROWS.tobytes()


def test_where_the_kernel_refuses_io_uring(tmp_path, monkeypatch, caplog):
    def refuse(depth, slot_bytes):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(disk, "UringDevice", refuse)
    tier = make_tier(tmp_path, [ROWS])
    assert "the kernel refuses io_uring (Operation not permitted): reading by pread on threads" in caplog.text
    assert tier.describe().startswith("pread on 32 threads")
    assert_rows(tier, np.arange(3000)[::7])
    with pytest.raises(TierError, match=r"the kernel refuses io_uring .Operation not permitted.: allow it, or read by pread"):
        make_tier(tmp_path, [ROWS], device="io_uring")


def test_where_the_file_system_takes_no_direct_reads(tmp_path, monkeypatch, caplog):
    opened = os.open

    def refuse(path, flags, *rest, **named):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    tier = make_tier(tmp_path, [ROWS])
    assert "takes no direct reads: reads go through the page cache" in caplog.text
    assert "through the page cache, blocks of 512 bytes" in tier.describe()
    assert_rows(tier, np.arange(3000)[::-7])


def test_files_that_are_not_what_they_should_be(tmp_path):
    (file,) = write_rows(tmp_path, [ROWS])
    with pytest.raises(TierError, match="has 52096 bytes, 3001 rows need 52112: it is truncated; put the file back"):
        DiskTier([file], 3001)
    with pytest.raises(TierError, match="was replaced since it was opened: open the store again"):
        DiskTier([RowFile(path=file.path, data_offset=0, row_bytes=16, inode=(1, 2))], 3000)
    with pytest.raises(TierError, match="gone is not there"):
        DiskTier([RowFile(path=tmp_path / "gone", data_offset=0, row_bytes=16)], 3000)


def test_holes_are_read_while_they_cost_less_than_a_request():
    assert gap_of(20e-6, 50e-6, 1 << 16) == 32768  # as many requests as may be, bytes at 2 GB/s: the most there is
    assert gap_of(3e-6, 30.0e-6, 1 << 16) == 2560
    assert gap_of(1e-6, 20e-6, 1 << 16) == 0  # all of the time is in the bytes
    assert gap_of(20e-6, 19e-6, 1 << 16) == 32768


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_disk_is_good_at_is_measured(device, tmp_path):
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(65 << 20)  # a hole, which costs no disk
    tier = DiskTier([RowFile(path=path, data_offset=0, row_bytes=512)], 1 << 17, options=DiskOptions(device=device))
    assert tier.gap_bytes in range(0, 32769, 512)
    assert f"holes up to {tier.gap_bytes} bytes read along" in tier.describe()
    assert (tier.stats.num_requests, tier.stats.read_bytes) == (0, 0)
    assert (read(tier, [5, 100_000])[0] == 0).all()
    for options in (dict(device=again_slow), dict(max_read_bytes=4096), dict(max_read_bytes=1 << 20, depth=4)):
        tier = DiskTier([RowFile(path=path, data_offset=0, row_bytes=512)], 1 << 17, options=DiskOptions(**{"device": device, **options}))
        assert tier.gap_bytes == disk_gauge.DEFAULT_GAP_BYTES  # given up after half a second; and where there is nothing to compare


@pytest.mark.parametrize(
    "wrong",
    [dict(depth=0), dict(patience_s=0), dict(block_bytes=1000), dict(max_read_bytes=5000), dict(device="tape"), dict(gap_bytes=-1)],
    ids=str,
)
def test_options_that_cannot_work(wrong):
    with pytest.raises(UsageError):
        DiskOptions(**wrong)


def test_a_closed_tier_says_so(tmp_path):
    tier, before = make_tier(tmp_path, [ROWS]), len(os.listdir("/proc/self/fd"))
    assert_rows(tier, [1])
    tier.close()
    tier.close()
    assert len(os.listdir("/proc/self/fd")) < before
    with pytest.raises(TierError, match="it was closed"):
        read(tier, [1])


def test_nothing_is_left_behind(tmp_path):
    for _ in range(2):
        before = len(os.listdir("/proc/self/fd")), threading.active_count()
        for device in DEVICES * 3:
            tier = make_tier(tmp_path, [ROWS], device=device)
            tier.submit(np.arange(3000), [np.empty(48_000, np.uint8)], np.arange(3000))
            assert_rows(tier, np.arange(3000))
            del tier
        deadline = time.monotonic() + 10
        while threading.active_count() > before[1] and time.monotonic() < deadline:
            time.sleep(0.01)
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


def test_channels_are_lent_and_bounded():
    device = FaultyDevice(lambda *read: None)
    channels = Channels(lambda: device, 2)
    first, second = channels.take(), channels.take()
    assert first is not second
    assert channels.take() is None
    spare = channels.take_anyway()
    channels.give_back(spare)
    channels.give_back(first)
    assert channels.take() is first
    channels.drop(first)
    channels.drop(second)
    assert channels.take() not in (first, second, None)
