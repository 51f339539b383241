"""Loaders of links that were held out of a store's graph, by the names of their parts."""

import numpy as np
import pytest
import torch

import penstock
from penstock import LinkNeighborLoader
from penstock.errors import CorruptStoreError, MissingFieldError, UsageError
from tests.feed.inputs import digests
from tests.feed.links import OPTIONS, pairs
from tests.partitions import cut, on_all
from tests.unit.store.test_held_out import LIKES, random_data, typed_data

PARTS = ("train", "val", "test")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("held_out")
    penstock.hold_out(penstock.ingest(random_data(undirected=True), path / "whole"), path / "store")
    return penstock.open(path / "store")


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    path = tmp_path_factory.mktemp("typed_held_out")
    penstock.hold_out(penstock.ingest(typed_data(), path / "whole"), path / "store", edge_type=LIKES)
    return penstock.open(path / "store")


def of_part(store, name):
    return store.edge_index() if name == "train" else store.links(name)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_its_links(store, part):
    links = torch.from_numpy(of_part(store, part))
    for named in (part, (None, part)):
        given = LinkNeighborLoader(store, edge_label_index=links, **OPTIONS)
        loader = LinkNeighborLoader(store, edge_label_index=named, **OPTIONS)
        assert len(loader) == len(given)
        for batch, expected in zip(loader, given, strict=True):
            assert torch.equal(batch.n_id, expected.n_id)
            assert torch.equal(batch.edge_label_index, expected.edge_label_index)
    beside = given.beside(part)
    assert digests(beside) == digests(LinkNeighborLoader(store, edge_label_index=part, **OPTIONS))


def test_what_is_known_of_them(store):
    """Labels by the name of a field, and times, which are their own."""
    for part in PARTS:
        loader = LinkNeighborLoader(
            store, edge_label_index=part, edge_label="edge_attr", time_attr="time", temporal_rule="<", shuffle=True, **OPTIONS
        )
        for batch in loader:
            ends = batch.n_id[batch.edge_label_index]
            assert torch.equal(batch.edge_label[:, :2].T, ends)
            field = store.edge_field if part == "train" else lambda name, part=part: store.link_field(name, part)
            number = {row[2]: time for row, time in zip(field("x").tolist(), field("time").tolist(), strict=True)}
            assert batch.edge_label_time.tolist() == [number[row[2]] for row in batch.edge_label.tolist()]
            tree = batch.batch[batch.edge_index[1]]
            assert (batch.edge_time < batch.edge_label_time[tree]).all()
    later = loader.beside("val", edge_label_time=torch.zeros(store.links("val").shape[1], dtype=torch.int64))
    assert all(batch.edge_index.numel() == 0 for batch in later)


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_negatives_of_what_was_held_out_are_no_links_at_all(store, mode):
    """Neither edges of the graph nor held out, of any part; those of the train part are no edges, and may have been held out."""
    known = {part: pairs(of_part(store, part)) for part in PARTS}
    drawn = {}
    for part in PARTS:
        drawn[part] = set()
        for batch in LinkNeighborLoader(store, edge_label_index=part, neg_sampling=(mode, 2), **OPTIONS):
            if mode == "triplet":
                ends = torch.stack([batch.n_id[batch.src_index].repeat(2), batch.n_id[batch.dst_neg_index.T.reshape(-1)]])
            else:
                ends = batch.n_id[batch.edge_label_index][:, batch.input_id.numel() :]
            drawn[part] |= pairs(ends)
    assert not drawn["train"] & known["train"]
    assert drawn["train"] & (known["val"] | known["test"])
    for part in ("val", "test"):
        assert not drawn[part] & set().union(*known.values())


def test_typed(typed):
    for part in PARTS:
        links = typed.edge_index(LIKES) if part == "train" else typed.links(part)
        found = set()
        for named in (part, (LIKES, part)):
            loader = LinkNeighborLoader(typed, edge_label_index=named, exclude_links="reverse", **OPTIONS)
            for batch in loader:
                source, target = batch[LIKES].edge_label_index
                found |= pairs(torch.stack([batch["user"].n_id[source], batch["item"].n_id[target]]))
        assert found == pairs(links)
    with pytest.raises(UsageError, match="in a store that"):
        LinkNeighborLoader(typed, edge_label_index=(("user", "buys", "item"), "val"), **OPTIONS)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "options",
    [
        dict(edge_label="edge_attr", time_attr="time", temporal_rule="<"),
        dict(edge_label="x", neg_sampling="binary", exclude_links="reverse"),
        dict(neg_sampling=("triplet", 2), order="split"),
    ],
    ids=str,
)
def test_over_parts(part, options, store, tmp_path):
    """Every part of a partition has all links that were held out, and batches are those of the store."""
    cut(store, tmp_path / "parts", 2)
    options = OPTIONS | {"edge_label_index": part, "shuffle": "order" not in options, "seed": 3} | options

    def work(graph):
        return digests(LinkNeighborLoader(graph, rank=graph.rank, num_ranks=2, **options))

    found = on_all(tmp_path / "parts", 2, work)
    if "order" not in options:
        expected = digests(LinkNeighborLoader(store, **options))
        assert found == [expected[0::2], expected[1::2]]
    assert sum(map(len, found)) >= of_part(store, part).shape[1] / OPTIONS["batch_size"]


def test_typed_over_parts(typed, tmp_path):
    """What has no links, or no such part, is refused as by a store."""
    cut(typed, tmp_path / "parts", 2)

    def work(graph):
        options = OPTIONS | dict(exclude_links="reverse", neg_sampling="binary", rank=graph.rank, num_ranks=2)
        with pytest.raises(UsageError, match="in a store that"):
            LinkNeighborLoader(graph, edge_label_index=(("user", "buys", "item"), "val"), **options)
        with pytest.raises(MissingFieldError, match="has no part of links 'later'; it has 'val', 'test'"):
            LinkNeighborLoader(graph, edge_label_index="later", **options)
        with pytest.raises(MissingFieldError, match=r"edge_label='what': .* have no such field; they have 'edge_time'"):
            LinkNeighborLoader(graph, edge_label_index="val", edge_label="what", **options)
        return digests(LinkNeighborLoader(graph, edge_label_index="val", **options))

    expected = digests(LinkNeighborLoader(typed, edge_label_index="val", exclude_links="reverse", neg_sampling="binary", **OPTIONS))
    assert on_all(tmp_path / "parts", 2, work) == [expected[0::2], expected[1::2]]


def test_ends_that_are_no_nodes(store, tmp_path):
    """Of a part whose links are loaded, or only known, so that no negative is one of them."""
    cut(store, tmp_path / "parts", 2)
    for number in range(2):
        ends = np.load(tmp_path / f"parts/part-{number}/edges/node__to__node/links/test/dst.npy", mmap_mode="r+")
        ends[ends.size // 2] = -1 if number else 1 << 20
        ends.flush()

    def work(graph):
        for part, how in (("test", {}), ("val", dict(neg_sampling="binary"))):
            with pytest.raises(CorruptStoreError, match=r"part 'test' of node/to/node has ends outside the \d+ nodes of 'node'"):
                LinkNeighborLoader(graph, edge_label_index=part, rank=graph.rank, num_ranks=2, **how, **OPTIONS)

    on_all(tmp_path / "parts", 2, work)


def test_a_pass_goes_on_where_it_stood(store):
    loader = LinkNeighborLoader(store, edge_label_index="val", neg_sampling="binary", shuffle=True, **OPTIONS)
    batches = digests(loader)
    again = LinkNeighborLoader(store, edge_label_index="val", neg_sampling="binary", shuffle=True, **OPTIONS)
    iterator = iter(again)
    next(iterator)
    state = again.state_dict()
    third = LinkNeighborLoader(store, edge_label_index="val", neg_sampling="binary", shuffle=True, **OPTIONS)
    third.load_state_dict(state)
    assert digests(third) == batches[1:]
    other = LinkNeighborLoader(store, edge_label_index="test", neg_sampling="binary", shuffle=True, **OPTIONS)
    with pytest.raises(penstock.errors.StateError):
        other.load_state_dict(state)


def test_links_are_read_where_they_lie(store):
    """Nobody keeps a copy of them."""
    loader = LinkNeighborLoader(store, edge_label_index="val", **OPTIONS)
    ends = loader.engine.maker.seeds.ends
    assert np.shares_memory(ends.sources, store.link_field("src", "val"))
