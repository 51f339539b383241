"""The benchmark of bounded ingestion runs, at toy size."""

import json
import os

import pytest
from bench import common, generate_bounded, ingest_bounded, memory_group


def can_limit_memory():
    try:
        memory_group.MemoryGroup(1 << 30).remove()
    except OSError:
        return False
    return True


@pytest.mark.skipif(os.geteuid() != 0 or not can_limit_memory(), reason="making control groups needs root")
def test_toy_run(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    options = ["--edges", "40000", "--repeats", "1", "--target", "100", "--limit-mib", "700", "--memory-mib", "600"]
    assert ingest_bounded.main(["--data", str(tmp_path / "data"), *options]) == 0
    report = json.loads((tmp_path / "ingest_bounded.json").read_text())
    assert [case["kind"] for case in report["cases"]] == ["numbers", "sparse", "strings"]
    assert all(case["same_store"] and case["killed"] == 0 for case in report["cases"])
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0 or not can_limit_memory(), reason="making control groups needs root")
def test_toy_generation(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    options = ["--edges", "30000", "--limit-mib", "700", "--memory-mib", "600"]
    assert generate_bounded.main([str(tmp_path), *options]) == 0
    assert json.loads((tmp_path / "generate_bounded.json").read_text())["num_edges"] == 30_000
    assert not (tmp_path / "billion").exists()
