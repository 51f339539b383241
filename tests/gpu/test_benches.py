"""The benchmarks run on a device at toy size, before minutes of it are spent on them."""

import json

import pytest
from bench import common, gpu_busy, gpu_contender, gpu_link, gpu_page, gpu_recipes, gpu_sampling
from torch.profiler import ProfilerActivity, supported_activities

from tests.unit.test_gpu_benches import InThisProcess

pytestmark = pytest.mark.gpu


def pieces_of(bench, folder, *arguments):
    name = bench.__name__.partition(".")[2]
    bench.main(["--toy", "--out", str(folder), *arguments])
    result = json.loads((folder / f"{name}.json").read_text())
    assert result["is_toy"]
    assert not result["interpreted"]
    return result


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(common, "foreign_load", lambda wait_s: 0.0)


def test_link(tmp_path):
    result = pieces_of(gpu_link, tmp_path)
    assert list(result["pieces"]) == list(gpu_link.PIECES)


def test_sampling(tmp_path):
    contenders = pieces_of(gpu_sampling, tmp_path)["pieces"]["toy"]["contenders"]
    assert all(one["m_edges_per_s"]["median"] > 0 for one in contenders.values())


@pytest.mark.skipif(ProfilerActivity.CUDA not in supported_activities(), reason="this torch has no profiler of GPUs")
def test_busy(tmp_path):
    result = pieces_of(gpu_busy, tmp_path)
    assert all(one["batch_ms"] > 0 for one in result["pieces"].values())
    gpu_page.draw({"gpu_busy": result}, tmp_path)


def test_recipes(tmp_path, monkeypatch):
    """All of ours; PyG's loader needs a library for sampling that may not be there."""
    monkeypatch.setattr(gpu_recipes, "Contender", InThisProcess)
    monkeypatch.setattr(gpu_contender, "settle", lambda contender: contender.rest())
    (piece,) = pieces_of(gpu_recipes, tmp_path)["pieces"].values()
    failed = {name: row["failed"] for name, row in piece["contenders"].items() if "failed" in row}
    assert failed.keys() <= {"PyG"}, failed
    assert all(rate > 0 for mode in gpu_recipes.MODES for rate in piece["seeds_per_s"][mode].values())
