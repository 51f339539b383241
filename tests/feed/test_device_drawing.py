"""Loaders whose samples a device draws: the same batches as on the CPU, bit for bit, wherever the topology is; and when the CPU draws them.

In the interpreter everything runs on CPU tensors; `TRITON_INTERPRET=0 pytest -m gpu` runs the same tests on a device.
"""

import gc
import time
import weakref

import pytest
import torch
from torch.utils.data import SubsetRandomSampler
from torch_geometric.data import Data

import penstock
from penstock import Walks
from penstock.errors import BudgetError, NotSupportedError, UsageError
from penstock.feed.digest import digest
from penstock.feed.maker import BatchMaker
from penstock.feed.setup import drawing
from penstock.kernels import _triton
from penstock.plan import Plan, make_plan
from penstock.sample.device import DeviceSampler
from penstock.sample.device_run import DeviceRun
from penstock.store import ingest
from penstock.store.device_memory import DeviceMemory
from tests.feed import ways
from tests.feed.inputs import digests, homogeneous_data, typed_data
from tests.feed.test_endings import threads_that_stay
from tests.feed.ways import WAYS, each_that

OPTIONS = dict(num_neighbors=[4, 3], batch_size=50, shuffle=True, seed=3)


def weighted_data():
    """A fifth of the edges have no weight."""
    data = homogeneous_data()
    data.weight = torch.arange(data.num_edges) % 5
    return data


def make_loader(data, **options):
    seeds = data.get("train_mask") if isinstance(data, Data) else ("paper", torch.arange(100))
    return penstock.NeighborLoader(data, **{**OPTIONS, "input_nodes": seeds, **options})


def same(data, device, **options):
    """Whether a loader for a device gives what one for the CPU gives; returns the first."""
    ours, theirs = make_loader(data, device=device, **options), make_loader(data, **{**options, "plan": None})
    assert digests(ours) == digests(theirs)
    return ours


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (homogeneous_data, dict(num_workers=2)),
        (homogeneous_data, dict(replace=True, plan=Plan(device_topology="pinned"))),
        (homogeneous_data, dict(num_neighbors=[4, 2000])),
        (weighted_data, dict(weight_attr="weight", num_neighbors=[4, -1, 1024])),
        (typed_data, dict(plan=Plan(policy="fifo", cache="40 rows"), num_workers=3)),
        (typed_data, dict(plan=Plan(policy="degree", cache="10%", device_topology="pinned"))),
        (typed_data, dict(num_neighbors={("author", "writes", "paper"): [-1, 2], ("paper", "by", "author"): [3, 0],
                                         ("venue", "prints", "paper"): [0, 1]})),
    ],
    ids=["homogeneous", "with replacement, pinned", "a large fanout", "by weight", "typed, dynamic cache", "typed, static cache, pinned",
         "fanouts by type"],
)  # fmt: skip
def test_same_batches(make, options, device):
    loader = same(make(), device, **options)
    assert loader.engine.maker.device_sampler is not None
    place = "pinned memory" if options.get("plan") and options["plan"].device_topology else "its memory"
    assert place in loader.stats().sampling


PLANS = [
    Plan(device_topology="device"),
    Plan(policy="presample", cache="20%", neighbor_policy="presample", neighbor_cache="30%", device_topology="pinned"),
]


@each_that(lambda way: not way.is_by_cpu)
@pytest.mark.parametrize("plan", PLANS, ids=["in its memory", "pinned, the best in its memory"])
def test_each_way(way, plan, device):
    """In trees of their own too, padded ones, and of links; rows and lists that are kept are found by drawing likewise. Each kind of graph
    by one plan, and in trees by the other."""
    how, some = dict(batch_size=16, seed=5, shuffle=True, plan=plan, num_workers=2), torch.arange(48)
    settings = [{}] if "disjoint" in way.refuses or "time_attr" in way.plain else [{}, {"disjoint": True}]
    links = dict(way.of("links"), batch_size=14)
    links |= {"edge_label_index": (data := ways.plain_data()).edge_index[:, :40], "neg_sampling": "binary", "exclude_links": "self"}
    if "edge_label_time" in links:
        links["edge_label_time"] = links["edge_label_time"][:40]
    is_first = plan is PLANS[0]
    for change in settings:
        for kind, loaded in (("plain", data), ("typed", ways.typed_data())):
            if (kind == "plain") != (is_first == (not change)):
                continue
            seeds, options = some if kind == "plain" else ("paper", some), way.of(kind) | change
            if "input_time" in options:
                options["input_time"] = options["input_time"][:48]
            ours, theirs = (
                penstock.NeighborLoader(loaded, **how | options | each, input_nodes=seeds, pad=is_first)
                for each in ({"device": device}, {"plan": None})
            )
            assert ours.engine.maker.device_sampler is not None
            assert digests(ours) == digests(theirs)
        if is_first == (not change) and len(settings) > 1:
            continue
        ours, theirs = (penstock.LinkNeighborLoader(data, **how | links | change | each) for each in ({"device": device}, {"plan": None}))
        assert ours.engine.maker.device_sampler is not None
        assert digests(ours) == digests(theirs)


@pytest.mark.parametrize("name", ["uniform", "by weight", "by time of edges"])
def test_lists_and_rows_by_what_they_save(name, device):
    """DUCATI's slopes are measured by drawing as the loader does: in trees, by time, around links."""
    way, some, data = WAYS[name], torch.arange(48), ways.plain_data()
    how = dict(batch_size=16, seed=5, **way.of("plain"))
    how |= {"input_time": how["input_time"][:48]} if "input_time" in how else {}
    for more in [{}, {"disjoint": True}] if name == "uniform" else [{}]:
        loaders = (penstock.NeighborLoader(data, **how, **more, input_nodes=some, device=on, plan=plan) for on, plan in
                   ((device, make_plan("ducati", order="random", cache="9%")), (None, None)))  # fmt: skip
        ours, theirs = map(digests, loaders)
        assert ours == theirs
    links = dict(way.of("links"), batch_size=14, seed=5, edge_label_index=data.edge_index[:, :40], neg_sampling="binary")
    links |= {"edge_label_time": links["edge_label_time"][:40]} if "edge_label_time" in links else {}
    plan = make_plan("ducati", order="random", cache="9%")
    ours, theirs = (digests(penstock.LinkNeighborLoader(data, **links, **each)) for each in ({"device": device, "plan": plan}, {}))
    assert ours == theirs


def test_recipes_that_keep_lists_keep_them_on_the_device(device):
    for recipe in ("ali+pg", "ducati"):
        loader = same(homogeneous_data(), device, plan=make_plan(recipe, order="random"))
        [csc], [kept] = loader.engine.maker.device_sampler.graph.adjacency.values(), loader.engine.caches.kept.values()
        assert (csc.kept is not None) == (kept.size > 0)
        assert kept.size > 0 or recipe == "ducati"  # which measures what is worth more
        assert "in pinned memory, the best lists in its own" in loader.stats().sampling
        assert loader.stats().device_bytes > loader.engine.caches.device_bytes > 0
        assert loader.stats().list_bytes == 0  # none of them in memory of the host


def test_what_sampling_works_with_is_counted(device):
    """A table of every node, and of a batch in the making what the largest has needed."""
    loader = make_loader(homogeneous_data(), device=device, plan=Plan(policy="fifo", cache="20 rows"), num_workers=2)
    maker = loader.engine.maker
    assert loader.stats().device_bytes == loader.engine.caches.device_bytes + maker.device_sampler.graph.device_bytes
    assert len(list(loader)) == 2
    sampling = loader.stats().device_bytes - loader.engine.caches.device_bytes - maker.device_sampler.graph.device_bytes
    most_edges = 50 * (4 + 4 * 3)
    assert len(maker._of_device) == 1, "threads take turns, and one sample is drawn ahead"
    assert 4 * 300 < sampling < 4 * 300 + 16 + 2 * 8 * (4 * most_edges + 300) + (4 + 8) * most_edges
    before = loader.stats().device_bytes
    assert len(list(loader.beside(torch.arange(50)))) == 1  # over the same scratch memory
    assert loader.stats().device_bytes <= before * 2


def test_a_policy_that_looks_ahead(device):
    loader = same(homogeneous_data(), device, plan=Plan(policy="belady", cache="15%", window=3), num_workers=2)
    assert loader.engine.maker.device_sampler is not None
    assert loader.stats().tiers["cache"]["num_rows"] > 0


def test_a_store(device, tmp_path):
    """Mapped files; features on a disk, which the host reads for the samples of the device; numbers of edges of the user's."""
    store = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB", edge_ids=True)
    options = dict(OPTIONS, input_nodes="train", num_workers=2)
    expected = digests(penstock.NeighborLoader(store, **options))
    for plan in (Plan(device_topology="pinned"), Plan(features="disk", device_policy="fifo", device_cache="20%")):
        loader = penstock.NeighborLoader(store, **options, plan=plan, device=device)
        assert digests(loader) == expected
        assert loader.engine.maker.device_sampler is not None
    assert not list(loader.engine.huge_pages._arrays())  # what a device reads stays where it is


def noted(method, name, heard, is_meant=lambda given: True):
    """A method that says it was called."""

    def call(self, *given, **options):
        if is_meant(given):
            heard.append(name)
        return method(self, *given, **options)

    return call


def test_who_writes_to_numbers_of_edges_has_not_written_to_edges(device, tmp_path):
    """Where these numbers are positions, a device has both in one piece of memory."""
    store = ingest(homogeneous_data(), tmp_path / "store", edge_ids=False)
    for options in ({}, {"pad": True}):
        loader = penstock.NeighborLoader(store, [4, 3], "train", batch_size=50, device=device, **options)
        batch = next(iter(loader))
        expected = [layer.edge_index.clone() for layer in penstock.layers(batch)]
        batch.e_id += 1
        for layer, edge_index in zip(penstock.layers(batch), expected, strict=True):
            assert torch.equal(layer.edge_index, edge_index)
        batch.edge_index += 1
        with pytest.raises(UsageError, match="edges of this batch are not those"):
            penstock.layers(batch)


def test_ids_do_not_travel_over_the_host(device, monkeypatch):
    """Of edges, of a static cache and of FIFO they stay on the device; of another dynamic one, they are looked at once a batch."""
    looked_at = []
    for name, is_copy in (("cpu", lambda given: True), ("to", lambda given: given[:1] == ("cpu",))):
        monkeypatch.setattr(torch.Tensor, name, noted(getattr(torch.Tensor, name), name, looked_at, is_copy))
    data = homogeneous_data()
    for policy, times in (("degree", 0), ("fifo", 0), ("lru", 1)):
        loader = make_loader(data, device=device, plan=Plan(policy=policy, cache="10%"))
        looked_at.clear()
        assert len(list(loader)) == 2
        assert len(looked_at) == 2 * times


@pytest.mark.parametrize(("policy", "types"), [("degree", []), ("fifo", []), ("lru", ["node"])])
def test_ids_that_the_host_looks_at_come_with_the_sample(policy, types, device, monkeypatch):
    """They are not waited for on the stream of rows, which has more to do."""
    seen, submit = [], BatchMaker.submit

    def submitted(self, assembler, sampled):
        seen.append(list(sampled.subgraph.on_host))
        return submit(self, assembler, sampled)

    monkeypatch.setattr(BatchMaker, "submit", submitted)
    assert len(list(make_loader(homogeneous_data(), device=device, plan=Plan(policy=policy, cache="10%")))) == 2
    assert seen == [types] * 2


def test_repeated_seeds_calls_and_loaders_beside(device):
    data = homogeneous_data()
    for plan in (Plan(), Plan(policy="fifo", cache="30 rows"), Plan(policy="lru", cache="30 rows")):
        same(data, device, input_nodes=torch.tensor([5, 5, 9, 200, 5]), batch_size=3, plan=plan)
    ours, theirs = (make_loader(data, device=where, plan=plan) for where in (device, None))
    assert penstock.digest(ours([3, 1, 1])) == penstock.digest(theirs([3, 1, 1]))
    assert digests(ours.beside(torch.arange(40))) == digests(theirs.beside(torch.arange(40)))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            dict(shared_draws=True, num_neighbors=[4, 257]),
            "a fanout of 257 by shared_draws is done on the CPU only, those up to 256 and -1 by a device",
        ),
        (dict(walks=Walks(num=4, length=3)), "sampling by walks is done on the CPU only"),
        (dict(layer_wise=True), "layer_wise=True is done on the CPU only"),
        (dict(subgraph_type="induced"), "subgraph_type='induced' is done on the CPU only"),
        (dict(subgraph_type="bidirectional"), "subgraph_type='bidirectional' is done on the CPU only"),
        (dict(transform_sampler_output=lambda output: output), "transform_sampler_output is called with samples of the CPU only"),
        (
            dict(weight_attr="weight", num_neighbors=[4, 1025]),
            "a fanout of 1025 by weight is done on the CPU only, those up to 1024 and -1 by a device",
        ),
        (dict(plan=Plan(map_threads=2)), "no device reads neighbour lists from a disk, a made-up device or threads over maps"),
        (dict(plan=Plan(device_topology="host")), "as the plan says"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_cpu_draws(options, why, device):
    loader = same(weighted_data(), device, **options)
    assert loader.engine.maker.device_sampler is None
    assert loader.stats().sampling.startswith("by the CPU")
    assert loader.stats().sampling.endswith(why)
    if not options.get("plan"):
        with pytest.raises(NotSupportedError, match=r"device_topology='pinned' samples on the device: .* drop one of them"):
            make_loader(weighted_data(), device=device, plan=Plan(device_topology="pinned"), **options)


def test_where_the_topology_is_follows_from_what_is_free(device, monkeypatch, tmp_path):
    data, store = homogeneous_data(), ingest(homogeneous_data(), tmp_path / "store", memory="4GiB", edge_ids=True)
    needed = 8 * 301 + 2 * 4 * 3000  # offsets, neighbours and the user's numbers of edges
    for left, place in ((2 * needed, "in its memory"), (2 * needed - 1, "in pinned memory")):
        monkeypatch.setattr(drawing, "look_at_device_memory", lambda device, left=left: DeviceMemory(1 << 30, left, 0))
        assert place in make_loader(data, device=device).stats().sampling
    monkeypatch.setattr(drawing, "look_at_device_memory", lambda device: DeviceMemory(1 << 30, 1 << 20, 0))
    monkeypatch.setattr(drawing, "free_bytes", lambda: 0)
    loader = make_loader(data, device=device, plan=make_plan("ali+pg", order="random"))
    assert "in pinned memory" in loader.stats().sampling, "lists that are in memory need no more of it"
    for left, free in ((8 * 301, needed), (1 << 20, 8 * 3000 - 1)):  # no room for the offsets there, or for pinned lists here
        monkeypatch.setattr(drawing, "look_at_device_memory", lambda device, left=left: DeviceMemory(1 << 30, left, 0))
        monkeypatch.setattr(drawing, "free_bytes", lambda free=free: free)
        loader = make_loader(store, input_nodes="train", device=device, plan=make_plan("ali+pg", order="random"))
        assert (
            loader.stats().sampling
            == f"by the CPU: a topology of 26 KiB fits neither {loader.engine.maker.delivery.device} nor the free memory of the host"
        )
        assert loader.engine.maker.device_sampler is None
    monkeypatch.setattr(drawing, "look_at_device_memory", lambda device: DeviceMemory(1 << 30, needed, 0))
    weighted, needed_by = weighted_data(), 8 * 301 + 4 * 300 + (4 + 4 + 8) * 3000  # and how many can be drawn of each list, and sums
    weighted = ingest(weighted, tmp_path / "weighted", memory="4GiB", edge_ids=True)
    for left, free, place in (
        (2 * needed_by, 0, "in its memory"), (2 * needed_by - 1, 8 * 3000, "in pinned memory"), (2 * needed_by - 1, 8 * 3000 - 1, "neither")
    ):  # fmt: skip
        monkeypatch.setattr(drawing, "look_at_device_memory", lambda device, left=left: DeviceMemory(1 << 30, left, 0))
        monkeypatch.setattr(drawing, "free_bytes", lambda free=free: free)
        assert place in make_loader(weighted, input_nodes="train", weight_attr="weight", device=device).stats().sampling
    monkeypatch.setattr(drawing, "look_at_device_memory", lambda device: DeviceMemory(1 << 30, needed, 0))
    with pytest.raises(BudgetError, match=r"^device_topology='device': a topology of 26 KiB is more than 50% of the .* free: take pinned$"):
        make_loader(data, device=device, plan=Plan(device_topology="device"))
    with pytest.raises(UsageError, match="has all lists there: take pinned, or leave neighbor_policy out"):
        make_loader(data, device=device, plan=make_plan("ali+pg", device_topology="device"))
    with pytest.raises(UsageError, match="device_topology must be one of device, pinned, host; got 'gpu'"):
        Plan(device_topology="gpu")
    with pytest.raises(UsageError, match=r"device_topology='device' .* there is none"):
        make_loader(data, plan=Plan(device_topology="device"))


@pytest.mark.gpu
@pytest.mark.parametrize("recipe", ["uva", "pagraph", "gnnlab", "ducati", "bgl"])
def test_a_device_holds_no_more_after_each_epoch_and_nothing_in_the_end(recipe, device):
    if _triton.is_interpreted():
        pytest.skip("memory of a device is counted on one")
    reader = _triton.tensor_device(device)
    before, held = held_by(reader), []
    loader = make_loader(homogeneous_data(), device=device, plan=recipe, num_workers=0)
    for _ in range(6):
        assert len(list(loader)) == 2
        held.append(held_by(reader))
    assert held[3] == held[5] > before
    del loader
    assert held_by(reader) == before


@pytest.mark.gpu
def test_nothing_is_held_after_a_pass_that_was_left(device):
    """Though a sample was under way, and batches in the making."""
    if _triton.is_interpreted():
        pytest.skip("memory of a device is counted on one")
    reader = _triton.tensor_device(device)
    before = held_by(reader)
    loader = make_loader(homogeneous_data(), device=device, batch_size=20, num_workers=2)
    for _ in range(2):
        batches = iter(loader)
        for _ in range(3):  # of the one after them, what is asked for is asked for as one
            next(batches)
    del loader, batches
    until = time.monotonic() + 30
    while held_by(reader) > before and time.monotonic() < until:
        time.sleep(0.05)
    assert held_by(reader) == before


def test_what_sampling_worked_with_can_be_given_up(device):
    loader = make_loader(homogeneous_data(), device=device, num_workers=2)
    maker = loader.engine.maker
    for _ in range(2):
        list(loader)
        assert maker.device_bytes > maker.device_topology_bytes
        threads_that_stay(set())  # one may still hold what it has worked with
        maker.let_go()
        assert maker.device_bytes == maker.device_topology_bytes


def held_by(reader):
    gc.collect()
    torch.cuda.synchronize(reader)
    return torch.cuda.memory_allocated(reader)


def test_damage_is_said_with_stage_and_batch(device):
    data = homogeneous_data()
    loader = make_loader(data, device=device)
    for csc in loader.engine.maker.device_sampler.graph.adjacency.values():
        csc.indices.fill_(999)
    if not _triton.is_interpreted():
        torch.cuda.synchronize(csc.indices.device)  # streams of the loader do not wait for ours
    with pytest.raises(penstock.errors.CorruptStoreError, match=r"\(stage sample, batch 0\)$"):
        next(iter(loader))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_next_sample_is_asked_for_before_rows_are_read(num_workers, device, monkeypatch):
    loader, heard = make_loader(homogeneous_data(), device=device, batch_size=34, num_workers=num_workers), []
    for name in ("ask", "submit"):
        monkeypatch.setattr(BatchMaker, name, noted(getattr(BatchMaker, name), name, heard))
    assert len(list(loader)) == 3
    assert heard == ["ask", *["ask", "submit"] * 2, "submit"]


def test_a_pass_that_is_left_leaves_a_sample_under_way(device):
    """The next pass draws with the same memory, a pass beside it with other memory."""
    expected = digests(make_loader(homogeneous_data(), batch_size=34))
    loader = make_loader(homogeneous_data(), device=device, batch_size=34)
    start = loader.state_dict()
    for _ in range(3):
        assert digest(next(iter(loader))) == expected[0]
        loader.load_state_dict(start)
    first = iter(loader)
    others = [digest(next(first))]
    loader.load_state_dict(start)
    assert digests(loader) == expected
    assert others + digests(first) == expected
    assert len(loader.engine.maker._of_device) <= 3  # a pass that was left goes on for a moment


@pytest.mark.parametrize("num_neighbors", [[4, 3], [-1, 3]])
def test_memory_of_a_sample_in_the_making_is_let_go_before_the_next_one_takes_as_much(num_neighbors, device, monkeypatch):
    """Where it is not used again: whole lists need another amount each time."""
    begin, made, num_others = DeviceRun.begin, weakref.WeakSet(), []

    def begun(self, *given):
        made.add(self)
        num_others.append(len(made) - 1)
        begin(self, *given)

    monkeypatch.setattr(DeviceRun, "begin", begun)
    loader = make_loader(homogeneous_data(), device=device, batch_size=34, num_neighbors=num_neighbors)
    assert len(list(loader)) == 3
    assert num_others == [0] * 3


def test_ranks_that_go_on_in_the_middle_of_an_epoch(device):
    """Each draws its own batches ahead, from where it stands."""
    expected = digests(make_loader(homogeneous_data(), batch_size=17))
    ranks = [make_loader(homogeneous_data(), device=device, batch_size=17, rank=rank, num_ranks=2) for rank in range(2)]
    for rank, loader in enumerate(ranks):
        assert digest(next(iter(loader))) == expected[rank]
        again = make_loader(homogeneous_data(), device=device, batch_size=17)
        again.load_state_dict(loader.state_dict())
        assert digests(again) == expected[2:]
        loader.load_state_dict(loader.state_dict())
        assert digests(loader) == expected[rank + 2 :: 2]


def test_passes_over_a_sampler_of_the_users(device):
    """Each has the sequence that it has read, though another is read meanwhile."""
    mine = [SubsetRandomSampler(range(100), generator=torch.Generator().manual_seed(7)) for _ in range(2)]
    ours, theirs = (
        make_loader(homogeneous_data(), input_nodes=None, shuffle=False, batch_size=34, sampler=sampler, device=where)
        for sampler, where in zip(mine, (device, None), strict=True)
    )
    passes = [[iter(loader) for _ in range(2)] for loader in (ours, theirs)]
    found = [[[digest(batch) for batch in each] for each in both] for both in passes]
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


@pytest.mark.gpu
def test_a_pass_that_is_left_is_waited_for(device):
    """What a sample under way reads may be let go with the loader."""
    if _triton.is_interpreted():
        pytest.skip("nothing is under way there")
    loader = make_loader(homogeneous_data(), device=device, batch_size=20)
    batches = iter(loader)
    next(batches)
    samples = loader.engine.maker.delivery._samples
    del batches
    gc.collect()
    for _ in range(100):  # the thread that made the last batch holds the pass for a moment
        if len(loader.engine.maker._of_device) == loader.engine.maker._workspaces.qsize():
            break
        time.sleep(0.05)
    assert samples.query()


def test_what_goes_wrong_with_the_next_sample_is_said_where_it_is_taken(device, monkeypatch):
    loader = make_loader(homogeneous_data(), device=device, batch_size=34)
    ask = DeviceSampler.ask

    def fails(self, *given, batch, **options):
        if batch == 2:
            raise OSError(5, "no such luck")
        return ask(self, *given, batch=batch, **options)

    monkeypatch.setattr(DeviceSampler, "ask", fails)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(penstock.errors.PipelineError, match=r"stage sample of batch 2: no such luck"):
        next(batches)
    monkeypatch.undo()
    assert len(list(loader)) == 3, "the next pass"


@pytest.mark.parametrize(
    ("make", "edge_type", "sampling", "left_out"),
    [
        (homogeneous_data, None, "binary", None),
        (homogeneous_data, None, None, "reverse"),
        (typed_data, ("author", "writes", "paper"), ("triplet", 2), None),
        (typed_data, ("author", "writes", "paper"), "binary", [("author", "writes", "paper"), ("paper", "by", "author")]),
    ],
    ids=["homogeneous, binary", "homogeneous, reverses left out", "typed, triplets", "typed, both ways left out"],
)
def test_links(device, make, edge_type, sampling, left_out):
    """Whose ends may be of two types, and which may be taken out of the samples."""
    data = make()
    links = data.edge_index[:, :60] if edge_type is None else (edge_type, data[edge_type].edge_index[:, :60])
    options = dict(OPTIONS, num_neighbors=[2, 2], edge_label_index=links, neg_sampling=sampling, batch_size=20, exclude_links=left_out)
    batches = list(penstock.LinkNeighborLoader(data, **options))
    expected = [digest(batch) for batch in batches]
    store = batches[0] if edge_type is None else batches[0][edge_type]
    assert (store.get("num_excluded_edges", 0) > 0) == (left_out is not None)
    for changes in (dict(num_workers=2), dict(plan=Plan(device_policy="presample", device_cache="20%", device_topology="pinned"))):
        loader = penstock.LinkNeighborLoader(data, **options, **changes, device=device)
        assert loader.engine.maker.device_sampler is not None
        assert digests(loader) == expected
