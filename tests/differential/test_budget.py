"""Sampling by numbers of nodes, as HGT does, against its definition; pieces, threads, lists read elsewhere, damaged lists."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptStoreError
from penstock.records import EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.lists import TierLists, with_lists
from penstock.sample.reference import sample_by_budget
from penstock.store.tiers import HostTier
from tests.graphs import assert_same_bytes, assert_same_sample, homogeneous_graph, random_csc, typed_graph


def compare(graph, num_samples, seeds, *, seed=0, epoch=0, batches=(0, 1)):
    """Nodes as by definition, with all edges among them. Returns the last sample."""
    sampler = NeighborSampler(graph, [], num_samples=num_samples, induced=True, seed=seed)
    workspace = sampler.workspace()
    for batch in batches:
        sample = sampler.sample(seeds, epoch=epoch, batch=batch, workspace=workspace)
        expected = sample_by_budget(graph, sampler.num_samples, seeds, seed=seed, epoch=epoch, batch=batch)
        assert {t: ids.tolist() for t, ids in sample.nodes.items()} == expected
        assert {t: sum(counts) for t, counts in sample.num_nodes_per_hop.items()} == {t: len(ids) for t, ids in expected.items()}
        for (src, name, dst), csc in graph.adjacency.items():
            lists = [csc.indices[csc.indptr[v] : csc.indptr[v + 1]] for v in expected[dst]]
            edges = sample.edges[src, name, dst]
            assert np.diff(edges.row_ptr).tolist() == [int(np.isin(each, expected[src]).sum()) for each in lists]
            assert_same_bytes(csc.indices[edges.positions].astype(np.int64), sample.nodes[src][edges.edge_index[0]])
    return sample


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_definition(seed):
    random = np.random.default_rng(seed)
    if random.random() < 0.5:
        graph, seed_type = typed_graph(random, hub_degree=int(random.choice([0, 400, 4500]))), random.choice(["author", "paper", "venue"])
    else:
        sizes = dict(hub_degree=int(random.choice([0, 1, 5000])), dtype=random.choice([np.int32, np.int64]))
        graph, seed_type = homogeneous_graph(random, int(random.choice([4, 200])), int(random.integers(0, 900)), **sizes), NODE
    num_samples = {t: random.choice([-1, 0, 1, 3, 20, 100], 1 + seed % 3).tolist() for t in graph.num_nodes}
    seeds = {seed_type: random.integers(0, graph.num_nodes[seed_type], int(random.integers(0, 15)))}
    compare(graph, num_samples, seeds, seed=seed, epoch=seed % 5, batches=[seed % 7, 8])


def test_threads_pieces_tables_and_lists_read_elsewhere_do_not_matter(monkeypatch):
    random = np.random.default_rng(0)
    graph = homogeneous_graph(random, 500, 8000, hub_degree=4500)
    tier = TierLists(HostTier([graph.adjacency[EDGE].indices]))
    seeds = [random.integers(0, 500, 64) for _ in range(20)]

    def run(graph, num_threads):
        sampler = NeighborSampler(graph, [], num_samples=[60, 90, 3], induced=True, seed=9)
        workspaces = [sampler.workspace() for _ in range(num_threads)]

        def one(i):
            workspace = workspaces.pop()
            try:
                return sampler.sample({NODE: seeds[i]}, epoch=2, batch=i, workspace=workspace)
            finally:
                workspaces.append(workspace)

        with ThreadPoolExecutor(num_threads) as pool:
            return list(pool.map(one, range(20)))

    expected = run(graph, 1)
    for again in (run(graph, 3), run(with_lists(graph, {EDGE: tier}), 2)):
        for ours, theirs in zip(again, expected, strict=True):
            assert_same_sample(ours, theirs)
    monkeypatch.setattr("penstock.sample.host_run.PIECE", 100)
    monkeypatch.setattr("penstock.sample.compaction.DIRECT_LIMIT", 10)
    for ours, theirs in zip(run(graph, 1), expected, strict=True):
        assert_same_sample(ours, theirs)


def test_a_damaged_list_is_refused_and_leaves_nothing_behind():
    random = np.random.default_rng(0)
    csc = random_csc(random, 50, 50, 300)
    graph, place = Graph({NODE: 50}, {EDGE: csc}, True), dict(epoch=0, batch=0)
    sampler, seeds = NeighborSampler(graph, [], num_samples=[5, 5], induced=True), {NODE: np.arange(9)}
    expected, workspace = sampler.sample(seeds, **place, workspace=sampler.workspace()), sampler.workspace()
    for damaged in (replace(csc, indptr=np.where(np.arange(51) == 7, 1 << 40, csc.indptr)), replace(csc, indices=csc.indices - 50)):
        with pytest.raises(CorruptStoreError):
            sampler.over(Graph({NODE: 50}, {EDGE: damaged}, True)).sample(seeds, **place, workspace=workspace)
        assert_same_sample(sampler.sample(seeds, **place, workspace=workspace), expected)
