"""Frames of torch_frame as features: a batch has the rows of its nodes and edges, and all that looks at batches looks into frames."""

import copy
import pickle
import time

import pytest
import torch
from torch_geometric.data import Data

import penstock
from penstock.errors import InputError, MismatchError, NotSupportedError, UsageError
from penstock.feed.delivery import Delivery
from penstock.feed.tensors import tensors_of
from tests.feed.frames import Ragged, frame_of, homogeneous_frames, typed_frames
from tests.feed.inputs import digests, homogeneous_data

OPTIONS = dict(num_neighbors=[4, 3], batch_size=25, seed=3, shuffle=True)
WAYS = [
    {},
    dict(disjoint=True, num_workers=2),
    dict(subgraph_type="bidirectional"),
    dict(subgraph_type="induced", num_workers=2),
    dict(replace=True, batch_size=7),
]


def make_loader(data, **options):
    seeds = "train" if isinstance(data, Data) else ("paper", "train")
    return penstock.NeighborLoader(data, **{**OPTIONS, "input_nodes": seeds, **options})


def check(batch):
    """Every row of a frame is that of its node or edge, in every column. Returns how many frames were seen."""
    found = [
        (store[name], store.n_id if name == "tf" else store.e_id) for store in batch.stores for name in ("tf", "edge_tf") if name in store
    ]
    for frame, ids in found:
        for ours, expected in zip(tensors_of(frame), tensors_of(frame_of(ids)), strict=True):
            assert torch.equal(ours, expected)
    return len(found)


@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional")
@pytest.mark.parametrize("options", WAYS, ids=lambda options: " ".join(options))
@pytest.mark.parametrize("make", [homogeneous_frames, typed_frames])
def test_batches(make, options):
    loader = make_loader(make(), **options)
    for batch in loader:
        assert check(batch) >= 2
        loader.verify(batch)
        assert penstock.digest(pickle.loads(pickle.dumps(batch))) == penstock.digest(batch)


def test_links_times_and_states():
    data = typed_frames()
    for node_type in data.node_types:
        data[node_type].time = torch.arange(data[node_type].num_nodes) % 50
    how = dict(time_attr="time", edge_label_time=torch.full((900,), 30), neg_sampling="triplet", batch_size=90)
    loader = penstock.LinkNeighborLoader(data, [3, 2], edge_label_index=("author", "writes", "paper"), **how, num_workers=2)
    iterator = iter(loader)
    assert check(next(iterator)) == 3
    other = penstock.LinkNeighborLoader(data, [3, 2], edge_label_index=("author", "writes", "paper"), **how)
    other.load_state_dict(loader.state_dict())
    for batch in other:
        assert check(batch) == 3
        assert penstock.digest(batch) == penstock.digest(next(iterator))


@pytest.mark.parametrize("part", range(len(list(tensors_of(frame_of(torch.arange(3)))))))
def test_a_digest_is_over_all_of_a_frame(part):
    batch = next(iter(make_loader(homogeneous_frames())))
    before = penstock.digest(batch)
    list(tensors_of(batch.tf))[part][-1] += 1
    assert penstock.digest(batch) != before


def test_verify_names_the_row_of_a_frame():
    for name in ("tf", "edge_tf"):
        loader = make_loader(homogeneous_frames())
        batch = next(iter(loader))
        ids = batch.n_id if name == "tf" else batch.e_id
        wrong = ids.clone()
        wrong[5], wrong[9] = ids[9] + 1, ids[5] + 1
        batch[name] = frame_of(wrong)
        node = f", which is node {int(ids[5])}" if name == "tf" else ""
        with pytest.raises(MismatchError, match=f"^batch 0 of epoch 0: {name} differs in 2 of {len(ids)} rows, first in row 5{node}$"):
            loader.verify(batch)
    loader = make_loader(typed_frames())
    batch = next(iter(loader))
    batch["author"].tf = batch["author"].tf[torch.arange(3)]
    with pytest.raises(MismatchError, match=r"tf of author is Frame\( num_rows=3, \), not Frame\( num_rows=\d+, \)$"):
        loader.verify(batch)


def test_a_batch_on_a_device_has_its_frames_there():
    batch = next(iter(make_loader(typed_frames())))
    moved = Delivery(torch.device("meta")).move(copy.copy(batch))
    assert {tensor.device.type for tensor in tensors_of(moved)} == {"meta"}


def test_on_a_device(device):
    loader = make_loader(typed_frames(), device=device)
    for batch in loader:
        assert {tensor.device for tensor in tensors_of(batch)} == {batch["paper"].n_id.device}
        assert check(batch.cpu()) == 3
        loader.verify(batch)


@pytest.mark.deep  # needs torch-frame, which the default tests do not
def test_torch_frame():
    """What stands in for it here is like it."""
    torch_frame = pytest.importorskip("torch_frame")
    nested, embedding = torch_frame.data.MultiNestedTensor, torch_frame.data.MultiEmbeddingTensor
    data = homogeneous_data()
    words = nested.from_tensor_mat([[torch.full((i % 3,), i)] for i in range(data.num_nodes)])
    rows = torch.arange(data.num_nodes * 5.0).view(-1, 5)
    feats = {
        torch_frame.numerical: rows,
        torch_frame.multicategorical: words,
        torch_frame.embedding: embedding(data.num_nodes, 2, rows, torch.tensor([0, 2, 5])),
        torch_frame.text_tokenized: {"input_ids": words, "mask": words},
    }
    names = {kind: [f"{kind}{i}" for i in range(count)] for kind, count in zip(feats, (5, 1, 2, 1), strict=True)}
    data.tf = torch_frame.TensorFrame(feats, names, y=torch.arange(data.num_nodes))
    loader = make_loader(data, disjoint=True)
    for batch in loader:
        assert batch.tf == data.tf[batch.n_id]
        loader.verify(batch)
    assert len(list(tensors_of(batch.tf))) == 1 + 2 + 2 + 4 + 1
    batch.tf = batch.tf[torch.arange(len(batch.tf)).roll(1)]
    with pytest.raises(MismatchError, match=r"tf differs in \d+ of \d+ rows, first in row 0, which is node \d+$"):
        loader.verify(batch)


def test_learned_columns():
    data = homogeneous_frames()
    data.tf.feat_dict["numerical"].requires_grad_()
    with pytest.raises(UsageError, match="tf wants gradients"):
        next(iter(make_loader(data, num_workers=1)))
    next(iter(make_loader(data))).tf.feat_dict["numerical"].sum().backward()
    assert data.tf.feat_dict["numerical"].grad is not None


def test_a_frame_of_another_length():
    data = typed_frames()
    data["author"].num_nodes = 61
    with pytest.raises(InputError, match="author tf has 60 rows for 61 nodes or edges: give one row for each"):
        make_loader(data)


def test_a_frame_of_edges_of_another_length():
    """As in PyG, and said."""
    data = homogeneous_frames()
    data.edge_attr = data.edge_tf[torch.arange(2999)]
    with pytest.warns(UserWarning, match="edge_attr has 2999 entries for 3000 edges: as in PyG each batch gets all of it"):
        assert len(next(iter(make_loader(data))).edge_attr) == 2999


def test_a_frame_on_a_gpu():
    class OnGPU(torch.Tensor):
        is_cuda, device = True, torch.device("cuda:0")

    data = homogeneous_frames()
    data.tf.feat_dict["numerical"] = data.tf.feat_dict["numerical"].as_subclass(OnGPU)
    with pytest.raises(NotSupportedError, match=r"tf is on cuda:0: features on the GPU are not supported yet; use data.cpu\(\)"):
        make_loader(data)


def test_padding_is_refused():
    with pytest.raises(penstock.PenstockError, match="pad fills up plain tensors, and not a Frame"):
        next(iter(make_loader(homogeneous_frames(), pad=True)))


def test_a_store_has_no_frames(tmp_path, caplog):
    store = penstock.ingest(typed_frames(), tmp_path / "store")
    assert "author.tf, paper.tf, author__writes__paper.edge_tf" in caplog.text
    assert store.num_nodes["author"] == 60
    data = homogeneous_frames()
    data.x = data.tf
    with pytest.raises(InputError, match=r"Data.x is of type Frame; expected a tensor, one row for each of the nodes"):
        penstock.ingest(data, tmp_path / "other")


def change(data, what):
    """Replace or write a field, so that row i is another than before."""
    ids = torch.arange(data.num_nodes) + 1
    if what == "frame":
        data.tf = frame_of(ids)
    elif what == "column":
        data.tf.feat_dict["multicategorical"] = Ragged(ids, torch.arange(len(ids) + 1))
    elif what == "in place":
        data.tf.feat_dict["numerical"] += 1
    elif what == "strided":
        data.wide = data.wide + 1
    elif what == "sparse":
        data.sparse = 2 * data.sparse
    else:
        data.sparse *= 2


@pytest.mark.parametrize("what", ["frame", "column", "in place", "strided", "sparse", "sparse in place"])
def test_what_is_changed_between_epochs_without_a_stop(what):
    """Of fields that PyG selects rows of: batches that were made ahead are dropped."""
    data = homogeneous_frames()
    data.wide, data.sparse = torch.randn(2, data.num_nodes).t(), torch.randn(data.num_nodes, 2).to_sparse()
    loader = make_loader(data, non_stop=True, num_workers=2)
    list(loader)
    time.sleep(0.2)  # batches of the next one are there
    change(data, what)
    plain = make_loader(data)
    list(plain)
    assert digests(loader) == digests(plain)
