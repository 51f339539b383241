"""The sampler of a device against the one of the CPU, byte for byte, wherever the graph is. Marked `gpu` it runs on one."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import profile

from penstock.errors import CorruptStoreError, NodeIdError, NotSupportedError, UsageError
from penstock.feed.links import leave_out
from penstock.kernels import _cuda, _triton
from penstock.kernels._recording import Recording
from penstock.kernels.relabel import gpu as relabel
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample import device_run as device_sampling
from penstock.sample.device import DeviceSampler
from penstock.sample.device_graph import device_sampler, place_graph
from penstock.sample.times import Timestamps, with_times
from penstock.store.device_memory import settle
from tests.devices import DEVICES
from tests.differential.ways import WAYS, timed_graph, weighted_graph
from tests.graphs import assert_same_sample, homogeneous_graph, random_csc, typed_graph

FEW = settings(max_examples=max(3, settings.default.max_examples // 5))
"""The interpreter takes a tenth of a second for what a device does in microseconds."""


KNOWN = ["uniform", "by weight", "by time", "shared"]
"""Ways to sample that a device knows."""


@pytest.fixture
def device(reader):
    return reader


def compare(ours, sampler, seed_type, seeds, workspace, *, epoch=0, batch=0, left_out=None, moments=None):
    times = None if moments is None else {seed_type: moments}
    sample = ours.sample({seed_type: seeds}, epoch=epoch, batch=batch, workspace=workspace, left_out=left_out or {}, times=times)
    expected = sampler.sample({seed_type: seeds}, epoch=epoch, batch=batch, workspace=sampler.workspace(), times=times)
    assert sample.num_left_out == leave_out(expected, left_out or {})
    assert all(each.device == ours.graph.device for each in sample.nodes.values())
    assert_same_sample(sample.to_host(), expected)


def random_edges(random, graph, edge_types, most=400):
    """Ends of some edges of some types, and of some that are none, to be left out."""
    chosen = {}
    for edge_type in edge_types:
        csc, (source, _, target) = graph.adjacency[edge_type], edge_type
        some = random.integers(0, max(1, csc.num_edges), int(random.integers(0, most)) if csc.num_edges else 0)
        edges = np.stack([csc.indices[some].astype(np.int64), np.searchsorted(csc.indptr, some, side="right") - 1])
        others = random.integers(0, min(graph.num_nodes[source], graph.num_nodes[target]), (2, int(random.integers(0, 9))))
        chosen[edge_type] = np.concatenate([edges, others], axis=1)
    return chosen


def random_lists(random, graph):
    """Some lists of some edge types, to be kept."""
    some = {e: random.permutation(csc.num_dst)[: int(random.integers(0, csc.num_dst + 1))] for e, csc in graph.adjacency.items()}
    return {e: chosen for e, chosen in some.items() if random.random() < 0.8}


@pytest.mark.parametrize("device", DEVICES)
@FEW
@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from([-1, 1, 3, 70]), min_size=1, max_size=3), st.booleans())
def test_homogeneous(device, seed, fanouts, replace):
    random = np.random.default_rng(seed)
    graph = homogeneous_graph(random, 60, 150, hub_degree=int(random.choice([0, 5000])), dtype=random.choice([np.int32, np.int64]))
    sampler = NeighborSampler(graph, [min(f, 3) if i else f for i, f in enumerate(fanouts)], replace=replace, seed=seed)
    ours = device_sampler(sampler, _triton.tensor_device(device), *random.choice(["device", "pinned"], 1))
    seeds = random.integers(0, 60, int(random.integers(0, 12)))
    compare(ours, sampler, NODE, seeds, ours.workspace(), epoch=seed % 5, batch=seed % 7)


@pytest.mark.parametrize("device", DEVICES)
@FEW
@given(st.integers(0, 2**32 - 1), st.sampled_from(["author", "paper", "venue"]), st.booleans())
def test_typed_with_the_best_lists_on_the_device(device, seed, seed_type, replace):
    random = np.random.default_rng(seed)
    graph = typed_graph(random, hub_degree=int(random.choice([0, 4500])))
    fanouts = {edge_type: random.choice([-1, 0, 1, 4], 2).tolist() for edge_type in graph.adjacency}
    fanouts[("paper", "cites", "paper")] = [2, 3]
    sampler = NeighborSampler(graph, fanouts, replace=replace, seed=seed)
    ours = device_sampler(sampler, _triton.tensor_device(device), "pinned", random_lists(random, graph))
    workspace = ours.workspace()
    for batch in range(2):
        compare(ours, sampler, seed_type, random.integers(0, graph.num_nodes[seed_type], 8), workspace, batch=batch)


@pytest.mark.parametrize("device", DEVICES)
@FEW
@given(st.integers(0, 2**32 - 1), st.sampled_from(KNOWN), st.lists(st.sampled_from([-1, 1, 3, 15, 70]), min_size=1, max_size=3))
def test_each_way_that_a_device_knows(device, seed, name, fanouts):
    """Alone and in trees of their own; the first batches of a workspace, those that are recorded, and larger ones after them."""
    random, way = np.random.default_rng(seed), WAYS[name]
    is_typed = random.random() < 0.5
    graph = typed_graph(random, hub_degree=200) if is_typed else homogeneous_graph(random, 60, 200, hub_degree=500)
    graph, seed_type, where = way.over(random, graph), "paper" if is_typed else NODE, str(random.choice(["device", "pinned"]))
    modes = {mode: bool(random.random() < 0.5) for mode in way.modes}
    modes |= way.options(random, seed_type)
    sampler = NeighborSampler(graph, [min(f, 3) if i else f for i, f in enumerate(fanouts)], seed=seed, **modes)
    kept = random_lists(random, graph) if where == "pinned" and random.random() < 0.5 else None
    ours = device_sampler(sampler, _triton.tensor_device(device), where, kept)
    workspace = ours.workspace()
    for batch, size in enumerate([12, 12, 12, 5, 30, 30, 30][: 3 + 4 * (seed % 3 == 0)]):
        left_out = random_edges(random, graph, list(graph.adjacency)[:1]) if seed % 5 == 0 else None
        moments = way.moments and way.moments(random, graph, size)
        compare(
            ours, sampler, seed_type, random.integers(0, 60, size), workspace, epoch=seed % 5, batch=batch, left_out=left_out,
            moments=moments,
        )  # fmt: skip


def test_a_workspace_that_another_sampler_has_used(device):
    random = np.random.default_rng()
    graph = homogeneous_graph(random, 100, 900)
    one, other = (NeighborSampler(graph, fanouts, seed=1) for fanouts in ([3], [2, 2]))
    ours = device_sampler(one, device)
    workspace, over = ours.workspace(), ours.over(other)
    for batch in range(12):
        compare(*((ours, one), (over, other))[batch // 3 % 2], NODE, random.integers(0, 100, 9), workspace, batch=batch)


@pytest.mark.parametrize("uncounted", [0, 50, 1 << 22])
def test_workspaces_do_not_matter(uncounted, device, monkeypatch):
    """One that has been used, also for a batch that failed; one in turn with another. Nor does memory for more edges than come."""
    monkeypatch.setattr(device_sampling, "UNCOUNTED", uncounted)
    random = np.random.default_rng()
    graph = homogeneous_graph(random, 200, 900)
    sampler = NeighborSampler(graph, [3, 2], seed=9)
    ours = device_sampler(sampler, device)
    workspaces = [ours.workspace(), ours.workspace()]
    broken = DeviceSampler(sampler, place_graph(with_indices(graph, np.full(900, 999)), device))
    with pytest.raises(CorruptStoreError):
        broken.sample({NODE: np.arange(20)}, epoch=0, batch=0, workspace=workspaces[0])
    for batch in range(4):
        compare(ours, sampler, NODE, random.integers(0, 200, 20), workspaces[batch % 2], epoch=3, batch=batch)


@pytest.mark.parametrize(("fanouts", "uncounted", "waits"), [([3, 4, 2], 1 << 22, 1), ([3, -1, 70], 1 << 22, 3), ([3, 4, 2], 100, 3)])
def test_the_processor_waits_where_sizes_are_unknown(fanouts, uncounted, waits, device, monkeypatch):
    """Once, when everything has been asked for; and before a hop that can take any number of edges."""
    monkeypatch.setattr(device_sampling, "UNCOUNTED", uncounted)
    random = np.random.default_rng()
    graph = homogeneous_graph(random, 200, 2000)
    sampler = NeighborSampler(graph, fanouts, seed=3)
    ours = device_sampler(sampler, device)
    workspace = ours.workspace()
    with mock.patch.object(device_sampling.DeviceRun, "_look", autospec=True, side_effect=device_sampling.DeviceRun._look) as look:
        for batch in range(2):
            compare(ours, sampler, NODE, random.integers(0, 200, 12), workspace, batch=batch)
    assert look.call_count == 2 * waits
    with profile() as seen:
        ours.sample({NODE: np.arange(12)}, epoch=0, batch=9, workspace=workspace)
    assert not {"aten::item", "aten::nonzero"} & {event.key for event in seen.key_averages()}


@pytest.mark.parametrize("uncounted", [0, 1 << 22])
@pytest.mark.parametrize("fanouts", [[2, 3, 2], [2, -1, 2], [2, 70, 2]])
def test_hops_that_find_nothing(fanouts, uncounted, device, monkeypatch):
    """Neighbours without lists: row pointers go on all the same."""
    monkeypatch.setattr(device_sampling, "UNCOUNTED", uncounted)
    lists = np.random.default_rng().integers(10, 20, 30).astype(np.int32)
    graph = Graph({NODE: 20}, {EDGE: CSC(np.append(np.arange(11) * 3, [30] * 10), lists)}, True)
    sampler = NeighborSampler(graph, fanouts, seed=1)
    ours = device_sampler(sampler, device)
    compare(ours, sampler, NODE, np.arange(5), ours.workspace())


@pytest.mark.parametrize(("topology", "replace"), [("device", False), ("pinned", True)])
def test_batches_ask_for_the_same_and_it_is_asked_for_as_one(topology, replace, device):
    """From the third on: one to know how much memory it takes, one to write down what is asked. Smaller ones too, and of other epochs."""
    random = np.random.default_rng()
    graph = typed_graph(random, hub_degree=100)
    fanouts = {edge_type: random.choice([0, 2, 4], 3).tolist() for edge_type in graph.adjacency} | {("paper", "cites", "paper"): [3, 2, 2]}
    sampler = NeighborSampler(graph, fanouts, replace=replace, seed=5)
    ours = device_sampler(sampler, device, topology, random_lists(random, graph) if topology == "pinned" else None)
    workspace = ours.workspace()
    sizes = [20, 20, 20, 20, 7, 0, 20, 1]
    with mock.patch.object(Recording, "ask", autospec=True, side_effect=Recording.ask) as ask:
        for number, size in enumerate(sizes):
            seeds = random.integers(0, graph.num_nodes["paper"], size)
            compare(ours, sampler, "paper", seeds, workspace, epoch=number % 3, batch=number)
            if number == 1:
                run = workspace.run
    assert ask.call_count == len(sizes) - 2
    assert workspace.run is run
    assert _triton.is_interpreted() or run._recording.why_not is None
    for batch in range(2):
        compare(ours, sampler, "paper", random.integers(0, 100, 21), workspace, batch=batch)
    assert workspace.run is not run, "more seeds, more memory"
    compare(ours, sampler, "author", random.integers(0, 10, 5), workspace)

    seeds = random.integers(0, 100, (4, 20))
    first, *_ = [
        ours.sample({"paper": each}, epoch=0, batch=batch, workspace=workspace) for batch, each in enumerate(seeds[[0, 1, 0, 2, 3]])
    ][2:]
    expected = sampler.sample({"paper": seeds[0]}, epoch=0, batch=2, workspace=sampler.workspace())
    assert_same_sample(first.to_host(), expected)  # later ones have not written to it

    one_by_one = DeviceSampler(sampler, ours.graph, is_recorded=False)
    workspace = one_by_one.workspace()
    for batch in range(2):
        compare(one_by_one, sampler, "paper", random.integers(0, 100, 9), workspace, batch=batch)
    assert workspace.run is None


@pytest.mark.parametrize("uncounted", [0, 1 << 22])
@pytest.mark.parametrize("is_typed", [False, True])
def test_edges_are_left_out(is_typed, uncounted, device, monkeypatch):
    """Of one, some or all types, of hops that are drawn or not, of as many as there are; by what was recorded too."""
    monkeypatch.setattr(device_sampling, "UNCOUNTED", uncounted)
    random = np.random.default_rng()
    graph = typed_graph(random, num_papers=150) if is_typed else homogeneous_graph(random, 60, 500)
    fanouts = {e: [4, -1 if is_typed and number == 1 else 3, 2 - 2 * (number % 2)] for number, e in enumerate(graph.adjacency)}
    sampler = NeighborSampler(graph, fanouts, replace=not is_typed, seed=5)
    ours, seed_type = device_sampler(sampler, device), "paper" if is_typed else NODE
    workspace, types, taken = ours.workspace(), list(graph.adjacency), []
    compare(ours, sampler, seed_type, np.arange(30), workspace)
    without = workspace.most_batch_bytes
    more = [(types, 90), (types, 300), (types[1:], 90), ([], 0), (types[:3:2], 90)]
    for edge_types, most in ((types[:1], 90), *(more[i] for i in random.permutation(5)[:2])):
        for batch in range(3):
            left_out, seeds = random_edges(random, graph, edge_types, most), random.integers(0, 60, 30)
            compare(ours, sampler, seed_type, seeds, workspace, batch=batch, left_out=left_out)
        taken.append(workspace.most_batch_bytes)
        is_repeated = workspace.run is not None and list(workspace.run.link_room) == edge_types
        assert is_repeated == (uncounted > 0 and not is_typed)
    assert taken[0] > without + 8 * 3 * 30, "what edges are moved to, and ranks, are counted"


def test_new_nodes_are_written_to_the_table_where_they_may_be_looked_up_again(device):
    """Of each node type: by all hops and edge types but the last."""
    random = np.random.default_rng()
    for graph, seed_type in ((homogeneous_graph(random, 100, 400), NODE), (typed_graph(random), "paper")):
        sampler = NeighborSampler(graph, [2, 2, 2], seed=5)
        ours = device_sampler(sampler, device, "device")
        workspace = ours.workspace()
        for batch in range(2):
            compare(ours, sampler, seed_type, random.integers(0, 50, 9), workspace, batch=batch)
        steps = [step for step in workspace.run.steps if step.drawn is not None]
        flags = [each.constants["IS_LAST"] for each in workspace.run._launches if each.kernel is relabel._place]
        assert len(flags) == len(steps) > 2
        for number, (step, is_last) in enumerate(zip(steps, flags, strict=True)):
            later = [one for one in steps[number + 1 :] if one.edge_type[0] == step.edge_type[0]]
            assert is_last == (not later)


def test_a_batch_that_is_left_in_the_middle(device):
    """By Ctrl-C: what it told the device may be on its way still when the next one is told."""
    random = np.random.default_rng()
    sampler = NeighborSampler(homogeneous_graph(random, 100, 400), [3, 2], seed=5)
    ours = device_sampler(sampler, device)
    workspace = ours.workspace()
    for batch in range(6):
        seeds = random.integers(0, 100, 20)
        with mock.patch.object(device_sampling.DeviceRun, "finish", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            ours.sample({NODE: seeds}, epoch=0, batch=batch, workspace=workspace)
        for _ in range(1 + batch // 3):
            compare(ours, sampler, NODE, random.integers(0, 100, 20), workspace, batch=batch)


@pytest.mark.parametrize("fanouts", [[3, 2], [3, -1]])
def test_several_batches_under_way(fanouts, device):
    """By one thread, each with a workspace and a stream, finished in any order."""
    random = np.random.default_rng()
    sampler = NeighborSampler(homogeneous_graph(random, 100, 400), fanouts, seed=5)
    ours = device_sampler(sampler, device)
    streams = [partial(torch.cuda.stream, torch.cuda.Stream()) if device.type == "cuda" else nullcontext for _ in range(3)]
    workspaces, begin = [ours.workspace() for _ in streams], iter(range(100))
    settle(device)
    for _ in range(5):
        asked = []
        for stream, workspace, batch in zip(streams, workspaces, begin, strict=False):
            seeds = random.integers(0, 100, int(random.integers(1, 20)))
            with stream():
                asked.append((stream, seeds, batch, ours.ask({NODE: seeds}, epoch=1, batch=batch, workspace=workspace)))
        for place in random.permutation(len(asked)):
            stream, seeds, batch, run = asked[place]
            with stream():
                sample = run.finish().to_host()
            assert_same_sample(sample, sampler.sample({NODE: seeds}, epoch=1, batch=batch, workspace=sampler.workspace()))


@pytest.mark.gpu
@pytest.mark.parametrize("refuses", ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiateWithFlags"])
def test_a_driver_that_makes_no_graphs(refuses, device, monkeypatch):
    if _triton.is_interpreted():
        pytest.skip("there is no driver")
    monkeypatch.setattr(_cuda.graphs(), refuses, lambda *_: 801)
    sampler = NeighborSampler(homogeneous_graph(np.random.default_rng(), 200, 900), [3, 2], seed=9)
    ours = device_sampler(sampler, device)
    workspace = ours.workspace()
    for batch in range(4):
        compare(ours, sampler, NODE, np.arange(20), workspace, batch=batch)
    assert "801" in workspace.run._recording.why_not


def test_the_table_is_filled_anew_when_its_numbers_end(device):
    random = np.random.default_rng()
    graph = homogeneous_graph(random, 300, 3000)
    sampler = NeighborSampler(graph, [4, 4], seed=1)
    ours = device_sampler(sampler, device)
    workspace = ours.workspace()
    table = workspace.tables[NODE]
    seeds = np.array([5, 5, *range(20)])
    compare(ours, sampler, NODE, seeds, workspace, batch=0)
    table._span = 30  # the second hop needs more, and the seeds keep their positions
    compare(ours, sampler, NODE, seeds, workspace, batch=1)
    assert table._end == relabel.EMPTY
    assert table._end - table.base == table._span > 100
    for left in (0, 1, 10, 60, 10_000):
        table.base = left
        compare(ours, sampler, NODE, seeds, workspace, batch=2)
    table._span, table.base = 22, relabel.EMPTY
    with pytest.raises(UsageError, match="take smaller batches"):
        table.reserve(1 << 31, 1)


def with_indices(graph, indices):
    ((edge_type, csc),) = graph.adjacency.items()
    return Graph(graph.num_nodes, {edge_type: CSC(csc.indptr, indices)}, True)


@pytest.mark.parametrize("uncounted", [0, 1 << 22])
@pytest.mark.parametrize("topology", ["device", "pinned"])
def test_damaged_lists_are_the_errors_of_the_cpu(topology, uncounted, device, monkeypatch):
    monkeypatch.setattr(device_sampling, "UNCOUNTED", uncounted)
    graph = homogeneous_graph(np.random.default_rng())
    csc, seeds = graph.adjacency[EDGE], np.arange(50)
    broken = [with_indices(graph, np.full_like(csc.indices, value)) for value in (-1, 500, np.iinfo(np.int32).min)]
    for value in (-5, 1 << 40):
        indptr = csc.indptr.copy()
        indptr[7] = value
        broken.append(Graph(graph.num_nodes, {EDGE: CSC(indptr, csc.indices)}, True))
        weighted = weighted_graph(np.random.default_rng(), graph).adjacency[EDGE]
        broken.append(Graph(graph.num_nodes, {EDGE: replace(weighted, indptr=indptr)}, True))
    for number in np.random.default_rng().choice(len(broken), 4, replace=False):
        each = broken[number]
        csc, times = each.adjacency[EDGE], {NODE: np.full(50, 9)}
        timed = replace(csc, times=np.zeros(csc.num_edges, np.int32), timed="now", by_time=np.arange(csc.num_edges, dtype=np.int32))
        hows = [(each, {}), (each, {"disjoint": True})]
        hows += [(each, {"shared_draws": 1}), (Graph(each.num_nodes, {EDGE: timed}, True), {})] if csc.sums is None else []
        for graph, how in hows:
            sampler, messages = NeighborSampler(graph, [3, 3], seed=0, **how), []
            for sample in (sampler, device_sampler(sampler, device, topology)):
                with pytest.raises(CorruptStoreError) as caught:
                    sample.sample({NODE: seeds}, epoch=0, batch=0, workspace=sample.workspace(), times=times)
                messages.append(str(caught.value))
            assert messages[0] == messages[1]


def test_what_is_done_on_the_cpu_only_is_said(device):
    graph = homogeneous_graph(np.random.default_rng())
    placed = place_graph(graph, device)
    for options, what in (({"layer_wise": True}, "layer_wise=True"), ({"induced": True}, "subgraph_type='induced'")):
        with pytest.raises(NotSupportedError, match=f"^{what} is done on the CPU only"):
            DeviceSampler(NeighborSampler(graph, [2], **options), placed)
    weighted = weighted_graph(np.random.default_rng(), graph)
    with pytest.raises(
        NotSupportedError,
        match=r"^a fanout of 1025 by weight is done on the CPU only, those up to 1024 and -1 by a device: sample on the CPU",
    ):
        DeviceSampler(NeighborSampler(weighted, [2, 1025]), placed)
    with pytest.raises(UsageError, match=r"topology on a device must be one of \('device', 'pinned'\), got 'disk'"):
        place_graph(graph, device, "disk")
    with pytest.raises(UsageError, match="none left to keep"):
        place_graph(graph, device, kept={EDGE: np.arange(3)})
    with pytest.raises(NotSupportedError, match=r"^a fanout of 257 by shared_draws is done on the CPU only, those up to 256 and -1"):
        DeviceSampler(NeighborSampler(graph, [257], shared_draws=1), placed)
    ours = device_sampler(NeighborSampler(timed_graph(np.random.default_rng(), graph), [2]), device)
    with pytest.raises(UsageError, match=r"edges have times: sample\(..., times=\) takes one for each seed"):
        ours.sample({NODE: np.arange(3)}, epoch=0, batch=0, workspace=ours.workspace())
    ours = device_sampler(NeighborSampler(graph, [2], disjoint=True), device)
    with pytest.raises(UsageError, match="disjoint sampling takes at most 1048576 seeds a batch, got 1048577"):
        ours.sample({NODE: np.zeros((1 << 20) + 1, np.int64)}, epoch=0, batch=0, workspace=ours.workspace())
    ours = DeviceSampler(NeighborSampler(graph, [2]), placed)
    with pytest.raises(NodeIdError, match=r"seeds\[1\] = 500"):
        ours.sample({NODE: np.array([0, 500])}, epoch=0, batch=0, workspace=ours.workspace())
    with pytest.raises(UsageError, match="batch index 4294967296 is beyond"):
        ours.sample({NODE: np.array([0])}, epoch=0, batch=1 << 32, workspace=ours.workspace())


@pytest.mark.parametrize("topology", ["device", "pinned"])
def test_a_mapped_graph(topology, device, tmp_path):
    csc = homogeneous_graph(np.random.default_rng(), 90, 400).adjacency[EDGE]
    for name in ("indptr", "indices"):
        np.save(tmp_path / f"{name}.npy", getattr(csc, name))
    maps = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices")]
    sampler = NeighborSampler(Graph({NODE: 90}, {EDGE: CSC(*maps)}, True), [3, -1])
    ours = device_sampler(sampler, device, topology)
    compare(ours, sampler, NODE, np.arange(9), ours.workspace())


def test_memory_is_counted_where_it_is(device):
    csc = random_csc(np.random.default_rng(), 50, 50, 1000)
    graph = Graph({NODE: 50}, {EDGE: csc}, True)
    offsets, kept = 8 * 51, 4 * 50 + 8 * 11 + 4 * int(np.diff(csc.indptr)[:10].sum())
    for arguments, near, far in (
        ((), offsets + 4000, 0),
        (("pinned",), offsets, 4000),
        (("pinned", {EDGE: np.arange(10)}), offsets + kept, 4000),
    ):
        placed = place_graph(graph, device, *arguments)
        assert (placed.device_bytes, placed.pinned_bytes) == (near, far)
    assert DeviceSampler(NeighborSampler(graph, [2]), placed).workspace().num_bytes == 4 * 50
    times = np.random.default_rng().permutation(1000)  # wide ones and no order
    timed = with_times(graph, Timestamps({}, {EDGE: times << 40}))
    for where, near, far in (("device", offsets + 16_000, 0), ("pinned", offsets, 16_000)):
        placed = place_graph(timed, device, where)
        assert (placed.device_bytes, placed.pinned_bytes) == (near, far)
    for where, near, far in (("device", offsets + 5000, 0), ("pinned", offsets, 5000)):
        placed = place_graph(graph, device, where, for_shared_draws=True)  # 20 neighbours of 50: some come twice
        assert (placed.device_bytes, placed.pinned_bytes) == (near, far)
    ours = device_sampler(NeighborSampler(graph, [2], disjoint=True), device)
    workspace = ours.workspace()
    compare(ours, ours.host, NODE, np.arange(9), workspace)
    assert workspace.num_bytes - workspace.most_batch_bytes == 12 * 1024, "no table of all nodes"
    graph = weighted_graph(np.random.default_rng(), graph)  # sums, and how many edges of each list have a weight
    for where, near, far in (("device", offsets + 4 * 50 + 12_000, 0), ("pinned", offsets + 4 * 50, 12_000)):
        placed = place_graph(graph, device, where)
        assert (placed.device_bytes, placed.pinned_bytes) == (near, far)
        sums = placed.adjacency[EDGE].weights.sums
        if _triton.is_interpreted():
            assert (sums.data_ptr() == graph.adjacency[EDGE].sums.ctypes.data) == (where == "pinned")
        else:
            assert (sums.device.type == "cuda") == (where == "device")
