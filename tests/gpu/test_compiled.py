"""Tests of kernels, and of what is above them, on what Triton compiles for a GPU; see `tests/ptx`. A process of their own: one that has
imported kernels for Triton's interpreter cannot compile them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_compiled(folder, *arguments, seconds):
    pytest.importorskip("triton.backends.nvidia")
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.ptx", "-k", "not without_a_device", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_kernels(tmp_path):
    """A few of each kind; others are run by `test_pretended.py`."""
    seeds = {"samples": (0, 2, 7), "decisions": (4,), "trees": (0, 2, 4), "shared_draws": (3,)}
    # samples uniformly, by weight with replacement and without; trees uniformly, the latest in time, in time
    some = [f"test_{kind}_of_warps_that_take_turns_by_chance[{seed}]" for kind, some in seeds.items() for seed in some]
    some += [
        "test_a_race_is_seen",
        "test_an_address_that_is_not_as_promised_is_seen",
        "test_words_are_no_wider_than_the_place_of_the_result_allows",
    ]
    kernels = ["test_gpu_sampling.py::test_relabel", "test_device_rows.py::test_gather_cached[cuda-131-3-True]"]
    files = [*(f"tests/ptx/checks.py::{each}" for each in some), *(f"tests/differential/{each}" for each in kernels)]
    run_compiled(tmp_path, *files, seconds=500)


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_all_kernels(tmp_path):
    kernels = [
        "test_gpu_sampling.py",
        "test_device_rows.py::test_gather_cached",
        "test_device_rows.py::test_move_rows",
        "test_device_fifo.py",
        "test_links.py::test_edges_left_out_of_a_hop_on_a_device",
    ]
    run_compiled(tmp_path, "tests/ptx/checks.py", *(f"tests/differential/{each}" for each in kernels), seconds=500)


@pytest.mark.deep
@pytest.mark.timeout(1600)
def test_all_that_is_above_them(tmp_path):
    differential = ["test_device_rows.py", "test_device_sampler.py", "test_device_trees.py", "test_device_fifo.py"]
    contract = ["test_device_tiers.py", "test_device_caches.py", "test_two_levels.py"]
    feed = ["test_device.py", "test_device_drawing.py", "test_device_slopes.py", "test_device_cache.py", "test_two_levels.py"]
    files = [
        f"tests/{room}/{each}" for room, some in (("differential", differential), ("contract", contract), ("feed", feed)) for each in some
    ]
    run_compiled(tmp_path, *files, "tests/train/test_device.py", seconds=1500)
