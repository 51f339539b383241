"""NeighborLoader: what a batch holds, whatever it is made from and by however many threads."""

import threading

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.sampler.base import NumNeighbors

import penstock
from penstock.errors import NodeIdError, NotSupportedError, UsageError
from penstock.feed import NeighborLoader
from penstock.feed.pipeline import OrderedAhead
from penstock.gather import RowTable
from penstock.order import LocalOrder
from penstock.store import ingest
from penstock.threads import Threads
from tests.feed.inputs import check_homogeneous, check_typed, digests, homogeneous_data, typed_data


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"disjoint": True}, {"subgraph_type": "induced"}], ids=str)
@pytest.mark.parametrize("is_sorted", [False, True])
def test_homogeneous_batches(num_workers, options, is_sorted):
    data = homogeneous_data(is_sorted=is_sorted)
    loader = NeighborLoader(data, [4, 3], batch_size=32, num_workers=num_workers, shuffle=True, seed=0, is_sorted=is_sorted, **options)
    seen = []
    for batch in loader:
        check_homogeneous(batch, data)
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
        seen += batch.input_id.tolist()
        if "disjoint" in options:
            assert torch.equal(batch.batch[: batch.batch_size], torch.arange(batch.batch_size))
    assert sorted(seen) == list(range(300))
    assert len(loader) == 10


@pytest.mark.parametrize("num_workers", [0, 2])
def test_typed_batches(num_workers):
    data = typed_data()
    loader = NeighborLoader(data, [3, 2], input_nodes=("paper", "train"), batch_size=50, num_workers=num_workers, seed=0)
    assert len(loader) == 4
    for batch in loader:
        check_typed(batch, data)
        assert batch["paper"].batch_size == 50
        assert batch["venue"].num_nodes == batch["venue"].n_id.numel()
        assert torch.equal(batch["paper"].n_id[:50], batch["paper"].input_id)


def test_same_batches_from_every_thread_count_and_look_ahead():
    data = homogeneous_data()
    options = dict(num_neighbors=[5, 5], batch_size=16, shuffle=True, seed=3)

    def epochs(**more):
        loader = NeighborLoader(data, **options, **more)
        return [digests(loader) for _ in range(2)]

    expected = epochs()
    assert expected[0] != expected[1]
    for more in ({"num_workers": 1}, {"num_workers": 4}, {"num_workers": 2, "prefetch_factor": 7}):
        assert epochs(**more) == expected


def test_ranks_share_one_order():
    data = homogeneous_data()
    options = dict(num_neighbors=[5], batch_size=16, shuffle=True, seed=3)
    alone = digests(NeighborLoader(data, **options))
    for num_ranks in (2, 3, 5):
        loaders = [NeighborLoader(data, **options, rank=rank, num_ranks=num_ranks, num_workers=rank % 2) for rank in range(num_ranks)]
        per_rank = [digests(loader) for loader in loaders]
        assert [len(each) for each in per_rank] == [len(loader) for loader in loaders]
        for index, digest in enumerate(alone):
            assert per_rank[index % num_ranks][index // num_ranks] == digest


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_ranks_of_equally_many_batches(num_ranks, caplog):
    """What trains in step waits for ever for a rank that has fewer."""
    data, options = homogeneous_data(), dict(num_neighbors=[5], batch_size=16, num_ranks=num_ranks)
    loaders = [NeighborLoader(data, **options, rank=rank, drop_last=True) for rank in range(num_ranks)]
    assert not caplog.records
    assert [len(list(loader)) for loader in loaders] == [len(loader) for loader in loaders] == [18 // num_ranks] * num_ranks
    assert all(loader.state_dict()["epoch"] == 1 for loader in loaders)
    for rank in range(num_ranks):
        NeighborLoader(data, **options, rank=rank)
    (record,) = caplog.records  # 19 batches
    assert f"19 batches for {num_ranks} ranks: some have one more." in record.getMessage()
    with pytest.raises(UsageError, match=r"drop_last leaves no batch: 300 seeds, batch_size 16, 19 ranks"):
        NeighborLoader(data, **{**options, "num_ranks": 19}, drop_last=True)


def test_a_seed_changes_everything_and_follows_torch():
    data = homogeneous_data()
    first = [penstock.digest(b) for b in NeighborLoader(data, [3], batch_size=64, shuffle=True, seed=1)]
    second = [penstock.digest(b) for b in NeighborLoader(data, [3], batch_size=64, shuffle=True, seed=2)]
    assert not set(first) & set(second)
    torch.manual_seed(1)
    assert [penstock.digest(b) for b in NeighborLoader(data, [3], batch_size=64, shuffle=True)] == first
    generator = torch.Generator().manual_seed(1)
    assert [penstock.digest(b) for b in NeighborLoader(data, [3], batch_size=64, shuffle=True, generator=generator)] == first


def test_repeated_seeds_stay_and_are_all_expanded():
    data = homogeneous_data()
    seeds = torch.tensor([7, 7, 9])
    (batch,) = NeighborLoader(data, [-1], input_nodes=seeds, batch_size=3)
    assert batch.n_id[:3].tolist() == [7, 7, 9]
    assert batch.batch_size == 3
    check_homogeneous(batch, data)
    per_seed = [sorted(data.edge_index[0][data.edge_index[1] == seed].tolist()) for seed in seeds]
    assert [sorted(batch.n_id[batch.edge_index[0][batch.edge_index[1] == i]].tolist()) for i in range(3)] == per_seed


def test_input_id_is_the_position_and_node_ids_stand_in_n_id():
    data = homogeneous_data()
    seeds = torch.tensor([50, 40, 30])
    (batch,) = NeighborLoader(data, [2], input_nodes=seeds, batch_size=8)
    assert batch.input_id.tolist() == [0, 1, 2]
    assert batch.n_id[:3].tolist() == [50, 40, 30]
    (batch,) = NeighborLoader(data, [2], input_nodes=seeds, batch_size=8, input_id=torch.tensor([5, 6, 7]))
    assert batch.input_id.tolist() == [5, 6, 7]
    first = next(iter(NeighborLoader(data, [2], input_nodes="train", batch_size=4)))
    assert first.input_id.tolist() == [0, 1, 2, 3]
    assert first.n_id[:4].tolist() == [0, 3, 6, 9]
    first = next(iter(NeighborLoader(data, [2], input_nodes=data.train_mask, batch_size=4)))
    assert first.input_id.tolist() == [0, 3, 6, 9]  # PyG's rule for masks


def test_full_neighbourhoods_are_the_graph():
    data = homogeneous_data()
    (batch,) = NeighborLoader(data, [-1], batch_size=300)
    assert torch.equal(batch.n_id, torch.arange(300))
    assert sorted(batch.e_id.tolist()) == list(range(3000))


def test_row_ptr_groups_the_edges():
    data = homogeneous_data()
    for batch in NeighborLoader(data, [4, 3], batch_size=50):
        counts = batch.row_ptr.diff()
        assert torch.equal(torch.arange(counts.numel()).repeat_interleave(counts), batch.edge_index[1])
        assert counts.numel() == sum(batch.num_sampled_nodes[:2])


def test_call_makes_one_batch():
    data = homogeneous_data()
    loader = NeighborLoader(data, [4], batch_size=8, seed=0)
    batch = loader([5, 6])
    check_homogeneous(batch, data)
    assert batch.n_id[:2].tolist() == [5, 6]
    again = NeighborLoader(data, [4], batch_size=8, seed=0)(torch.tensor([5, 6]))
    assert penstock.digest(again) == penstock.digest(batch)
    many = [penstock.digest(loader(range(8), batch=i)) for i in range(20)]
    assert len(set(many)) > 1
    assert penstock.digest(loader(range(8), epoch=0, batch=0)) == penstock.digest(next(iter(loader)))


def test_numbers_may_be_those_of_numpy():
    numbers = dict(batch_size=np.int64(32), num_workers=np.int32(2), prefetch_factor=np.int64(2), seed=np.uint64(5))
    given, plain = (NeighborLoader(homogeneous_data(), [np.int64(4)], **each) for each in (numbers, dict(batch_size=32, seed=5)))
    assert [penstock.digest(batch) for batch in given] == [penstock.digest(batch) for batch in plain]
    assert {type(each) for each in (given.batch_size, given.num_workers, given.seed)} == {int}


def test_counts_of_before_stay_what_they_were():
    loader = NeighborLoader(homogeneous_data(), [4], batch_size=32)
    before = loader.stats()
    next(iter(loader))
    assert (before.num_batches, before.stage_s, loader.stats().num_batches) == (0, {}, 1)


def test_what_scripts_ask_a_loader():
    loader = NeighborLoader(homogeneous_data(), [2], torch.arange(70), batch_size=32, drop_last=True)
    assert (len(loader.dataset), loader.drop_last, len(loader)) == (70, True, 2)


@pytest.mark.filterwarnings("ignore:.* has .* entries for")
def test_a_part_of_another_length():
    data = homogeneous_data()
    data.train_mask = data.train_mask[:20]
    with pytest.raises(UsageError, match=r"a mask has an entry for each of the 300 nodes, this one is of shape \[20\]"):
        NeighborLoader(data, [2], "train")


def test_a_list_may_be_a_pair():
    data, ids = typed_data(), torch.tensor([5, 1])
    (batch,) = NeighborLoader(data, [2], input_nodes=["paper", ids], batch_size=2)
    assert batch["paper"].n_id[:2].tolist() == [5, 1]


def test_samplers_and_orders_of_the_user():
    data = homogeneous_data()
    loader = NeighborLoader(data, [2], batch_size=7, sampler=range(299, -1, -1))
    assert torch.cat([batch.input_id for batch in loader]).tolist() == list(range(299, -1, -1))
    loader = NeighborLoader(data, [2], batch_sampler=[[1, 2], [3], [4, 5, 6]])
    assert [batch.input_id.tolist() for batch in loader] == [[1, 2], [3], [4, 5, 6]]
    loader = NeighborLoader(data, [2], batch_size=50, order=LocalOrder([100, 200], seed=0))
    parts = [set((batch.input_id >= 100).tolist()) for batch in loader]
    assert parts[:2] == [{False}, {True}]


def test_num_neighbors_forms():
    data = typed_data()
    by_type = {edge_type: [2, 1] for edge_type in data.edge_types}
    found = [
        digests(NeighborLoader(data, form, input_nodes="author", batch_size=30, seed=0)) for form in ([2, 1], by_type, NumNeighbors([2, 1]))
    ]
    assert found[0] == found[1] == found[2]


def test_isolated_nodes_and_graphs_without_edges():
    data = Data(x=torch.arange(5.0)[:, None], edge_index=torch.empty(2, 0, dtype=torch.int64))
    for batch in NeighborLoader(data, [3, 3], batch_size=2):
        assert batch.edge_index.shape == (2, 0)
        assert torch.equal(batch.x[:, 0].long(), batch.n_id)
    data = Data(num_nodes=4, edge_index=torch.tensor([[0], [1]]))
    (batch,) = NeighborLoader(data, [-1], input_nodes=torch.tensor([3]), batch_size=1)
    assert batch.n_id.tolist() == [3]


def test_features_are_read_again_each_epoch():
    data = homogeneous_data()
    loader = NeighborLoader(data, [2], batch_size=300)
    next(iter(loader))
    data.x = data.x + 1
    batch = next(iter(loader))
    assert torch.equal(batch.x, data.x[batch.n_id])


def test_gradients_flow_through_features_that_want_them():
    data = Data(x=torch.randn(20, 3, requires_grad=True), edge_index=torch.randint(0, 20, (2, 60)))
    batch = next(iter(NeighborLoader(data, [2], batch_size=20)))
    batch.x.sum().backward()
    assert data.x.grad.sum() == 60


def test_arrays_of_any_kind():
    data = Data(num_nodes=30, edge_index=torch.randint(0, 30, (2, 90)))
    data.array = np.arange(60.0).reshape(30, 2)
    data.flags = torch.arange(30) % 2 == 0
    data.strided = torch.arange(60.0).reshape(2, 30).t()
    data.small = torch.arange(30, dtype=torch.float16)
    for batch in NeighborLoader(data, [2], batch_size=10, num_workers=2):
        for name in ("flags", "strided", "small"):
            assert torch.equal(batch[name], data[name][batch.n_id]), name
        assert torch.equal(batch.array, torch.from_numpy(data.array)[batch.n_id])


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("in_workers", [False, True])
def test_transforms(num_workers, in_workers):
    data = homogeneous_data()
    order = []

    def transform(batch):
        batch.doubled = 2 * batch.x
        order.append(int(batch.input_id[0]))
        return batch

    def transform_output(output):
        assert output.metadata[0].numel() == 25
        output.node = output.node.clone()
        return output

    loader = NeighborLoader(
        data,
        [3, 3],
        batch_size=25,
        num_workers=num_workers,
        transform=transform,
        transform_sampler_output=transform_output,
        filter_per_worker=in_workers,
    )
    for batch in loader:
        check_homogeneous(batch, data)
        assert torch.equal(batch.doubled, 2 * batch.x)
    assert sorted(order) == list(range(0, 300, 25))
    if not in_workers:
        assert order == sorted(order)


@pytest.mark.parametrize("is_typed", [False, True])
def test_each_seed_has_an_induced_subgraph_of_its_own(is_typed):
    """As in ShaDow-GNN: the nodes that are drawn for it, and all edges among them."""
    data, seeds = (typed_data(), "paper") if is_typed else (homogeneous_data(), None)
    options = dict(input_nodes=seeds, batch_size=20, disjoint=True, seed=3)
    drawn = NeighborLoader(data, [4, 3], **options)
    for batch, of_draws in zip(NeighborLoader(data, [4, 3], **options, subgraph_type="induced"), drawn, strict=True):
        for node_type in data.node_types if is_typed else [None]:
            ours, theirs = (each if node_type is None else each[node_type] for each in (batch, of_draws))
            assert torch.equal(ours.n_id, theirs.n_id)
            assert torch.equal(ours.batch, theirs.batch)
        for edge_type in data.edge_types if is_typed else [None]:
            edges, ends = (batch, [batch, batch]) if edge_type is None else (batch[edge_type], [batch[edge_type[end]] for end in (0, 2)])
            sources, targets = (end.batch[edges.edge_index[i]] for i, end in enumerate(ends))
            assert torch.equal(sources, targets)
            for tree in range(20):
                num_nodes = [of_type.num_nodes for of_type in ([data, data] if edge_type is None else [data[t] for t in edge_type[::2]])]
                inside = [torch.zeros(count, dtype=torch.bool) for count in num_nodes]
                for each, end in zip(inside, ends, strict=True):
                    each[end.n_id[end.batch == tree]] = True
                (source, target) = (data if edge_type is None else data[edge_type]).edge_index
                assert torch.equal(edges.e_id[targets == tree].sort().values, (inside[0][source] & inside[1][target]).nonzero().view(-1))


def test_bidirectional_has_both_directions():
    data = homogeneous_data()
    for batch in NeighborLoader(data, [3, 3], batch_size=50, subgraph_type="bidirectional"):
        edges = set(map(tuple, batch.edge_index.t().tolist()))
        assert edges == {(target, source) for source, target in edges}
        assert torch.equal(batch.x, data.x[batch.n_id])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_neighbors": []}, UsageError, "needs 1 to 16 hops"),
        ({"num_neighbors": [5, 0]}, UsageError, "0 at hop 1"),
        ({"num_neighbors": [-2]}, UsageError, "must lie in"),
        ({"input_nodes": torch.tensor([3, 300])}, NodeIdError, "first is seeds\\[1\\] = 300"),
        ({"input_nodes": torch.tensor([-1])}, NodeIdError, "first is seeds\\[0\\] = -1"),
        ({"input_nodes": torch.tensor([0.5])}, UsageError, "vector of node ids"),
        ({"input_nodes": torch.empty(0, dtype=torch.int64)}, UsageError, "input_nodes is empty"),
        ({"input_nodes": "val"}, penstock.errors.MissingFieldError, "no val_mask"),
        ({"batch_size": 0}, UsageError, "batch_size must be"),
        ({"batch_size": 400, "drop_last": True}, UsageError, "drop_last leaves no batch"),
        ({"num_workers": -1}, UsageError, "num_workers must lie in"),
        ({"num_workers": 1000}, UsageError, "num_workers must lie in"),
        ({"prefetch_factor": 0}, UsageError, "prefetch_factor"),
        ({"batches_per_epoch": 0}, UsageError, "batches_per_epoch must be a whole number from 1, got 0"),
        ({"batches_per_epoch": 2.0}, UsageError, "batches_per_epoch must be a whole number from 1, got 2.0"),
        ({"batches_per_epoch": 2, "sampler": range(300)}, UsageError, "excludes sampler and batch_sampler, which say what"),
        ({"seed": -1}, UsageError, "seed must be"),
        ({"seed": 1.5}, UsageError, "seed must be"),
        ({"rank": 2, "num_ranks": 2}, UsageError, "rank must be a whole number"),
        ({"colour": "blue"}, UsageError, "unknown argument 'colour' for NeighborLoader$"),
        ({"num_worker": 2}, UsageError, "unknown argument 'num_worker' for NeighborLoader: did you mean 'num_workers'"),
        ({"shuffle": True, "sampler": range(300)}, UsageError, "sampler excludes shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 4}, UsageError, "batch_sampler excludes"),
        ({"weight_attr": "w"}, penstock.errors.MissingFieldError, "edges have no field 'w' to weigh them by"),
        ({"neighbor_sampler": object()}, NotSupportedError, "neighbor_sampler"),
        ({"split": "a"}, UsageError, "split names a split of a store"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        NeighborLoader(homogeneous_data(), **{"num_neighbors": [2], **arguments})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 7], [1, 2]])), "1 of 2 source ids lie outside"),
        (Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1], [-1, 2]])), "destination ids lie outside"),
        (Data(x=torch.zeros(3, 1), edge_index=torch.zeros(3, 2, dtype=torch.int64)), "must be int64 or int32"),
        (Data(x=torch.zeros(3, 1), edge_index=torch.zeros(2, 2)), "must be int64 or int32"),
        ("nothing", "does not exist"),
        (42, "data must be"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_data(data, message):
    with pytest.raises(penstock.PenstockError, match=message):
        NeighborLoader(data, [2])


def test_directed_false_is_induced_and_warns():
    with pytest.warns(UserWarning, match="deprecated"):
        loader = NeighborLoader(homogeneous_data(), [2], directed=False)
    assert "num_sampled_edges" not in loader([0])


@pytest.mark.parametrize("row_bytes", [4, 100])
@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
def test_rows_gathered_together_equal_the_array(monkeypatch, row_bytes, num_threads):
    monkeypatch.setattr("penstock.gather.rows.LEAST_BYTES", 64)
    random = np.random.default_rng()
    array = random.integers(0, 256, (50, row_bytes)).astype(np.uint8)
    for num_ids in (0, 1, 7, 1000):
        ids = random.integers(0, 50, num_ids)
        assert np.array_equal(RowTable(array, "x").gather(ids, np.empty, num_threads), array[ids])


@pytest.mark.parametrize(("num_threads", "is_shared"), [(1, False), (3, True)])
def test_without_workers_as_many_threads_copy_as_torch_has(monkeypatch, num_threads, is_shared):
    monkeypatch.setattr("penstock.gather.rows.LEAST_BYTES", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    asked, data = [], homogeneous_data()
    monkeypatch.setattr("penstock.gather.rows._threads", lambda count: asked.append(count) or Threads(count, "copying"))
    for batch in NeighborLoader(data, [5, 5], batch_size=100, seed=0):
        check_homogeneous(batch, data)
        assert set(asked) == ({num_threads - 1} if is_shared else set())  # of each batch, not only of the first
        asked.clear()


def test_the_first_batch_is_made_alone():
    begun, may_end = [], threading.Event()

    def make(index):
        begun.append(index)
        return index if may_end.wait(30) else None

    ahead = OrderedAhead(make, iter(range(6)), Threads(3, "made"), 3, is_first_alone=True)
    seen: list[int] = []
    threading.Timer(0.3, lambda: (seen.extend(begun), may_end.set())).start()
    assert next(ahead) == 0
    assert seen == [0]
    assert list(ahead) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("make", [homogeneous_data, typed_data])
def test_a_default_device_of_the_user_does_not_matter(make, num_workers):
    """`torch.set_default_device`: batches are where the loader was told to put them."""
    data = make()
    options = dict(num_neighbors=[4, 3], batch_size=25, shuffle=True, seed=3, num_workers=num_workers)
    options["input_nodes"] = data.train_mask if isinstance(data, Data) else ("paper", np.arange(100))
    expected = digests(penstock.NeighborLoader(data, **options))
    with torch.device("meta"):
        batches = list(penstock.NeighborLoader(data, **options))
    assert digests(batches) == expected


def test_a_mask_is_a_mask_whatever_holds_it(tmp_path):
    """An array or a list of bools is not a list of the ids 0 and 1."""
    data = homogeneous_data()
    store = ingest(homogeneous_data(), tmp_path / "store", memory="4GiB")
    mask, options = data.train_mask.numpy(), dict(num_neighbors=[4, 3], batch_size=25, seed=3)
    for source in (data, store):
        expected = digests(penstock.NeighborLoader(source, input_nodes=data.train_mask, **options))
        for given in (mask, mask.tolist()):
            assert digests(penstock.NeighborLoader(source, input_nodes=given, **options)) == expected
        for wrong in (mask[:10], np.append(mask, True)):
            with pytest.raises(UsageError, match=rf"a mask has an entry for each of the 300 nodes, this one is of shape \[{wrong.size}\]"):
                penstock.NeighborLoader(source, input_nodes=wrong, **options)


@pytest.mark.parametrize(
    ("make", "input_nodes", "message"),
    [
        (typed_data, "train", r"'train' is not a node type; the node types are .*; for a part write \('\w+', 'train'\)"),
        (typed_data, ("x", None), "'x' is not a node type; the node types are"),
        (typed_data, ("paper", "trian"), "'trian' is no part of a split, which are train, val, test"),
        (typed_data, torch.ones(10, dtype=torch.bool), "must name a node type of a heterogeneous graph: one of"),
        (homogeneous_data, "trian", "input_nodes='trian' is no part of a split: give one of train, val, test, node ids or a mask"),
        (homogeneous_data, ("paper", None), "names a node type, and the graph has but one"),
    ],
)
def test_seeds_that_are_not_there(make, input_nodes, message):
    """The data stays what it was: PyG makes a node type of a name that it is asked for."""
    data = make()
    before = list(data.node_types) if make is typed_data else None
    with pytest.raises(UsageError, match=message):
        NeighborLoader(data, [4, 3], input_nodes)
    assert before is None or list(data.node_types) == before


@pytest.mark.parametrize("num_neighbors", [10, "15,10", [1.9], None])
def test_fanouts_that_are_not_whole_numbers(num_neighbors):
    with pytest.raises(UsageError, match=r"num_neighbors is a list of whole numbers, one per hop, for instance \[15, 10\]; got"):
        NeighborLoader(homogeneous_data(), num_neighbors)


def test_edges_that_are_said_to_be_sorted_and_are_not():
    with pytest.raises(UsageError, match=r"is_sorted=True, but edge_index is not sorted by destination: leave is_sorted out"):
        NeighborLoader(homogeneous_data(is_sorted=False), [4, 3], is_sorted=True)


def test_a_batch_by_its_place():
    loader = NeighborLoader(homogeneous_data(), [3], batch_size=40, shuffle=True, seed=0, rank=1, num_ranks=2)
    batches = [penstock.digest(batch) for epoch in range(2) for batch in loader]
    assert batches == [penstock.digest(loader(epoch=epoch, batch=index)) for epoch in range(2) for index in range(1, 8, 2)]
    for index in (-1, 8, 1.5):
        with pytest.raises(UsageError, match=r"batch must be a whole number in \[0, 8\), the batches of an epoch, got"):
            loader(batch=index)
    beside = loader.beside(torch.arange(90))
    assert penstock.digest(list(beside)[-1]) == penstock.digest(beside(batch=2))
    with pytest.raises(UsageError, match="what a sampler gives is not known"):
        NeighborLoader(homogeneous_data(), [3], sampler=[1, 2])(batch=0)


def test_workers_are_not_set_up(caplog):
    NeighborLoader(homogeneous_data(), [3], worker_init_fn=print)
    assert "worker_init_fn is not called" in caplog.text
