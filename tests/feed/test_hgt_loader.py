"""`HGTLoader`: PyG's arguments, and what PyG's own tests ask of its batches, which here need no torch-sparse."""

import inspect

import pytest
import torch
from torch_geometric.loader import HGTLoader as PyGHGTLoader
from torch_geometric.nn import HGTConv
from torch_geometric.utils import k_hop_subgraph

import penstock
from penstock import HGTLoader
from tests.feed.inputs import check_typed, homogeneous_data, typed_data


def test_arguments_are_those_of_pyg():
    ours, theirs = (inspect.signature(each).parameters for each in (HGTLoader, PyGHGTLoader))
    assert list(ours) == list(theirs)
    assert [each.default for each in ours.values()] == [each.default for each in theirs.values()]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches(num_workers):
    data = typed_data()
    loader = HGTLoader(data, [4] * 3, "paper", batch_size=20, num_workers=num_workers)
    assert len(loader) == 25
    assert str(loader) == "HGTLoader()"
    for index, batch in enumerate(loader):
        check_typed(batch, data)
        paper = batch["paper"]
        assert paper.batch_size == 20
        assert paper.n_id[:20].tolist() == paper.input_id.tolist() == list(range(20 * index, 20 * index + 20))
        assert (batch["author"].num_nodes, paper.num_nodes) == (12, 28), "no edges lead from papers to papers: none in the first hop"
        assert 0 < batch["venue"].num_nodes <= 9
        assert "num_sampled_nodes" not in paper


def test_numbers_by_node_type():
    data = typed_data()
    given = {"author": [5, 0], "paper": [3, 2], "venue": [0, -1]}
    batch = next(iter(HGTLoader(data, given, ("paper", torch.arange(8)), batch_size=8)))
    assert (batch["author"].num_nodes, batch["paper"].num_nodes) == (5, 10)
    assert batch["venue"].num_nodes > 1


def test_whole_neighbourhoods():
    """With room for all candidates, the nodes of so many hops, and all edges among them."""
    data, seeds = homogeneous_data(), torch.arange(5)
    nodes, _, _, mask = k_hop_subgraph(seeds, 2, data.edge_index, num_nodes=data.num_nodes)
    for num_samples in ([-1, -1], [300, 300]):
        batch = next(iter(HGTLoader(data, num_samples, seeds, batch_size=5)))
        assert batch.n_id.sort().values.tolist() == nodes.tolist()
        assert batch.e_id.sort().values.tolist() == mask.nonzero().view(-1).tolist()


def test_a_model_and_its_trimmed_twin():
    data = typed_data()
    torch.manual_seed(0)
    conv = HGTConv({"author": 1, "paper": 1, "venue": 2}, 8, data.metadata(), heads=2)
    batch = next(iter(HGTLoader(data, [20, 20], "paper", batch_size=32, shuffle=True)))
    given = {t: torch.rand(batch[t].num_nodes, 1 + (t == "venue")) for t in batch.node_types}
    expected = conv(given, batch.edge_index_dict)["paper"]
    torch.testing.assert_close(penstock.trim(conv)(given, batch.edge_index_dict)["paper"], expected)


def test_other_seeds_beside():
    data = typed_data()
    loader = HGTLoader(data, [4, 4], ("paper", torch.arange(100)), batch_size=20, seed=3)
    found = [penstock.digest(batch) for batch in loader.beside(("paper", torch.arange(100, 200)))]
    assert found == [penstock.digest(batch) for batch in HGTLoader(data, [4, 4], ("paper", torch.arange(100, 200)), batch_size=20, seed=3)]
