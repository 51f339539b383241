"""A store, and an empty current folder."""

import pytest

from tests.train.stores import make_store


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("bad") / "store").path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Runs without --out go below the current folder."""
    monkeypatch.chdir(tmp_path)
