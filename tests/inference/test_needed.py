"""Each step is computed for the nodes that later ones read, and no others; rows are those of computing all."""

import json
import os

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE

import penstock
from penstock.errors import StateError
from penstock.feed.inputs import open_input
from penstock.inference import OfRows, needed
from penstock.inference.needed import find_needed
from penstock.inference.steps import _plan_of
from tests.inference.test_whole_graph import MODELS, NUM_NODES, data, make_model, over_whole_graph  # noqa: F401 (a fixture)

SHAPES = {
    "homogeneous": ({"node": 60}, {("node", "to", "node"): 90}),
    "typed": (
        {"a": 50, "b": 20, "alone": 5, "nobody": 0},
        {("a", "to", "a"): 40, ("a", "by", "b"): 30, ("b", "of", "a"): 30, ("alone", "to", "b"): 0, ("nobody", "to", "a"): 0},
    ),
}


@pytest.fixture(autouse=True)
def without_limit(monkeypatch):
    monkeypatch.setattr(needed, "LIMIT", 1.0)


def make_graph(shape, seed):
    """Some nodes are isolated, some edges come twice, some are loops."""
    counts, edges = SHAPES[shape]
    generator = torch.Generator().manual_seed(seed)
    graph = HeteroData()
    for t, count in counts.items():
        graph[t].x = torch.randint(0, 8, (count, 3), generator=generator).float()
    for (src, to, dst), count in edges.items():
        graph[src, to, dst].edge_index = torch.stack(
            [torch.randint(0, max(counts[t] - 5, 1), (count,), generator=generator) for t in (src, dst)]
        )
    if shape == "typed":
        return graph
    return Data(x=graph["node"].x, edge_index=graph["node", "to", "node"].edge_index)


def edges_of(graph):
    """(type of source, type of target) -> pairs."""
    if isinstance(graph, Data):
        return [("node", "node", graph.edge_index.T.tolist())]
    return [(src, dst, graph[src, to, dst].edge_index.T.tolist()) for src, to, dst in graph.edge_types]


def reference(graph, counts, reads_lists, wanted):
    """For each step, (type, node) that it is computed for: backwards from the last."""
    target, ids = wanted
    reached = {(target, int(v)) for v in ids} | {(t, count - 1) for t, count in counts.items() if count and t != target}
    sets = [{(target, int(v)) for v in ids}]
    for reads in reversed(reads_lists[1:]):
        if reads:
            reached = reached | {(src, u) for src, dst, pairs in edges_of(graph) for u, v in pairs if (dst, v) in reached}
        sets.append(reached)
    return sets[::-1]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_nodes_of_each_step(shape, seed):
    random, graph, (counts, _) = np.random.default_rng(seed), make_graph(shape, seed), SHAPES[shape]
    target = ("node", "a")[shape == "typed"] if seed % 3 else list(counts)[shape == "typed"]
    ids = random.permutation(counts[target])[: 1 + seed % 4]
    reads_lists = random.integers(0, 2, 1 + seed % 5).tolist()
    steps = [(lambda batch: batch) if reads else OfRows(lambda batch: batch) for reads in reads_lists]
    found = find_needed(open_input(graph, is_sorted=False), steps, (target, ids))
    for number, expected in enumerate(reference(graph, counts, reads_lists, (target, ids))):
        assert {(t, int(v)) for t in found.counts[number] for v in found.nodes(number, t)} == expected
        assert sum(found.counts[number].values()) == len(expected)
    assert np.array_equal(found.nodes(len(steps) - 1, target), ids), "in their order"
    assert found.num_rows == sum(sum(each.values()) for each in found.counts)


def own_rows(batch):
    """Of all types that have nodes, also where the batch has none of them."""
    return batch.x if isinstance(batch, Data) else {t: batch[t].x for t in batch.node_types if t != "nobody"}


def sums(batch):
    """A row and those of its neighbours, twice: whole numbers, which no order of sums rounds; by type, where there are several."""
    if isinstance(batch, Data):
        return batch.x.index_add(0, batch.edge_index[1], batch.x[batch.edge_index[0]])
    out = own_rows(batch)
    for src, to, dst in (e for e in batch.edge_types if "nobody" not in e):
        sources, targets = batch[src, to, dst].edge_index
        out[dst] = out[dst].index_add(0, targets, batch[src].x[sources])
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_file", [False, True])
def test_rows_are_those_of_all_and_no_others_are_read(is_file, shape, seed, tmp_path, monkeypatch):
    graph, (counts, _) = make_graph(shape, seed), SHAPES[shape]
    target = list(counts)[-3 if shape == "typed" and seed % 3 else 0]
    ids = torch.from_numpy(np.random.default_rng(seed).permutation(counts[target])[:3])
    steps = [sums, OfRows(own_rows), sums, sums]
    options = {"input_nodes": ids if shape == "homogeneous" else (target, ids), "out": tmp_path / "rows.npy" if is_file else None}
    with monkeypatch.context() as patch:
        patch.setattr(needed, "LIMIT", 0.0)
        expected = np.array(penstock.infer(nn.Identity(), graph, steps, **options))
    read = {t: np.zeros(count, bool) for t, count in counts.items()}
    for t, v in reference(graph, counts, [False, True, False, True, True], (target, ids))[0]:
        read[t][v] = True
    for t, is_read in read.items():
        (graph if shape == "homogeneous" else graph[t]).x[~is_read] = torch.nan
    told = []
    rows = penstock.infer(nn.Identity(), graph, steps, batch_size=7, progress=lambda *each: told.append(each), **options)
    assert rows.tobytes() == expected.tobytes()
    found = find_needed(open_input(graph, is_sorted=False), steps, (target, ids.numpy()))
    assert told[-1] == (found.num_rows, found.num_rows)
    assert found.num_rows < 3 * sum(counts.values()) + 3


@pytest.mark.parametrize("name", MODELS)
def test_models_of_pyg(name, data):  # noqa: F811
    model, nodes = make_model(name), torch.tensor([5, 299, 0, 17])
    rows = penstock.infer(model, data, input_nodes=nodes, batch_size=37)
    np.testing.assert_allclose(rows, over_whole_graph(model, data)[nodes].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("plan", [None, "pagraph", "ginex", penstock.Plan(host_memory="3GiB")], ids=str)
def test_plans(plan, data, tmp_path):  # noqa: F811
    store, model, nodes = penstock.ingest(data, tmp_path / "store"), make_model("sage"), torch.tensor([5, 299, 0, 17])
    rows = penstock.infer(model, store, plan=plan, input_nodes=nodes, batch_size=40, out=tmp_path / "rows.npy")
    assert np.array_equal(rows, penstock.infer(model, data, input_nodes=nodes, batch_size=40))


def test_where_nearly_all_are_read_all_are_computed(monkeypatch):
    """A chain: a hop reads one node more."""
    graph = Data(x=torch.zeros(8, 1), edge_index=torch.stack([torch.arange(7), torch.arange(1, 8)]))
    for limit, expected in ((1.0, [5, 4, 3, 2]), (3 / 8, [8, 8, 3, 2]), (0.2, [8, 8, 8, 2])):
        monkeypatch.setattr(needed, "LIMIT", limit)
        found = find_needed(open_input(graph, is_sorted=False), [sums] * 4, ("node", np.array([6, 7])))
        assert [each["node"] for each in found.counts] == expected
        assert found.has_all == (limit == 0.2)
    assert not found.distances


class Stopped(Exception):
    pass


def infer_few(folder, count=-1, **options):
    """Rows of four nodes, ended after some batches; and how many it computed."""
    model, told = GraphSAGE(3, 4, 3), []
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(torch.randn(weights.shape, generator=torch.Generator().manual_seed(0)))

    def progress(done, total):
        told.append(done)
        if len(told) == count:
            raise Stopped

    rows = penstock.infer(model, make_graph("homogeneous", 0), out=folder / "rows.npy", progress=progress, batch_size=4, **options)
    return rows, told


FEW = [7, 3, 20, 58]


def test_stopped_after_any_batch(tmp_path):
    expected, told = infer_few(tmp_path, input_nodes=FEW)
    expected = np.array(expected)
    assert len(told) > 5
    for count in range(1, len(told)):
        with pytest.raises(Stopped):
            infer_few(tmp_path, count, input_nodes=FEW)
        rows, again = infer_few(tmp_path, input_nodes=FEW)
        assert rows.tobytes() == expected.tobytes()
        assert again[-1] == told[-1]
        assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]


@pytest.mark.parametrize("is_few", [False, True])
def test_states_of_versions_that_computed_all(is_few, tmp_path, monkeypatch):
    """They do not say which rows they have."""
    monkeypatch.setattr(needed, "LIMIT", 9 / 10)
    options = {"input_nodes": FEW if is_few else None}
    with pytest.raises(Stopped):
        infer_few(tmp_path, 3, **options)
    path = tmp_path / "rows.npy.unfinished" / "state.json"
    state = json.loads(path.read_text())
    del state["made_of"]["rows"]
    path.write_text(json.dumps(state))
    if is_few:
        with pytest.raises(StateError, match=r"another inference \(rows differ\)"):
            infer_few(tmp_path, **options)
    else:
        rows, _ = infer_few(tmp_path)
        (tmp_path / "whole").mkdir()
        assert rows.tobytes() == infer_few(tmp_path / "whole")[0].tobytes()


def test_rows_that_nobody_reads_take_no_room(tmp_path):
    num_nodes, seen = 1 << 16, []
    graph = Data(x=torch.ones(num_nodes, 16), edge_index=torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)]))

    def progress(done, total):
        seen.extend(os.stat(path).st_blocks * 512 for path in (tmp_path / "rows.npy.unfinished").glob("layer-0*"))

    penstock.infer(nn.Identity(), graph, [sums, sums], input_nodes=[9, num_nodes - 1], out=tmp_path / "rows.npy", progress=progress)
    assert 0 < max(seen) < 1 << 18, "of 4 MiB"


def test_many_nodes_of_a_graph_without_edges():
    graph = Data(x=torch.randn(NUM_NODES, 6), edge_index=torch.empty(2, 0, dtype=torch.long))
    rows = penstock.infer(make_model("sage"), graph, input_nodes=[1, 2])
    np.testing.assert_allclose(rows, over_whole_graph(make_model("sage"), graph)[[1, 2]].numpy(), rtol=1e-4, atol=1e-5)


def test_maps_stay_maps_where_few_rows_are_computed():
    graph = open_input(make_graph("homogeneous", 0), is_sorted=False).graph
    for count, is_huge in ((29, False), (30, True)):
        plans = [_plan_of(plan, graph, {"node": count}) for plan in (None, penstock.Plan())]
        assert [plan is None or plan.huge_pages for plan in plans] == [is_huge] * 2
        assert _plan_of(budget := penstock.Plan(host_memory="3GiB"), graph, {"node": count}) is budget
