"""Kernels that copy rows on a device, against their references, into poisoned output, byte for byte. Marked `gpu` they run on one."""

import itertools
import mmap
import platform

import numpy as np
import pytest
import torch

from penstock.kernels._triton import is_interpreted
from penstock.kernels.gather_cached import reference as gather_cached_reference
from penstock.kernels.gather_rows import reference as gather_rows_reference
from penstock.kernels.move_rows import reference as move_rows_reference
from penstock.kernels.region_order import reference as region_order_reference
from tests.devices import address_rows, on_device, poisoned_on

SHAPES = [(1, 0), (6, 2), (20, 4), (48, 16), (131, 3), (512, 0), (520, 8), (1537, 1)]
"""(bytes of a row, offset of the first): every width of words, aligned to lines and not, rows wider than a tile."""


@pytest.fixture
def device(reader):
    return reader


@pytest.mark.parametrize(("row_bytes", "offset"), SHAPES)
def test_gather_rows(row_bytes, offset, device):
    from penstock.kernels.gather_rows import gpu

    random = np.random.default_rng(row_bytes)
    table, rows = address_rows(random, 70, row_bytes, offset)
    for count, max_programs in [(0, 4), (1, None), (600, 3), (600, None)]:
        ids = random.integers(0, 70, count)
        out = poisoned_on(device, count * row_bytes)
        gpu.gather_rows(on_device(table, device), row_bytes, on_device(ids, device), out, max_programs=max_programs)
        assert out.cpu().numpy().tobytes() == gather_rows_reference.gather_rows(rows, ids).tobytes()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("row_bytes", "offset"), SHAPES)
def test_move_rows(row_bytes, offset, dtype, device):
    from penstock.kernels.move_rows import gpu

    random = np.random.default_rng(row_bytes)
    table, rows = address_rows(random, 70, row_bytes, offset)
    for count, max_programs in [(0, 4), (1, None), (50, 3), (50, None)]:
        taken, given = random.integers(0, 70, count).astype(dtype), random.permutation(60)[:count]
        target = poisoned_on(device, 60 * row_bytes)
        expected = target.cpu().numpy().reshape(60, row_bytes).copy()
        move_rows_reference.move_rows(rows, taken, expected, given)
        given_there, how = on_device(given, device), {"max_programs": max_programs}
        gpu.move_rows(on_device(table, device), on_device(taken, device), target, given_there, row_bytes, **how)
        assert target.cpu().numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize(("row_bytes", "offset"), SHAPES[3:6])
def test_rows_without_a_target_are_not_moved(row_bytes, offset, device):
    from penstock.kernels.move_rows import gpu

    random = np.random.default_rng(row_bytes)
    table, rows = address_rows(random, 70, row_bytes, offset)
    given = np.where(random.random(70) < 0.5, random.permutation(80)[:70], -random.integers(1, 9, 70)).astype(np.int32)
    moved = np.flatnonzero(given >= 0)
    for taken in (None, random.integers(0, 70, 70)):
        target = poisoned_on(device, 80 * row_bytes)
        expected = target.cpu().numpy().reshape(80, row_bytes).copy()
        move_rows_reference.move_rows(rows, moved if taken is None else taken[moved], expected, given[moved])
        sources = None if taken is None else on_device(taken, device)
        gpu.move_rows(on_device(table, device), sources, target, on_device(given, device), row_bytes, max_programs=3)
        assert target.cpu().numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize(("row_bytes", "offset"), SHAPES)
def test_gather_cached(row_bytes, offset, by_position, device):
    from penstock.kernels.gather_cached import gpu

    random = np.random.default_rng(row_bytes)
    table, rows = address_rows(random, 70, row_bytes, offset)
    cache, kept = address_rows(random, 20, row_bytes, 0)  # other bytes than the table's, to see where a row comes from
    num_hits, expected_hits = torch.zeros(1, dtype=torch.int64, device=device), 0
    for count, max_programs in [(0, 4), (1, 4), (600, 3)]:
        ids, slots = random.integers(0, 70, count), np.full(70, -1, np.int32)
        slots[random.permutation(70)[:20]] = random.permutation(20)
        given = slots[ids] if by_position else slots
        expected, hits = gather_cached_reference.gather_cached(rows, kept, given, ids, by_position)
        out, expected_hits = poisoned_on(device, (count + 5) * row_bytes), expected_hits + hits
        places = random.permutation(count + 5)[:count] if by_position else np.arange(count)
        whole = out.cpu().numpy().reshape(count + 5, row_bytes).copy()
        whole[places] = expected
        gpu.gather_cached(
            on_device(table, device), on_device(cache, device), on_device(given, device), on_device(ids, device), row_bytes, out, num_hits,
            by_position=by_position, places=on_device(places, device) if by_position else None, max_programs=max_programs,
        )  # fmt: skip
        assert out.cpu().numpy().tobytes() == whole.tobytes()
        assert int(num_hits) == expected_hits


@pytest.mark.skipif(not is_interpreted() or platform.machine() != "x86_64", reason="of the interpreter; by a flag of x86-64")
def test_addresses_may_be_small():
    """As in a Python that is no position-independent executable, such as Debian's."""
    from penstock.kernels.gather_cached import gpu as gather_cached
    from penstock.kernels.gather_rows import gpu as gather_rows
    from penstock.kernels.move_rows import gpu as move_rows

    def low(array):
        there = torch.frombuffer(mmap.mmap(-1, array.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40), dtype=torch.uint8)
        assert there.data_ptr() < 1 << 31
        return there.view(torch.from_numpy(array).dtype).copy_(torch.from_numpy(array))

    random = np.random.default_rng(3)
    rows, ids, slots = random.integers(0, 256, (70, 20), np.uint8), random.integers(0, 70, 90), np.full(70, -1, np.int32)
    table, there, order, num_hits = (
        low(rows.reshape(-1)),
        low(ids),
        low(random.permutation(90).astype(np.int32)),
        low(np.zeros(1, np.int64)),
    )
    outs = [low(np.zeros(90 * 20, np.uint8)) for _ in range(3)]
    gather_rows.gather_rows(table, 20, there, outs[0], order=order)
    gather_cached.gather_cached(table, table, low(slots), there, 20, outs[1], num_hits, by_position=False, order=order)
    move_rows.move_rows(table, there, outs[2], low(np.arange(90)), 20, order=order)
    assert [out.numpy().tobytes() for out in outs] == 3 * [rows[ids].tobytes()]


@pytest.mark.parametrize("count", [1, 600])
def test_rows_come_in_any_order(count, device):
    """Of reading, that is: what is read first changes nothing."""
    from penstock.kernels.gather_cached import gpu as gather_cached
    from penstock.kernels.gather_rows import gpu as gather_rows
    from penstock.kernels.move_rows import gpu as move_rows

    random = np.random.default_rng(count)
    row_bytes, order = 48, on_device(random.permutation(count).astype(np.int32), device)
    table, _ = address_rows(random, 70, row_bytes, 16)
    cache, _ = address_rows(random, 20, row_bytes, 0)
    slots = np.full(70, -1, np.int32)
    slots[random.permutation(70)[:20]] = random.permutation(20)
    ids, places = random.integers(0, 70, count), random.permutation(count + 5)[:count]
    there = {name: on_device(each, device) for name, each in dict(table=table, cache=cache, ids=ids, places=places).items()}
    num_hits = torch.zeros(1, dtype=torch.int64, device=device)

    def gathered(how):
        out = poisoned_on(device, count * row_bytes)
        gather_rows.gather_rows(there["table"], row_bytes, there["ids"], out, max_programs=3, **how)
        return out

    def moved(how):
        out = poisoned_on(device, (count + 5) * row_bytes)
        move_rows.move_rows(there["table"], there["ids"], out, there["places"], row_bytes, max_programs=3, **how)
        return out

    def fused(how, by_position):
        out, given = poisoned_on(device, (count + 5) * row_bytes), on_device(slots[ids] if by_position else slots, device)
        gather_cached.gather_cached(
            there["table"], there["cache"], given, there["ids"], row_bytes, out, num_hits,
            by_position=by_position, places=there["places"], max_programs=3, **how,
        )  # fmt: skip
        return out

    for read in (gathered, moved, lambda how: fused(how, False), lambda how: fused(how, True)):
        assert torch.equal(read({}), read({"order": order}))
    out = poisoned_on(device, count * row_bytes)
    for some in order.split(70):  # a part of them at a time
        gather_rows.gather_rows(there["table"], row_bytes, there["ids"], out, order=some, max_programs=3)
    assert torch.equal(out, gathered({}))
    assert int(num_hits) == 4 * np.count_nonzero(slots[ids] >= 0)
    again = torch.zeros_like(order)  # no permutation: one row is read again and again, and no other
    for read in (gathered, moved, lambda how: fused(how, False), lambda how: fused(how, True)):
        rows, whole = (read(how).view(-1, row_bytes) for how in ({"order": again}, {}))
        written = (rows != 0xA5).any(1).nonzero()[:, 0].tolist()
        assert len(written) == 1
        assert torch.equal(rows[written[0]], whole[written[0]])


@pytest.mark.parametrize(("num_ids", "dtype"), [(1, np.int32), (1000, np.int64), (1025, np.int32), (3_000_000_000, np.int64)])
def test_order_by_region(num_ids, dtype, device, monkeypatch):
    from penstock.kernels.region_order import gpu

    monkeypatch.setattr(gpu, "MANY", 1000)  # one set of counters, or several
    random, counts = np.random.default_rng(num_ids), gpu.make_counts(device)
    for first, count in ((0, 0), (3, 1), (5, 3000), (0, 1), (2, 4500)):  # again and again with the same memory
        ids = np.minimum(random.integers(0, num_ids, count + 9), random.integers(0, num_ids, count + 9)).astype(dtype)
        ids[-1] = num_ids - 1
        expected = region_order_reference.order_by_region(ids[first:][:count], gpu.shift_of(num_ids))
        order = torch.full((count + 7,), -1, dtype=torch.int32, device=device)
        span = torch.tensor([first, first + count], device=device)
        gpu.order_by_region(on_device(ids, device), num_ids, order, counts, span)
        check_order(order, ids[first:][:count], expected, gpu.shift_of(num_ids))
        order.fill_(-1)
        gpu.order_by_region(on_device(ids[first:][:count].copy(), device), num_ids, order, counts)
        check_order(order, ids[first:][:count], expected, gpu.shift_of(num_ids))
    assert (num_ids - 1) >> gpu.shift_of(num_ids) < gpu.REGIONS
    assert not counts[: gpu.COPIES * gpu.REGIONS].any()


def check_order(order, ids, expected, shift):
    """The same regions one after the other, each with all of its places, in any order; and nothing behind them."""
    found = order.cpu().numpy()
    assert (found[ids.size :] == -1).all()
    found = found[: ids.size]
    assert (ids[found] >> shift == ids[expected] >> shift).all()
    assert sorted(found.tolist()) == list(range(ids.size))


def test_nothing_but_the_rows_is_read_or_written(device):
    """A table at the very end of a page that can be read, before one that cannot (host memory; on a device only the writes are checked)."""
    from penstock.kernels.gather_rows import gpu

    random = np.random.default_rng(0)
    for row_bytes, max_programs in itertools.product((1, 7, 12, 48, 100, 130), (None, 2)):
        table, rows = address_rows(random, 40, row_bytes, 0, fenced=device.type == "cpu")
        ids, margin = np.arange(40)[::-1].copy(), 256
        space = poisoned_on(device, 40 * row_bytes + 2 * margin)
        before = space.cpu().numpy().copy()
        out = space[margin : margin + 40 * row_bytes]
        gpu.gather_rows(on_device(table, device), row_bytes, on_device(ids, device), out, max_programs=max_programs)
        before[margin : margin + 40 * row_bytes] = rows[ids].reshape(-1)
        assert (space.cpu().numpy() == before).all()


@pytest.mark.parametrize("row_bytes", [2945, 2951, 2960])
@pytest.mark.parametrize("offset", [0, 15, 127])
def test_rows_of_many_words_are_copied_to_the_last_one(row_bytes, offset, device):
    """In several pieces, which begin before the row and end behind it."""
    from penstock.kernels.gather_rows import gpu

    table, rows = address_rows(np.random.default_rng(0), 140, row_bytes, offset)
    for max_programs in (None, 2):
        out = poisoned_on(device, 140 * row_bytes)
        gpu.gather_rows(on_device(table, device), row_bytes, on_device(np.arange(140), device), out, max_programs=max_programs)
        assert out.cpu().numpy().tobytes() == rows.tobytes()


def test_a_table_in_memory_of_the_device_is_read_as_near():
    from penstock.store.tiers.device import DeviceTier

    assert DeviceTier(3, [8], torch.device("cpu")).max_programs is None


def test_no_row_is_no_launch(device):
    from penstock.kernels.gather_rows import gpu

    gpu.gather_rows(poisoned_on(device, 0), 0, on_device(np.arange(5), device), poisoned_on(device, 0))


def test_words_are_as_wide_as_the_addresses_allow():
    from penstock.kernels._device_rows import FAR_BYTES, NEAR_BYTES, layout_of

    for row_bytes, source, target, word, is_shifted in [
        (512, 4096, 256, 16, False), (512, 4096, 8, 8, False), (48, 4096, 0, 16, False), (512, 4100, 0, 4, True),
        (512, 4224, 64, 16, False),
        (100, 0, 0, 4, False), (6, 128, 0, 2, False), (7, 0, 0, 1, False), (130, 0, 0, 2, True), (144, 0, 0, 16, True),
    ]:  # fmt: skip
        near, far = (layout_of(row_bytes, source, target, is_far=is_far) for is_far in (False, True))
        assert near["WORD"] == far["WORD"] == word
        assert near["SHIFTED"] == far["SHIFTED"] == is_shifted
        assert (near["READ"], far["READ"]) == (max(4, word), 16 if row_bytes >= 32 else max(4, word))
        # as much is under way at any size
        assert near["ROWS"] * near["COLUMNS"] * min(near["READ"], 8) == NEAR_BYTES
        assert FAR_BYTES <= far["ROWS"] * row_bytes < 2 * FAR_BYTES
