"""One budget of a device for lists and rows: it is kept to, found by slopes measured there, and changes no byte of what is read."""

import numpy as np
import pytest

from penstock.cache.choose import Workload, fixed_choice
from penstock.feed import device_split
from penstock.feed.device_split import measure_device_slopes, place_lists, plan_device_split
from penstock.feed.inputs import open_input
from penstock.gather import DeviceTable, FusedCache, RowKind
from penstock.kernels._triton import tensor_device
from penstock.order import RandomOrder
from penstock.records import EDGE, NODE
from penstock.sample import NeighborSampler
from penstock.store.tiers import PinnedTier
from tests.devices import DEVICES
from tests.feed.inputs import homogeneous_data, typed_data

FIELDS = {NODE: 16, "paper": 12, "author": 8}


def workload_of(data, node_type):
    graph = open_input(data, is_sorted=False).graph
    sampler = NeighborSampler(graph, [2, 2], seed=5)
    seeds = np.arange(0, graph.num_nodes[node_type], 4)
    return Workload(sampler, node_type, seeds, RandomOrder(seeds.size, 5), 25)


def tables_of(workload, device, random):
    tables = {}
    for node_type, count in workload.sampler.graph.num_nodes.items():
        if node_type in FIELDS:
            rows = random.random((count, FIELDS[node_type])).astype(np.float32)
            tables[node_type] = DeviceTable(PinnedTier([rows], device), [RowKind("x", rows.dtype, rows.shape[1:])])
    return tables


@pytest.mark.parametrize("named", DEVICES)
@pytest.mark.parametrize(("make", "node_type", "budget"), [(homogeneous_data, NODE, 12_000), (typed_data, "paper", 16_000)])
def test_one_budget_for_both(make, node_type, budget, named, monkeypatch):
    device, random = tensor_device(named), np.random.default_rng(3)
    workload = workload_of(make(), node_type)
    tables = tables_of(workload, device, random)
    slopes = measure_device_slopes(workload, tables, device, num_batches=1)
    assert [set(one) for one in slopes] == [set(workload.sampler.graph.adjacency), set(tables)]
    monkeypatch.setattr(device_split, "measure_device_slopes", lambda *given, **options: [dict.fromkeys(one, 1.0) for one in slopes])
    kept, rows = plan_device_split(str(budget), workload, tables, device, num_batches=1)
    assert sum(map(np.size, kept.values())) > 0
    assert sum(map(np.size, rows.values())) > 0
    sampler = place_lists(workload.sampler, device, kept)
    caches = {
        t: FusedCache((choice := fixed_choice(table.num_rows, rows[t])).make, table.tier, choice.content) for t, table in tables.items()
    }
    offsets = sum(csc.indptr.nbytes for csc in sampler.graph.adjacency.values())  # there whatever is kept
    assert sampler.graph.device_bytes - offsets + sum(cache.device_bytes for cache in caches.values()) <= budget
    place = dict(epoch=1, batch=2)
    sample = sampler.sample(node_type, workload.seeds[:25], **place, workspace=sampler.workspace()).to_host()
    expected = workload.sampler.sample(node_type, workload.seeds[:25], **place, workspace=workload.sampler.workspace())
    for t, table in tables.items():
        np.testing.assert_array_equal(sample.nodes[t], expected.nodes[t])
        ids = expected.nodes[t]
        (found,) = DeviceTable(caches[t], table.kinds).submit(ids).wait()
        np.testing.assert_array_equal(
            found.cpu().numpy(), tables[t].tier.buffers[0].cpu().numpy().view(np.float32).reshape(-1, FIELDS[t])[ids]
        )
    for e, edges in expected.edges.items():
        np.testing.assert_array_equal(sample.edges[e].positions, edges.positions)


@pytest.mark.parametrize("named", DEVICES)
def test_slopes_are_measured_by_edge_type_and_node_type(named):
    device = tensor_device(named)
    workload = workload_of(homogeneous_data(), NODE)
    per_list, per_row = measure_device_slopes(workload, tables_of(workload, device, np.random.default_rng(0)), device, num_batches=2)
    assert list(per_list) == [EDGE]
    assert list(per_row) == [NODE]
    assert min(*per_list.values(), *per_row.values()) > 0
