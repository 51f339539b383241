"""Batches that were delivered, made again plainly: what is right passes under every plan, and what is wrong is named."""

import pytest
import torch
from torch.utils.data import SequentialSampler
from torch_geometric.data import Data
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import penstock
from penstock.errors import MismatchError, UsageError
from penstock.feed.verify import compare
from penstock.gather import CachedTier
from penstock.plan import Plan
from tests.feed.inputs import homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=50, shuffle=True, seed=3)


def make_loader(data=None, **options):
    data = homogeneous_data() if data is None else data
    return penstock.NeighborLoader(data, **{**OPTIONS, **options})


@pytest.mark.parametrize(
    "options",
    [
        dict(num_workers=2),
        dict(plan=Plan(policy="belady", cache="10%", window=2)),
        dict(plan=Plan(policy="fifo", cache="10%", neighbor_policy="degree", neighbor_cache="20%")),
        dict(pad=True, num_workers=1),
        dict(disjoint=True, non_stop=True, num_workers=2),
        dict(subgraph_type="bidirectional", transform=lambda batch: batch.update({"twice": 2 * batch.x})),
        dict(subgraph_type="induced", transform=lambda batch: batch.update({"twice": 2 * batch.x}), filter_per_worker=True),
        dict(rank=1, num_ranks=2),
        dict(weight_attr="weight", replace=True),
        dict(shared_draws=True, order="proximity"),
    ],
    ids=lambda options: " ".join(options),
)
def test_all_batches_are_as_they_must_be(options):
    data = homogeneous_data()
    data.weight = torch.arange(data.num_edges) % 3
    loader, count = make_loader(data, **options), 0
    for _ in range(2):
        for batch in loader:
            loader.verify(batch)
            count += 1
    assert count == 2 * len(loader) > 1


def test_on_a_device(device):
    loader = make_loader(device=device, plan=Plan(device_policy="presample", device_cache="20%", device_topology="pinned"))
    for batch in loader:
        loader.verify(batch)


def test_stores_types_and_links(tmp_path):
    penstock.ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")
    plan = Plan(features="disk", topology="disk", policy="presample", cache="20%", spool="1MiB")
    loader = make_loader(penstock.open(tmp_path / "store"), plan=plan)
    typed = make_loader(typed_data(), input_nodes=("paper", torch.arange(100)), plan=Plan(policy="lru", cache="10%"))
    links = ("author", "writes", "paper"), typed_data()["author", "writes", "paper"].edge_index[:, :70]
    how = dict(edge_label_index=links, neg_sampling="binary", exclude_links="self", batch_size=20, shuffle=True)
    features, topology = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.randn(90, 4), group_name="paper", attr_name="x", index=None)
    topology.put_edge_index(torch.randint(0, 90, (2, 900)), edge_type=("paper", "cites", "paper"), layout="coo", size=(90, 90))
    remote = make_loader((features, topology), input_nodes="paper", num_workers=2)
    for each in (loader, typed, remote, penstock.LinkNeighborLoader(typed_data(), [3, 2], **how)):
        for batch in each:
            each.verify(batch)


def test_a_run_that_goes_on_and_loaders_beside():
    loader = make_loader(plan=Plan(policy="lru", cache="10%"))
    begun = iter(loader)
    next(begun)
    other = make_loader()
    other.load_state_dict(loader.state_dict())
    batch = next(iter(other))
    other.verify(batch)
    with pytest.raises(MismatchError, match=r"^batch 0 of epoch 0: "):
        loader.verify(batch)
    beside = loader.beside(torch.arange(0, 200, 3))
    for batch in beside:
        beside.verify(batch)
    assert penstock.digest(next(begun)) == penstock.digest(make_loader()(epoch=0, batch=1)), "nothing was moved by it"


def test_a_wrong_row_of_a_cache_is_found():
    loader = make_loader(plan=Plan(policy="degree", cache="50%"))
    (tier,) = (table.tier for table in loader.engine.caches.tables.values() if isinstance(table.tier, CachedTier))
    tier._fast.buffers[0][:] ^= 1
    batch = next(iter(loader))
    with pytest.raises(MismatchError, match=r"^batch 0 of epoch 0: x differs in \d+ of \d+ rows, first in row \d+, which is node \d+$"):
        loader.verify(batch)


def test_what_differs_is_said():
    batch = next(iter(make_loader()))
    compare(batch, batch.clone(), "it")
    for change, message in [
        (dict(x=batch.x.double()), r"it: x is torch.float64 \[\d+, 2\], not torch.float32 \[\d+, 2\]"),
        (dict(edge_index=batch.edge_index[:, 1:]), r"it: edge_index is torch.int64 \[2, \d+\], not torch.int64 \[2, \d+\]"),
        (dict(n_id=batch.n_id.flip(0)), r"it: n_id differs in \d+ of \d+ rows, first in row 0, which is node \d+"),
        (dict(num_sampled_nodes=[1, 2, 3]), r"it: num_sampled_nodes is \[1, 2, 3\], not \[50, "),
        (dict(more=1), "it has more than it should: more"),
    ]:
        wrong = batch.clone()
        wrong.update(change)
        with pytest.raises(MismatchError, match=f"^{message}"):
            compare(wrong, batch, "it")
    del (less := batch.clone()).x
    with pytest.raises(MismatchError, match=r"^it lacks x$"):
        compare(less, batch, "it")
    with pytest.raises(MismatchError, match=r"^it is a HeteroData, not a Data"):
        compare(batch.to_heterogeneous(), batch, "it")
    typed = next(iter(make_loader(typed_data(), input_nodes="paper")))
    wrong = typed.clone()
    wrong["author"].x = wrong["author"].x + 1
    with pytest.raises(MismatchError, match=r"^it: x of author differs in (\d+) of \1 rows"):
        compare(wrong, typed, "it")
    assert isinstance(batch, Data)


def test_what_cannot_be_verified():
    loader = make_loader()
    with pytest.raises(UsageError, match="none was: iterate over the loader first"):
        loader.verify(Data())
    given = penstock.NeighborLoader(homogeneous_data(), [2], batch_size=50, sampler=SequentialSampler(range(300)))
    with pytest.raises(UsageError, match="batch of your own sampler again"):
        given.verify(next(iter(given)))
