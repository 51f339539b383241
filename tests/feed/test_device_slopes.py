"""What a hit saves on a device, measured there; and one budget of it for lists and rows, which is kept to."""

import numpy as np
import pytest

import penstock
from penstock.cache import hotness
from penstock.cache.workload import Workload
from penstock.feed.inputs import open_input
from penstock.feed.setup.device_slopes import lines_per_read, measure_device_slopes
from penstock.gather import CachedTier, DeviceTable, RowKind
from penstock.kernels._triton import tensor_device
from penstock.order import RandomOrder
from penstock.plan import make_plan
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.seeds import NodeSeeds
from penstock.store.tiers import PinnedTier
from tests.devices import DEVICES
from tests.feed.inputs import digests, homogeneous_data, typed_data

FIELDS = {NODE: 16, "paper": 12, "author": 8}


def workload_of(data, node_type):
    graph = open_input(data, is_sorted=False).graph
    sampler = NeighborSampler(graph, [2, 2], seed=5)
    seeds = np.arange(0, graph.num_nodes[node_type], 4)
    return Workload(sampler, NodeSeeds(node_type, seeds), RandomOrder(seeds.size, 5), 25)


def tables_of(workload, device, random):
    tables = {}
    for node_type, count in workload.sampler.graph.num_nodes.items():
        if node_type in FIELDS:
            rows = random.random((count, FIELDS[node_type])).astype(np.float32)
            tables[node_type] = DeviceTable(PinnedTier([rows], device), [RowKind("x", rows.dtype, rows.shape[1:])])
    return tables


@pytest.mark.parametrize("named", DEVICES)
def test_slopes_are_measured_by_edge_type_and_node_type(named):
    device = tensor_device(named)
    workload = workload_of(homogeneous_data(), NODE)
    per_list, per_row = measure_device_slopes(workload, tables_of(workload, device, np.random.default_rng(0)), device, num_batches=2)
    assert list(per_list) == [EDGE]
    assert list(per_row) == [NODE]
    assert per_row[NODE] > 0
    lines = lines_per_read(workload.sampler, EDGE)
    node = int(lines.argmax())
    np.testing.assert_allclose(per_list[EDGE], lines * (per_list[EDGE][node] / lines[node]), rtol=1e-5)  # one slope a line
    assert per_list[EDGE][node] > 0


def test_lines_of_a_read(monkeypatch):
    lengths = np.array([0, 1, 5, 31, 32, 33, 64, 65, 1000, 0])
    indptr, indices = np.concatenate([[0], np.cumsum(lengths)]), np.zeros(lengths.sum(), np.int64)
    for dtype, of_list in ((np.int32, [0, 1, 1, 1, 1, 2, 2, 3, 32, 0]), (np.int64, [0, 1, 1, 2, 2, 3, 4, 5, 63, 0])):
        graph = Graph({NODE: 10}, {EDGE: CSC(indptr, indices.astype(dtype))}, True)
        for fanouts in ([-1], [3], [4, 2], [2, -1, 1]):
            for block in (1 << 18, 3):
                monkeypatch.setattr(hotness, "BLOCK", block)
                by_hop = [[lines if fanout < 0 else min(lines, fanout) for lines in of_list] for fanout in fanouts]
                found = lines_per_read(NeighborSampler(graph, fanouts), EDGE)
                np.testing.assert_allclose(found, np.mean(by_hop, axis=0), rtol=1e-6)


@pytest.mark.parametrize("named", DEVICES)
@pytest.mark.parametrize(
    ("make", "seeds", "budget"),
    [(homogeneous_data, range(100), 12_000), (typed_data, ("paper", range(100)), 16_000)],
    ids=["homogeneous", "typed"],
)
def test_one_budget_for_both(make, seeds, budget, named, monkeypatch):
    def equal(workload, tables, device):  # what is measured varies: at times it would keep rows alone
        return dict.fromkeys(workload.sampler.graph.adjacency, 1.0), dict.fromkeys(tables, 1.0)

    def make_loader(**options):
        return penstock.NeighborLoader(make(), [2, 2], seeds, batch_size=25, seed=5, **options)

    monkeypatch.setattr("penstock.feed.setup.choices.measure_device_slopes", equal)
    loader = make_loader(device=named, plan=make_plan("ducati", cache=f"{budget} B"))
    lists, caches = loader.engine.maker.device_sampler.graph, loader.engine.caches
    offsets = sum(csc.indptr.nbytes for csc in lists.adjacency.values())  # there whatever is kept
    assert sum(map(np.size, caches.kept.values())) > 0
    assert sum(table.tier.policy.capacity for table in caches.tables.values() if table.tier.name == "cache") > 0
    rows = sum(tier.device_bytes for tier in caches.tiers_of(CachedTier))
    assert lists.device_bytes - offsets + rows <= budget
    assert caches.device_bytes > rows, "labels are there whatever is kept"
    assert digests(loader) == digests(make_loader())
