"""Tests marked `gpu`, on a GPU that is pretended; see `tests/cuda`. A process of their own: torch looks for devices when it is imported."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="a compiler is needed (apt install g++)"),
    pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is for CUDA: `pytest -m gpu` needs no pretence"),
]


def run_pretended(folder, *arguments, seconds, device="cuda"):
    pytest.importorskip("triton.backends.nvidia")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder / "kernels"), "PENSTOCK_PRETENDED": str(folder)}
    environment["PENSTOCK_TEST_DEVICE"] = device
    command = [sys.executable, "-m", "pytest", "-q", "--tb=native", "-p", "tests.cuda", "-m", "gpu", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=seconds)
    return done.returncode, done.stdout[-5000:] + done.stderr[-2000:]


def test_loaders_whose_samples_a_device_draws(tmp_path):
    """What has to do with streams, with memory that is used again, and with recordings; all of them: `test_all`."""
    some = ["test_same_batches[cuda-typed, dynamic cache]", "test_same_batches[cuda-by weight]", "test_ids_do_not_travel_over_the_host"]
    some += ["test_links[cuda-homogeneous, reverses left out]"]
    some += ["test_a_pass_that_is_left_leaves_a_sample_under_way", "test_the_next_sample_is_asked_for_before_rows_are_read"]
    some += ["test_what_goes_wrong_with_the_next_sample_is_said_where_it_is_taken"]
    files = [f"tests/feed/test_device_drawing.py::{each}" for each in some]
    files.append("tests/feed/test_recorded.py::test_it_learns_the_same[cuda-False]")
    code, said = run_pretended(tmp_path, *files, seconds=300)
    assert code == 0, said


def test_a_loader_asks_its_own_device_alone(tmp_path):
    """Which is not the current one; of the first one nothing was asked, and no memory is taken there."""
    one = "tests/feed/test_device_drawing.py::test_same_batches[cuda:1-homogeneous]"
    code, said = run_pretended(tmp_path, one, seconds=200, device="cuda:1")
    assert code == 0, said


@pytest.mark.deep
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_all(tmp_path, device):
    """The second device is never the current one of the tests."""
    code, said = run_pretended(tmp_path, "tests", seconds=1500, device=device)
    assert code == 0, said


def test_what_is_wrong_is_found(tmp_path):
    """It would go well on a GPU most of the time."""
    code, said = run_pretended(tmp_path, "tests/cuda/wrong.py", seconds=100)
    wrong = re.findall(r"^def (test_\w+)", (ROOT / "tests/cuda/wrong.py").read_text(), re.MULTILINE)
    found = re.findall(r"^(?:FAILED|ERROR) tests/cuda/wrong.py::(\w+)", said, re.MULTILINE)
    assert (code, sorted(found)) == (1, sorted(wrong)), said
