"""Links, labels and negatives that a loader refuses."""

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NegativeSampling

from penstock.errors import InputError, NodeIdError, NotSupportedError, UsageError
from penstock.feed import LinkNeighborLoader
from penstock.sample.negatives import make_candidates
from penstock.store import Store
from tests.feed.inputs import typed_data
from tests.refusals import refused
from tests.train.stores import make_data

LINKS = torch.tensor([[0, 1, 2], [3, 4, 5]])


def load(error=UsageError, links=LINKS, data=None, **options):
    return refused(error, LinkNeighborLoader, make_data() if data is None else data, [2], edge_label_index=links, **options)


def test_links(store):
    assert "first is link 1 with 400" in load(NodeIdError, torch.tensor([[1, 2], [3, 400]]))
    assert "target ids lie outside [0, 400)" in load(NodeIdError, torch.tensor([[1], [-1]]))
    assert "got float32 [2, 1]" in load(links=torch.zeros(2, 1))
    assert "got int64 [3, 2]" in load(links=LINKS.t())
    assert "no array of node ids" in load(links=[[1], [2, 3]])
    assert "is empty" in load(links=torch.empty(2, 0, dtype=torch.int64))
    assert "has but one" in load(links=("paper", "author"))
    assert "has but one" in load(links=(("a", "b", "c"), LINKS), data=Store.open(store))
    assert "for each of the 3 links, got 2" in load(input_id=torch.arange(2))
    assert "input_id must be a vector" in load(input_id=torch.rand(3))
    assert "did you mean 'exclude_links'" in load(exclude_link="self")


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
    assert "is a number" in load(neg_sampling_ratio="1")
    for weight, what in (
        (torch.ones(3), "one number for each of the 400"),
        (torch.zeros(400), "not all 0"),
        (-torch.ones(400), "must be finite, 0 or more"),
        (torch.full((400,), np.nan), "must be finite"),
    ):
        assert what in load(InputError, neg_sampling=NegativeSampling("binary", dst_weight=weight))
    empty = HeteroData({"a": {"num_nodes": 3}, "b": {"num_nodes": 0}, ("a", "to", "b"): {"edge_index": torch.empty(2, 0, dtype=int)}})
    assert "is empty" in load(links=("a", "b"), data=empty)
    assert "there are no nodes of type 'b'" in refused(UsageError, make_candidates, "b", 0, None, None)
    assert "at most 2**32 nodes" in refused(NotSupportedError, make_candidates, "b", 2**32 + 1, None, None)


def test_left_out():
    assert "must be one of self, reverse" in load(exclude_links="all")
    assert "is no edge type" in load(exclude_links=[("a", "b", "c")])
    assert "would leave answers in" in load(exclude_links="self", subgraph_type="bidirectional")
    data = typed_data()
    by = data["paper", "by", "author"].edge_index
    assert "do not join the types" in load(links=("paper", "by", "author"), data=data, exclude_links=[("venue", "prints", "paper")])
    data["paper", "edited", "author"].edge_index = by
    assert "which of" in load(links=("author", "writes", "paper"), data=data, exclude_links="reverse")
    data["paper", "rev_writes", "author"].edge_index = by
    LinkNeighborLoader(data, [2], edge_label_index=("author", "writes", "paper"), exclude_links="reverse")


def test_times():
    data = make_data()
    data.age = torch.arange(400)
    assert "'edge_label_time' is not set" in load(data=data, time_attr="age")
    assert "'time_attr' is not" in load(data=data, edge_label_time=torch.arange(3))
    assert "one whole number per link" in load(data=data, time_attr="age", edge_label_time=torch.arange(2))


@pytest.mark.parametrize("name", ["neighbor_sampler", "subgraph_type", "transform"])
def test_what_loaders_of_nodes_refuse_too(name):
    load(NotSupportedError if name == "neighbor_sampler" else UsageError, **{name: 3})
