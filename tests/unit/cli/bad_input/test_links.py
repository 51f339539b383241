"""Links, labels and negatives that a loader refuses."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

from penstock.errors import BudgetError, CorruptStoreError, InputError, MissingFieldError, NodeIdError, NotSupportedError, UsageError
from penstock.feed import LinkNeighborLoader
from penstock.sample.negatives import make_candidates
from penstock.store import Store, hold_out, ingest
from tests.feed.inputs import typed_data
from tests.refusals import refused
from tests.train.stores import make_data, make_typed_store

LINKS = torch.tensor([[0, 1, 2], [3, 4, 5]])


@pytest.fixture
def typed(tmp_path):
    make_typed_store(tmp_path / "typed")
    return tmp_path / "typed"


def load(error=UsageError, links=LINKS, data=None, **options):
    return refused(error, LinkNeighborLoader, make_data() if data is None else data, [2], edge_label_index=links, **options)


def test_links(store, typed):
    assert "first is link 1 with 400" in load(NodeIdError, torch.tensor([[1, 2], [3, 400]]))
    assert "target ids lie outside [0, 400)" in load(NodeIdError, torch.tensor([[1], [-1]]))
    assert "got float32 [2, 1]" in load(links=torch.zeros(2, 1))
    assert "got int64 [3, 2]" in load(links=LINKS.t())
    assert "no array of node ids" in load(links=[[1], [2, 3]])
    assert "is empty" in load(links=torch.empty(2, 0, dtype=torch.int64))
    assert "is empty" in load(links=None, data=Data(num_nodes=9))
    assert "has but one" in load(links=("paper", "author"))
    assert "has but one" in load(links=(("a", "b", "c"), LINKS), data=Store.open(store))
    assert "for each of the 3 links, got 2" in load(input_id=torch.arange(2))
    assert "input_id must be a vector" in load(input_id=torch.rand(3))
    assert "did you mean 'exclude_links'" in load(exclude_link="self")
    assert "unknown argument 'choose'" in load(choose=3)
    assert "links have one split" in load(split="train")
    for data in (make_data(), Store.open(store)):
        for links in ("train", "val", (None, "val")):
            assert "in a store that `penstock hold-out` made" in load(links=links, data=data)
    assert "no array" in load(links=LINKS.to_sparse())
    assert "in a store that `penstock hold-out` made" in load(links="val", data=Store.open(typed))


def test_parts_of_links_by_name(tmp_path, store, typed):
    hold_out(store, tmp_path / "new")
    held_out = Store.open(tmp_path / "new")
    assert "no part of links 'valid'; it has 'val', 'test'" in load(MissingFieldError, "valid", data=held_out)
    assert "have no such field" in load(MissingFieldError, "val", data=held_out, edge_label="grade")
    assert "give it, the time of each link" in load(links="val", data=held_out, time_attr="y")
    hold_out(typed, tmp_path / "one", edge_type=("author", "writes", "paper"), reverse="none")
    hold_out(tmp_path / "one", tmp_path / "two", edge_type=("paper", "by", "author"), reverse="none")
    assert "several edge types could have links, name one of" in load(links="val", data=Store.open(tmp_path / "two"))


def test_types():
    data = typed_data()
    assert "must name an edge type" in load(data=data)
    assert "must name an edge type" in load(links=None, data=data)
    assert "there are no edges author/likes/paper" in load(links=("author", "likes", "paper"), data=data)
    assert "'nobody' is not a node type" in load(links=(("nobody", "likes", "paper"), LINKS), data=data)
    assert "an edge type is (source, name, target)" in load(links=("paper",), data=data)
    data["author", "reads", "paper"].edge_index = data["author", "writes", "paper"].edge_index
    assert "may mean any of" in load(links=("author", "paper"), data=data)


def test_labels_and_negatives():
    assert "for each of the 3 links, got [2]" in load(InputError, edge_label=torch.zeros(2))
    assert "has no place in triplets" in load(edge_label=torch.zeros(3), neg_sampling="triplet")
    for value in ("some", dict(mode="binary", amount=0), ("triplet", 0.5), dict(kind="binary")):
        load(neg_sampling=value)
    for ratio in ("a", [1], ()):
        assert "is a number" in load(neg_sampling_ratio=ratio)
    for ratio in (np.nan, np.inf):
        assert "has so many negatives" in load(neg_sampling_ratio=ratio)
    for labels in (torch.zeros(3, dtype=torch.complex64), torch.zeros(3, dtype=torch.uint16), torch.zeros(3).to_sparse()):
        assert "labels are dense" in load(InputError, edge_label=labels)
    assert "is no tensor" in load(InputError, edge_label=["a", "b", "c"])
    assert "not all edges of a type" in load(edge_label="w")
    assert "have no such field" in load(MissingFieldError, None, edge_label="grade")
    LinkNeighborLoader(make_data(), [2], edge_label_index=LINKS, edge_label=torch.empty(3, 0), neg_sampling="binary")
    for weight, what in (
        (torch.ones(3), "one number for each of the 400"),
        (torch.zeros(400), "not all 0"),
        (-torch.ones(400), "must be finite numbers, 0 or more"),
        (torch.full((400,), np.nan), "must be finite"),
        (torch.full((400,), 1e308, dtype=torch.float64), "must be finite"),
        (np.array(["1"] * 400), "must be finite numbers"),
        (torch.ones(400).to_sparse(), "are dense"),
    ):
        assert what in load(InputError, neg_sampling=NegativeSampling("binary", dst_weight=weight))
    empty = HeteroData({"a": {"num_nodes": 3}, "b": {"num_nodes": 0}, ("a", "to", "b"): {"edge_index": torch.empty(2, 0, dtype=int)}})
    assert "is empty" in load(links=("a", "b"), data=empty)
    assert "there are no nodes of type 'b'" in refused(UsageError, make_candidates, "b", 0, None, None)
    assert "at most 2**32 nodes" in refused(NotSupportedError, make_candidates, "b", 2**32 + 1, None, None)


def test_left_out():
    for value in ("all", True, 3):
        assert "must be one of self, reverse" in load(exclude_links=value)
    for value in ([("a", "b", "c")], [["a", "b", "c"]], ("a", "b", "c"), [3]):
        assert "is no edge type" in load(exclude_links=value)
    assert "would leave answers in" in load(exclude_links="self", subgraph_type="bidirectional")
    data = typed_data()
    by = data["paper", "by", "author"].edge_index
    writes = ("author", "writes", "paper")
    for value in ("self", [writes]):
        assert "would leave answers in" in load(links=writes, data=data, exclude_links=value, subgraph_type="bidirectional")
    assert "may hold the reverses of" in load(links=writes, data=data, exclude_links="reverse")
    assert "do not join the types" in load(links=("paper", "by", "author"), data=data, exclude_links=[("venue", "prints", "paper")])
    data["paper", "rev_writes", "author"].edge_index = by
    LinkNeighborLoader(data, [2], edge_label_index=writes, exclude_links="reverse")


def test_times():
    data = make_data()
    data.age = torch.arange(400)
    assert "'edge_label_time' is not set" in load(data=data, time_attr="age")
    assert "'time_attr' is not" in load(data=data, edge_label_time=torch.arange(3))
    assert "one whole number per link" in load(data=data, time_attr="age", edge_label_time=torch.arange(2))


@pytest.mark.parametrize("name", ["neighbor_sampler", "subgraph_type", "transform"])
def test_what_loaders_of_nodes_refuse_too(name):
    load(NotSupportedError if name == "neighbor_sampler" else UsageError, **{name: 3})


def test_negatives_of_damaged_or_long_lists(tmp_path, monkeypatch):
    store = ingest(make_data(), tmp_path / "store", memory="4GiB")
    monkeypatch.setattr("penstock.sample.negatives.LONGEST", 0)
    monkeypatch.setattr("penstock.store.budget.free_in_container", lambda: 1 << 10)
    monkeypatch.setattr("penstock.sample.negatives.make_adjacency.__defaults__", (0,))
    assert "take exclude_positives=False" in load(BudgetError, None, store, neg_sampling="binary")
    path = next((tmp_path / "store").rglob("indptr.npy"))
    np.load(path, mmap_mode="r+")[5] = 1 << 40
    refused(CorruptStoreError, LinkNeighborLoader, Store.open(store.path), [2], edge_label_index=LINKS, neg_sampling="binary")
