"""Fields of nodes and edges that are rare: of no bytes, of types that NumPy lacks, of names that are taken."""

import pytest
import torch

from penstock.errors import InputError
from penstock.feed import NeighborLoader
from penstock.plan import Plan
from penstock.store import ingest
from tests.feed.inputs import homogeneous_data, typed_data


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
        iter(NeighborLoader(data, [2]))


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
