"""Samples as bytes and back, bit for bit."""

import numpy as np
import pytest

from penstock.feed.inputs import open_input
from penstock.sample import NeighborSampler
from penstock.sample.factored.slots import Slots
from penstock.sample.factored.wire import Packed, unpack
from tests.feed.inputs import homogeneous_data, typed_data


def poisoned(size, dtype):
    return np.frombuffer(b"\xa5" * (size * np.dtype(dtype).itemsize), dtype).copy()


@pytest.mark.parametrize("make", [homogeneous_data, typed_data])
@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"induced": True}, {"replace": True}])
def test_there_and_back(make, options):
    random = np.random.default_rng()
    graph = open_input(make(), is_sorted=False).graph
    node_type = "paper" if "paper" in graph.num_nodes else "node"
    sampler = NeighborSampler(graph, [4, 3], seed=int(random.integers(1 << 40)), **options)
    slots, workspace = Slots(1), sampler.workspace()
    for batch, num_seeds in enumerate((1, 30, 7)):
        seeds = random.integers(0, graph.num_nodes[node_type], num_seeds)
        sample = sampler.sample(node_type, seeds, epoch=1, batch=batch, workspace=workspace)
        packed = Packed(sample, graph)
        packed.write(slots.writable(0, packed.num_bytes))
        again = unpack(slots.readable(0, packed.num_bytes), node_type, graph, disjoint=sampler.disjoint, allocate=poisoned)
        assert (again.seed_type, again.num_seeds) == (sample.seed_type, sample.num_seeds)
        assert again.num_nodes_per_hop == sample.num_nodes_per_hop
        for t, ids in sample.nodes.items():
            np.testing.assert_array_equal(again.nodes[t], ids, strict=True)
        assert (again.trees is None) == (sample.trees is None)
        for t, trees in (sample.trees or {}).items():
            np.testing.assert_array_equal(again.trees[t], trees, strict=True)
        for e, edges in sample.edges.items():
            for name in ("edge_index", "row_ptr", "positions"):
                np.testing.assert_array_equal(getattr(again.edges[e], name), getattr(edges, name), strict=True)
            assert again.edges[e].num_per_hop == edges.num_per_hop
    slots.close()


def test_slots_grow():
    slots = Slots(2)
    for num_bytes in (1, 5000, 1 << 20, 10):
        written = slots.writable(1, num_bytes)
        written[:] = 7
        assert int(slots.readable(1, num_bytes).sum()) == 7 * num_bytes
    assert 1 << 20 <= slots.num_bytes < 2 << 20
    slots.close()
