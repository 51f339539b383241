"""Models that are on a device: the rows that they give on the CPU. In the interpreter the device is the CPU."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock.kernels import _triton
from penstock.train import TrainConfig, infer_run, train
from tests.inference.test_whole_graph import MODELS, make_model
from tests.train.stores import make_store, make_typed_store


@pytest.mark.parametrize("name", MODELS)
def test_models_of_pyg(name, device, tmp_path):
    random = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, 200, (2, 1500), generator=random)
    data = penstock.ingest(Data(x=torch.randn(200, 6, generator=random), edge_index=edge_index), tmp_path / "store")
    expected = penstock.infer(make_model(name), data, batch_size=64)
    rows = penstock.infer(make_model(name).to(_triton.tensor_device(device)), data, batch_size=64, out=tmp_path / "rows.npy")
    np.testing.assert_allclose(rows, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("make", [make_store, make_typed_store])
def test_a_run(make, device, tmp_path):
    store = make(tmp_path / "store")
    train(TrainConfig(store=str(store.path), num_neighbors=(3, 2), epochs=1, hidden=8, num_workers=0), tmp_path / "run")
    for name, where in (("cpu", "cpu"), ("device", device)):
        infer_run(tmp_path / "run", tmp_path / f"{name}.npy", device=where)
    np.testing.assert_allclose(np.load(tmp_path / "device.npy"), np.load(tmp_path / "cpu.npy"), rtol=1e-3, atol=1e-4)
