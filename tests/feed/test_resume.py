"""The state of a loader: exact at every batch, under other threads and ranks, refused for another configuration."""

import inspect
import json

import numpy as np
import pytest
import torch

from penstock.errors import StateError, UsageError
from penstock.feed import LinkNeighborLoader, NeighborLoader
from penstock.feed.inputs import open_input
from penstock.feed.options import read_options
from penstock.order import ORDERS, LocalOrder, RandomOrder, proximity_order
from penstock.plan import Plan
from penstock.sample.walks import Walks
from tests.feed.inputs import digests, homogeneous_data, typed_data

OPTIONS = dict(num_neighbors=[3, 2], batch_size=32, shuffle=True, seed=5)


def remaining(loader, num_epochs):
    """Digests of the rest of the current epoch and of the epochs after it."""
    return [digests(loader) for _ in range(num_epochs)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_exact_at_every_batch(num_workers):
    data = homogeneous_data()
    whole = remaining(NeighborLoader(data, **OPTIONS), 3)
    loader = NeighborLoader(data, **OPTIONS, num_workers=num_workers)
    for epoch in range(2):
        iterator = iter(loader)
        for index in range(len(loader) + 1):
            state = json.loads(json.dumps(loader.state_dict()))
            other = NeighborLoader(data, **OPTIONS, num_workers=3 if num_workers == 0 else 0)
            other.load_state_dict(state)
            rest = remaining(other, 1)[0]
            if index < len(loader):
                assert rest == whole[epoch][index:]
                next(iterator)
            else:
                assert rest == whole[epoch + 1], "at the end of an epoch the state is the start of the next"


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_exact_at_every_batch_in_every_order(order, typed):
    data = typed_data() if typed else homogeneous_data()
    options = {**OPTIONS, "order": order, "shuffle": False, "input_nodes": ("paper", None) if typed else None}
    whole = remaining(NeighborLoader(data, **options), 2)
    loader = NeighborLoader(data, **options, num_workers=2)
    iterator = iter(loader)
    for index in range(len(loader)):
        other = NeighborLoader(data, **options)
        other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert remaining(other, 2) == [whole[0][index:], whole[1]]
        next(iterator)


def test_another_proximity_order_is_refused():
    data = homogeneous_data()
    graph, seeds = open_input(data, is_sorted=False).graph, torch.arange(300)

    def load(seed=5, num_sequences=8, nodes=seeds):
        order = proximity_order(graph, nodes.numpy(), seed=seed, batch_size=32, num_sequences=num_sequences)
        return NeighborLoader(data, **{**OPTIONS, "order": order, "shuffle": False, "input_nodes": nodes})

    state = load().state_dict()
    load().load_state_dict(state)
    for change in ({"seed": 6}, {"num_sequences": 9}, {"nodes": seeds.flip(0)}):
        with pytest.raises(StateError, match=r"another configuration.*order: 'proximity, 8 sequences"):
            load(**change).load_state_dict(state)
    with pytest.raises(UsageError, match="order must be"):
        NeighborLoader(data, **{**OPTIONS, "order": "near"})


def test_orders_by_name_are_those_of_plans_too():
    """`shuffle` is the random one; a plan's order is for who shuffles."""
    data, options = homogeneous_data(), {**OPTIONS, "shuffle": False}
    as_they_are = remaining(NeighborLoader(data, **options), 1)
    shuffled = remaining(NeighborLoader(data, **{**options, "shuffle": True}), 1)
    assert as_they_are != shuffled
    assert remaining(NeighborLoader(data, **options, order="sequential"), 1) == as_they_are
    assert remaining(NeighborLoader(data, **options, order="random"), 1) == shuffled
    assert remaining(NeighborLoader(data, **{**options, "shuffle": True}, plan=Plan(order="sequential")), 1) == as_they_are
    assert remaining(NeighborLoader(data, **options, plan=Plan(order="proximity")), 1) == as_they_are


def test_look_ahead_does_not_count():
    loader = NeighborLoader(homogeneous_data(), **OPTIONS, num_workers=4, prefetch_factor=4)
    iterator = iter(loader)
    next(iterator)
    assert loader.state_dict()["batch"] == 1


def test_other_number_of_ranks():
    data = homogeneous_data()
    whole = remaining(NeighborLoader(data, **OPTIONS), 1)[0]
    ranks = [NeighborLoader(data, **OPTIONS, rank=rank, num_ranks=2) for rank in range(2)]
    iterators = [iter(loader) for loader in ranks]
    for iterator in iterators:
        next(iterator), next(iterator), next(iterator)
    state = ranks[0].state_dict()
    assert state == ranks[1].state_dict()
    for num_ranks in (1, 2, 3, 6):
        rest = []
        for rank in range(num_ranks):
            loader = NeighborLoader(data, **OPTIONS, rank=rank, num_ranks=num_ranks)
            loader.load_state_dict(state)
            rest.append(remaining(loader, 1)[0])
        merged = [rest[i % num_ranks][i // num_ranks] for i in range(len(whole) - 6)]
        assert merged == whole[6:]


@pytest.mark.parametrize(("num_batches", "num_ranks"), [(5, 2), (7, 3), (3, 4)])
def test_ranks_with_fewer_batches_end_their_epochs_too(num_batches, num_ranks):
    data, options = homogeneous_data(), {**OPTIONS, "input_nodes": torch.arange(32 * num_batches)}
    for rank in range(num_ranks):
        place = {"rank": rank, "num_ranks": num_ranks}
        loader = NeighborLoader(data, **options, **place)
        assert loader.state_dict()["epoch"] == 0
        whole = remaining(loader, 1)[0]
        state = loader.state_dict()
        assert (len(whole), state["epoch"], state["batch"]) == (len(loader), 1, 0)
        other = NeighborLoader(data, **options, **place)
        other.load_state_dict(state)
        assert remaining(other, 1) == remaining(loader, 1)


def test_a_pass_from_before_a_state_moves_nothing():
    loader = NeighborLoader(homogeneous_data(), **OPTIONS)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    next(iterator), next(iterator)
    loader.load_state_dict(state)
    next(iterator)
    assert loader.state_dict() == state
    list(iterator)
    assert loader.state_dict() == state


def test_other_ranks_that_do_not_meet_there():
    data = homogeneous_data()
    loader = NeighborLoader(data, **OPTIONS)
    next(iter(loader))
    with pytest.raises(StateError, match="batch 1 of the global order"):
        NeighborLoader(data, **OPTIONS, num_ranks=2).load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"num_neighbors": [3, 3]}, "num_neighbors"),
        ({"batch_size": 31}, "batch_size"),
        ({"seed": 6}, "seed"),
        ({"shuffle": False}, "order"),
        ({"replace": True}, "replace"),
        ({"disjoint": True}, "disjoint"),
        ({"subgraph_type": "induced"}, "subgraph_type"),
        ({"drop_last": True}, "drop_last"),
        ({"input_nodes": torch.arange(299)}, "input_nodes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_another_configuration_is_refused(change, name):
    data = homogeneous_data()
    state = NeighborLoader(data, **OPTIONS).state_dict()
    with pytest.raises(StateError, match=f"another configuration.*{name}: "):
        NeighborLoader(data, **{**OPTIONS, **change}).load_state_dict(state)


TIMED = {"time_attr": "time"}
CHANGES = {
    "num_neighbors": [3, 3], "input_nodes": torch.arange(299), "input_id": torch.arange(300) + 5, "replace": True, "disjoint": True,
    "subgraph_type": "induced", "time_attr": "time", "input_time": torch.arange(300) % 50, "temporal_strategy": "last",
    "temporal_rule": "<", "time_window": 9,
    "weight_attr": "edge_weight", "seed": 6, "order": "sequential", "sampler": list(range(200)), "batch_sampler": [[1, 2], [3]],
    "shared_draws": True, "walks": Walks(num=2, length=2), "layer_wise": True, "num_samples": [20, 9],
    "pad": True, "plan": "gnnlab", "non_stop": True,
    "filter_per_worker": True, "batch_size": 31, "shuffle": False, "drop_last": True, "num_workers": 2, "prefetch_factor": 1,
    "timeout": 60, "pin_memory": True, "batches_per_epoch": 3,
}  # fmt: skip
"""Argument -> another value. One that changes what the batches are is part of the state."""
BESIDE = {
    "input_time": TIMED, "temporal_strategy": TIMED, "temporal_rule": TIMED, "time_window": TIMED,
    "num_samples": {"subgraph_type": "induced", "num_neighbors": []},
    "order": {"shuffle": False}, "sampler": {"shuffle": False}, "batch_sampler": {"shuffle": False, "batch_size": 1},
}  # fmt: skip
"""What such an argument needs, or excludes."""
NOT_COMPARED = {
    "data", "is_sorted", "directed", "split", "neighbor_sampler",  # which graph, and other words for what is above
    "transform", "transform_sampler_output", "custom_cls", "worker_init_fn", "step", "tables",  # the user's own
    "rank", "num_ranks", "device", "shards",  # who makes which of the batches, and where
}  # fmt: skip


def test_every_argument_is_compared():
    taken = {*inspect.signature(NeighborLoader).parameters, *inspect.signature(read_options).parameters}
    missing = taken - {"loader", "kwargs", "others"} - CHANGES.keys() - NOT_COMPARED
    assert not missing, f"say in CHANGES another value of {missing}"


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_the_batches_changes_the_state(name):
    """And a batch that is made again is the same."""
    data = homogeneous_data()
    data.time, data.edge_weight = torch.arange(300) % 40, torch.rand(3000, generator=torch.Generator().manual_seed(0))
    options = {**OPTIONS, **BESIDE.get(name, {})}
    before, after = NeighborLoader(data, **options), NeighborLoader(data, **{**options, name: CHANGES[name]})
    state, batches = before.state_dict(), remaining(before, 2)
    if remaining(after, 2) != batches:
        with pytest.raises(StateError, match="another configuration"):
            NeighborLoader(data, **{**options, name: CHANGES[name]}).load_state_dict(state)
    for batch in after if "sampler" not in name else ():  # what that gave is not known afterwards
        after.verify(batch)


OF_LINKS = {"edge_label_time": torch.arange(300) % 40}
CHANGES_OF_LINKS = {
    **{name: value for name, value in CHANGES.items() if name not in ("input_nodes", "input_time")},
    "edge_label_index": torch.arange(600).reshape(2, 300) % 297, "edge_label": torch.arange(300), "edge_label_time": torch.arange(300) % 50,
    "neg_sampling": "triplet", "neg_sampling_ratio": 2.0, "exclude_positives": False, "exclude_links": "self",
}  # fmt: skip
BESIDE_LINKS = {
    "edge_label_time": TIMED | OF_LINKS, "exclude_positives": {"neg_sampling": "binary"}, "time_attr": OF_LINKS,
    **{name: TIMED | OF_LINKS for name in ("temporal_strategy", "temporal_rule", "time_window")},
}  # fmt: skip


def test_every_argument_of_links_is_compared():
    missing = inspect.signature(LinkNeighborLoader).parameters.keys() - {"kwargs"} - CHANGES_OF_LINKS.keys() - NOT_COMPARED
    assert not missing, f"say in CHANGES_OF_LINKS another value of {missing}"


@pytest.mark.parametrize("name", CHANGES_OF_LINKS)
def test_what_changes_batches_of_links_changes_the_state(name):
    data = homogeneous_data()
    data.time, data.edge_weight = torch.arange(300) % 40, torch.rand(3000, generator=torch.Generator().manual_seed(0))
    options = OPTIONS | {"edge_label_index": data.edge_index[:, :300]} | BESIDE.get(name, {}) | BESIDE_LINKS.get(name, {})
    changed = options | {name: CHANGES_OF_LINKS[name]}
    if name == "time_attr":  # without it there may be no times of links
        del options["edge_label_time"]
    before, after = LinkNeighborLoader(data, **options), LinkNeighborLoader(data, **changed)
    state = before.state_dict()
    if remaining(after, 2) != remaining(before, 2):
        with pytest.raises(StateError, match="another configuration"):
            LinkNeighborLoader(data, **changed).load_state_dict(state)


def test_another_graph_is_refused():
    state = NeighborLoader(homogeneous_data(), **OPTIONS).state_dict()
    with pytest.raises(StateError, match="edges of node/to/node"):
        NeighborLoader(homogeneous_data(num_edges=2999), **OPTIONS).load_state_dict(state)
    with pytest.raises(StateError, match="another configuration"):
        NeighborLoader(typed_data(), **{**OPTIONS, "input_nodes": "paper"}).load_state_dict(state)


@pytest.mark.parametrize(("state", "message"), [({}, "not a loader state"), (None, "not a loader state")])
def test_not_a_state(state, message):
    with pytest.raises(StateError, match=message):
        NeighborLoader(homogeneous_data(), **OPTIONS).load_state_dict(state)


def test_state_of_a_newer_version():
    loader = NeighborLoader(homogeneous_data(), **OPTIONS)
    with pytest.raises(StateError, match="version 99"):
        loader.load_state_dict({**loader.state_dict(), "version": 99})


@pytest.mark.parametrize("make", [lambda seed: RandomOrder(300, seed), lambda seed: LocalOrder([100 + seed, 200 - seed], 0)])
def test_another_order_is_refused(make):
    loaders = [NeighborLoader(homogeneous_data(), [2], batch_size=32, seed=0, order=make(seed)) for seed in (1, 2, 1)]
    state = loaders[0].state_dict()
    loaders[2].load_state_dict(state)
    with pytest.raises(StateError, match=r"order: '.*' then, '.*' now"):
        loaders[1].load_state_dict(state)


def test_other_ids_of_the_seeds_are_refused():
    plain, other = (NeighborLoader(homogeneous_data(), [2], seed=0, input_id=ids) for ids in (None, torch.arange(300) + 5))
    with pytest.raises(StateError, match=r"input_id: None then, '.*' now"):
        other.load_state_dict(plain.state_dict())


def test_a_mask_is_not_its_ids():
    """The same seeds, but `input_id` of a mask is the node's id."""
    mask = torch.arange(300) % 3 == 1
    of_mask, of_ids = (NeighborLoader(homogeneous_data(), [2], nodes, seed=0) for nodes in (mask, mask.nonzero().view(-1)))
    with pytest.raises(StateError, match="input_id: "):
        of_ids.load_state_dict(of_mask.state_dict())


@pytest.mark.parametrize("change", [{"batch": 999}, {"batch": 1.5}, {"batch": "x"}, {"batch": -1}, {"epoch": -1}, {"epoch": True}])
def test_a_position_that_is_none(change):
    loader = NeighborLoader(homogeneous_data(), [2], batch_size=32, shuffle=True, seed=0)
    with pytest.raises(StateError, match=r"take it from loader.state_dict\(\)"):
        loader.load_state_dict({**loader.state_dict(), **change})


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_does_not_end_the_epoch_of_a_state(num_workers):
    def transform(batch):
        if int(batch.input_id[0]) == 64:
            raise ValueError("one bad batch")
        return batch

    loader = NeighborLoader(homogeneous_data(), [2], batch_size=32, seed=0, transform=transform, num_workers=num_workers)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(ValueError, match="one bad batch"):
        next(batches)
    state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (0, 2)
    assert next(batches).input_id[0] == 96, "who goes on leaves it out"
    assert loader.state_dict()["batch"] == 4


def test_ranks_of_numpy():
    loader = NeighborLoader(homogeneous_data(), [2], batch_size=32, rank=np.int64(0), num_ranks=np.int64(2), drop_last=True)
    next(iter(loader))
    assert json.loads(json.dumps(loader.state_dict()))["batch"] == 2
