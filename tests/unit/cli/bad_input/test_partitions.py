"""Partitions that cannot be written, joined or loaded from."""

import json
import socket
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed

import penstock
from penstock import NeighborLoader, Plan
from penstock.errors import (
    CorruptStoreError,
    InputError,
    MissingFieldError,
    NotAStoreError,
    NotSupportedError,
    PenstockError,
    StoreError,
    TierError,
    UsageError,
)
from penstock.exchange import join
from penstock.partition import Part, describe_partition, partition_store, write_parts
from penstock.store.sealed import seal
from tests.feed.test_partitions_weights import make, weighed_data
from tests.mounts import mounted
from tests.partitions import cut, free_addresses, on_all, together
from tests.refusals import TRAIN, call, refused, said


@pytest.fixture
def parts(store, tmp_path):
    return cut(penstock.open(store), tmp_path / "parts", 2)


def test_partition_command(store, tmp_path, capfd):
    def cut_it(*options, to=tmp_path / "parts"):
        return said(capfd, "partition", store, to, *options)

    assert "Missing option" in call(capfd, "partition", store, tmp_path / "parts")[1]
    cut_it("--num-parts", "0")
    cut_it("--num-parts", "2", "--trainers-per-part", "0")
    assert "[1, 400], got 401" in cut_it("--num-parts", "401")
    assert "[1, 100] for 2 parts and 200 train nodes, got 101" in cut_it("--num-parts", "2", "--trainers-per-part", "101")
    for value in (2.5, "2"):
        options = {"trainers_per_part": value}
        assert f"got {value!r}" in refused(UsageError, partition_store, penstock.open(store), tmp_path / "parts", 2, **options)
    cut_it("--num-parts", "2", "--method", "kahip")
    assert "'other'" in cut_it("--num-parts", "2", "--split", "other")
    cut_it("--num-parts", "2", to=tmp_path / "no" / "such")
    assert not (tmp_path / "parts").exists()
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "mine").write_text("mine")
    cut_it("--num-parts", "2")
    assert [one.name for one in tmp_path.iterdir()] == ["parts"]
    assert (tmp_path / "parts" / "mine").read_text() == "mine"
    assert call(capfd, "partition", store, tmp_path / "others", "--num-parts", "2", "--method", "random")[0] == 0
    cut_it("--num-parts", "2", to=tmp_path / "others")


def test_a_full_disk(store, tmp_path, capfd):
    with mounted(tmp_path / "small", "size=64k") as folder:
        assert "the disk is full" in said(capfd, "partition", store, folder / "parts", "--num-parts", "2")
        assert not list(folder.iterdir())


def test_owners(store, tmp_path):
    count = penstock.open(store).num_nodes["node"]
    for owners in ({}, {"node": np.zeros(3, np.int16)}, {"node": np.full(count, 2)}, {"node": np.full(count, -1)}):
        refused(UsageError, write_parts, penstock.open(store), owners, 2, tmp_path / "parts")
        there = {"node": np.zeros(count, np.int16)}
        refused(UsageError, write_parts, penstock.open(store), there, 2, tmp_path / "parts", trainers=owners, num_trainers=2)
    assert not (tmp_path / "parts").exists()


def test_partition_in_place_of_a_store(parts):
    for path in (parts, parts / "part-0"):
        refused(NotAStoreError, partition_store, path, parts.parent / "again", 2)


def test_a_training_without_the_others(store, parts, capfd, monkeypatch, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert "start as many as it has parts, 2," in said(capfd, "train", parts, *TRAIN)
    assert "start equally many for each part," in said(capfd, "train", parts / "part-0", *TRAIN)
    assert "is a partition of one part" in said(capfd, "train", cut(penstock.open(store), tmp_path / "one", 1), *TRAIN)
    said(capfd, "train", store, *TRAIN, "--order", "split")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    said(capfd, "train", store, *TRAIN)
    for name, value in (("RANK", "0"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "none")):
        monkeypatch.setenv(name, value)
    said(capfd, "train", store, *TRAIN)
    assert not list(here.iterdir())


def test_what_join_is_given(store, parts):
    (free,) = free_addresses(1)
    for error, path, options in (
        (NotAStoreError, store, dict(addresses=[free], rank=0)),
        (NotAStoreError, parts / "nothing", dict(addresses=[free], rank=0)),
        (UsageError, parts, dict()),
        (UsageError, parts, dict(rank=0)),
        (UsageError, parts, dict(addresses=[free, free])),
        (UsageError, parts, dict(addresses=[free, free], rank=2)),
        (UsageError, parts, dict(addresses=[free, free], rank="0")),
        (UsageError, parts, dict(addresses=[], rank=0)),
        *(
            (UsageError, parts, dict(addresses=[one], rank=0))
            for one in ("localhost", ":7000", "a:b", "a:0", "a:70000", "a:7\N{SUPERSCRIPT TWO}", "fd00::1:7000", "[]:7000", ("a", 7000))
        ),
        *(
            (UsageError, parts, dict(addresses=[free, free], rank=0, timeout_s=each))
            for each in (0, float("nan"), float("inf"), 1e30, "60", None)
        ),
        (UsageError, parts / "part-1", dict(addresses=[free, free], rank=0)),
        (UsageError, parts, dict(addresses=[free] * 3, rank=0)),
        (StoreError, parts, dict(addresses=["203.0.113.1:7000", free], rank=0)),
    ):
        refused(error, join, path, **options)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}: Address already in use" in refused(
            StoreError, join, parts, addresses=[f"127.0.0.1:{port}", free], rank=0
        )


def test_processes_that_do_not_meet(store, parts):
    first, second = free_addresses(2)
    assert "rank 1 (" in refused(TierError, join, parts, addresses=[first, second], rank=0, timeout_s=0.2)
    refused(TierError, join, parts, addresses=[first, "no.such.host.invalid:7000"], rank=0, timeout_s=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        refused(TierError, join, parts, addresses=[first, f"127.0.0.1:{silent.getsockname()[1]}"], rank=0, timeout_s=0.2)

    others = cut(penstock.open(store), parts.parent / "others", 2, {"node": np.arange(400) % 2})

    def join_another(rank):
        return refused(TierError, join, others if rank else parts, addresses=[first, second], rank=rank, timeout_s=3.0)

    assert "somebody else is there, or it joined otherwise" in "".join(together(2, join_another))
    one, other = together(2, lambda rank: join(parts, addresses=[first, second], rank=rank))
    loader = NeighborLoader(one, [2])
    one.close(wait=False)
    refused(PenstockError, list, loader)
    other.close(wait=False)


def test_groups_of_which_one_fails(parts, monkeypatch):
    """Each says what is wrong with it, and the others that it is gone."""
    (said_by_other,) = free_addresses(1)
    digest = Part(parts, 1).manifest.digest
    other = 1, digest, tuple(said_by_other.split(":")), bytes(32)

    told = []

    def gather(said, mine, group):
        told.append(mine)
        if fake.other == "gone":
            raise RuntimeError("Connection closed by peer [127.0.0.1]:54321")
        said[:] = [mine, fake.other]

    fake = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda group: 0, get_world_size=lambda group: 2,
        all_gather_object=gather, other=None,
    )  # fmt: skip
    for name, value in vars(fake).items():
        monkeypatch.setattr(torch.distributed, name, value, raising=False)
    joined = partial(join, group=type("Group", (), {})())
    refused(TierError, joined, parts)
    told.clear()
    refused(NotAStoreError, joined, parts / "nothing")
    refused(StoreError, joined, parts, host="203.0.113.1")
    assert told == [None, None]  # the others wait for it
    fake.other = "gone"
    assert "another of the 2 processes has ended" in refused(TierError, joined, parts)
    fake.other = 0, *other[1:]
    refused(UsageError, joined, parts)
    fake.other = 1, "f" * 16, *other[2:]
    assert f"process 1 has a part of partition {'f' * 16}, and process 0 of {digest}" in refused(TierError, joined, parts)
    fake.other = 1, digest, ("203.0.113.1", "7000"), bytes(32)
    assert "process 0 is at 127.0.0.1, where no other machine reaches it" in refused(TierError, joined, parts)


def test_parts_that_are_damaged(parts):
    options = dict(addresses=free_addresses(2), rank=0, timeout_s=0.2)
    part = parts / "part-0"
    assert "got None" in refused(UsageError, Part, parts)
    refused(UsageError, Part, parts, 2)
    for name in ("places.npy", "list_ptr.npy"):
        (path,) = part.rglob(name)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        refused(CorruptStoreError, join, parts, **options)
        path.write_bytes(whole[:-8])
        refused(CorruptStoreError, join, parts, **options)
        path.unlink()
        refused(CorruptStoreError, join, parts, **options)
        path.write_bytes(whole)
    manifest = part / "manifest.json"
    whole = manifest.read_bytes()
    for name, value in (("number", 7), ("nodes", {}), ("num_parts", "2"), ("edges", [3])):
        document = {key: each for key, each in json.loads(whole).items() if key != "manifest_xxh3"}
        manifest.write_bytes(seal(document | {name: value}))
        refused(CorruptStoreError, join, parts, **options)
        refused(CorruptStoreError, describe_partition, part)
    manifest.write_bytes(whole.replace(b'"number": 0', b'"number": 1'))
    refused(CorruptStoreError, join, parts, **options)
    manifest.unlink()
    manifest.mkdir()
    refused(StoreError, join, parts, **options)


def test_loaders_over_parts(store, parts):
    path = cut(penstock.open(store), parts.parent / "one", 1)
    with join(path, addresses=free_addresses(1), rank=0) as graph:
        refused(MissingFieldError, penstock.LinkNeighborLoader, graph, [2], edge_label="grade")
        for options in (
            dict(order="proximity"),
            dict(plan=Plan(policy="inclusion", cache="10%")),
            dict(plan=Plan(host_memory="1GiB")),
            dict(plan="ginex"),
        ):
            refused(NotSupportedError, NeighborLoader, graph, [2], **options)
        refused(MissingFieldError, NeighborLoader, graph, [2], "train", split="other")
    refused(UsageError, NeighborLoader, penstock.open(store), [2], order="split")


def test_what_are_no_weights(tmp_path):
    """Of this part or of another one: it is said when a loader is made."""
    data = weighed_data()
    data.edge_weight[data.edge_index[1] == 8] = -1.5
    data.pairs = torch.zeros(3500, 2)
    owners = {"node": np.isin(np.arange(300), np.arange(5, 20)).astype(np.int16)}
    store = penstock.ingest(data, tmp_path / "store")
    with pytest.raises(InputError) as of_store:
        make(store)
    with pytest.raises(InputError) as of_pairs:
        make(store, weight_attr="pairs")

    def work(graph):
        with pytest.raises(InputError if graph.part.number else TierError) as of_part:
            make(graph)
        with pytest.raises(InputError) as of_no_numbers:
            make(graph, weight_attr="pairs")
        assert str(of_no_numbers.value) == str(of_pairs.value)
        with pytest.raises(MissingFieldError, match="edges have no field 'strength' to weigh them by; they have 'weight', 'pairs'"):
            make(graph, weight_attr="strength")
        return str(of_part.value)

    of_other, of_own = on_all(cut(store, tmp_path / "parts", 2, owners), 2, work)
    assert of_own == str(of_store.value).removeprefix("edge_")
    assert of_other.startswith("rank 1 (127.0.0.1:")
    assert of_other.endswith(f"could not give rows of its part: InputError: {of_own}")
