"""Fields of nodes and edges that are rare: of no bytes, of types that NumPy lacks, of names that are taken."""

import copy

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader

import penstock
from penstock.errors import InputError, UsageError
from penstock.feed import NeighborLoader
from penstock.plan import Plan
from penstock.store import ingest
from tests.feed.inputs import homogeneous_data, typed_data
from tests.fuzz.oracle import Replay


def test_trees_have_the_name_that_pyg_gives_them():
    """Whatever the user has under that name, as `Batch.from_data_list` does."""
    data = homogeneous_data()
    data.batch = torch.arange(300) // 100
    options = dict(input_nodes=torch.tensor([250, 3, 4]), batch_size=3, seed=0)
    (batch,) = NeighborLoader(data, [2], disjoint=True, **options)
    assert batch.batch[:3].tolist() == [0, 1, 2]
    source, target = batch.edge_index
    assert torch.equal(batch.batch[source], batch.batch[target])
    (batch,) = NeighborLoader(data, [2], **options)
    assert torch.equal(batch.batch, data.batch[batch.n_id])


@pytest.mark.parametrize(
    "plan", [None, "gnnlab", "ginex", "bgl", Plan(features="disk"), Plan(map_threads=2), Plan(features="memory")], ids=str
)
@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_rows_of_no_bytes(plan, shape, tmp_path):
    data = homogeneous_data()
    data.nothing = torch.zeros(300, *shape)
    for batch in NeighborLoader(ingest(data, tmp_path / "store"), [2], batch_size=50, plan=plan):
        assert batch.nothing.shape == (batch.num_nodes, *shape)
        assert torch.equal(batch.x, data.x[batch.n_id])


@pytest.mark.parametrize(
    "rows",
    [
        torch.randn(300, 3, dtype=torch.complex64).conj(),
        torch.randn(300, 4).to(torch.float8_e4m3fn),
        torch.randn(300, 2, dtype=torch.cfloat).imag,
    ],
    ids=["conjugated", "float8", "imaginary"],
)
def test_rows_that_numpy_does_not_know(rows):
    data = homogeneous_data()
    data.rare = rows
    for batch in NeighborLoader(data, [2], batch_size=100):
        assert torch.equal(batch.rare.to(torch.complex64), rows.to(torch.complex64)[batch.n_id])


def test_a_field_of_a_name_that_is_taken():
    data = homogeneous_data()
    data.row_ptr = torch.arange(300)
    with pytest.raises(InputError, match=r"row_ptr is what a batch calls .* rename this field"):
        next(iter(NeighborLoader(data, [2])))


def test_a_list_for_each_node():
    data = homogeneous_data()
    data.words = ["a"] * 300
    with pytest.raises(InputError, match="words is a list of one entry for each node or edge: give a tensor or an array"):
        NeighborLoader(data, [2])


def test_edges_that_a_transform_drops_have_no_rows():
    def drop(output):
        for part in (output.row, output.col, output.edge, output.num_sampled_edges):
            del part["author", "writes", "paper"]
        return output

    batch = next(iter(NeighborLoader(typed_data(), [2], input_nodes="paper", batch_size=9, transform_sampler_output=drop)))
    assert batch["author", "writes", "paper"].edge_attr.tolist() == []


NAMES_OF_NODES = ("n_id", "input_id", "batch_size", "num_sampled_nodes")
NAMES_OF_EDGES = ("e_id", "num_sampled_edges")


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("make", [homogeneous_data, typed_data])
def test_fields_with_names_that_a_batch_has(make, disjoint):
    """PyG keeps the user's `n_id` and `e_id`, cut to the batch; of the other names it sets its own, on the types that it sets them on."""
    data, drawn = make(), []
    sizes = [(store, NAMES_OF_NODES, store.num_nodes) for store in data.node_stores]
    for store, names, num in sizes + [(store, NAMES_OF_EDGES, store.num_edges) for store in data.edge_stores]:
        for i, name in enumerate(names, 1):
            store[name] = torch.arange(num) + 10_000 * i
    for store in data.edge_stores:  # whose samplers number edges in this order
        store.edge_index = store.edge_index[:, store.edge_index[1].argsort()]
    nodes = None if make is homogeneous_data else "paper"
    draw = {"disjoint": disjoint, "transform_sampler_output": lambda output: drawn.append(output) or output}
    batch = NeighborLoader(data, [3, 3], input_nodes=nodes, **draw)(range(30))
    theirs = NodeLoader(data, Replay(None), nodes).filter_fn(drawn[0])
    for store, expected in zip(batch.stores, theirs.stores, strict=True):
        assert {*store} - {"row_ptr"} == {*expected}
        for name, value in expected.items():
            assert torch.equal(store[name], value) if isinstance(value, torch.Tensor) else store[name] == value, name


def test_attributes_of_a_typed_graph_itself():
    data = typed_data()
    data.title, data.scale = "of a graph", torch.ones(3)
    batch = next(iter(NeighborLoader(data, [2], input_nodes="paper")))
    assert batch.title == "of a graph"
    assert torch.equal(batch.scale, torch.ones(3))


def test_a_graph_attribute_of_a_name_that_is_taken():
    data = homogeneous_data()
    data.row_ptr = torch.arange(data.num_nodes + 1)
    with pytest.raises(InputError, match=r"row_ptr is what a batch calls"):
        NeighborLoader(data, [2])


def test_edges_between_nodes_that_are_not_there():
    data = HeteroData()
    data["a"].x, data["a", "r", "b"].edge_index = torch.randn(6, 2), torch.tensor([[0, 1], [0, 1]])
    with pytest.raises(InputError, match=r"edges a/r/b: 'b' is no node type here; give data\['b'\].num_nodes"):
        NeighborLoader(data, [2], input_nodes="a")


@pytest.mark.parametrize("dtype", [">f4", "U3", "datetime64[s]", object])
def test_arrays_that_torch_does_not_have(dtype):
    data = homogeneous_data()
    data.odd = np.zeros(data.num_nodes, dtype)
    with pytest.raises(InputError, match=r"odd is an array of .*, which torch does not have"):
        NeighborLoader(data, [2])


def test_a_digest_of_sparse_attributes():
    data = homogeneous_data()
    seen = []
    for values in (torch.eye(data.num_nodes), 2 * torch.eye(data.num_nodes)):
        data.s = values.to_sparse()
        seen.append(penstock.digest(next(iter(NeighborLoader(data, [2], seed=0)))))
    assert len({*seen, penstock.digest(next(iter(NeighborLoader(homogeneous_data(), [2], seed=0))))}) == 3


@pytest.mark.filterwarnings("ignore")
def test_quantized_rows():
    data = homogeneous_data()
    data.q = torch.quantize_per_tensor(torch.randn(data.num_nodes, 3), 0.1, 0, torch.qint8)
    batch = next(iter(NeighborLoader(data, [2], seed=0)))
    assert torch.equal(batch.q.int_repr(), data.q.int_repr()[batch.n_id])
    assert penstock.digest(batch)


def test_ids_of_the_seeds_of_a_store(tmp_path):
    store = ingest(typed_data(), tmp_path / "store")
    mask = torch.zeros(store.num_nodes["paper"], dtype=torch.bool)
    mask[5:9] = True
    for given in (torch.arange(mask.numel()), torch.arange(3)):
        with pytest.raises(UsageError, match=f"for each of the 4 input nodes, got {len(given)}"):
            NeighborLoader(store, [2], input_nodes=("paper", mask), input_id=given)
    with pytest.raises(UsageError, match=r"input_id must be a vector of whole numbers, got torch.float32 \[4\]"):
        NeighborLoader(store, [2], input_nodes=("paper", mask), input_id=torch.rand(4))
    batch = next(iter(NeighborLoader(store, [2], input_nodes=["paper", mask], input_id=torch.arange(4) + 70, batch_size=4)))
    assert batch["paper"].input_id.tolist() == [70, 71, 72, 73]
    for nodes, message in (("poem", "'poem' is not a node type"), (("paper", []), "input_nodes is empty")):
        with pytest.raises(UsageError, match=message):
            NeighborLoader(store, [2], input_nodes=nodes)


def test_a_digest_of_an_element_with_a_stride():
    data = homogeneous_data()
    data.scale = torch.rand(2)[::2]
    assert penstock.digest(data) == penstock.digest(data.clone())


def test_a_digest_of_conjugates():
    rows = torch.tensor([1 + 2j, 3 - 4j])
    assert penstock.digest(Data(scale=rows.conj())) == penstock.digest(Data(scale=rows.conj().resolve_conj()))
    assert penstock.digest(Data(scale=rows.conj().imag)) == penstock.digest(Data(scale=-rows.imag))


def test_a_digest_of_dictionaries_and_tuples():
    """Of the tensors in them."""
    data = homogeneous_data()
    data.more = {"a": torch.zeros(3), "b": (torch.ones(2), 1)}
    before = penstock.digest(data)
    data.more["b"][0][1] = 2
    assert penstock.digest(data) != before


@pytest.mark.parametrize("value", [torch.zeros(2000), np.zeros(2000), {"a": np.zeros(2000)}], ids=["tensor", "array", "dictionary"])
def test_a_digest_of_lists(value):
    """Of all of what is in them: its text shows few elements, and few digits."""
    changed = copy.deepcopy(value)
    (changed["a"] if isinstance(changed, dict) else changed)[1000] = 1e-9
    assert penstock.digest(Data(parts=[1, value])) != penstock.digest(Data(parts=[1, changed]))
    assert penstock.digest(Data(parts=[1, value])) == penstock.digest(Data(parts=[1, copy.deepcopy(value)]))
    assert penstock.digest(Data(parts=[np.int64(1), value])) != penstock.digest(Data(parts=[np.int64(2), value]))


def test_a_type_called_as_the_only_one_of_other_graphs_is():
    data = HeteroData()
    data["node"].x, data["tag"].x = torch.arange(20.0)[:, None], torch.arange(5.0)[:, None]
    data["tag", "of", "node"].edge_index = torch.stack([torch.arange(20) % 5, torch.arange(20)])
    data["node", "to", "node"].edge_index = torch.stack([torch.arange(20), torch.arange(20).roll(1)])
    batch = next(iter(NeighborLoader(data, [2, 2], ("node", torch.tensor([3, 7])), batch_size=2)))
    assert batch["node"].n_id[:2].tolist() == [3, 7]
    assert batch["node"].batch_size == 2
    assert batch["node"].x.squeeze().tolist() == batch["node"].n_id.tolist()
    assert batch["node", "to", "node"].edge_index.shape[1] > 0
