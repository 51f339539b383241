"""`penstock layout`: what is written, what is measured, what is refused; and batches that stay the same."""

import json
import shutil

import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock.cache.packing import LAYOUTS
from penstock.cli import run
from penstock.errors import BudgetError, MissingFieldError, StoreError, UsageError
from penstock.gather import RowKind, TieredTable
from penstock.records import NODE
from penstock.sample.weights import declare_weights, store_weights
from penstock.store import Store, check, generate, ingest
from penstock.store.packing import packed_of
from penstock.store.tiers import MappedTier, PackedTier
from penstock.study import layout as study
from penstock.study.layout import LayoutSettings, drop_layout, lay_out

SETTINGS = dict(num_neighbors=(5, 3), batch_size=40, memory="4GiB")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("layout") / "store"
    generate("communities", path, num_nodes=3000, num_edges=12_000, num_communities=100, feature_dim=32, train=0.1, seed=1, memory="4GiB")
    return path


@pytest.fixture
def path(made, tmp_path):
    return shutil.copytree(made, tmp_path / "store")


def test_the_best_order_is_written_and_shown(path, capfd):
    digest = Store(path).digest
    result = lay_out(path, LayoutSettings(**SETTINGS, fields=("x", "y")))
    pages = result["measured"]["pages"]
    assert set(pages) == {"original", *LAYOUTS}
    missed = {name: both[1] for name, both in pages.items()}
    assert missed[result["by"]] == min(missed.values()) < 0.9 * missed["original"]
    store = Store(path)
    assert store.digest == digest
    packed = packed_of(store, NODE, ["x", "y"])
    assert packed.made["by"] == result["by"]
    assert packed.made["measured"]["pages"][result["by"]] == pages[result["by"]]
    assert packed.arrays[0].nbytes + packed.arrays[1].nbytes + packed.rows.nbytes < result["num_bytes"]
    assert check(path, deep=True).is_ok
    assert run(["info", str(path)]) == 0
    assert f"packed by {result['by']}: x, y" in capfd.readouterr().out


def test_batches_through_the_mapping_are_the_same(path):
    lay_out(path, LayoutSettings(**SETTINGS, by="hot-coaccess", fields=("x", "y")))
    store = Store(path)

    def digests(**options):
        loader = penstock.NeighborLoader(
            store, num_neighbors=[5, 3], batch_size=40, input_nodes="train", shuffle=True, seed=4, num_workers=2, **options
        )
        return [penstock.digest(batch) for batch in loader]

    names = list(store.node_fields(NODE))
    packed = packed_of(store, NODE, names)
    kinds = [RowKind(name, array.dtype, array.shape[1:]) for name, array in zip(names, packed.arrays, strict=True)]
    scrambled = TieredTable(MappedTier(packed.arrays), kinds)
    mapped = TieredTable(PackedTier(MappedTier(packed.arrays), packed.rows), kinds)
    plan = penstock.Plan(policy="fifo", cache="10%")
    expected = digests()
    assert digests(tables={NODE: mapped}) == expected
    assert digests(tables={NODE: mapped}, plan=plan) == expected
    assert digests(tables={NODE: scrambled}) != expected


def test_nothing_is_written_where_nothing_helps(path, monkeypatch, capfd):
    monkeypatch.setattr(study, "LEAST_GAIN", 0.99)
    assert run(["layout", str(path), "--num-neighbors", "5,3", "--batch-size", "40", "--memory", "4GiB"]) == 0
    assert "nothing was written" in capfd.readouterr().out
    assert Store(path).node_entry(NODE).packed is None


@pytest.mark.parametrize("policy", ["presample", "belady", "fifo"])
def test_what_a_cache_misses_is_measured(path, policy):
    result = lay_out(path, LayoutSettings(**SETTINGS, by="random", policy=policy, cache="50%"))["measured"]
    assert 0 < result["missed_rows_per_batch"] < result["rows_per_batch"]
    assert all(missed <= pages for pages, missed in result["pages"].values())
    nothing = lay_out(path, LayoutSettings(**SETTINGS, by="random", policy=policy, cache="0"))["measured"]
    assert nothing["missed_rows_per_batch"] == nothing["rows_per_batch"]


def test_bytes_of_a_cache_are_those_of_its_policy(path):
    """A static one takes 4 bytes per node beside the rows, as in training; a dynamic one takes more, and has fewer rows."""
    cache = f"{3000 * (32 * 4 + 4)}B"
    missed = {
        policy: lay_out(path, LayoutSettings(**SETTINGS, by="hotness", policy=policy, cache=cache)) for policy in ("presample", "lru")
    }
    assert missed["presample"]["measured"]["missed_rows_per_batch"] == 0
    assert missed["lru"]["measured"]["missed_rows_per_batch"] > 0


def test_neighbours_are_drawn_by_weight(tmp_path):
    num_nodes, path = 2000, tmp_path / "store"
    ids = torch.arange(num_nodes)
    far = torch.randint(num_nodes, (8 * num_nodes,), generator=torch.Generator().manual_seed(0))
    edges = torch.cat([torch.stack([far, ids.repeat(8)]), torch.stack([ids // 2, ids])], dim=1)
    data = Data(x=torch.zeros(num_nodes, 32), edge_index=edges, train_mask=ids < 400)
    data.edge_weight = torch.cat([torch.zeros(8 * num_nodes), torch.ones(num_nodes)])  # by weight everybody's one neighbour is near
    ingest(data, path, memory="4GiB")

    def rows(**options):
        settings = LayoutSettings(**{**SETTINGS, "cache": "0", "by": "random", **options})
        return lay_out(path, settings)["measured"]["rows_per_batch"]

    assert rows(weight="edge_weight") < 40 * 3 < rows()
    needed = 9 * num_nodes * (8.5 + 24)
    assert 0 <= declare_weights(store_weights(Store(path), "weight")) - needed < 8
    with pytest.raises(BudgetError, match="for weight"):
        rows(weight="weight", memory="1MiB")


def test_the_command(path, capfd):
    arguments = ["layout", str(path), "--num-neighbors", "5,3", "--batch-size", "40", "--memory", "4GiB", "--by", "coaccess"]
    assert run([*arguments, "--field", "y", "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["fields"] == ["y"]
    assert err.startswith("disk ")
    assert "memory  up to" in err
    assert "pack node y: " in err
    assert run(arguments) == 0
    assert "packed x of node by coaccess" in capfd.readouterr().out
    assert run(["layout", str(path), "--drop"]) == 0
    assert "removed the packed copies of node" in capfd.readouterr().out
    assert run(["layout", str(path), "--drop", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"store": str(path), "dropped": []}
    assert sorted(each.name for each in (path / "nodes" / "node").glob("*.npy")) == ["x.npy", "y.npy"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (dict(by="alphabet"), UsageError, "by must be one of auto, coaccess, "),
        (dict(order="up"), UsageError, "order must be one of random, "),
        (dict(policy="psychic"), UsageError, "policy must be one of presample, "),
        (dict(batch_size=0), UsageError, "must be at least 1"),
        (dict(page_bytes=1000), UsageError, "a power of two from 512 on, got 1000"),
        (dict(cache="some"), UsageError, "cannot read cache='some'"),
        (dict(fields=("z",)), UsageError, "'node' has no field 'z'; it has x, y"),
        (dict(node_type="paper"), MissingFieldError, "has no node type 'paper'"),
        (dict(memory="1MiB"), BudgetError, "to order 3,000 nodes"),
        (dict(split="other"), MissingFieldError, "no split 'other'"),
        (dict(weight="w"), MissingFieldError, "edges have no field 'w' to weigh them by; they have none"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused(path, options, error, words):
    before = sorted(path.rglob("*"))
    with pytest.raises(error, match=words):
        lay_out(path, LayoutSettings(**{**SETTINGS, **options}))
    assert sorted(path.rglob("*")) == before
    assert [each.name for each in path.parent.iterdir()] == ["store"]


def test_a_full_disk_is_told_before(path, monkeypatch):
    monkeypatch.setattr(study.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(StoreError, match="the disk has 1 B free"):
        lay_out(path, LayoutSettings(**SETTINGS))


def test_nothing_to_drop(path):
    assert drop_layout(path) == []
    with pytest.raises(MissingFieldError):
        drop_layout(path, "paper")
