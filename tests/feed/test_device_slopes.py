"""What a hit saves on a device, measured there; and one budget of it for lists and rows, which is kept to."""

import numpy as np
import pytest

import penstock
from penstock.cache.choose import Workload
from penstock.feed.device_slopes import measure_device_slopes
from penstock.feed.inputs import open_input
from penstock.gather import DeviceTable, RowKind
from penstock.kernels._triton import tensor_device
from penstock.order import RandomOrder
from penstock.plan import make_plan
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
def test_slopes_are_measured_by_edge_type_and_node_type(named):
    device = tensor_device(named)
    workload = workload_of(homogeneous_data(), NODE)
    per_list, per_row = measure_device_slopes(workload, tables_of(workload, device, np.random.default_rng(0)), device, num_batches=2)
    assert list(per_list) == [EDGE]
    assert list(per_row) == [NODE]
    assert min(*per_list.values(), *per_row.values()) > 0


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

    monkeypatch.setattr("penstock.feed.choices.measure_device_slopes", equal)
    loader = make_loader(device=named, plan=make_plan("ducati", cache=f"{budget} B"))
    lists, caches = loader._maker.on_device.graph, loader._caches
    offsets = sum(csc.indptr.nbytes for csc in lists.adjacency.values())  # there whatever is kept
    assert sum(map(np.size, caches.kept.values())) > 0
    assert sum(table.tier.policy.capacity for table in caches.tables.values() if table.tier.name == "cache") > 0
    assert lists.device_bytes - offsets + caches.device_bytes <= budget
    assert [penstock.digest(batch) for batch in loader] == [penstock.digest(batch) for batch in make_loader()]
