"""Batches of links: kernels and samples that begin from two node types, against their definitions, byte for byte."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import rng
from penstock.kernels import _triton
from penstock.kernels.links import cpu, gpu, reference
from penstock.records import NODE
from penstock.sample import NeighborSampler
from penstock.sample.device_graph import device_sampler
from penstock.sample.negatives import NOTHING, Negatives, adjacency_of, make_adjacency, make_candidates
from penstock.sample.reference import sample_hops
from penstock.sample.times import Timestamps, with_times
from tests.devices import DEVICES, on_device
from tests.graphs import assert_same_bytes, assert_same_sample, poisoned, random_csc, typed_graph

SEEDS = st.integers(0, 2**32 - 1)


def random_candidates(random, num_nodes):
    """Candidates with and without times and weights, some of them 0."""
    times = random.integers(0, 20, num_nodes) if random.random() < 0.5 else None
    weight = random.random(num_nodes) * random.integers(0, 2, num_nodes) if random.random() < 0.5 else None
    if weight is not None:
        weight[random.integers(0, num_nodes)] = 1.0
    return make_candidates("node", num_nodes, weight, times)


@given(SEEDS)
def test_negatives(seed):
    """Of graphs so dense that attempts run out, too."""
    random = np.random.default_rng(seed)
    num_sources, num_targets = (int(random.integers(1, 30)) for _ in range(2))
    positives = [random_csc(random, num_sources, num_targets, int(random.integers(0, 400))) for _ in range(random.integers(0, 3))]
    edges, given_links = [
        *(make_adjacency(csc.indptr, csc.indices, int(random.choice([0, 3, 1000]))) for csc in positives),
        NOTHING,
        NOTHING,
    ][:2]
    positives = [(csc.indptr, csc.indices) for csc in positives]
    sources, targets = random_candidates(random, num_sources), random_candidates(random, num_targets)
    count, until = int(random.integers(0, 40)), random.integers(-2, 22, 40)
    given = random.integers(0, num_sources, count) if random.random() < 0.5 else np.empty(0, np.int64)
    how = (
        rng.derive_key(seed, 3, rng.NEGATIVE), seed % 11, given, sources.most(count, until[:count]), sources.order, sources.sums,
        targets.most(count, until[:count]), targets.order, targets.sums,
    )  # fmt: skip
    ours, is_positive, middle = (poisoned(count), poisoned(count)), np.ones(count, np.uint8), int(random.integers(0, 6))
    for first, end in ((0, middle), (middle, 5)):
        cpu.draw_negatives(*how, edges, given_links, first, end, is_positive, *ours)
    *theirs, expected = reference.draw_negatives(*how, positives, 5)
    assert is_positive.sum() == expected
    for one, other in zip(ours, theirs, strict=True):
        assert_same_bytes(one, np.ascontiguousarray(other))


def test_weights_that_round_up_to_their_sum_draw_the_last_that_has_any():
    sums = np.cumsum([1e-300, 0.0, 1.0, 1.0, 0.0])
    most = np.array([5])
    for word in (0, 2**32 - 1):
        expected = reference.draw_node(word, word, 5, np.empty(0, np.int64), sums)
        assert expected == (0 if word == 0 else 3)
    nothing, out = np.empty(0, np.int64), (np.ones(1, np.uint8), poisoned(1), poisoned(1))
    how = np.zeros(2, np.uint64), 0, nothing, np.array([0]), nothing, sums, most, nothing, sums, NOTHING, NOTHING
    cpu.draw_negatives(*how, 0, 1, *out)
    assert out[1][0] == 0  # none is in time: the first of all that have a weight


@given(SEEDS)
def test_pairs_that_are_links(seed):
    random = np.random.default_rng(seed)
    csc = random_csc(random, 12, 9, int(random.integers(0, 60)))
    pairs, found = np.stack([random.integers(0, 12, 20), random.integers(0, 9, 20)]), poisoned(20, np.uint8)
    cpu.are_links(make_adjacency(csc.indptr, csc.indices, int(random.choice([0, 3, 1000]))), *pairs, found)
    assert found.tolist() == [reference.has_edge([(csc.indptr, csc.indices)], *pair) for pair in pairs.T]


@given(SEEDS)
def test_adjacency(seed):
    """Every link, with its target, once for each time that it was given."""
    random = np.random.default_rng(seed)
    sources, targets = random.integers(0, 9, 50), random.integers(0, 6, 50)
    indptr, indices, *_ = adjacency_of(sources, targets, 9, 6)
    found = list(zip(indices.tolist(), np.repeat(np.arange(6), np.diff(indptr)).tolist(), strict=True))
    assert sorted(found) == sorted(zip(sources.tolist(), targets.tolist(), strict=True))


@given(SEEDS, st.booleans(), st.booleans())
def test_edges_left_out(seed, disjoint, induced):
    random = np.random.default_rng(seed)
    graph = typed_graph(random)
    sampler = NeighborSampler(graph, [5, 3], seed=seed, disjoint=disjoint, induced=induced)
    seeds = {"paper": random.integers(0, 900, 9), "author": random.integers(0, 60, 9)}
    sample = sampler.sample(seeds, epoch=0, batch=0, workspace=sampler.workspace())
    for edge_type, edges in sample.edges.items():
        sources, targets = sample.nodes[edge_type[0]], sample.nodes[edge_type[2]]
        some = random.permutation(edges.positions.size)[: int(random.integers(0, 12))]
        links = np.stack([sources[edges.edge_index[0, some]], targets[edges.edge_index[1, some]]])
        links = np.concatenate([links, random.integers(0, 60, (2, 4))], axis=1)
        parts = edges.edge_index, edges.row_ptr, edges.positions, edges.num_per_hop
        expected = reference.leave_out(sources, targets, links, *parts)
        ours = cpu.leave_out(sources, targets, links, *parts)
        assert ours[3] == expected[3]
        for one, other in zip(ours[:3], expected[:3], strict=True):
            assert_same_bytes(one, np.ascontiguousarray(other))
            assert one.flags.c_contiguous


@pytest.mark.parametrize("seed", range(12))
def test_edges_left_out_of_a_hop_on_a_device(seed, reader):
    """Into memory that is poisoned, of hops with more room than edges, without edges, and of several programs."""
    random = np.random.default_rng(seed)
    csc = random_csc(random, 90, 40, [0, 5, 3000][seed % 3], dtype=random.choice([np.int32, np.int64]))
    targets = random.permutation(40)
    row_ptr = np.cumsum([0, *np.diff(csc.indptr)[targets]])
    neighbors = np.concatenate([csc.indices[:0], *(csc.indices[csc.indptr[v] : csc.indptr[v + 1]] for v in targets)])
    columns, m, more, b = np.repeat(np.arange(40), np.diff(row_ptr)), neighbors.size, int(random.integers(4)), 40 + seed % 4
    links = random.integers(0, 40, (2, int(random.choice([0, 1, 60]))))
    some = random.permutation(m)[:50]
    links = np.concatenate([links, np.stack([neighbors[some], targets[columns[some]]])], axis=1)

    links = links[:, links[1] < targets.max()]  # a search for the largest target goes behind all pairs
    room = links.shape[1] + int(random.integers(3))
    whole = np.append(gpu.in_order(links, room).reshape(-1), targets.max())  # where something is that looks like a target
    first, kept_before = int(random.integers(9)), int(random.integers(9))
    told = np.concatenate([np.stack([random.permutation(m), columns, random.permutation(m)]), poisoned((3, more))], axis=1)
    given = {
        "links": whole,
        "nodes": np.append(targets, 1 << 40),
        "row_ptr": np.append(row_ptr, np.full(b - 40, m)) + first,
        "told": told,
        "neighbors": np.append(neighbors, poisoned(more, neighbors.dtype)),
        "span": np.array([first, first + m]),
        "taken": np.array([kept_before, -7]),
    }
    there = {name: on_device(np.ascontiguousarray(array), reader) for name, array in given.items()}
    there["links"] = there["links"][:-1].view(2, room)
    kept, offsets = on_device(poisoned((3, m + more)), reader), on_device(poisoned(b + 1), reader)
    arrived = torch.zeros(1, dtype=torch.int64, device=reader)
    gpu.leave_out(*there.values(), gpu.make_scratch(m + more, arrived), kept, offsets)

    rows, _, positions = told[:, :m]
    sources = np.empty(m, np.int64)
    sources[rows] = neighbors
    index, pointers, positions, (count,) = reference.leave_out(sources, targets, links, np.stack([rows, columns]), row_ptr, positions, [m])
    assert there["taken"].tolist() == [kept_before, kept_before + count]
    assert kept[:, :count].tolist() == [*index.tolist(), positions.tolist()]
    assert (kept[:, count:] == int(poisoned(1)[0])).all()
    assert offsets.tolist() == (np.append(pointers, np.full(b - 40, count)) + kept_before).tolist()
    assert (int(arrived), count < m) == (0, m > 0)


@given(SEEDS, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=30)
def test_samples_from_two_types(seed, replaces, disjoint, is_timed):
    random = np.random.default_rng(seed)
    graph = typed_graph(random, hub_degree=int(random.choice([0, 400])))
    seeds = {"author": random.integers(0, 60, 7), "paper": random.integers(0, 900, 12)}
    seeds, times = seeds if random.random() < 0.5 else dict(reversed(seeds.items())), None
    if is_timed:
        writes = "author", "writes", "paper"
        graph = with_times(graph, Timestamps({}, {writes: random.permutation(graph.adjacency[writes].num_edges)}))
        times = {node_type: random.integers(0, 3000, ids.size) for node_type, ids in seeds.items()}
    sampler = NeighborSampler(graph, [4, 3], replace=replaces, disjoint=disjoint, seed=seed)
    ours = sampler.sample(seeds, epoch=1, batch=2, workspace=sampler.workspace(), times=times)
    theirs = sample_hops(
        graph, sampler.fanouts, seeds, replace=replaces, disjoint=sampler.disjoint, seed=seed, epoch=1, batch=2, times=times
    )
    assert_same_sample(ours, theirs)
    assert ours.num_seeds == {"author": 7, "paper": 12, "venue": 0}
    if sampler.disjoint:
        numbers = [ours.trees[node_type][: ids.size] for node_type, ids in seeds.items()]  # in the order of types
        assert np.concatenate(numbers).tolist() == list(range(19))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("topology", ["device", "pinned"])
def test_a_device_samples_from_two_types(device, topology):
    """Of numbers of seeds that grow and shrink by themselves, with repetitions; what was asked for is asked for again."""
    random = np.random.default_rng(4)
    graph = typed_graph(random)
    sampler = NeighborSampler(graph, [3, 2], seed=9)
    ours = device_sampler(sampler, _triton.tensor_device(device), topology)
    workspace = ours.workspace()
    sizes = [(5, 7), (5, 7), (4, 7), (6, 2), (3, 9), (6, 9), (0, 4), (6, 9)]
    for batch, (num_authors, num_papers) in enumerate(sizes):
        seeds = {"author": random.integers(0, 60, num_authors), "paper": random.integers(0, 900, num_papers)}
        sample = ours.sample(seeds, epoch=1, batch=batch, workspace=workspace)
        assert_same_sample(sample.to_host(), sampler.sample(seeds, epoch=1, batch=batch, workspace=sampler.workspace()))
    seeds = {"paper": np.arange(5)}
    sample = ours.sample(seeds, epoch=0, batch=0, workspace=workspace)
    assert_same_sample(sample.to_host(), sampler.sample(seeds, epoch=0, batch=0, workspace=sampler.workspace()))


def test_negatives_belong_to_their_links():
    """Number i to link i modulo their number: it keeps that source, and is no later."""
    targets = make_candidates(NODE, 50, None, np.arange(50))
    sources, until = np.array([4, 9, 2]), np.array([10, 49, 0])
    ones, others, left = Negatives(4, None, targets).draw(sources, until, seed=3, epoch=0, batch=0)
    assert ones.tolist() == sources.tolist() * 4
    assert (others <= np.tile(until, 4)).all()
    assert left == 0
    more = Negatives(0.5, targets, targets).draw(sources, until, seed=3, epoch=0, batch=0)
    assert [each.tolist() for each in more[:2]] != [ones[:2].tolist(), others[:2].tolist()]
    assert more[0].size == 2
    assert (more[0] <= until[:2]).all()


@given(SEEDS)
def test_pairs_are_divided(seed):
    """Ids of up to 40 bits; pairs that are the same both ways."""
    random = np.random.default_rng(seed)
    count, most = int(random.integers(0, 60)), 1 << int(random.integers(1, 41))
    sources, targets = random.integers(0, most, (2, count))
    key, bounds = rng.derive_key(seed, 0, rng.HOLD_OUT), np.sort(random.random(int(random.integers(0, 4))))
    for both_ways in (False, True):
        expected = reference.divide_pairs(key, sources, targets, both_ways, bounds)
        found = np.full(count, 9, np.uint8)
        cpu.divide_pairs(key, sources, targets, both_ways, bounds, found)
        assert_same_bytes(found, expected)
        again = np.full(count, 9, np.uint8)
        cpu.divide_pairs(key, targets, sources, both_ways, bounds, again)
        assert not both_ways or np.array_equal(again, expected)


def test_pairs_are_divided_by_their_shares():
    sources, targets = np.divmod(np.arange(200_000), 400)
    parts = np.empty(sources.size, np.uint8)
    cpu.divide_pairs(rng.derive_key(1, 0, rng.HOLD_OUT), sources, targets, False, np.array([0.05, 0.15]), parts)
    for count, share in zip(np.bincount(parts), (0.05, 0.1, 0.85), strict=True):
        assert abs(count - sources.size * share) < 5 * (sources.size * share * (1 - share)) ** 0.5
