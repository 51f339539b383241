"""PyG as a contender on a GPU: its settings are tried, the best is taken, and nothing of it is left."""

import subprocess
import sys
from unittest import mock

import pytest
import torch
from bench import common, gpu_contender, gpu_model
from torch_geometric.data import Data


@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_a_batch_of_pyg_that_does_not_say_its_hops_trains_alike(kind):
    """PyG says them with pyg-lib, not with torch-sparse."""
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(7, 4, generator=random), torch.arange(7)
    batch = Data(x, torch.tensor([[2, 3, 4, 5, 6, 1], [0, 1, 2, 2, 3, 4]]), y=y, batch_size=2)
    losses = []
    for hops in ({}, {"num_sampled_nodes": [2, 2, 3], "num_sampled_edges": [2, 4]}):
        batch.update(hops)
        step = gpu_model.pyg_step(kind, 4, 2, torch.device("cpu"))
        losses.append([float(step(batch)) for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][2] < losses[0][0]


def test_the_best_of_pygs_settings_is_taken(monkeypatch):
    monkeypatch.setattr(gpu_contender, "settle", lambda contender: None)
    contender, rates = gpu_contender.PyG.__new__(gpu_contender.PyG), iter([1.0, 5.0, OSError("no handles\nat all"), 2.0])
    contender._made, contender.about, contender._make = {}, {}, lambda variant: mock.MagicMock(name=str(variant))

    def say():
        if isinstance(rate := next(rates), OSError):
            raise rate
        return rate

    contender._try = say
    variants = [gpu_contender.Variant(count) for count in range(1, 5)]
    contender._variants = lambda works: variants
    contender.prepare()
    assert contender._loader is contender._made[variants[1]]
    assert contender.workers == 2
    assert list(contender.about["tried_seeds_per_s"].values()) == [1.0, 5.0, 0.0, 2.0]
    contender._try = mock.Mock(side_effect=OSError("no handles"))
    with pytest.raises(gpu_contender.CannotRun, match=r"no setting of PyG's loader works: .*no handles"):
        contender.prepare()


ENDS = """
import os, time, psutil, torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler.base import BaseSampler, SamplerOutput
from bench import gpu_contender

class Alone(BaseSampler):
    def sample_from_edges(self, *given): ...
    def sample_from_nodes(self, given):
        nothing = torch.empty(0, dtype=torch.int64)
        return SamplerOutput(given.node, nothing, nothing, None, None, metadata=(given.input_id, given.time))

data, contender = Data(x=torch.rand(100, 2), edge_index=torch.zeros(2, 9, dtype=torch.int64)), gpu_contender.PyG.__new__(gpu_contender.PyG)
how = dict(num_workers=2, persistent_workers=True, multiprocessing_context="fork")
contender._made = {
    way: NodeLoader(data, Alone(), torch.arange(100), batch_size=5, filter_per_worker=way, **how)
    for way in (False, True)
}
batches = [next(iter(loader)) for loader in contender._made.values()]
children = psutil.Process().children()
gpu_contender.PyG.end(contender)
gone, alive = psutil.wait_procs(children, 20)
print(len(children), len(gone), flush=True)
os._exit(0)
"""


def test_the_workers_of_all_of_pygs_settings_end():
    """Whether they gather rows or PyG's own iterator does."""
    done = subprocess.run([sys.executable, "-c", ENDS], cwd=common.ROOT, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.returncode) == ("4 4\n", 0), done.stderr


def test_pygs_settings_are_tried_with_the_better_number_of_workers(monkeypatch):
    monkeypatch.setattr(gpu_contender, "cores", lambda: 16)
    contender = gpu_contender.PyG.__new__(gpu_contender.PyG)
    sample = mock.Mock()
    contender._make = lambda variant: [sample]
    for rates, num_bytes, expected in (
        ((2.0, 1.0), 1, [(7, False, False), (15, False, False), (7, False, True), (7, True, False)]),
        ((1.0, 2.0), gpu_contender.MOST_BATCHES // 6, [(7, False, False), (15, False, False), (15, False, True), (3, True, False)]),
        ((1.0, 2.0), gpu_contender.MOST_BATCHES, [(7, False, False), (15, False, False), (15, False, True)]),
        ((), 1, [(7, False, False), (15, False, False), (15, False, True), (15, True, False)]),
    ):
        sample.x.nbytes, works, tried, left = num_bytes, {}, [], list(rates)
        for variant in contender._variants(works):
            tried.append((variant.workers, variant.filters_there, variant.prefetches))
            if left:
                works[variant] = left.pop(0)
        assert tried == expected
