"""Sampling kernels for a device against their references, into poisoned output, byte for byte. Marked `gpu` they run on one."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from penstock import rng
from penstock.kernels import _device_lists as lists
from penstock.kernels import _triton
from penstock.kernels._block_sums import Blocks, sum_blocks
from penstock.kernels.cached_lists import reference as cached_lists
from penstock.kernels.relabel import gpu as relabel_gpu
from penstock.kernels.relabel import reference as relabel_reference
from penstock.kernels.running_sums import reference as running_sums
from penstock.kernels.sample_neighbors import gpu, reference
from penstock.kernels.sample_shared import gpu as shared_gpu
from penstock.kernels.sample_shared import reference as shared_reference
from penstock.kernels.sample_weighted import gpu as weighted_gpu
from penstock.kernels.sample_weighted import reference as weighted_reference
from penstock.kernels.time_windows import reference as time_windows
from penstock.kernels.time_windows.gpu import find_windows
from penstock.records import CSC
from penstock.sample import device_graph
from tests.devices import on_device
from tests.differential.ways import random_weights
from tests.graphs import assert_same_bytes, random_csc

POISON = -7


@pytest.fixture
def device(reader):
    return reader


def poisoned(count, dtype, device):
    return torch.full((count,), POISON, dtype=getattr(torch, np.dtype(dtype).name), device=device)


def host(tensor):
    return tensor.cpu().numpy()


def even_csc(random, degree, num_dst, num_src=9000):
    """Every list of the same length."""
    return CSC(np.arange(num_dst + 1) * degree, random.integers(0, num_src, num_dst * degree).astype(np.int32))


def keep_lists(random, csc, device):
    """A random half of the lists nearer, and `indices` in which these are damaged."""
    ranks = random.permutation(csc.num_dst).astype(np.int32)
    kept = np.argsort(ranks)[: csc.num_dst // 2]
    cached = np.concatenate([csc.indices[:0], *(csc.indices[csc.indptr[v] : csc.indptr[v + 1]] for v in kept)])
    prefix_ptr = np.cumsum([0, *np.diff(csc.indptr)[kept]])
    damaged = csc.indices.copy()
    for v in kept:
        damaged[csc.indptr[v] : csc.indptr[v + 1]] = -1
    neighbors = np.empty(cached.size, csc.indices.dtype)
    row_ptr, positions = (
        prefix_ptr,
        np.concatenate([[0][:0], *(np.arange(csc.indptr[v], csc.indptr[v + 1]) for v in kept)]).astype(np.int64),
    )
    missed = cached_lists.read_prefix(csc.indptr, kept, row_ptr, positions, ranks, prefix_ptr, cached, neighbors)
    assert missed.size == 0
    assert_same_bytes(neighbors, csc.indices[positions])  # the layout is that of the kernels on the CPU
    return lists.Kept(*(on_device(array, device) for array in (ranks, prefix_ptr, cached))), CSC(csc.indptr, damaged)


def none_arrived(device):
    return torch.zeros(1, dtype=torch.int64, device=device)


def count(indptr, num_edges, nodes, span, base, fanout, replace, room, status, drawable=None):
    """Returns how many edges are taken, and what `sample_neighbors` needs of it. Room: for so many nodes."""
    ends, counted = torch.tensor([base, POISON], device=nodes.device), gpu.make_counted(room, none_arrived(nodes.device))
    gpu.count_neighbors(indptr, num_edges, nodes, span, ends, fanout, replace, counted, status, drawable)
    assert (counted.blocks.arrived.tolist(), int(ends[0])) == ([0], base)
    return int(ends[1]) - base, counted


def far_of(random, num_rows, device):
    """Lists that are read after drawing, in any order, by some programs."""
    order = random.permutation(num_rows).astype(np.int32)
    return gpu.Far(on_device(np.append(order, np.int32(-1)), device), int(random.integers(1, 4)))


def check(random, csc, num_src, nodes, fanout, replace, device, *, with_copies=False, with_kept=False, sums=None):
    for is_far in (False, True) if 0 < fanout <= gpu.TILE_FANOUT else (False,):
        far = far_of(random, nodes.size, device) if is_far else None
        check_one(random, csc, num_src, nodes, fanout, replace, device, far, with_copies, with_kept, sums)


def check_one(random, csc, num_src, nodes, fanout, replace, device, is_read, with_copies, with_kept, sums):
    key = rng.derive_key(int(random.integers(1 << 60)), 0, rng.SAMPLE)
    batch, hop, edge_type, base = int(random.integers(1 << 32)), int(random.integers(16)), int(random.integers(4096)), 1000
    copies = random.integers(0, rng.MAX_COPIES, nodes.size) if with_copies else None
    place = dict(key=key, batch=batch, hop=hop, edge_type=edge_type, copies=copies)
    define, sample, drawable = partial(reference.sample_neighbors, csc.indptr, csc.indices), gpu.sample_neighbors, None
    if sums is not None:
        define = partial(weighted_reference.sample_neighbors, csc.indptr, csc.indices, sums)
        drawable = on_device(running_sums.count_drawable(csc.indptr, sums), device)
        sample = partial(weighted_gpu.sample_neighbors, weighted_gpu.Weights(on_device(sums, device), drawable))
    row_ptr, positions, neighbors = define(nodes, fanout=fanout, replace=replace, **place)

    kept, far = keep_lists(random, csc, device) if with_kept else (None, csc)
    indptr, indices, ids = (on_device(array, device) for array in (far.indptr, far.indices, nodes))
    begin, more = (
        int(random.integers(3)),
        int(random.integers(1, 4)),
    )  # where the frontier begins among nodes; what it could have been beyond
    ids = torch.cat([poisoned(begin, np.int64, device), ids, poisoned(1, np.int64, device)])
    frontier = ids, torch.tensor([begin, begin + nodes.size], device=device)
    offsets, status = poisoned(nodes.size + more + 1, np.int64, device), torch.full((2,), lists.CLEAN, device=device)
    num_taken, counted = count(indptr, csc.num_edges, *frontier, base, fanout, replace, nodes.size + more, status, drawable)
    assert num_taken == row_ptr[-1]
    taken, columns, found = (poisoned(positions.size + 3, dtype, device) for dtype in (np.int64, np.int64, csc.indices.dtype))
    sample(
        indptr, indices, num_src, *frontier, fanout, replace, torch.tensor([*key.tolist(), batch], device=device), hop, edge_type,
        None if copies is None else torch.cat([poisoned(begin, np.int64, device), on_device(copies, device)]), counted, offsets,
        *(each[: positions.size] for each in (taken, columns, found)), status, kept, is_read,
    )  # fmt: skip
    assert_same_bytes(host(offsets), np.append(row_ptr, np.repeat(row_ptr[-1], more)) + base)
    assert_same_bytes(host(taken), np.append(positions, [POISON] * 3))
    assert_same_bytes(host(columns), np.append(begin + np.repeat(np.arange(nodes.size), np.diff(row_ptr)), [POISON] * 3))
    assert_same_bytes(host(found), np.append(neighbors, [POISON] * 3).astype(csc.indices.dtype))
    assert status.tolist() == [lists.CLEAN] * 2


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [-1, 0, 1, 4, 15, 33, 65, 200])
def test_sample_neighbors(fanout, replace, device):
    random = np.random.default_rng()
    for dtype, hub_degree, extra in ((np.int32, 300, "copies"), (np.int64, rng.WIDE_BOUND + 900, "kept")):
        csc = random_csc(random, 300, 60, 900, hub_degree=hub_degree, dtype=dtype)
        nodes = np.append(random.integers(0, 60, 25), 0)
        check(random, csc, 300, nodes, fanout, replace, device, with_copies=extra == "copies", with_kept=extra == "kept")


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [-1, 0, 1, 4, 15, 33, 65, 130 if _triton.is_interpreted() else 1024])
def test_sample_by_weight(fanout, replace, device):
    """Lists whose weights are all 0, or but for few; as long as a fanout, shorter, and longer."""
    random = np.random.default_rng()
    for dtype, hub_degree, extra in ((np.int32, 300, "copies"), (np.int64, 1300, "kept")):
        csc = random_csc(random, 300, 60, 900, hub_degree=hub_degree, dtype=dtype)
        nodes = np.append(random.integers(0, 60, 25), 0)
        kinds = [random_weights(random, csc.num_edges), random.random(csc.num_edges)]
        for values in kinds if fanout < 33 else random.permutation(kinds)[:1]:  # in the interpreter, long fanouts take their time
            sums = running_sums.running_sums(csc.indptr, values)
            with_copies, with_kept = extra == "copies", extra == "kept"
            check(random, csc, 300, nodes, fanout, replace, device, with_copies=with_copies, with_kept=with_kept, sums=sums)


def test_whole_lists_by_weight_are_in_order(device):
    """Those that are as long as the fanout too."""
    random = np.random.default_rng()
    for degree in (3, 4, 5):
        csc = even_csc(random, degree, 40)
        sums = running_sums.running_sums(csc.indptr, random.random(csc.num_edges))
        check(random, csc, 9000, np.arange(40), 4, False, device, sums=sums)


@pytest.mark.parametrize("expected", [None, lambda fanout: fanout, lambda fanout: fanout // 8], ids=["", "often too many", "often too few"])
@pytest.mark.parametrize("fanout", [1, 4, 15, 100])
def test_sample_shared(fanout, expected, device, monkeypatch):
    """Lists of the fanout, shorter, longer than what is held of them; neighbours that come more often than a byte counts; lists that are
    read again. Kept ones, and those that are read in another order; more programs than lists, and fewer."""
    if expected is not None:
        room = shared_gpu.room_of(fanout)
        monkeypatch.setattr(shared_gpu, "_expected", expected)
        monkeypatch.setattr(shared_gpu, "room_of", lambda fanout: room)
    random = np.random.default_rng()
    for dtype, num_src, hub_degree in ((np.int32, 300, 300), (np.int64, 1, 700)):
        csc = random_csc(random, num_src, 60, 900, hub_degree=hub_degree, dtype=dtype)
        nodes, source, base = np.append(random.integers(0, 60, 25), 0), int(random.integers(4096)), 1000
        key, batch, hop = (
            rng.derive_key(int(random.integers(1 << 60)), 0, rng.SHARED),
            int(random.integers(1 << 32)),
            int(random.integers(16)),
        )
        place = dict(key=key, batch=batch, hop=hop, source=source)
        row_ptr, positions, neighbors = shared_reference.sample_neighbors(csc.indptr, csc.indices, nodes, fanout=fanout, **place)
        repeats = device_graph._repeats(csc)
        assert repeats.dtype == (np.int8 if num_src > 1 else np.int16)
        for with_kept, num_programs in ((False, 3), (True, 40)):
            kept, far_lists = keep_lists(random, csc, device) if with_kept else (None, csc)
            far = far_of(random, nodes.size, device) if with_kept else None
            indptr, indices, ids = (on_device(array, device) for array in (far_lists.indptr, far_lists.indices, nodes))
            ids, span = torch.cat([poisoned(2, np.int64, device), ids]), torch.tensor([2, 2 + nodes.size], device=device)
            offsets, status = poisoned(nodes.size + 3, np.int64, device), torch.full((2,), lists.CLEAN, device=device)
            num_taken, counted = count(indptr, csc.num_edges, ids, span, base, fanout, False, nodes.size + 2, status)
            assert num_taken == row_ptr[-1]
            out = [poisoned(num_taken + 3, each, device) for each in (np.int64, np.int64, dtype)]
            held, words = shared_gpu.make_held(num_programs, fanout, device), torch.tensor([*key.tolist(), batch], device=device)
            shared_gpu.sample_neighbors(
                on_device(repeats, device), held, indptr, indices, num_src, ids, span, fanout, False, words, hop, source, None, counted,
                offsets, *out, status, kept, far,
            )  # fmt: skip
            columns = 2 + np.repeat(np.arange(nodes.size), np.diff(row_ptr))
            assert_same_bytes(host(offsets), np.append(row_ptr, [row_ptr[-1]] * 2) + base)
            for found, wanted in zip(out, (positions, columns, neighbors), strict=True):
                assert_same_bytes(host(found), np.append(wanted, [POISON] * 3).astype(host(found).dtype))
            assert status.tolist() == [lists.CLEAN] * 2


def test_repeats_are_counted_as_narrow_as_they_can_be():
    for most, dtype in ((1, np.int8), (127, np.int8), (128, np.int16), (40_000, np.int32)):
        lists_of = np.append(np.full(most + 1, 3), np.arange(5)).astype(np.int32)
        found = device_graph._repeats(CSC(np.array([0, 0, most + 1, most + 6]), lists_of))
        assert_same_bytes(found, np.append(np.arange(most + 1), [0] * 5).astype(dtype))
    assert device_graph._repeats(CSC(np.array([0, 5]), np.arange(5))) is None
    assert device_graph._repeats(CSC(np.array([0, 1 << 40, 5]), np.array([1, 1, 2, 2, 2]))) is None, "lists that lie outside"


@triton.jit
def _draw_below(words, bounds, out, BELOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    w0, w1, w2 = tl.load(words + at), tl.load(words + BLOCK + at), tl.load(words + 2 * BLOCK + at)
    tl.store(out + at, BELOW(w0.to(tl.uint32), w1.to(tl.uint32), w2.to(tl.uint32), tl.load(bounds + at)))


def test_numbers_below_a_sum(device):
    """To the last of 96 bits."""
    random = np.random.default_rng()
    words, bounds, out = random.integers(0, 1 << 32, (3, 64)), random.integers(1, (1 << 62) + 1, 64), poisoned(64, np.int64, device)
    words[:, :4], bounds[:8:3] = (1 << 32) - 1, 1 << 62
    words[1:, 4:9] = random.integers(0, 2, (2, 5)) * ((1 << 32) - 1)
    arguments = on_device(words, device), on_device(bounds, device), out
    _triton.launch(_draw_below, 1, device, *arguments, BELOW=weighted_gpu._below_sum, BLOCK=64)
    expected = [((int(a) << 64 | int(b) << 32 | int(c)) * int(bound)) >> 96 for a, b, c, bound in zip(*words, bounds, strict=True)]
    assert out.tolist() == expected


@pytest.mark.parametrize("fanout", [3, 16, 64, 150])
def test_lists_hardly_longer_than_the_fanout(fanout, device):
    """Most draws give way to the last slot of their range, in chains."""
    random = np.random.default_rng()
    for more in (1, 2):
        num_nodes = 300 // fanout
        check(random, even_csc(random, fanout + more, num_nodes), 9000, np.arange(num_nodes), fanout, False, device)


def test_lists_where_draws_become_wide(device):
    random = np.random.default_rng()
    for degree in (rng.WIDE_BOUND - 1, rng.WIDE_BOUND):
        for fanout in (6, 70):
            check(random, even_csc(random, degree, 3), 9000, np.arange(3), fanout, False, device)


def test_many_programs(device, monkeypatch):
    """Sums and bisections across the blocks of several programs, nodes without neighbours among them."""
    monkeypatch.setattr(gpu, "BLOCK", 128)
    random = np.random.default_rng()
    csc = random_csc(random, 100, 150, 200, hub_degree=90)
    nodes = np.append(random.integers(0, 150, 140), 0)
    for fanout, replace, first in ((-1, False, 0), (2, False, 0), (70, True, 120)):
        check(random, csc, 100, nodes[first:], fanout, replace, device, with_kept=True)
    check(random, csc, 100, nodes[:0], -1, False, device)


def test_damage_is_found_first(device):
    csc = even_csc(np.random.default_rng(), 5, 40)
    for bad_list, value in ((7, -5), (7, 1 << 40), (39, 150)):
        indptr = csc.indptr.copy()
        indptr[bad_list] = value
        nodes, status = torch.arange(40, device=device), torch.full((2,), lists.CLEAN, device=device)
        span = torch.tensor([0, 40], device=device)
        count(on_device(indptr, device), csc.num_edges, nodes, span, 0, 3, False, 40, status)
        starts, ends = indptr[:-1], indptr[1:]
        assert status.tolist() == [np.flatnonzero((starts < 0) | (starts > ends) | (ends > csc.num_edges))[0], lists.CLEAN]
    for fanout, is_far in ((5, False), (5, True), (-1, False)):
        for value in (-1, 9000):
            indices = csc.indices.copy()
            indices[[44, 101]] = value
            nodes, status = torch.arange(39, -1, -1, device=device), torch.full((2,), lists.CLEAN, device=device)
            row_ptr, words = torch.zeros(41, dtype=torch.int64, device=device), torch.tensor([1, 2, 0], device=device)
            outputs = [poisoned(200, dtype, device) for dtype in (np.int64, np.int64, np.int32)]
            frontier = nodes, torch.tensor([0, 40], device=device)
            indptr = on_device(csc.indptr, device)
            _, counted = count(indptr, csc.num_edges, *frontier, 0, fanout, False, 40, status)
            arguments = (indptr, on_device(indices, device), 9000, *frontier, fanout, False, words, 0, 0, None)
            far = far_of(np.random.default_rng(), 40, device) if is_far else None
            gpu.sample_neighbors(*arguments, counted, row_ptr, *outputs, status, None, far)
            assert status.tolist() == [lists.CLEAN, np.flatnonzero(host(outputs[2]) == value)[0]]


@triton.jit
def _compute(nodes, copies, place, high, low, bounds, out, WORDS: tl.constexpr, BELOW: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    word_0, word_1, word_3 = WORDS(tl.load(nodes + at), tl.load(copies + at), place)
    tl.store(out + at, word_0)
    tl.store(out + BLOCK + at, word_1)
    tl.store(out + 2 * BLOCK + at, word_3)
    drawn = BELOW(tl.load(high + at).to(tl.uint32), tl.load(low + at).to(tl.uint32), tl.load(bounds + at).to(tl.uint32))
    tl.store(out + 3 * BLOCK + at, drawn)


def test_counters_and_bounds_beyond_what_fits_in_memory(device):
    """Ids of 40 bits and lists of 32: what the kernels compute with, for its own sake."""
    random = np.random.default_rng()
    nodes, copies = random.integers(0, rng.MAX_NODES, 64), random.integers(0, rng.MAX_COPIES, 64)
    high, low, bounds = (random.integers(0, 1 << 32, 64) for _ in range(3))
    high[0] = low[0] = bounds[0] = (1 << 32) - 1
    hop, edge_type, out = 15, 4095, poisoned(256, np.int64, device)
    arguments = [on_device(array, device) for array in (nodes, copies, high, low, bounds)]
    place = lists.place_of(hop, edge_type)
    _triton.launch(
        _compute, 1, device, *arguments[:2], place, *arguments[2:], out, WORDS=lists.counter_words, BELOW=gpu._below_wide, BLOCK=64
    )
    counters = np.stack([rng.sample_counter(node, edge_type, hop, 0, copy) for node, copy in zip(nodes, copies, strict=True)], axis=1)
    drawn = rng.below_wide(high.astype(np.uint64), low.astype(np.uint64), bounds.astype(np.uint64))
    assert_same_bytes(host(out), np.concatenate([counters[0], counters[1], counters[3], drawn]).astype(np.int64))


@triton.jit
def _sum_up(totals, before, arrived, start, ends, num_ends, SUM: tl.constexpr):
    block = tl.program_id(0)
    SUM(before, arrived, block, tl.load(totals + block), start, ends, num_ends)


@pytest.mark.parametrize("num_blocks", [1, 3, 1024, 2500])
def test_sums_of_blocks(num_blocks, device):
    totals, blocks = (
        np.random.default_rng().integers(0, 1 << 40, num_blocks),
        Blocks(poisoned(num_blocks, np.int64, device), none_arrived(device)),
    )
    ends = torch.tensor([POISON, 5, 5, 5, POISON], device=device)
    for start in (5, 5 + totals.sum()):  # the second time from where the first one ended, and by the same counter
        _triton.launch(_sum_up, num_blocks, device, on_device(totals, device), *blocks, ends[1:], ends[1:4], 3, SUM=sum_blocks)
        assert_same_bytes(host(blocks.before), np.cumsum(np.append(start, totals[:-1])))
        assert ends.tolist() == [POISON, *[start + totals.sum()] * 3, POISON]


def relabel(ids, table, base, known, nodes, device, more=0, *, is_last=False, trees=None):
    """With room for more ids than there are. Returns positions and how many nodes are known then."""
    span, counters = torch.tensor([7, 7 + ids.size], device=device), torch.tensor([known, known, POISON], device=device)
    ids, positions = np.append(ids, np.arange(more)).astype(ids.dtype), poisoned(ids.size + more, np.int64, device)
    scratch = relabel_gpu.make_scratch(ids.size, none_arrived(device))
    begin = torch.tensor([base], device=device)
    place = table, begin, counters[:2], nodes, positions, scratch
    relabel_gpu.relabel(on_device(ids, device), span, *place, is_last=is_last, trees=trees)
    positions, (known, also, poison) = host(positions), counters.tolist()
    assert (also, poison) == (known, POISON)
    assert (positions[positions.size - more :] == POISON).all()
    return positions[: positions.size - more], known


@pytest.mark.parametrize("block", [32, 1024])
def test_relabel(block, device, monkeypatch):
    monkeypatch.setattr(relabel_gpu, "BLOCK", block)
    random = np.random.default_rng()
    table, base = torch.full((90,), relabel_gpu.EMPTY, dtype=torch.int32, device=device), relabel_gpu.EMPTY
    for _ in range(3):
        known, positions_of, base = [], {}, base - 1000
        seeds, nodes = random.integers(0, 90, 20), poisoned(400, np.int64, device)
        relabel_reference.add_seeds(seeds, positions_of, known)
        room, number = on_device(np.append(seeds, [89, 0]), device), torch.tensor([20], device=device)
        relabel_gpu.add_seeds(room, number, table, torch.tensor([base], device=device), nodes)
        for dtype, count in ((np.int32, 0), (np.int64, 1), (np.int32, 50), (np.int64, 250)):
            ids, num_known = random.integers(0, 90, count).astype(dtype), len(known)
            expected = relabel_reference.relabel(ids, positions_of, known)
            more, is_last = int(random.integers(70)), count == 250
            positions, num_nodes = relabel(ids, table, base, num_known, nodes, device, more, is_last=is_last)
            assert num_nodes == len(known)
            assert_same_bytes(positions, expected)
            assert_same_bytes(host(nodes), np.append(known, [POISON] * (400 - len(known))))


@pytest.mark.parametrize("block", [128, 1024])  # a thread has an element at least, as ever
def test_relabel_trees(block, device, monkeypatch):
    """A node of one tree is another one than that of another; tables that are nearly half full, and what is no node."""
    monkeypatch.setattr(relabel_gpu, "BLOCK", block)
    monkeypatch.setattr(relabel_gpu, "FEWEST_KEYS", 32)
    random, base = np.random.default_rng(), relabel_gpu.EMPTY
    keys, table = poisoned(512, np.int64, device), torch.full((512,), relabel_gpu.EMPTY, dtype=torch.int32, device=device)
    for num_nodes in (40, 1 << 40, 3):
        known, positions_of, base = [], {}, base - 1000
        seeds, numbers = random.integers(0, num_nodes, 20), np.arange(20)
        nodes, mine = poisoned(400, np.int64, device), poisoned(400, np.int64, device)
        relabel_gpu.forget(keys)
        relabel_reference.add_seeds(numbers * num_nodes + seeds, positions_of, known)
        trees = relabel_gpu.Trees(
            keys, num_nodes, poisoned(22, np.int64, device), on_device(np.append(numbers, [0, 0]), device), None, mine
        )
        begin = torch.tensor([base], device=device)
        relabel_gpu.add_seeds(on_device(np.append(seeds, [0, 0]), device), begin * 0 + 20, table, begin, nodes, trees)
        for dtype, count in ((np.int64, 0), (np.int64, 1), (np.int64 if num_nodes > 40 else np.int32, 50), (np.int64, 150)):
            num_known, more, is_last = len(known), int(random.integers(70)), count == 150
            ids, columns = random.integers(0, num_nodes, count).astype(dtype), random.integers(0, num_known, count + more)
            ids[:40:9] = random.choice(seeds, ids[:40:9].size)
            keys_of = np.array(known)[columns[:count]] // num_nodes * num_nodes + ids
            expected = relabel_reference.relabel(keys_of, positions_of, known)
            of_trees = trees._replace(slots=poisoned(count + more, np.int64, device), known=mine, columns=on_device(columns, device))
            positions, num_now = relabel(ids, table, base, num_known, nodes, device, more, is_last=is_last, trees=of_trees)
            assert num_now == len(known)
            assert_same_bytes(positions, expected)
            for found, each in zip((mine, nodes), np.divmod(known, num_nodes), strict=True):
                assert_same_bytes(host(found), np.append(each, [POISON] * (400 - len(known))))
    bad = np.array([-1, num_nodes, 1 << 50, 0])
    of_trees = trees._replace(slots=poisoned(4, np.int64, device), known=mine, columns=on_device(np.zeros(4, np.int64), device))
    relabel(bad, table, base, len(known), nodes, device, trees=of_trees)
    assert of_trees.slots.tolist()[:3] == [-1] * 3


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_find_windows(dtype, device):
    """Lists of the same moment, empty ones, moments before and after all; more room than there are nodes; damaged lists."""
    random = np.random.default_rng()
    csc = random_csc(random, 300, 60, 900, hub_degree=300)
    times = np.concatenate([np.sort(random.integers(-9, 9, degree)) for degree in np.diff(csc.indptr)]).astype(dtype)
    nodes, trees, until = np.append(random.integers(0, 60, 25), 0), random.integers(0, 20, 26), random.integers(-10, 10, 20)
    until[:2] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for last, reach in product((-1, 0, 1, 15), (-1, 0, 4, np.iinfo(np.int64).max)):
        for indptr in (csc.indptr, np.where(np.arange(61) == 30, 1 << 40, csc.indptr)):
            damaged = np.isin(nodes, [29, 30]) & (indptr[30] == 1 << 40)
            expected = time_windows.find_windows(csc.indptr, times, nodes, until[trees], reach=reach, last=last).reshape(2, -1).T
            expected = np.where(damaged[:, None], 0, expected)
            windows, status = poisoned(2 * 30, np.int64, device).view(30, 2), torch.full((2,), lists.CLEAN, device=device)
            beside = [torch.cat([poisoned(3, np.int64, device), on_device(each, device)]) for each in (nodes, trees)]
            span = torch.tensor([3, 3 + nodes.size], device=device)
            of_lists = on_device(indptr, device), on_device(times, device), beside[0], span, beside[1]
            find_windows(*of_lists, on_device(until, device), reach, last, windows, status)
            found = host(windows)
            found[:26][damaged, 0] = 0
            assert_same_bytes(found, np.concatenate([expected, np.zeros((4, 2), np.int64)]))
            assert status.tolist() == [int(np.flatnonzero(damaged)[0]) if damaged.any() else lists.CLEAN, lists.CLEAN]


def test_what_is_no_node_is_left_out(device):
    table = torch.full((10,), relabel_gpu.EMPTY, dtype=torch.int32, device=device)
    ids, nodes = np.array([4, -1, 10, 1 << 40, 3, 4]), poisoned(6, np.int64, device)
    positions, known = relabel(ids, table, 100, 0, nodes, device)
    assert known == 2
    assert nodes.tolist() == [4, 3, *[POISON] * 4]
    assert positions[[0, 4, 5]].tolist() == [0, 1, 0]
    assert host(table).tolist() == [relabel_gpu.EMPTY] * 3 + [101, 100] + [relabel_gpu.EMPTY] * 5


@pytest.mark.parametrize("base", [100, 0])
def test_nothing_is_written_where_there_is_no_node(base, device):
    """Base 0: the last batch before the table is emptied."""
    table, nodes = poisoned(12, np.int32, device), poisoned(8, np.int64, device)
    table[1:11] = relabel_gpu.EMPTY
    assert relabel(np.array([-1, 10, 1 << 40, -1]), table[1:11], base, 0, nodes[2:], device)[1] == 0
    assert host(nodes).tolist() == [POISON] * 8
    assert host(table)[1:11].tolist() == [relabel_gpu.EMPTY] * 10
    assert host(table)[[0, 11]].tolist() == host(poisoned(2, np.int32, device)).tolist()
