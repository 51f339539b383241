"""Loaders that read maps on many threads: the same batches, and the system's read-ahead off where it should be."""

from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.plan import Plan
from penstock.store import ingest
from penstock.store.tiers import advise_random
from tests.feed.inputs import homogeneous_data
from tests.feed.test_disk_plans import loader_of
from tests.feed.test_plans import digests

CACHES = dict(policy="degree", cache="20%", neighbor_policy="ratio", neighbor_cache="20%")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.store.tiers.host.LEAST_ROWS", 1)
    return ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")


@pytest.mark.parametrize("plan", [{}, CACHES, dict(topology="memory"), dict(features="memory")], ids=str)
def test_same_batches(store, plan):
    expected = digests(loader_of(store))
    loader = loader_of(store, plan=Plan(map_threads=3, **plan), num_workers=2)
    assert digests(loader) == expected
    assert "mmap" in {*loader.stats().tiers, *loader.stats().lists}


@pytest.mark.parametrize("threads", [0, 1])
def test_read_ahead_is_off(store, threads):
    loader = loader_of(store, plan=Plan(map_threads=threads, **CACHES))
    random = {"x.npy": False, "indices.npy": False, "indptr.npy": False}
    name = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if str(store.path) in line:
            name = Path(line.split()[-1]).name
        if line.startswith("VmFlags:") and name in random:
            random[name], name = " rr" in line, None
    assert random == dict.fromkeys(random, threads > 0)
    assert digests(loader) == digests(loader_of(store))


@pytest.mark.parametrize("fits", [True, False])
def test_row_pointers_larger_than_memory_are_not_brought_in(store, monkeypatch, fits):
    monkeypatch.setattr("penstock.feed.setup.choices.free_bytes", lambda: 1 << 20 if fits else 100)
    loader = loader_of(store, plan=Plan(map_threads=1))
    lines = Path("/proc/self/smaps").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if str(store.path) in line and line.endswith("/indptr.npy"))
    resident = next(int(line.split()[1]) for line in lines[at:] if line.startswith("Rss:"))
    assert (resident > 0) == fits
    assert digests(loader) == digests(loader_of(store))


def test_what_is_no_map():
    assert not advise_random(homogeneous_data().x.numpy())


@pytest.mark.parametrize(("wrong", "words"), [(dict(map_threads=-1), "map_threads must lie in"), (dict(presample_batches=0), "at least 1")])
def test_refused(wrong, words):
    with pytest.raises(UsageError, match=words):
        Plan(**wrong)
