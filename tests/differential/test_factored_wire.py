"""Samples as bytes and back, bit for bit."""

import numpy as np
import pytest

from penstock.feed.inputs import open_input
from penstock.sample import NeighborSampler
from penstock.sample.factored import marks
from penstock.sample.factored.slots import Slots
from penstock.sample.factored.wire import Packed, unpack
from tests.feed.inputs import homogeneous_data, typed_data
from tests.graphs import poisoned


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
        sample = sampler.sample({node_type: seeds}, epoch=1, batch=batch, workspace=workspace)
        sample.marks = {t: random.integers(-1, 9, ids.size).astype(np.int32) for t, ids in sample.nodes.items() if random.random() < 0.5}
        packed = Packed(sample, graph)
        packed.write(slots.writable(0, packed.num_bytes))
        again = unpack(slots.readable(0, packed.num_bytes), graph, disjoint=sampler.disjoint, allocate=poisoned)
        assert again.num_seeds == sample.num_seeds
        assert again.num_nodes_per_hop == sample.num_nodes_per_hop
        for t, ids in sample.nodes.items():
            np.testing.assert_array_equal(again.nodes[t], ids, strict=True)
        assert again.marks.keys() == sample.marks.keys()
        for t, slots_of_rows in sample.marks.items():
            np.testing.assert_array_equal(again.marks[t], slots_of_rows, strict=True)
        assert (again.trees is None) == (sample.trees is None)
        for t, trees in (sample.trees or {}).items():
            np.testing.assert_array_equal(again.trees[t], trees, strict=True)
        for e, edges in sample.edges.items():
            for name in ("edge_index", "row_ptr", "positions"):
                np.testing.assert_array_equal(getattr(again.edges[e], name), getattr(edges, name), strict=True)
            assert again.edges[e].num_per_hop == edges.num_per_hop
    slots.close()


def test_marks_are_slots_of_what_was_published():
    random = np.random.default_rng()
    graph = open_input(typed_data(), is_sorted=False).graph
    for number in range(8):
        chosen = [t for at, t in enumerate(graph.node_types[:3]) if number >> at & 1]
        directories = {t: random.integers(-2, 50, graph.num_nodes[t]).astype(np.int32) for t in chosen}
        slots = Slots(3)
        marks.publish(directories, graph, slots, slots.last)
        again = marks.published(graph, slots, slots.last)
        assert list(again) == chosen
        nodes = {t: random.integers(0, count, 20) if count else np.empty(0, np.int64) for t, count in graph.num_nodes.items()}
        found = marks.mark(nodes, again)
        assert list(found) == chosen
        for t, directory in directories.items():
            np.testing.assert_array_equal(found[t], np.maximum(directory[nodes[t]], -1), strict=True)
        slots.close()


def test_slots_grow():
    slots = Slots(2)
    for num_bytes in (1, 5000, 1 << 20, 10):
        written = slots.writable(1, num_bytes)
        written[:] = 7
        assert int(slots.readable(1, num_bytes).sum()) == 7 * num_bytes
    assert 1 << 20 <= slots.num_bytes < 2 << 20
    slots.close()
