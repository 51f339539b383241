"""What a batch must be: worked out from the graph and the case with NumPy and PyG alone.

In: a case, a batch, and the positions of its seeds. Out: nothing, or AssertionError.
"""

import numpy as np
import torch
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput

from penstock.sample.reference import sample_hops
from tests.fuzz.cases import HOMOGENEOUS, of_type


def check_batch(case, batch, positions):
    """Seeds, nodes and edges; and which edges there are, where no reverse ones were put to those that were drawn."""
    check_nodes(case, batch, positions)
    if case.options["subgraph_type"] != "bidirectional":
        for edge_type in case.graph.edge_index:
            check_edges(case, batch, edge_type)
        check = check_induced if case.options["subgraph_type"] == "induced" else check_hops
        check(case, batch, len(positions))


def check_nodes(case, batch, positions):
    """Seeds come first and in place; every other node once (in its tree); with their rows."""
    seeds = of_type(batch, case.seed_type)
    assert torch.equal(seeds.n_id[: len(positions)], case.seeds[positions])
    assert torch.equal(seeds.input_id, case.input_ids[positions])
    assert seeds.batch_size == len(positions)
    assert case.moments is None or torch.equal(seeds.seed_time, case.moments[positions])
    for node_type, count in case.graph.num_nodes.items():
        nodes = of_type(batch, node_type)
        num_seeds, keys = len(positions) if node_type == case.seed_type else 0, nodes.n_id
        if case.is_disjoint:
            assert nodes.batch[:num_seeds].tolist() == list(range(num_seeds))
            keys = nodes.batch * count + nodes.n_id
        others = keys[num_seeds:]
        assert others.unique().numel() == others.numel(), f"a node of {node_type} comes twice"
        assert not torch.isin(others, keys[:num_seeds]).any(), f"a seed of {node_type} comes again"
        assert nodes.num_nodes == keys.numel()
        check_rows(case, nodes, node_type, nodes.n_id)


def check_rows(case, store, key, ids):
    for name, values in case.graph.rows[key].items():
        assert_same_bits(store[name], values[ids], (key, name))


def assert_same_bits(ours, theirs, name):
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
    ours, theirs = (each.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for each in (ours, theirs))
    assert torch.equal(ours, theirs), name


def numbers_of(case, batch, edge_type):
    """Which edges of the graph those of a batch are."""
    e_id = of_type(batch, edge_type).e_id
    return case.edge_numbers[edge_type][e_id] if edge_type in case.edge_numbers else e_id


def check_edges(case, batch, edge_type):
    """Every edge is in the graph, between these two nodes, has its rows, and stays in its tree."""
    edges, sources, targets = of_type(batch, edge_type), of_type(batch, edge_type[0]), of_type(batch, edge_type[2])
    (source, target), numbers = edges.edge_index, numbers_of(case, batch, edge_type)
    ends = torch.stack([sources.n_id[source], targets.n_id[target]])
    assert torch.equal(ends, case.graph.edge_index[edge_type][:, numbers]), f"edges of {edge_type} are none of the graph's"
    check_rows(case, edges, edge_type, numbers)
    if case.is_disjoint:
        assert torch.equal(sources.batch[source], targets.batch[target])
    if "row_ptr" in edges:
        assert np.array_equal(np.repeat(np.arange(edges.row_ptr.numel() - 1), edges.row_ptr.diff()), target)


def check_induced(case, batch, num_seeds):
    """All edges among the nodes (of a tree), each once; of a seed that comes twice, any of the two has them."""
    for edge_type, (source, target) in case.graph.edge_index.items():
        edges, sources, targets = (of_type(batch, each) for each in (edge_type, edge_type[0], edge_type[2]))
        numbers = numbers_of(case, batch, edge_type)
        assert "num_sampled_edges" not in edges
        for tree in range(num_seeds) if case.is_disjoint else [None]:
            ids, ends, there = sources.n_id, targets.n_id, numbers
            if tree is not None:
                there = numbers[targets.batch[edges.edge_index[1]] == tree]
                ids, ends = ids[sources.batch == tree], ends[targets.batch == tree]
            among = (torch.isin(source, ids) & torch.isin(target, ends)).nonzero().view(-1)
            are_distinct = all(each.unique().numel() == each.numel() for each in (ids, ends))
            assert torch.equal(there.sort().values if are_distinct else there.unique(), among)


def check_walked(case, maker, batch, positions, place):
    """The sample is what its definition gives, and every edge comes from a node that a walk can reach; there are no other edges."""
    sampler, seeds = maker.sampler, maker.seeds.at(np.array(positions), seed=maker.sampler.seed, **place)
    how = {"replace": False, "disjoint": sampler.disjoint, "seed": sampler.seed, "walks": case.options["walks"]}
    sample = sample_hops(sampler.graph, sampler.fanouts, seeds.nodes, **how, **place)
    ((edge_type, expected),) = sample.edges.items()
    node_type, edges = edge_type[2], of_type(batch, edge_type)
    for each, ids in sample.nodes.items():
        assert of_type(batch, each).n_id.tolist() == ids.tolist()
        assert of_type(batch, each).num_sampled_nodes == sample.num_nodes_per_hop[each]
    assert edges.edge_index.tolist() == expected.edge_index.tolist()
    assert edges.edge_weight.tolist() == expected.positions.tolist()
    assert (edges.row_ptr.tolist(), edges.num_sampled_edges) == (expected.row_ptr.tolist(), expected.num_per_hop)
    if edge_type == HOMOGENEOUS:
        assert {"e_id", *case.graph.rows[HOMOGENEOUS]}.isdisjoint({*batch.keys()} - {"edge_weight"})
    else:
        assert batch.edge_types == [edge_type]
    reaches, walks = torch.eye(case.graph.num_nodes[node_type]), case.options["walks"]
    for one in walks.path or [HOMOGENEOUS]:
        source, target = case.graph.edge_index[one]
        step = torch.zeros(case.graph.num_nodes[one[2]], case.graph.num_nodes[one[0]])
        step[target, source] = 1
        reaches = reaches @ step
    reaches, (source, target) = (reaches > 0).float(), of_type(batch, node_type).n_id[edges.edge_index]
    reached = sum(torch.linalg.matrix_power(reaches, length) for length in range(1, walks.length + 1))
    assert (reached[target, source] > 0).all()


def check_hops(case, batch, num_seeds):
    """Each node of a hop has as many edges as the fanout says, and each node of the next hop is seen first in one of them."""
    num_hops, nodes_begin, edges_begin = len(next(iter(case.fanouts.values()))), {}, {}
    for node_type in case.graph.num_nodes:
        nodes = of_type(batch, node_type)
        nodes_begin[node_type] = np.cumsum([0, *nodes.num_sampled_nodes])
        assert nodes.num_sampled_nodes[0] == (num_seeds if node_type == case.seed_type else 0)
        assert (len(nodes.num_sampled_nodes), nodes_begin[node_type][-1]) == (num_hops + 1, nodes.n_id.numel())
    for edge_type in case.graph.edge_index:
        edges = of_type(batch, edge_type)
        edges_begin[edge_type] = np.cumsum([0, *edges.num_sampled_edges])
        assert (len(edges.num_sampled_edges), edges_begin[edge_type][-1]) == (num_hops, edges.edge_index.shape[1])
    for hop in range(num_hops):
        seen = {node_type: [np.empty(0, np.int64)] for node_type in case.graph.num_nodes}
        known = {node_type: begin[hop + 1] for node_type, begin in nodes_begin.items()}
        for edge_type, begin in edges_begin.items():
            of_hop, nodes = slice(*begin[hop : hop + 2]), slice(*nodes_begin[edge_type[2]][hop : hop + 2])
            sources, fanout = of_type(batch, edge_type).edge_index[0, of_hop].numpy(), case.fanouts[edge_type][hop]
            known_before, known[edge_type[0]] = known[edge_type[0]], max(known[edge_type[0]], sources.max(initial=-1) + 1)
            if case.options["layer_wise"] and fanout > 0:
                check_layer(case, batch, edge_type, fanout, of_hop, nodes, (known_before, known[edge_type[0]]))
            else:
                check = check_fanout if case.times_of(edge_type) is None else check_fanout_in_time
                check(case, batch, edge_type, fanout, of_hop, nodes)
            seen[edge_type[0]].append(sources)
        for node_type, begin in nodes_begin.items():
            sources = np.concatenate(seen[node_type])
            assert np.isin(np.arange(begin[hop + 1], begin[hop + 2]), sources).all(), f"a node of {node_type} in hop {hop + 1} has no edge"
            assert sources.max(initial=-1) < begin[hop + 2]


def check_layer(case, batch, edge_type, fanout, of_hop, nodes, known):
    """The edges into a hop are all from nodes of the batch, of which `fanout` are new. `known`: how many there are before and after."""
    edges, sources, targets = (of_type(batch, each) for each in (edge_type, edge_type[0], edge_type[2]))
    (source, target), expanded = case.graph.edge_index[edge_type], targets.n_id[nodes]
    candidates = source[torch.isin(target, expanded)].unique()
    candidates = candidates[~torch.isin(candidates, sources.n_id[: known[0]])]
    assert known[1] - known[0] == min(fanout, candidates.numel())
    taken = torch.isin(source, sources.n_id[: known[1]])
    expected = [(node, number) for node in expanded.tolist() for number in ((target == node) & taken).nonzero().view(-1).tolist()]
    drawn = zip(targets.n_id[edges.edge_index[1, of_hop]].tolist(), numbers_of(case, batch, edge_type)[of_hop].tolist(), strict=True)
    assert sorted(drawn) == sorted(expected)


def check_fanout(case, batch, edge_type, fanout, of_hop, nodes):
    """`of_hop`: the edges of one type and hop; `nodes`: those whose neighbours were drawn."""
    targets, numbers = of_type(batch, edge_type).edge_index[1, of_hop].numpy(), numbers_of(case, batch, edge_type)[of_hop].numpy()
    can_be_drawn = case.can_be_drawn(edge_type)
    assert can_be_drawn[numbers].all(), "an edge of weight 0 was drawn"
    assert ((targets >= nodes.start) & (targets < nodes.stop)).all()
    degrees = case.graph.edge_index[edge_type][1][can_be_drawn].bincount(minlength=case.graph.num_nodes[edge_type[2]])
    degrees = degrees[of_type(batch, edge_type[2]).n_id[nodes]].numpy()
    if case.options["replace"] and fanout != -1:
        expected = np.where(degrees > 0, fanout, 0)
    else:
        expected = degrees if fanout == -1 else np.minimum(degrees, fanout)
        assert len(set(zip(targets.tolist(), numbers.tolist(), strict=True))) == len(numbers), "an edge was drawn twice"
    counts = np.bincount(targets - nodes.start, minlength=nodes.stop - nodes.start)
    assert np.array_equal(counts, expected), f"{edge_type}, fanout {fanout}: {counts} edges for {expected}"


def check_fanout_in_time(case, batch, edge_type, fanout, of_hop, nodes):
    """The same where edges have times: of each node, its own list up to the time of its tree's seed."""
    targets, numbers = of_type(batch, edge_type).edge_index[1, of_hop], numbers_of(case, batch, edge_type)[of_hop]
    assert ((targets >= nodes.start) & (targets < nodes.stop)).all()
    ends, times, of_target = case.graph.edge_index[edge_type][1], case.times_of(edge_type), of_type(batch, edge_type[2])
    seed_time, is_last = of_type(batch, case.seed_type).seed_time, case.options["temporal_strategy"] == "last"
    is_in_time = torch.lt if case.options["temporal_rule"] == "<" else torch.le
    for node in range(nodes.start, nodes.stop):
        drawn, moment = numbers[targets == node], seed_time[of_target.batch[node]]
        is_late_enough = True if case.options["time_window"] is None else times >= moment - case.options["time_window"]
        in_time = ((ends == of_target.n_id[node]) & is_in_time(times, moment) & is_late_enough).nonzero().view(-1)
        if is_last and fanout >= 0:
            in_time = in_time[times[in_time].argsort(stable=True)][max(0, in_time.numel() - fanout) :]
        assert torch.isin(drawn, in_time).all(), f"{edge_type}: {times[drawn]} drawn, up to {moment}"
        if case.options["replace"] and fanout != -1:
            assert drawn.numel() == (fanout if in_time.numel() else 0)
            continue
        assert drawn.numel() == (in_time.numel() if fanout == -1 else min(in_time.numel(), fanout))
        assert drawn.unique().numel() == drawn.numel(), "an edge was drawn twice"


class Replay(BaseSampler):
    """Draws what was drawn before."""

    edge_permutation = None

    def __init__(self, output):
        self.output = output

    def sample_from_nodes(self, inputs, **ignored):
        return self.output

    def sample_from_edges(self, inputs, neg_sampling=None):
        raise NotImplementedError


def check_against_pyg(case, batch, drawn, positions):
    """A batch is what PyG's own loader makes of the same sample: names, types and values. `drawn`: the batch before reverse edges."""
    graph, output = case.graph, output_of(case, drawn, case.input_ids[positions], None if case.moments is None else case.moments[positions])
    if case.options["subgraph_type"] == "bidirectional":
        numbers, output = output.edge, output.to_bidirectional()
        if isinstance(output, SamplerOutput):
            output.edge = numbers_of_both_ways(drawn.edge_index, numbers, output)
    nodes = (case.seed_type, case.seeds) if isinstance(graph.data, HeteroData) else case.seeds
    loader = NodeLoader(graph.data, Replay(output), nodes, transform=case.options["transform"], input_id=case.input_ids)
    ours, theirs = ({store._key: store.to_dict() for store in each.stores} for each in (batch, loader(positions)))
    assert ours.keys() == theirs.keys()
    unlike = {"row_ptr"} | ({"e_id", "train_mask"} if graph.is_for_store else set())  # of a store: checked above; a split
    for key, their in theirs.items():
        names = {name for name, value in their.items() if value is not None} - unlike
        assert ours[key].keys() - unlike == names, key
        for name in names:
            our_value, their_value = ours[key][name], their[name]
            assert type(our_value) is type(their_value), (key, name)
            if isinstance(their_value, torch.Tensor):
                assert_same_bits(our_value, their_value, (key, name))
            else:
                assert our_value == their_value, (key, name)


def numbers_of_both_ways(edge_index, numbers, output):
    """What edge each of a bidirectional batch is: itself, or that which it reverses (PyG leaves open which). The first, of several."""
    first = {}
    for ends in (edge_index, edge_index.flip(0)):
        for pair, number in zip(ends.T.tolist(), numbers.tolist(), strict=True):
            first.setdefault(tuple(pair), number)
    return torch.tensor([first[pair] for pair in zip(output.row.tolist(), output.col.tolist(), strict=True)], dtype=torch.int64)


def output_of(case, batch, input_id, moments):
    """What was drawn, in PyG's form."""
    nodes, edges = ({key: of_type(batch, key) for key in keys} for keys in (case.graph.num_nodes, case.graph.edge_index))
    parts = {
        "node": {t: store.n_id for t, store in nodes.items()},
        "row": {e: store.edge_index[0] for e, store in edges.items()},
        "col": {e: store.edge_index[1] for e, store in edges.items()},
        "edge": {e: numbers_of(case, batch, e) for e in edges},
        "batch": {t: store.batch for t, store in nodes.items()} if case.is_disjoint else None,
        "num_sampled_nodes": {t: store.num_sampled_nodes for t, store in nodes.items() if "num_sampled_nodes" in store} or None,
        "num_sampled_edges": {e: store.num_sampled_edges for e, store in edges.items() if "num_sampled_edges" in store} or None,
        "metadata": (input_id, moments),
    }
    if isinstance(batch, HeteroData):
        return HeteroSamplerOutput(**parts)
    return SamplerOutput(**{name: next(iter(part.values())) if isinstance(part, dict) else part for name, part in parts.items()})
