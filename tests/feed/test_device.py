"""Loaders that deliver to a device: the same batches as on the CPU, bit for bit, whatever is kept where; and what is refused.

In the interpreter everything runs on CPU tensors; `TRITON_INTERPRET=0 pytest -m gpu` runs the same tests on a device.
"""

import logging
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

import penstock
from penstock.errors import BudgetError, NotSupportedError, UsageError
from penstock.feed.fields import TensorRows
from penstock.feed.setup import bottoms
from penstock.gather import CachedTier, DeviceTable, FusedCache, RowKind, TieredTable
from penstock.kernels import _triton
from penstock.plan import RECIPES, Plan, make_plan
from penstock.records import EDGE
from penstock.store import ingest
from penstock.store.device_memory import DeviceMemory
from penstock.store.tiers import HostTier, PinnedTier
from tests.feed.inputs import check_homogeneous, digests, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=25, shuffle=True, seed=3)


def make_loader(data, **options):
    """Samples are drawn by the CPU: `test_device_drawing.py` has the others."""
    seeds = data.get("train_mask") if isinstance(data, Data) else ("paper", torch.arange(100))
    plan = make_plan(options.pop("plan", None), device_topology="host")
    return penstock.NeighborLoader(data, **{**OPTIONS, "input_nodes": seeds, "plan": plan, **options})


def tensors_of(batch):
    return [value for store in batch.stores for value in store.values() if isinstance(value, torch.Tensor)]


@pytest.fixture(scope="module")
def plain():
    return {kind: digests(make_loader(data)) for kind, data in (("homogeneous", homogeneous_data()), ("typed", typed_data()))}


@pytest.mark.parametrize(("policy", "num_workers"), [(None, 0), ("degree", 3), ("fifo", 0), ("fifo", 3)])
def test_same_batches_on_a_device(plain, policy, num_workers, device):
    plan = None if policy is None else Plan(policy=policy, cache="40 rows")
    for kind, data in (("homogeneous", homogeneous_data()), ("typed", typed_data())):
        loader = make_loader(data, plan=plan, num_workers=num_workers, device=device)
        seen = []
        for batch in loader:
            assert {tensor.device for tensor in tensors_of(batch)} == {_triton.tensor_device(device)}
            seen.append(penstock.digest(batch))
        assert seen == plain[kind]
        for key, table in loader.engine.caches.tables.items():
            assert isinstance(table, DeviceTable)
            assert isinstance(table.tier, FusedCache if plan is not None and isinstance(key, str) else PinnedTier)


@pytest.mark.parametrize("name", ["x", "y", "edge_attr"])
def test_fields_that_are_changed(name, device):
    """The device reads a copy of them, or the rows themselves: who changes them is told."""
    data = homogeneous_data()
    loader = make_loader(data, device=device)
    assert digests(loader)
    data[name][0] = 0
    with pytest.raises(UsageError, match=f"{name} was changed after the loader was made"):
        next(iter(loader))


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name not in ("ginex", "pyg", "mmap")])
def test_recipes_keep_their_rows_on_the_device(plain, recipe, device):
    loader = make_loader(homogeneous_data(), plan=make_plan(recipe, order="random"), device=device, num_workers=1)
    assert digests(loader) == plain["homogeneous"]
    stats = loader.stats()
    labels = 300 * (8 + 2 + 1)
    assert stats.device_bytes >= labels
    assert (stats.device_bytes > labels) == (recipe != "uva")
    assert "read by" in stats.devices["features, pinned"]
    asked = stats.num_nodes
    assert sum(stats.tiers[name]["num_rows"] for name in ("cache", "pinned") if name in stats.tiers) >= asked


@pytest.mark.parametrize("policy", ["presample", "fifo", "belady"])
def test_it_counts_what_a_cache_of_the_host_counts(policy, device):
    counted = []
    for where in (None, device):
        loader = make_loader(homogeneous_data(), plan=Plan(policy=policy, cache="15%", window=3), device=where, num_workers=2)
        digests(loader)
        hits = loader.stats().tiers["cache"]
        counted.append((hits["num_rows"], hits["num_bytes"]))
    assert counted[0] == counted[1]
    assert counted[0][0] > 0


@pytest.mark.parametrize(
    ("plan", "tiers"),
    [
        (Plan(features="disk", device_policy="degree", device_cache="20%"), ["cache", "upload of disk", "disk"]),
        (Plan(features="disk", policy="belady", cache="20%", window=3), ["cache", "disk"]),
        (Plan(slow="1GB/s,10us,64 rows", device_policy="fifo", device_cache="50 rows"), ["cache", "upload of slow mmap", "slow mmap"]),
        (Plan(features="memory", policy="presample", cache="9 KiB"), ["cache", "pinned"]),
        (Plan(map_threads=2), ["mmap"]),
        ("ginex", ["cache", "disk"]),
    ],
    ids=["kept above a disk", "kept in memory", "kept above a slow device", "read in", "read by threads", "ginex"],
)
def test_stores(plan, tiers, tmp_path, device):
    """Mapped files, read by the device or not."""
    store = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")
    options = dict(OPTIONS, input_nodes="train", num_workers=2)
    expected = digests(penstock.NeighborLoader(store, **options))
    loader = penstock.NeighborLoader(store, **options, plan=make_plan(plan, device_topology="host"), device=device)
    assert digests(loader) == expected
    assert list(loader.stats().tiers) == [*tiers, *["node/to/node pinned"] * (tiers[-1] == "pinned")]
    assert (loader.stats().device_bytes > 0) == (tiers[1:] not in ([], ["disk"]))


def data_with_edge_fields():
    data = homogeneous_data()
    data.edge_half = torch.arange(3000).to(torch.bfloat16)
    data.edge_byte = (torch.arange(3000) % 7).to(torch.uint8)
    data.edge_wide = torch.arange(3000.0).reshape(3000, 1, 1).expand(3000, 2, 3).contiguous()
    data.edge_cut = torch.arange(6000.0).reshape(6000, 1)[::2]  # not contiguous: PyG cuts it
    return data


def without_edges(output):
    output.edge = None
    return output


@pytest.mark.parametrize(
    ("drawn", "options"),
    [
        ("device", {}),
        ("host", dict(plan=Plan(policy="fifo", cache="20%"), num_workers=3)),
        ("device", dict(plan=Plan(slow="1GB/s,1us", device_policy="fifo", device_cache="20%"))),
        ("host", dict(replace=True, input_nodes=torch.tensor([5, 5, 9, 200, 5]), batch_size=3)),
        ("host", dict(disjoint=True)),
        ("host", dict(subgraph_type="bidirectional")),
        ("host", dict(transform_sampler_output=without_edges)),
    ],
    ids=["as they lie", "beside a cache", "beside slow nodes", "drawn twice", "trees", "both ways", "edges without numbers"],
)
def test_edge_fields_are_gathered_on_the_device(drawn, options, device, monkeypatch):
    data, looked_up = data_with_edge_fields(), []
    rows_on_host = TensorRows.gather
    options = {**OPTIONS, "input_nodes": data.train_mask, **options}
    expected = digests(penstock.NeighborLoader(data, **{**options, "plan": None}))
    monkeypatch.setattr(TensorRows, "gather", lambda self, *given: looked_up.append(self) or rows_on_host(self, *given))
    plan = make_plan(options.pop("plan", None), device_topology=drawn)
    loader = penstock.NeighborLoader(data, **options, plan=plan, device=device)
    assert digests(loader) == expected
    assert not looked_up
    table = loader.engine.caches.tables[EDGE]
    assert [kind.name for kind in table.kinds] == ["edge_attr", "edge_half", "edge_byte", "edge_wide"]
    assert table.stats()["pinned"].num_rows == (0 if "transform_sampler_output" in options else loader.stats().num_edges)
    assert "read by" in loader.stats().devices["features, node/to/node pinned"]


def test_edge_fields_of_a_store_and_what_stays_on_the_host(device, tmp_path, monkeypatch, caplog):
    data = data_with_edge_fields()
    del data.edge_half
    store = ingest(data, tmp_path / "store", memory="4GiB")
    options = dict(OPTIONS, input_nodes="train", device=device)
    expected = digests(penstock.NeighborLoader(store, **{**options, "device": None}))
    loader = penstock.NeighborLoader(store, **options)
    assert digests(loader) == expected
    assert EDGE in loader.engine.caches.tables
    on_disk = penstock.NeighborLoader(store, **options, plan=Plan(features="disk"))  # maps that may be larger than memory
    assert digests(on_disk) == expected
    assert EDGE not in on_disk.engine.caches.tables

    def make(arrays, reader, **others):
        if len(arrays[0]) == 3000:
            raise BudgetError("pinned: 9 GiB that the device is to read must stay in memory, and 5 GiB are free")
        return PinnedTier(arrays, reader, **others)

    monkeypatch.setattr(bottoms, "PinnedTier", make)
    with caplog.at_level(logging.WARNING, "penstock"):
        loader = penstock.NeighborLoader(store, **options)
    assert "fields of edges node/to/node are looked up on the host: pinned: 9 GiB that the device is to read" in caplog.text
    assert digests(loader) == expected


def test_state_calls_and_loaders_beside(device):
    data = homogeneous_data()
    ours, theirs = (make_loader(data, plan=Plan(policy="fifo", cache="30 rows"), device=where, num_workers=2) for where in (device, None))
    expected = digests(theirs)
    iterator = iter(ours)
    assert [penstock.digest(next(iterator)) for _ in range(2)] == expected[:2]
    assert penstock.digest(ours([3, 1, 1])) == penstock.digest(theirs([3, 1, 1]))
    assert digests(ours.beside(torch.arange(40))) == digests(theirs.beside(torch.arange(40)))
    again = make_loader(data, plan="pagraph", device=device)
    again.load_state_dict(ours.state_dict())
    assert digests(again) == expected[2:]


def test_transforms_see_the_batch_where_it_is(device):
    seen = []

    def transform(batch):
        seen.append(batch.x.device)
        batch.sums = batch.x.sum(dim=1)
        return batch

    expected = digests(make_loader(homogeneous_data(), transform=transform))
    for in_threads in (False, True):
        seen.clear()
        loader = make_loader(homogeneous_data(), transform=transform, filter_per_worker=in_threads, num_workers=2, device=device)
        assert digests(loader) == expected
        assert set(seen) == {_triton.tensor_device(device)}


def test_tensors_within_other_values_are_moved(device):
    pair, data = namedtuple("pair", "rows name"), homogeneous_data()
    data.some, data.more, data.both, data.named = [torch.ones(3)], {"q": torch.ones(3)}, (torch.ones(2), "s"), pair(torch.ones(2), "n")
    batch = next(iter(make_loader(data, device=device)))
    assert (batch.both[1], batch.named.name) == ("s", "n")
    for tensor in (batch.some[0], batch.more["q"], batch.both[0], batch.named.rows):
        assert tensor.device == _triton.tensor_device(device)


class Own(Data):
    """Whoever sets its edges sets how many there are; whoever moves it is noted."""

    @property
    def edge_index(self):
        return self._store.get("edge_index")

    @edge_index.setter
    def edge_index(self, value):
        self._store["edge_index"], self._store["how_many"] = value, value.shape[1]

    def apply(self, func, *args):
        self._store["moved"] = True
        return super().apply(func, *args)


def test_batches_are_of_the_users_own_kind(device):
    """They are set and moved in their way, and have the keys that they have on the CPU."""
    data = homogeneous_data()
    graphs = Batch.from_data_list([Data(edge_index=data.edge_index, num_nodes=300) for _ in range(2)])
    own = Own(**data.to_dict())
    for batch in (next(iter(make_loader(own, device=where))) for where in (None, device)):
        assert batch.how_many == batch.edge_index.shape[1]
    assert batch.moved
    seeds = torch.arange(60)
    ours, theirs = (next(iter(make_loader(graphs, input_nodes=seeds, device=where))) for where in (device, None))
    assert sorted(ours.keys()) == sorted(theirs.keys())


def test_what_does_not_go_through_tables(device):
    """A graph without features, disjoint trees, repeated seeds, tables of the user's, features that are no plain arrays."""
    bare = Data(edge_index=homogeneous_data().edge_index, num_nodes=300)
    data = homogeneous_data()
    data.wide = torch.rand(600, 2)[::2]
    data.x = data.x.to(torch.float16)
    seeds = torch.tensor([5, 5, 9, 200, 5])
    for given, options in ((bare, {}), (data, {}), (data, dict(disjoint=True)), (data, dict(subgraph_type="bidirectional"))):
        options = dict(input_nodes=seeds, batch_size=3, **options)
        assert digests(make_loader(given, **options, device=device)) == digests(make_loader(given, **options))
    table = TieredTable(HostTier([np.arange(300.0)]), [RowKind("own", np.dtype(np.float64), ())])
    loaders = [make_loader(bare, input_nodes=seeds, tables={"node": table}, device=where) for where in (device, None)]
    assert digests(loaders[0]) == digests(loaders[1])


def test_layers_of_batches_on_a_device(device):
    for batch, expected in zip(make_loader(homogeneous_data(), device=device), make_loader(homogeneous_data()), strict=True):
        for ours, theirs in zip(penstock.layers(batch), penstock.layers(expected), strict=True):
            assert ours.adj_t().device == _triton.tensor_device(device)
            assert torch.equal(ours.adj_t().to_dense().cpu(), theirs.adj_t().to_dense())


def test_a_read_that_fails_leaves_an_empty_cache_and_right_batches(plain, monkeypatch, device):
    from penstock.kernels.gather_cached import gpu

    loader, number, launch = make_loader(homogeneous_data(), plan=Plan(policy="fifo", cache="20%"), device=device), [0], gpu.launch

    def fail_once(*arguments, **constants):
        number[0] += 1
        if number[0] == 5:
            raise RuntimeError("launch failed")
        launch(*arguments, **constants)

    monkeypatch.setattr(gpu, "launch", fail_once)
    [policy] = [tier.policy for tier in loader.engine.caches.top.values()]
    with pytest.raises(penstock.errors.PipelineError, match="launch failed"):
        digests(loader)
    [tier] = loader.engine.caches.top.values()
    assert tier.policy is not policy  # empty; what was ahead may have filled it again
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "batch": 0})
    assert digests(loader) == plain["homogeneous"]


@pytest.mark.parametrize("plan", [dict(policy="degree", cache="40 rows", device_topology="pinned"), dict(device_policy="degree")])
def test_the_mode_of_who_made_or_asked_for_batches_does_not_matter(plan, device):
    """Memory that a loader keeps is used in every mode."""
    data = homogeneous_data()
    options = dict(OPTIONS, input_nodes=data.train_mask, batch_size=50, device=device)
    expected = digests(penstock.NeighborLoader(data, **options))
    with torch.inference_mode():
        loader = penstock.NeighborLoader(data, **options, plan=Plan(**plan))
        loader([1, 2])
        assert digests(loader) == expected
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "batch": 0})
    assert digests(loader) == expected


def test_single_numbers_of_any_kind(device):
    """Also of a type without nodes."""
    data, of = typed_data(), torch.arange(500)
    kinds = dict(nan=of * float("nan"), narrow=of.to(torch.bfloat16), mask=of % 3 == 0, complex=of * 1j)
    for name, values in kinds.items():
        data["paper"][name] = values
    data["paper"].strided = torch.stack([of, of], dim=1)[:, 1]  # is looked up on the host
    data["ghost"].x, data["ghost"].y = torch.empty(0, 3), torch.empty(0, dtype=torch.int64)
    data["ghost", "haunts", "paper"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    data["ghost", "haunts", "paper"].edge_attr = torch.empty(0)
    seeds = ("paper", torch.arange(75))
    ours, theirs = (penstock.NeighborLoader(data, **OPTIONS, input_nodes=seeds, device=where) for where in (device, None))
    assert digests(ours) == digests(theirs)
    kept = [values.nbytes for values in (*kinds.values(), data["paper"].y, data["paper"].train_mask)]
    edges = [data[edge_type].edge_attr.nbytes for edge_type in data.edge_types]
    assert ours.engine.caches.device_bytes == sum(kept) + sum(edges)


def test_single_numbers_take_a_sixteenth_of_what_is_free(device, monkeypatch):
    data = homogeneous_data()
    for free, on_device in ((16 * 2400, 2400), (16 * 2400 - 1, 600 + 300), (16 * 2700, 2700), (0, 0)):
        monkeypatch.setattr(bottoms, "look_at_device_memory", lambda device, free=free: DeviceMemory(1 << 30, free, 0))
        assert make_loader(data, device=device).engine.caches.device_bytes == on_device, "labels, `half` and the mask, as they find room"


def test_single_numbers_on_the_device_are_not_in_memory_of_the_host(device, tmp_path):
    store = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")
    loader = penstock.NeighborLoader(store, **OPTIONS, input_nodes="train", device=device, plan=Plan(features="memory"))
    assert loader.stats().loaded_bytes == 300 * 2 * 4, "rows"
    assert loader.engine.caches.device_bytes == 300 * (8 + 2), "labels and `half`"


def test_rows_of_no_bytes_are_rows(device):
    data = homogeneous_data()
    data.x = torch.empty(data.num_nodes, 0)
    shapes = [[batch.x.shape for batch in make_loader(data, device=where)] for where in (None, device)]
    assert shapes[0] == shapes[1]
    assert shapes[0][0][0] > 0


def test_the_cpu_is_as_before():
    loader = make_loader(homogeneous_data(), plan="pagraph", device="cpu")
    for batch in loader:
        check_homogeneous(batch, homogeneous_data())
    [tier] = loader.engine.caches.top.values()
    assert type(tier) is CachedTier
    assert loader.stats().device_bytes == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(plan=Plan(device_policy="fifo", device_cache="10%")), UsageError, "device_policy='fifo' keeps rows on a device"),
        (dict(device="mps"), NotSupportedError, "device='mps' is not supported"),
        (dict(device="gpu"), UsageError, "device must be cpu, cuda or cuda:0"),
    ],
    ids=["no device", "another kind", "no kind"],
)
def test_what_cannot_be(options, error, message):
    with pytest.raises(error, match=message):
        make_loader(homogeneous_data(), **options)


def test_plans_that_cannot_be():
    with pytest.raises(UsageError, match="device_cache='10%' keeps nothing without device_policy: choose one of random, degree"):
        Plan(device_cache="10%")
    with pytest.raises(UsageError, match="cannot read device_cache='much'"):
        Plan(device_policy="fifo", device_cache="much")


def test_without_a_device_it_is_one_clear_line(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(NotSupportedError, match=r"^device='cuda' needs a GPU, and torch finds none: .* or use the CPU$"):
        make_loader(homogeneous_data(), device="cuda")
