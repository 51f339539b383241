"""What tests of benchmarks share."""

import pytest
from bench import common, tables


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder in the place of bench/results."""
    for module in (common, tables):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(common, "foreign_load", lambda wait_s: 0.0)
    return tmp_path / "results"
