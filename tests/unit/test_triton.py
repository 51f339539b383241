"""Where kernels for a device can run, and what is said where they cannot."""

import subprocess
import sys

import pytest
import torch

from penstock.errors import NotSupportedError, UsageError
from penstock.kernels import _triton


def test_the_interpreter_wants_cpu_tensors(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert _triton.is_interpreted()
    assert _triton.tensor_device() == torch.device("cpu")


@pytest.mark.parametrize("device", ["cpu", "mps", "nonsense", 3.5])
def test_devices_that_are_none(device):
    with pytest.raises(UsageError, match="device"):
        _triton.tensor_device(device)


def test_what_is_missing_is_said_in_one_line(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with pytest.raises(NotSupportedError, match=r"^device='cuda' needs a torch built for CUDA, and this one is .*CPU$"):
        _triton.tensor_device()
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(NotSupportedError, match=r"^device='cuda:0' needs a GPU, and torch finds none"):
        _triton.tensor_device("cuda:0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match=r"^device='cuda:2' is not there: this machine has 2 of them"):
        _triton.tensor_device("cuda:2")
    assert _triton.tensor_device(torch.device("cuda:1")) == torch.device("cuda:1")
    monkeypatch.setattr(_triton, "is_installed", lambda: False)
    with pytest.raises(NotSupportedError, match=r"^device='cuda' needs Triton, which is not installed: pip install"):
        _triton.tensor_device()


def test_nothing_else_needs_triton():
    """The public API and a batch on the CPU, in a process where Triton cannot be imported."""
    code = (
        "import sys\n"
        "sys.modules['triton'] = None\n"
        "import importlib.util; assert importlib.util.find_spec\n"
        "import penstock, torch\n"
        "from torch_geometric.data import Data\n"
        "data = Data(x=torch.rand(9, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))\n"
        "loader = penstock.NeighborLoader(data, [2], input_nodes=torch.arange(9), batch_size=3, plan='pagraph')\n"
        "assert sum(batch.batch_size for batch in loader) == 9\n"
    )
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", code], check=True, timeout=200)
