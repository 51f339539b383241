"""Seeds, fanouts, weights and devices that a loader refuses."""

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import penstock
from penstock.errors import BudgetError, InputError, MismatchError, NotSupportedError, StateError, UsageError
from penstock.feed import HGTLoader, NeighborLoader, Padding, RecordedStep
from penstock.feed.factored.spec import check_plan
from penstock.feed.setup import drawing
from penstock.kernels import _triton
from penstock.order import RandomOrder, SequentialOrder
from penstock.plan import make_plan
from penstock.store import Store, ingest
from penstock.store.device_memory import DeviceMemory
from tests.feed.inputs import typed_data
from tests.refusals import TRAIN, assert_in_table, refused, said
from tests.train.stores import make_data


@pytest.mark.parametrize(
    ("seeds", "error"),
    [
        (torch.tensor([1, 400]), penstock.errors.NodeIdError),
        (torch.tensor([-1]), penstock.errors.NodeIdError),
        (torch.tensor([1.5]), penstock.errors.UsageError),
        (torch.tensor([[1, 2]]), penstock.errors.UsageError),
        (torch.empty(0, dtype=torch.int64), penstock.errors.UsageError),
        ("paper", penstock.errors.PenstockError),
    ],
    ids=str,
)
def test_seeds(seeds, error, store):
    refused(error, NeighborLoader, Store.open(store), [2], input_nodes=seeds)


@pytest.mark.parametrize("ids", [["b"], ["b", "a"], ("a", "b"), ["a", "b", "c"], np.array(["b", "a"]), pa.array(["b"])], ids=str)
def test_ids_of_the_users_as_seeds(ids, tmp_path):
    (tmp_path / "named.csv").write_text("src,dst\na,b\nb,c\n")
    named = ingest(tmp_path / "named.csv", tmp_path / "named")
    assert "numbers of nodes in the store" in (line := refused(UsageError, NeighborLoader, named, [2], input_nodes=ids))
    assert ": store.find([...]) gives" in line
    for data in (make_data(), ingest(make_data(), tmp_path / "numbered")):
        assert "whole numbers or a mask, got" in refused(UsageError, NeighborLoader, data, [2], input_nodes=ids)
    edges = {"user__buys__item": "named.csv"}
    typed = ingest({"edges": {name: tmp_path / file for name, file in edges.items()}}, tmp_path / "typed")
    assert "store.find([...], 'user')" in refused(UsageError, NeighborLoader, typed, [2], input_nodes=("user", ids))


def test_ids_of_the_users_that_are_not_there(tmp_path):
    (tmp_path / "named.csv").write_text("src,dst\na,b\nb,c\n")
    named = ingest(tmp_path / "named.csv", tmp_path / "named")
    line = refused(penstock.errors.NodeIdError, NeighborLoader, named, [2], input_nodes=named.find(["b", "z"]))
    assert line.endswith("first is seeds[1] = -1; -1 is what store.find returns for unknown ids")
    for data, seeds in ((named, [0, -2]), (make_data(), [0, -1])):
        assert "store.find" not in refused(penstock.errors.NodeIdError, NeighborLoader, data, [2], input_nodes=seeds)


def test_duplicated_seeds_and_batches_larger_than_the_set_are_fine(store):
    (batch,) = NeighborLoader(Store.open(store), [2], input_nodes=np.array([3, 3]), batch_size=1000)
    assert batch.n_id[:2].tolist() == [3, 3]


@pytest.mark.parametrize("fanouts", [[], [0], [3, 0], [-2], [1] * 17], ids=str)
def test_fanouts(fanouts, store):
    refused(penstock.errors.UsageError, NeighborLoader, Store.open(store), fanouts)


def test_arguments(store):
    def load(error=UsageError, **options):
        return refused(error, NeighborLoader, make_data(), [2], **options)

    assert "got int" in refused(UsageError, penstock.open, 3)
    assert "got 'all'" in load(subgraph_type="all")
    load(order=RandomOrder(400, 0), sampler=[3, 4])
    assert "got 0" in load(batches_per_epoch=0)
    assert "which say what batches there are" in load(batches_per_epoch=3, batch_sampler=[[3, 4]])
    load(input_id=torch.rand(400))
    refused(UsageError, NeighborLoader(make_data(), [2], shuffle=True).sampler.set_epoch, -1)
    assert "names no seed" in load(sampler=[])
    odd = make_data()
    odd.names = np.array(["a"] * 400)
    assert "<U1" in refused(InputError, NeighborLoader, odd, [2])
    untyped = HeteroData()
    untyped["a"].x, untyped["a", "r", "b"].edge_index = torch.zeros(3, 1), torch.tensor([[0], [0]])
    assert "'b' is no node type" in refused(InputError, NeighborLoader, untyped, [2], "a")
    loader = NeighborLoader(make_data(), [2])
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        refused(NotSupportedError, copied, loader)
    for name in (
        "collate_fn",
        "filter_fn",
        "node_sampler",
        "link_sampler",
        "enable_cpu_affinity",
        "enable_multithreading",
        "enable_memory_log",
    ):
        assert f"NeighborLoader has no {name}: " in refused(AttributeError, getattr, loader, name)
        assert not hasattr(loader, name)
        assert not hasattr(NeighborLoader, name)
    for change in ({"batch": -1}, {"batch": 999}):
        refused(StateError, loader.load_state_dict, {**loader.state_dict(), **change})
    assert "a sampler of your own" in load(NotSupportedError, neighbor_sampler=object())
    assert "got int" in load(plan=3)
    assert "cache=0.1" in refused(UsageError, penstock.Plan, policy="fifo", cache=0.1)
    assert "got float" in load(order=0.5)
    for rank in (0.5, 2, -1, "0"):
        assert "num_ranks=2" in load(rank=rank, num_ranks=2)
    for timeout in ("1", -1, float("nan")):
        assert f"got {timeout!r}" in load(timeout=timeout)
    assert "got int" in load(generator=3)
    for name in ("transform", "transform_sampler_output", "custom_cls", "step"):
        assert name in load(**{name: 3})
    assert "'node'" in load(tables={"node": 3})
    assert "got 3" in load(input_nodes=torch.arange(4), input_id=torch.arange(3))
    assert "got int" in refused(UsageError, penstock.layers, 3)
    batch = next(iter(NeighborLoader(make_data(), [2])))
    batch.edge_index = batch.edge_index[:, 1:]
    refused(UsageError, penstock.layers, batch)


class Longer(list):
    def __len__(self):
        return 1


def test_padding():
    data = typed_data()

    def load(error=UsageError, **options):
        return refused(error, NeighborLoader, data, [2, 2], input_nodes=("paper", "train"), batch_size=25, **options)

    assert "got str" in load(pad="yes")
    load(pad=True, subgraph_type="induced")
    load(pad=True, transform_sampler_output=lambda output: output)
    load(pad=True, sampler=range(10))
    nodes, edges = dict.fromkeys(data.node_types, (9, 9, 9)), dict.fromkeys(data.edge_types, (9, 9))
    assert "has sizes for author, and the graph has author, paper, venue" in load(pad=Padding({"author": (9, 9, 9)}, edges))
    for venues in ((9, 9), 9, (9, 9, 1.5), (9, 9, 0)):
        assert "num_nodes of venue must be 3 numbers from 1" in load(pad=Padding(nodes | {"venue": venues}, edges))
    assert "num_edges of paper/by/author" in load(pad=Padding(nodes, edges | {("paper", "by", "author"): (9, 0)}))
    data["paper"].rare = torch.eye(500).to_sparse()
    with pytest.raises(NotSupportedError) as caught:
        next(iter(NeighborLoader(data, [2], input_nodes=("paper", "train"), batch_size=25, pad=True)))
    assert_in_table(str(caught.value))
    del data["paper"].rare
    data["paper"].pad_node_mask = torch.ones(500)
    load(pad=True)
    stores = MyFeatureStore(), MyGraphStore()
    stores[1].put_edge_index(torch.tensor([[0, 1], [1, 0]]), edge_type=None, layout="coo", size=(2, 2))
    stores[0].put_tensor(torch.ones(2, 1), group_name=None, attr_name="x", index=None)
    refused(NotSupportedError, NeighborLoader, stores, [2], input_nodes=torch.tensor([0]), pad=True)


def test_steps_that_are_recorded():
    refused(UsageError, RecordedStep, "step")
    refused(UsageError, RecordedStep, print, warm_up=0)
    refused(UsageError, RecordedStep, print, max_graphs="8")
    reason = "it may not wait for the device (item(), print), and its optimizer is made with capturable=True"
    for message in (
        f"the step cannot be recorded: operation not permitted; {reason}",
        "a step that is recorded returns tensors, in tuples, lists or dicts, numbers or None; got a Data",
        "steps are not recorded, for adj_t of a batch is a Tensor that cannot be copied: take it out",
        "batches have 64 sizes so far, and a step is recorded for one that comes again: give the loader pad=True",
    ):  # tests/feed/test_recorded.py, on a device
        assert_in_table(message)


def test_a_state_of_another_sequence(store):
    def load(sampler):
        return NeighborLoader(store, [2], "train", sampler=sampler)

    loader = load([0, 1, 2])
    next(iter(loader))
    other = load([0, 2, 1])
    other.load_state_dict(loader.state_dict())
    refused(StateError, next, iter(other))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_positions_of_a_sampler(num_workers, store):
    def first(**options):
        loader = NeighborLoader(store, [2], "train", num_workers=num_workers, **options)
        return refused(UsageError, lambda: next(iter(loader)))

    there = Store.open(store).split("train").size
    assert f"position {there} of the seeds" in first(sampler=[0, there], batch_size=2)
    assert "position -1 of" in first(batch_sampler=[[0, -1]])
    assert "got 0.5" in first(sampler=[0.5])
    assert "ended after 0" in first(batch_sampler=Longer())
    for one in (dict(sampler=5), dict(batch_sampler=5), dict(batch_sampler=[1, 2])):
        assert "a batch_sampler a list of them for each batch; got " in refused(
            UsageError, lambda one=one: list(NeighborLoader(store, [2], **one))
        )
    loader = NeighborLoader(store, [2], "train", batch_sampler=[torch.tensor([1, 0]), [torch.tensor(2)], [], np.array([3])])
    assert [batch.input_id.tolist() for batch in loader] == [[1, 0], [2], [], [3]]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("given", [[1, 2], None, np.array([0.5]), np.array([[1, 2]])], ids=str)
def test_positions_of_an_order(given, num_workers, store):
    class Wrong(SequentialOrder):
        name = "mine"

        def batch(self, epoch, index, batch_size):
            return given

    loader = NeighborLoader(store, [2], "train", order=Wrong(Store.open(store).split("train").size), num_workers=num_workers)
    assert "int64[n]; mine gave " in refused(UsageError, lambda: next(iter(loader)))


def test_data_that_pyg_takes(store):
    """And gives wrong batches of, or none."""
    data = make_data()
    refused(UsageError, NeighborLoader, data, [2], (torch.arange(400) < 9).to(torch.uint8))
    refused(UsageError, NeighborLoader(store, [2], "train"), [0.5])
    learned = make_data()
    learned.x.requires_grad_()
    assert "x wants gradients" in refused(UsageError, next, iter(NeighborLoader(learned, [2], num_workers=1)))
    data.adj_t = torch.eye(400).to_sparse()
    assert "delete it" in refused(NotSupportedError, NeighborLoader, data, [2])
    del data.edge_index
    assert "to_edge_index" in refused(NotSupportedError, NeighborLoader, data, [2])
    edge_index = make_data().edge_index
    refused(InputError, NeighborLoader, Data(x=torch.ones(400, 1), edge_index=edge_index.numpy()), [2])
    refused(InputError, NeighborLoader, Data(edge_index=torch.tensor([[0], [1 << 40]]), num_nodes=2**40 + 1), [2], [0])
    for x in (compressed(torch.Tensor.to_sparse_csr), compressed(torch.Tensor.to_sparse_csc), sparse.eye(400).tocsr()):
        refused(NotSupportedError, NeighborLoader, Data(x=x, edge_index=edge_index, num_nodes=400), [2])
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.zeros(3, 1), group_name=None, attr_name="x", index=None)
    for row, indptr in (([0, 1], [0, 1, 1, 3]), ([0, 3], [0, 1, 1, 2])):
        graph.put_edge_index((torch.tensor(row), torch.tensor(indptr)), edge_type=None, layout="csc", size=(3, 3))
        refused(InputError, NeighborLoader, (features, graph), [2], torch.arange(3))


def compressed(convert):
    """Features as torch has them in beta, of which it warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return convert(torch.eye(400))


def pair_of(ends, **attributes):
    """A feature store of PyG's, and a graph store that has these edges."""
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.arange(50.0).view(50, 1), group_name=None, attr_name="x", index=None)
    graph.put_edge_index(ends, **{"edge_type": None, "layout": "coo", "size": (50, 50)} | attributes)
    return features, graph


@pytest.mark.parametrize("wrong", [10**9, 50, -1])
@pytest.mark.parametrize("end", [0, 1])
def test_lists_of_a_store_of_the_users(wrong, end):
    """PyG's conversion writes past its memory for the first, and the process may go on."""
    ends = torch.randint(0, 50, (2, 400))
    refused(UsageError, NeighborLoader, pair_of(tuple(ends), size=None), [2], torch.arange(3))
    refused(InputError, NeighborLoader, pair_of((ends[0].view(2, 200), ends[1])), [2], torch.arange(3))
    refused(InputError, NeighborLoader, pair_of((ends[0], ends[1].float())), [2], torch.arange(3))
    refused(UsageError, NeighborLoader, pair_of(tuple(ends), is_sorted=True), [2], torch.arange(3))
    ends[end, 7] = wrong
    refused(InputError, NeighborLoader, pair_of(tuple(ends)), [2], torch.arange(3))


def test_rows_of_a_store_of_the_users():
    few = pair_of((torch.tensor([0, 1]), torch.tensor([1, 2])), size=(60, 60))
    refused(InputError, next, iter(NeighborLoader(few, [2], [55, 3], batch_size=2)))


def test_seeds_for_a_store_of_the_users():
    """As of other data: PyG takes a mask of NumPy's for nodes 0 and 1."""
    stores = pair_of(tuple(torch.randint(0, 50, (2, 400))))
    mask = np.arange(50) >= 40
    for seeds in (mask, mask.tolist(), torch.from_numpy(mask), list(range(40, 50)), np.arange(40, 50)):
        assert NeighborLoader(stores, [2], seeds, batch_size=10)(range(10)).n_id[:10].tolist() == list(range(40, 50))
    for seeds in (None, mask.astype(np.uint8), mask[1:], np.array([5.5]), "zz", slice(3), {1, 2}, [None], [2**63]):
        refused(UsageError, NeighborLoader, stores, [2], seeds)
    refused(UsageError, NeighborLoader, stores, [2], torch.arange(5), input_id=torch.arange(4))
    refused(UsageError, NeighborLoader, stores, [2], torch.arange(2), input_id=["a", "b"])


def changed(output, **fields):
    """A sample with other values."""
    for name, value in fields.items():
        setattr(output, name, value)
    return output


@pytest.mark.parametrize(
    ("transform", "error"),
    [
        (lambda output: None, "must return a SamplerOutput, got NoneType"),
        (lambda output: changed(output, node=torch.cat([output.node, torch.tensor([10**12])])), "nodes of 'node' from 0 to"),
        (lambda output: changed(output, node=output.node - 1), "nodes of 'node' from -1"),
        (lambda output: changed(output, edge=output.edge + 400), "edges node/to/node from"),
        (lambda output: changed(output, node=output.node.float()), "no int64 vector"),
    ],
)
def test_what_a_transform_of_samples_returns(transform, error):
    data = Data(x=torch.ones(50, 2), edge_index=torch.randint(0, 50, (2, 400)))
    loader = NeighborLoader(data, [3], torch.arange(50), transform_sampler_output=transform)
    assert error in refused(UsageError, next, iter(loader))


def test_a_transform_of_samples_that_returns_a_type_of_its_own():
    def transform(output):
        output.node["editor"] = torch.arange(3)
        return output

    data = typed_data()
    assert "'editor'" in refused(UsageError, next, iter(NeighborLoader(data, [2], "paper", transform_sampler_output=transform)))


def test_a_plan_for_features_of_a_store_of_the_users():
    features, graph, seeds = MyFeatureStore(), MyGraphStore(), torch.arange(3)
    graph.put_edge_index((torch.tensor([0, 1]), torch.tensor([0, 1, 1, 2])), edge_type=None, layout="csc", size=(3, 3))
    assert len(list(NeighborLoader((features, graph), [2], seeds, plan="bgl"))) == 3  # no features, nothing to keep
    features.put_tensor(torch.zeros(3, 1), group_name=None, attr_name="x", index=None)
    refused(UsageError, NeighborLoader, (features, graph), [2], seeds, plan="bgl")
    data = Data(x=torch.eye(3).to_sparse(), edge_index=torch.tensor([[0, 1], [1, 2]]))
    refused(UsageError, NeighborLoader, data, [2], seeds, plan="bgl")


def test_fields_that_are_changed():
    """A plan has read them by then. Without one the next pass takes what is there."""
    changes = {
        "x": lambda data: data.x.add_(1),
        "y": lambda data: data.update({"y": data.y.clone()}),
        "train_mask": lambda data: data.update({"train_mask": None}),
    }
    for name, change in changes.items():
        data = make_data()
        kept, plain = (NeighborLoader(data, [2], torch.arange(9), plan=plan, num_workers=1) for plan in ("bgl", None))
        list(kept)
        change(data)
        assert refused(UsageError, next, iter(kept)).startswith(f"{name} was changed after")
        refused(UsageError, kept, [0])
        assert list(plain)
    data = typed_data()
    kept = NeighborLoader(data, [2], "paper", plan="bgl")
    data["author"].x = data["author"].x + 1
    assert refused(UsageError, next, iter(kept)).startswith("author x was changed after")


def test_an_iterator_that_another_thread_asks(store):
    def ask(batch):
        with ThreadPoolExecutor(1) as other:
            batch.said = other.submit(refused, UsageError, next, iterator).result()
        return batch

    iterator = iter(NeighborLoader(store, [2], "train", num_workers=1, transform=ask))
    assert "another thread asks this iterator" in next(iterator).said


def test_labels_of_another_length(recwarn):
    data = make_data()
    NeighborLoader(data, [2])
    assert not recwarn.list
    data.y = data.y[:-1]
    NeighborLoader(data, [2])
    data.edge_attr = torch.ones(3, 2)
    NeighborLoader(data, [2])
    for warning, name in zip(recwarn.list, ("y", "y", "edge_attr"), strict=True):
        assert str(warning.message).startswith(f"{name} has")
        assert_in_table(str(warning.message))
        assert warning.filename == __file__


def test_more_neighbours_than_a_draw_reaches(monkeypatch):
    """Of 2**32 + 2**31 the last third was never drawn."""
    monkeypatch.setattr("penstock.rng.MAX_DEGREE", 5)
    data = HeteroData({"a": {"num_nodes": 9}, ("a", "to", "a"): {"edge_index": torch.stack([torch.arange(6), torch.zeros(6).long()])}})
    for fanout in (2, 100):
        loader = NeighborLoader(data, [fanout], "a", replace=True)
        assert "edges a/to/a: a node has 6 neighbours" in refused(NotSupportedError, next, iter(loader))
    monkeypatch.setattr("penstock.kernels.sample_shared.cpu.MAX_DEGREE", 5)
    loader = NeighborLoader(data, [2], "a", shared_draws=True)
    assert "edges a/to/a: a node has 6 neighbours" in refused(NotSupportedError, next, iter(loader))
    (batch,) = NeighborLoader(data, [-1], ("a", [0]))
    assert batch["a"].num_nodes == 6


def test_fanouts_of_unequal_length():
    uneven = {edge_type: [2] * (1 + i) for i, edge_type in enumerate(typed_data().edge_types)}
    refused(penstock.errors.UsageError, NeighborLoader, typed_data(), uneven, input_nodes="paper")
    wrong = refused(penstock.errors.UsageError, NeighborLoader, typed_data(), {("a", "b", "c"): [1]}, input_nodes="paper")
    assert "('a', 'b', 'c') is not an edge type" in wrong
    assert "none given for" in refused(penstock.errors.UsageError, NeighborLoader, typed_data(), {}, input_nodes="paper")


def test_weights(store, tmp_path, capfd):
    data = make_data()
    data.edge_weight = torch.ones(data.edge_index.shape[1])
    for name, error in (("age", penstock.errors.MissingFieldError), ("edge_index", penstock.errors.MissingFieldError)):
        refused(error, NeighborLoader, data, [2], weight_attr=name)
    data.edge_weight[5] = -1
    refused(penstock.errors.InputError, NeighborLoader, data, [2], weight_attr="edge_weight")
    ingest(data, tmp_path / "negative", memory="4GiB")
    data.edge_weight = torch.ones(data.edge_index.shape[1], 2)
    refused(penstock.errors.InputError, NeighborLoader, data, [2], weight_attr="edge_weight")
    assert "to weigh them by; they have none" in said(capfd, "train", store, *TRAIN, "--weight", "age")
    assert "weight is -1 at edge" in said(capfd, "train", tmp_path / "negative", *TRAIN, "--weight", "weight")
    assert "weight is -1 at edge" in said(capfd, "study", "cache", tmp_path / "negative", "--weight", "edge_weight")
    by_inclusion = ("--weight", "weight", "--policies", "inclusion", "--batch-size", "32")
    ingest(data_with_weights(), tmp_path / "weighted", memory="4GiB")
    assert "take the policy presample" in said(capfd, "study", "cache", tmp_path / "weighted", *by_inclusion)


def test_shared_draws(store, tmp_path, capfd):
    data = data_with_weights()
    data.age = torch.arange(400)

    def load(error=UsageError, shared_draws=True, **options):
        return refused(error, NeighborLoader, data, [2], shared_draws=shared_draws, **options)

    for value in (-1, 1.0, "1", None):
        assert f"got {value!r}" in load(shared_draws=value)
    assert "leave out replace=True" in load(replace=True)
    assert "disjoint trees" in load(disjoint=True)
    assert "disjoint trees" in load(time_attr="age")
    assert "by weight" in load(NotSupportedError, weight_attr="edge_weight")
    ingest(data, tmp_path / "weighted", memory="4GiB")
    given = said(capfd, "train", tmp_path / "weighted", *TRAIN, "--weight", "weight", "--shared-draws", "2")
    assert "--shared-draws draws uniformly" in given
    assert "--shared-draws must be at least 0" in said(capfd, "train", store, *TRAIN, "--shared-draws", "-1")


def test_epochs_without_a_stop():
    def load(**options):
        return refused(UsageError, NeighborLoader, make_data(), [2], **options)

    for value in (0, -1, 2.5, "yes", None):
        assert f"got {value!r}" in load(non_stop=value)
    for value in (np.True_, np.int64(3)):
        assert NeighborLoader(make_data(), [2], non_stop=value).engine.non_stop == value
    refused(NotSupportedError, check_plan, penstock.Plan(), {"non_stop": True})
    assert "a sampler says what is in it" in load(non_stop=True, sampler=[1, 2])


def test_verify():
    data = make_data()
    loader = NeighborLoader(data, [2], batch_size=-(-data.num_nodes // 2))
    assert "none was: iterate" in refused(UsageError, loader.verify, data)
    first, second = loader
    assert "of epoch 0: " in refused(MismatchError, loader.verify, first)
    second.x[2] = 7
    assert "differs in 1 of" in refused(MismatchError, loader.verify, second)
    given = NeighborLoader(data, [2], sampler=[1, 2])
    assert "batch of your own sampler again" in refused(UsageError, given.verify, next(iter(given)))


def test_walks():
    walks, data, typed = penstock.Walks(num=4, length=2), data_with_weights(), typed_data()
    data.age = torch.arange(400)

    def load(error=UsageError, data=data, **options):
        return refused(error, NeighborLoader, data, [2], **({"walks": walks} | options))

    for settings in ({"num": 0, "length": 2}, {"num": 2, "length": 1.5}):
        assert "must be a whole number from 1" in refused(UsageError, penstock.Walks, **settings)
    assert "got 1" in refused(UsageError, penstock.Walks, num=2, length=2, end=1)
    assert penstock.Walks(num=2, length=2, end=np.float32(0.25)).of_all == 1 << 30
    for path in (5, [1], "abc", (each for each in [("a", "b", "c")])):
        assert "a list of edge types" in refused(UsageError, penstock.Walks, num=2, length=2, path=path)
    assert "at most 1,048,576" in refused(UsageError, penstock.Walks, num=1 << 20, length=2)
    assert "got int" in load(walks=4)
    assert "leave out replace=True" in load(replace=True)
    assert "leave out shared_draws" in load(shared_draws=True)
    assert "leave out layer_wise" in load(layer_wise=True)
    assert "directional" in load(subgraph_type="induced")
    assert "SamplerOutput" in load(NotSupportedError, subgraph_type="bidirectional")
    assert "SamplerOutput" in load(NotSupportedError, transform_sampler_output=lambda output: output)
    assert "leave out weight_attr" in load(NotSupportedError, weight_attr="edge_weight")
    assert "leave out weight_attr" in load(NotSupportedError, time_attr="age")
    assert "pad does not go with walks" in load(NotSupportedError, pad=True)
    assert "walks or layers take the policy presample" in load(NotSupportedError, plan=penstock.Plan(policy="inclusion", cache="10%"))
    by, writes, prints = ("paper", "by", "author"), ("author", "writes", "paper"), ("venue", "prints", "paper")
    assert "need a path" in load(data=typed, input_nodes="paper")
    for path, said_of in (
        ([], "it is empty"),
        ([("a", "b", "c")], "is no"),
        ([writes, prints], "a walk is at 'author'"),
        ([prints], "'venue'"),
    ):
        assert said_of in load(data=typed, input_nodes="paper", walks=penstock.Walks(num=4, length=2, path=path))
    assert "seeds are of author" in load(data=typed, input_nodes="author", walks=penstock.Walks(num=4, length=2, path=[writes, by]))


def test_layer_wise(store, tmp_path, capfd):
    data = data_with_weights()
    data.age = torch.arange(400)

    def load(error=UsageError, layer_wise=True, **options):
        return refused(error, NeighborLoader, data, [20], layer_wise=layer_wise, **options)

    for value in (2400, None, "True"):
        assert f"got {value!r}: num_neighbors says how many nodes" in load(layer_wise=value)
    assert "leave out replace=True" in load(replace=True)
    assert "shared_draws for each" in load(shared_draws=True)
    assert "disjoint trees" in load(disjoint=True)
    assert "disjoint trees" in load(time_attr="age")
    assert "by weight" in load(NotSupportedError, weight_attr="edge_weight")
    ingest(data, tmp_path / "weighted", memory="4GiB")
    given = said(capfd, "train", tmp_path / "weighted", *TRAIN, "--weight", "weight", "--layer-wise")
    assert "--layer-wise chooses nodes by their numbers of edges" in given
    assert "and --shared-draws for each" in said(capfd, "train", store, *TRAIN, "--shared-draws", "2", "--layer-wise")
    plan = penstock.Plan(policy="inclusion", cache="10%")
    assert "take the policy presample" in load(NotSupportedError, plan=plan)


def test_num_samples():
    data = data_with_weights()
    data.age = torch.arange(400)

    def load(error=UsageError, num_samples=(20,), **options):
        return refused(error, HGTLoader, data, num_samples, None, **options)

    assert "'papers' is not a node type of this graph; the node types are ['node']" in load(num_samples={"papers": [1]})
    assert "none given for 'node'" in load(num_samples={})
    assert "got lists of [0] elements" in load(num_samples=[])
    assert "must lie in [-1, 1048576]" in load(num_samples=[5, -2])
    assert "list of whole numbers" in load(num_samples=[2.5])
    assert "got None" in load(num_samples=None)
    for options in ({"replace": True}, {"disjoint": True}, {"shared_draws": True}, {"layer_wise": True}):
        assert f"cannot be combined with {next(iter(options))}" in load(**options)
    assert "not by weight or time" in load(NotSupportedError, weight_attr="edge_weight")
    for options in ({"time_attr": "age"}, {"subgraph_type": "directional"}, {"num_neighbors": [3]}):
        given = {"num_neighbors": [], "subgraph_type": "induced"} | options
        assert "num_neighbors=[], subgraph_type='induced', and no time_attr" in refused(
            UsageError, NeighborLoader, data, num_samples=[3], **given
        )
    plan = penstock.Plan(policy="inclusion", cache="10%")
    assert "take the policy presample" in load(NotSupportedError, plan=plan)


def test_times(tmp_path, monkeypatch):
    data = make_data()
    num_edges = data.edge_index.shape[1]
    data.edge_time, data.edge_weight, data.age = torch.arange(num_edges), torch.ones(num_edges), torch.arange(400)

    def load(error=UsageError, name="age", source=data, **options):
        return refused(error, NeighborLoader, source, [2], time_attr=name, **options)

    assert "with times" in load(penstock.errors.MissingFieldError, "nope")
    assert "give input_time" in load(name="edge_time")
    assert "got int64 [3]" in load(input_time=torch.arange(3))
    assert "beyond int64" in load(input_time=np.full(400, 2**64 - 1, np.uint64))
    assert "is no array of numbers" in load(penstock.errors.InputError, input_time=[[1], [2, 3]])
    assert "are dense" in load(penstock.errors.InputError, input_time=torch.zeros(400, dtype=torch.int64).to_sparse())
    assert "got list" in load(name=["age"])
    assert "input_time needs time_attr" in load(name=None, input_time=torch.arange(400))
    assert "got 'first'" in load(temporal_strategy="first")
    assert "got '>'" in load(temporal_rule=">")
    assert "from 0 to 2**63 - 1, in the unit of the times, or None (any earlier time); got -1" in load(time_window=-1)
    assert "from 1 to 2**63 - 1, in the unit of the times, or None (any earlier time); got 0" in load(time_window=0, temporal_rule="<")
    for window in (1 << 63, 2.0, True):
        assert f"got {window!r}" in load(time_window=window)
    assert "time_window needs time_attr" in load(name=None, time_window=5)
    assert "would hold later edges" in load(subgraph_type="induced")
    assert "by time and by weight at once" in load(NotSupportedError, weight_attr="edge_weight")
    data.half, data.stamp = torch.rand(400).bfloat16(), torch.arange(400).double()
    assert "count seconds, or smaller units" in load(penstock.errors.InputError, "stamp")
    load(name="edge_time", input_time=np.full(400, np.iinfo(np.int64).min), temporal_rule="<")
    store = ingest(data, tmp_path / "store", memory="4GiB")
    assert "half is bfloat16: times are whole numbers" in load(penstock.errors.InputError, "half", store)
    typed = HeteroData({"a": {"num_nodes": 3, "when": torch.arange(3)}, ("a", "to", "a"): {"edge_index": torch.tensor([[0], [1]])}})
    typed["a", "to", "a"].when = torch.arange(1)
    assert "both nodes and edges have it" in load(name="when", source=typed, input_nodes="a")
    features, graph = MyFeatureStore(), MyGraphStore()
    features.put_tensor(torch.zeros(7, dtype=torch.int64), group_name=("a", "by", "b"), attr_name="when", index=None)
    graph.put_edge_index(torch.tensor([[0], [1]]), edge_type=("a", "to", "a"), layout="coo", size=(2, 2))
    seeds = {"input_nodes": ("a", torch.tensor([0])), "input_time": [0]}
    assert "the graph has no such edges" in load(penstock.errors.InputError, "when", (features, graph), **seeds)
    monkeypatch.setattr("penstock.store.budget.free_in_container", lambda: 1 << 10)
    assert "leave time_attr out" in load(penstock.errors.BudgetError)


def data_with_weights():
    data = make_data()
    data.edge_weight = torch.ones(data.edge_index.shape[1])
    return data


def test_devices(store, monkeypatch):
    def load(**options):
        return refused(UsageError, NeighborLoader, store, [2], "train", **options)

    assert "got 'gpu'" in load(device="gpu")
    assert "'mps'" in load(device="mps")
    assert "give device='cuda'" in load(plan=penstock.Plan(device_policy="fifo"))
    shared = make_plan("ducati", host_memory="4GiB")
    assert "divides device memory" in refused(NotSupportedError, NeighborLoader, store, [2], "train", plan=shared, device="cuda")
    small = make_plan("gnnlab", host_memory="64MiB")
    assert "in memory (features='disk')" in refused(BudgetError, NeighborLoader, store, [2], "train", plan=small, device="cuda")
    both = penstock.Plan(policy="fifo", cache="9 rows", device_policy="fifo", device_cache="9 rows")
    assert "device_policy alone" in load(plan=both, device="cuda")
    assert "which is not given" in refused(UsageError, penstock.Plan, device_policy="same")
    assert "looks ahead, and" in refused(UsageError, penstock.Plan, policy="belady", device_policy="fifo", device_cache="9 rows")
    assert "first batch on" in refused(UsageError, penstock.Plan, policy="degree", device_policy="degree")
    assert "choose one of random" in refused(UsageError, penstock.Plan, device_cache="10%")
    assert "give device_cache" in refused(UsageError, penstock.Plan, device_policy="belady")
    assert "pinned, host; got 'far'" in refused(UsageError, penstock.Plan, device_topology="far")
    on_device = penstock.Plan(device_topology="device")
    assert "neighbour lists read by a device" in load(plan=on_device)
    assert "layer_wise=True is done" in load(plan=on_device, device="cuda", layer_wise=True)
    assert "leave neighbor_policy out" in load(plan=replace(on_device, neighbor_policy="ratio"), device="cuda")
    monkeypatch.setattr(drawing, "look_at_device_memory", lambda device: DeviceMemory(1 << 20, 1 << 10, 0))
    assert "1 KiB that cpu has free" in load(plan=on_device, device="cuda")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert torch.__version__ in load(device="cuda")
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "torch finds none" in load(device="cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert "has 1 of them" in load(device="cuda:1")
    monkeypatch.setattr(_triton, "is_installed", lambda: False)
    assert "pip install" in load(device="cuda")
