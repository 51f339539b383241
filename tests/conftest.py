"""Shared by all tests: Hypothesis profiles, where the real graphs are, and files that are not waited for."""

import os
import signal
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads that wait leave the cores to the other workers of pytest
os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels of the GPU run in Triton's interpreter; `TRITON_INTERPRET=0 pytest -m gpu` on one

import pytest
from hypothesis import HealthCheck, settings

from penstock.kernels import _triton
from penstock.kernels._compile import load_compiler
from tests.devices import DEVICES
from tests.interpreting import hurry

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("dev", max_examples=30, **_COMMON)
settings.register_profile("ci", max_examples=40, derandomize=True, print_blob=True, **_COMMON)
settings.register_profile("deep", max_examples=1000, **_COMMON)
settings.load_profile(os.environ.get("PENSTOCK_HYPOTHESIS", "dev"))

os.fsync = os.fstat  # a third of the time of a test with a store; it matters after a power failure only, and to who looks for it

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts its background jobs; ours inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure():
    """Once, before any test: a first use of kernels says so, and tests look at what is said."""
    load_compiler()


def pytest_runtest_setup():
    """The first one after kernels of a device were imported."""
    hurry()


@pytest.fixture(params=DEVICES)
def device(request):
    """What a user names."""
    return request.param


@pytest.fixture(params=DEVICES)
def reader(request):
    """Where its tensors are: in the interpreter, the CPU."""
    return _triton.tensor_device(request.param)


@pytest.fixture(scope="session")
def real_graphs() -> Path:
    """Folder of the real graphs: PENSTOCK_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("PENSTOCK_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "cora.npz").exists():
        pytest.skip(f"no real graphs at {folder}; set PENSTOCK_DATA to the folder that holds cora.npz")
    return folder
