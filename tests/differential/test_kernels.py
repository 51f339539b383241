"""Every CPU kernel against its reference, on fresh random input, into poisoned output, byte for byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import rng as penstock_rng
from penstock.kernels.build_csc import cpu as build_cpu
from penstock.kernels.build_csc import reference as build_reference
from penstock.kernels.edges import cpu as edges_cpu
from penstock.kernels.edges import reference as edges_reference
from penstock.kernels.gather_rows import cpu as gather_cpu
from penstock.kernels.gather_rows import reference as gather_reference
from penstock.kernels.permute import cpu as permute_cpu
from penstock.kernels.permute import reference as permute_reference
from penstock.kernels.relabel import cpu as relabel_cpu
from penstock.kernels.relabel import reference as relabel_reference
from penstock.kernels.sample_neighbors import cpu as sample_cpu
from penstock.kernels.sample_neighbors import reference as sample_reference
from tests.graphs import assert_same_bytes, poisoned, random_csc

SEEDS = st.integers(0, 2**32 - 1)


@given(
    SEEDS,
    st.sampled_from([-1, 0, 1, 3, 4, 5, 15, 63, 64, 65, 200]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([np.int32, np.int64]),
)
def test_sample_neighbors(seed, fanout, replace, with_copies, dtype):
    random = np.random.default_rng(seed)
    csc = random_csc(
        random, 300, 200, int(random.integers(0, 6000)), hub_degree=int(random.choice([0, 100, 4095, 4096, 9000])), dtype=dtype
    )
    nodes = random.integers(0, 200, int(random.integers(0, 400)))
    copies = random.integers(0, 1 << 20, nodes.size) if with_copies else None
    key = penstock_rng.derive_key(seed, 3, penstock_rng.SAMPLE)
    place = dict(batch=int(random.integers(0, 1 << 32)), hop=2, edge_type=7)
    row_ptr, positions, neighbors = sample_reference.sample_neighbors(
        csc.indptr, csc.indices, nodes, fanout=fanout, replace=replace, key=key, copies=copies, **place
    )
    count, longest = sample_cpu.count_neighbors(csc.indptr, csc.num_edges, nodes, fanout, replace)
    assert count == positions.size
    assert longest == max([int(csc.indptr[v + 1] - csc.indptr[v]) for v in nodes], default=0)
    bitmap = np.zeros((longest + 63) // 64, np.uint64)
    scratch = poisoned(sample_cpu.SCRATCH_OFFSETS), poisoned(sample_cpu.SCRATCH_WORDS, np.uint32)
    out = poisoned(nodes.size + 1), poisoned(count), poisoned(count, dtype)
    out[0][0] = 11
    taken = sample_cpu.sample_neighbors(
        csc.indptr, csc.indices, 300, nodes, fanout, replace, key, place["batch"], 2, 7, copies, *scratch, bitmap, *out
    )
    assert taken == count
    assert_same_bytes(out[0] - 11, row_ptr)
    assert_same_bytes(out[1], positions)
    assert_same_bytes(out[2].astype(np.int64), neighbors)
    assert not bitmap.any()


@given(SEEDS, st.sampled_from(["direct", "hashed"]), st.sampled_from([np.int32, np.int64]))
def test_relabel(seed, kind, dtype):
    random = np.random.default_rng(seed)
    num_ids = int(random.integers(1, 2000))
    capacity = 1 << 13
    table, base = (np.zeros(num_ids, np.int32), 1) if kind == "direct" else (np.zeros(2 * capacity, np.uint64), 1)
    add_seeds, relabel, lookup = (getattr(relabel_cpu, f"{name}_{kind}") for name in ("add_seeds", "relabel", "lookup"))
    for _ in range(3):  # a table serves batch after batch
        seeds = random.integers(0, num_ids, int(random.integers(0, 50)))
        known, expected_nodes = {}, []
        copies = relabel_reference.add_seeds(seeds, known, expected_nodes)
        nodes = poisoned(capacity)
        assert add_seeds(seeds, table, base, nodes) == int((copies > 0).sum())
        assert_same_bytes(edges_cpu.count_repetitions(seeds), copies)
        assert_same_bytes(edges_reference.count_repetitions(seeds), copies)
        num_nodes = seeds.size
        for _ in range(2):
            ids = random.integers(0, num_ids, int(random.integers(0, 1000))).astype(dtype)
            expected = relabel_reference.relabel(ids, known, expected_nodes)
            positions = poisoned(ids.size)
            num_nodes = relabel(ids, ids.size, table, base, num_nodes, nodes, positions)
            assert_same_bytes(positions, expected)
        assert_same_bytes(nodes[:num_nodes], np.array(expected_nodes, dtype=np.int64))
        everyone, positions = np.arange(num_ids), poisoned(num_ids)
        lookup(everyone, num_ids, table, base, positions)
        assert_same_bytes(positions, relabel_reference.lookup(everyone, known))
        base += num_nodes


@given(SEEDS, st.integers(1, 3000))
def test_permute(seed, n):
    key = penstock_rng.derive_key(seed, 0, penstock_rng.ORDER)
    positions = np.random.default_rng(seed).integers(0, n, 40)
    elements = poisoned(40)
    permute_cpu.permute(positions, n, *permute_reference.choose_network(n), key, elements)
    assert_same_bytes(elements, permute_reference.permute(positions, n, key))


@given(st.sampled_from([(1 << 16) - 1, 1 << 16, (1 << 31) + 5, (1 << 40) + 3]))
def test_permute_large_domains(n):
    key = penstock_rng.derive_key(5, n, penstock_rng.ORDER)
    positions = np.array([0, 1, n // 2, n - 1])
    elements = poisoned(4)
    permute_cpu.permute(positions, n, *permute_reference.choose_network(n), key, elements)
    assert_same_bytes(elements, permute_reference.permute(positions, n, key))
    assert len(set(elements)) == 4


@given(SEEDS, st.sampled_from(["u1", "f2", "i4", "f4", "f8"]), st.integers(0, 70))
def test_gather_rows(seed, dtype, width):
    random = np.random.default_rng(seed)
    table = random.integers(0, 256, (150, width * np.dtype(dtype).itemsize), dtype=np.uint8).view(dtype).reshape(150, width)
    ids = random.integers(0, 150, int(random.integers(0, 100)))
    row_bytes = table.itemsize * width
    out = poisoned(ids.size * row_bytes, np.uint8)
    if row_bytes:
        gather_cpu.gather_rows(table.reshape(-1).view(np.uint8), row_bytes, ids, out)
    assert out.tobytes() == gather_reference.gather_rows(table, ids).tobytes()


@given(SEEDS, st.sampled_from([np.int32, np.int64]))
def test_build_csc(seed, dtype):
    random = np.random.default_rng(seed)
    num_dst, num_edges = int(random.integers(1, 100)), int(random.integers(0, 1000))
    src, dst = random.integers(0, 50, num_edges).astype(dtype), random.integers(0, num_dst, num_edges).astype(dtype)
    degrees, indices, edge_ids = np.zeros(num_dst + 1, np.int64), poisoned(num_edges, dtype), poisoned(num_edges)
    build_cpu.count_degrees(dst, degrees[1:])
    indptr = np.cumsum(degrees)
    build_cpu.place_edges(src, dst, indptr[:-1].copy(), indices, edge_ids)
    for ours, theirs in zip((indptr, indices, edge_ids), build_reference.build_csc(src, dst, num_dst), strict=True):
        assert_same_bytes(ours, theirs)


@given(SEEDS)
def test_edge_passes(seed):
    random = np.random.default_rng(seed)
    row_ptr = np.concatenate([[0], np.cumsum(random.integers(0, 5, int(random.integers(0, 50))))])
    columns = poisoned(int(row_ptr[-1]))
    edges_cpu.fill_columns(row_ptr, columns)
    assert_same_bytes(columns, edges_reference.fill_columns(row_ptr))
    table, positions = random.permutation(500).astype(np.int32), random.integers(0, 500, 90)
    expected = edges_reference.translate(table, positions)
    edges_cpu.translate(table, positions)
    assert_same_bytes(positions, expected)


@pytest.mark.parametrize("switch", ["1"])
def test_checked_kernels_give_the_same(switch, tmp_path):
    """The bounds-checked build of the kernels, in a process of its own."""
    import subprocess
    import sys

    code = (
        "import numpy as np\n"
        "from penstock.kernels import _compile\n"
        "from penstock.sample import NeighborSampler\n"
        "from penstock.sample.reference import sample_hops\n"
        "from tests.graphs import assert_same_sample, typed_graph\n"
        "assert _compile.CHECKED\n"
        "graph = typed_graph(np.random.default_rng(0), hub_degree=5000)\n"
        "sampler = NeighborSampler(graph, [70, 3], seed=1)\n"
        "seeds = np.array([0, 3, 5, 3])\n"
        "ours = sampler.sample({'paper': seeds}, epoch=0, batch=0, workspace=sampler.workspace())\n"
        "theirs = sample_hops(graph, sampler.fanouts, {'paper': seeds}, replace=False, disjoint=False, seed=1, epoch=0, batch=0)\n"
        "assert_same_sample(ours, theirs)\n"
    )
    import os

    environment = {**os.environ, "PENSTOCK_CHECKED_KERNELS": switch, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=200)
