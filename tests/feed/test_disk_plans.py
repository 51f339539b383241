"""Loaders that read features from a disk: the same batches as from memory, bit for bit; and what is counted and said."""

import shutil
import warnings

import numpy as np
import pytest
from torch_geometric.data import Data

import penstock
from penstock.errors import TierError, UsageError
from penstock.gather import TieredTable
from penstock.gather.spool_file import least_bytes
from penstock.gather.table import RowKind
from penstock.plan import Plan
from penstock.records import CSC
from penstock.sample import NeighborSampler
from penstock.sample.lists import DirectLists, TierLists, with_lists
from penstock.store import ingest
from penstock.store.change import StoreChange
from penstock.store.packing import pack
from penstock.store.tiers import DiskTier, HostTier, RowFile
from tests.feed.inputs import homogeneous_data, typed_data
from tests.feed.test_endings import run
from tests.feed.test_plans import digests, make_loader
from tests.graphs import assert_same_sample

DISK = dict(features="disk")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("disk")
    return {kind: ingest(data, folder / kind, memory="4GiB") for kind, data in (("plain", homogeneous_data()), ("typed", typed_data()))}


def loader_of(store, **options):
    seeds = "train" if store.is_homogeneous else ("paper", "train")
    return penstock.NeighborLoader(
        store, **{"num_neighbors": [4, 3], "batch_size": 16, "shuffle": True, "seed": 3, "input_nodes": seeds, **options}
    )


@pytest.mark.parametrize("num_workers", [0, 3])
@pytest.mark.parametrize(
    "plan",
    [
        dict(features="disk"),
        dict(features="disk", policy="belady", cache="10%", window=3),
        dict(features="disk", policy="degree", cache="30%"),
        dict(features="disk", policy="degree", cache="30%", window=4, spool="64MiB"),
        dict(features="disk", policy="presample", cache="0 rows", window=3, hold="ids", spool="64MiB"),
        dict(topology="disk"),
        dict(features="disk", topology="disk", policy="belady", cache="10%", window=3, neighbor_policy="presample", neighbor_cache="20%"),
        dict(topology="disk", neighbor_policy="ratio", neighbor_cache="20%", neighbor_layout="prefix"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_same_batches_as_from_memory(kind, plan, num_workers, stores):
    expected = digests(loader_of(stores[kind], plan=Plan(features="memory")))
    loader = loader_of(stores[kind], plan=Plan(**plan), num_workers=num_workers)
    assert digests(loader) == expected == digests(loader_of(stores[kind]))
    stats = loader.stats()
    for name, counted in stats.tiers.items():
        if name.endswith("disk"):
            assert counted["read_bytes"] >= 512 * (counted["num_requests"] > 0)
    kinds = {"features": "features", "topology": "neighbour lists"}
    assert {name.split(",")[0] for name in stats.disks} == {kinds[name] for name, value in plan.items() if value == "disk"}
    assert all("blocks of" in how for how in stats.disks.values())
    assert stats.cache_bytes > 0
    if "spool" in plan:
        assert stats.tiers["spool" if kind == "plain" else "paper spool"]["num_rows"] > 0
        plain = loader_of(stores[kind])
        next(iter(loader))  # a pass that is left
        assert digests(plain, 5)[-len(expected) :] == digests(loader)


@pytest.mark.parametrize("plan", [{}, dict(policy="belady", cache="10%", window=3), dict(policy="degree", cache="30%")], ids=str)
@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_a_packed_copy_is_read_where_there_is_one(kind, plan, stores, tmp_path):
    expected = digests(loader_of(stores[kind]))
    path, node_type = shutil.copytree(stores[kind].path, tmp_path / "store"), "node" if kind == "plain" else "paper"
    rows = np.random.default_rng(0).permutation(stores[kind].graph().num_nodes[node_type])
    with StoreChange(path) as change:
        pack(change, node_type, rows, ["x"], made={}, work_bytes=1 << 20)
    loader = loader_of(penstock.open(path), plan=Plan(**DISK, **plan), num_workers=2)
    assert digests(loader) == expected
    assert sum("rows packed" in how for how in loader.stats().disks.values()) == 1


def test_features_in_memory_are_refused(stores):
    data = homogeneous_data()
    assert isinstance(data, Data)
    for plan in (Plan(**DISK), Plan(topology="disk")):
        with pytest.raises(UsageError, match="in memory: ingest the graph into a store"):
            make_loader(data, plan=plan)


def test_a_store_that_was_replaced(tmp_path):
    ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")
    store = penstock.open(tmp_path / "store")
    loader_of(store)  # maps everything
    ingest(homogeneous_data(), tmp_path / "store", overwrite=True, memory="4GiB")
    with pytest.raises(TierError, match="replaced"):
        loader_of(store, plan=Plan(**DISK))


def test_a_file_that_shrinks_while_training(tmp_path):
    store = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")
    loader = loader_of(store, plan=Plan(**DISK), num_workers=2)
    batches = iter(loader)
    next(batches)
    with open(store.path / "nodes" / "node" / "x.npy", "r+b") as file:
        file.truncate(4200)
    with pytest.raises(TierError, match=r"x.npy ends at byte 4200.*stage gather, batch"):
        list(loader)


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_lists_from_a_disk(kind, stores):
    """Rows are the elements of `indices`, those of one page are read together."""
    graph, disks = stores[kind].graph(), {}
    for edge_type, csc in graph.adjacency.items():
        file = RowFile.behind(csc.indices)
        assert file is not None
        disks[edge_type] = DiskTier([RowFile(path=file.path, data_offset=file.data_offset, row_bytes=csc.indices.itemsize)], csc.num_edges)
    direct = {e: DirectLists(csc, np.argsort(-np.diff(csc.indptr))[:20], disks[e]) for e, csc in graph.adjacency.items()}
    plain = {e: TierLists(tier) for e, tier in disks.items()}
    seed_type = next(iter(graph.num_nodes)) if graph.is_homogeneous else "paper"

    def sample(graph):
        sampler = NeighborSampler(graph, [4, -1], seed=1, replace=True)
        return sampler.sample({seed_type: np.arange(40)}, epoch=0, batch=1, workspace=sampler.workspace())

    for lists in (plain, direct):
        assert_same_sample(sample(with_lists(graph, lists)), sample(graph))
    assert all(isinstance(csc, CSC) for csc in graph.adjacency.values())
    for tier in disks.values():
        assert tier.stats.num_requests <= tier.stats.num_reads  # a few pages in all, however many elements


def test_forks_have_rings_of_their_own(stores):
    path = stores["plain"].path
    ending = run(
        f"""
        import warnings
        warnings.simplefilter("ignore")
        from penstock import NeighborLoader, Plan, digest
        def load(**options):
            return NeighborLoader({str(path)!r}, [4, 3], input_nodes="train", batch_size=4, shuffle=True, seed=1, num_workers=2, **options)
        first = digests(load())
        loader = load(plan=Plan(features="disk"))
        iterator = iter(loader)
        assert digest(next(iterator)) == first[0]
        table = loader.engine.caches.tables["node"]
        import numpy as np
        under_way = table.submit(np.arange(100))
        child = os.fork()
        if child == 0:
            assert len(list(loader)) == len(first)
            inherited = under_way.wait()[0]
            assert (inherited == table.submit(np.arange(100)).wait()[0]).all()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert (under_way.wait()[0] == table.submit(np.arange(100)).wait()[0]).all()
        assert digests(iterator) == first[1:]
        print("done")
        """
    )
    assert ending.code == 0, ending.output
    assert "done" in ending.output


def test_no_warning_is_heard_where_all_is_there(stores):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader_of(stores["plain"], plan=Plan(**DISK)))


def test_a_type_too_small_for_its_share_of_a_spool(tmp_path):
    data = typed_data()
    widths = {t: data[t].x.shape[1] * data[t].x.element_size() for t in data.node_types if "x" in data[t]}
    shares = {t: data[t].num_nodes * width for t, width in widths.items()}
    smallest = min(shares, key=lambda t: shares[t])
    least = least_bytes((widths[smallest],))
    spool = max(least, int(0.9 * least * sum(shares.values()) / shares[smallest]))
    store = ingest(data, tmp_path / "store", memory="4GiB")
    plan = Plan(features="disk", policy="degree", cache="10%", window=4, spool=f"{spool >> 10}KiB")
    loader = loader_of(store, plan=plan, num_workers=2)
    assert digests(loader) == digests(loader_of(store))
    assert f"{smallest} spool" not in loader.stats().tiers
    assert any(name.endswith("spool") for name in loader.stats().tiers)


def test_a_table_of_the_users_is_not_spooled(stores):
    table = TieredTable(
        HostTier([np.zeros((stores["plain"].graph().num_nodes["node"], 8), np.uint8)]), [RowKind("x", np.dtype("f4"), (2,))]
    )
    plan = Plan(features="disk", policy="degree", cache="10%", window=4, spool="64MiB")
    with pytest.raises(UsageError, match="those of 'node' were given as a table"):
        loader_of(stores["plain"], tables={"node": table}, plan=plan)
