"""Random loaders of links, and what their batches must be.

In: a `Dice`, and a folder for a store. Out: a `LinkCase`, of whose links, labels, times and weights plain tensors are known. The sample
around the ends is compared with its definition; all that a batch says of links is worked out from the graph alone.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NegativeSampling

from penstock import LinkNeighborLoader
from penstock.errors import UsageError
from penstock.feed.link_arguments import choose_left_out
from penstock.kernels.links import reference
from penstock.sample.reference import sample_hops
from penstock.store import Store
from tests.fuzz.cases import HOMOGENEOUS, Case, of_type, random_case, random_sequence
from tests.fuzz.oracle import check_edges, check_rows

OF_NODES = ("input_nodes", "input_time", "input_id", "order", "sampler", "batch_sampler", "shuffle", "batch_size", "drop_last")


@dataclass(frozen=True, kw_only=True)
class LinkCase(Case):
    """A loader of links; `seed_type` is their edge type, `seeds` are their positions.

    Attributes:
        links: int64[2, n].
        labels: as a batch says them of links, or None.
        sampling: how negatives are drawn, or None.
    """

    links: torch.Tensor
    labels: torch.Tensor | None
    sampling: NegativeSampling | None

    def open(self, **changes):
        self.tell_of(0)
        return LinkNeighborLoader(self.source, **{**self.options, **changes})

    def beside(self, loader):
        """A loader beside one, and one of its own, over a few of the links."""
        some = torch.arange(min(20, self.seeds.numel()))
        given, times = self.links[:, some], self.options["edge_label_time"]
        given, times = given if self.seed_type == HOMOGENEOUS else (self.seed_type, given), None if times is None else times[some]
        links = {"edge_label_index": given, "edge_label": None, "edge_label_time": times, "neg_sampling": self.sampling}
        in_order = dict.fromkeys(("order", "sampler", "batch_sampler", "input_id")) | {"shuffle": False, "drop_last": False}
        return loader.beside(**links), self.open(**in_order, **links)

    def check(self, loader, batch, positions, place):
        """Nodes and edges are the graph's, the sample is what its definition gives for the ends, and links are told as they are."""
        for node_type in self.graph.num_nodes:
            check_rows(self, of_type(batch, node_type), node_type, of_type(batch, node_type).n_id)
        if self.options["subgraph_type"] != "bidirectional" and self.options["walks"] is None:
            for edge_type in self.graph.edge_index:
                check_edges(self, batch, edge_type)
        if self.options["subgraph_type"] == "directional":
            self._check_sample(loader.engine.maker, batch, positions, place)
        self._check_links(batch, positions)

    def _check_sample(self, maker, batch, positions, place):
        sampler, seeds = maker.sampler, maker.seeds.at(np.array(positions), seed=maker.sampler.seed, **place)
        names = ("replace", "disjoint", "seed", "takes_last", "reach", "shared_draws", "walks", "layer_wise")
        how = {name: getattr(sampler, name) for name in names}
        sample, num_removed = sample_hops(sampler.graph, sampler.fanouts, seeds.nodes, times=seeds.times, **how, **place), 0
        for node_type, ids in sample.nodes.items():
            assert of_type(batch, node_type).n_id.tolist() == ids.tolist()
            assert of_type(batch, node_type).num_sampled_nodes == sample.num_nodes_per_hop[node_type]
        left_out = choose_left_out(sampler.graph, self.seed_type, self.options["exclude_links"])
        for edge_type, edges in sample.edges.items():
            parts = edges.edge_index, edges.row_ptr, edges.positions, edges.num_per_hop
            for _, is_reversed in (each for each in left_out if each[0] == edge_type or sampler.walks):
                links, ends = self.links[:, positions].numpy(), (sample.nodes[edge_type[0]], sample.nodes[edge_type[2]])
                parts = reference.leave_out(*ends, links[::-1] if is_reversed else links, *parts)
            num_removed += edges.positions.size - parts[2].size
            ours = of_type(batch, edge_type)
            assert ours.edge_index.tolist() == parts[0].tolist()
            assert (ours.row_ptr.tolist(), ours.num_sampled_edges) == (parts[1].tolist(), parts[3])
            assert sampler.walks is None or ours.edge_weight.tolist() == parts[2].tolist()
        assert of_type(batch, self.seed_type).get("num_excluded_edges") == (num_removed if left_out else None)

    def _check_links(self, batch, positions):
        edge_type, told, count = self.seed_type, of_type(batch, self.seed_type), len(positions)
        sources, targets, sampling = of_type(batch, edge_type[0]), of_type(batch, edge_type[2]), self.sampling
        assert torch.equal(told.input_id, self.input_ids[positions])
        links, moments = self.links[:, positions], None if self.moments is None else self.moments[positions]
        num_negatives = 0 if sampling is None else math.ceil(count * sampling.amount)
        owners = torch.arange(count + num_negatives) % count
        owners[count:] = torch.arange(num_negatives) % count
        if sampling is not None and sampling.is_triplet():
            assert torch.equal(sources.n_id[sources.src_index], links[0])
            assert torch.equal(targets.n_id[targets.dst_pos_index], links[1])
            assert targets.dst_neg_index.shape == ((count,) if sampling.amount == 1 else (count, sampling.amount))
            places = torch.cat([targets.dst_pos_index, targets.dst_neg_index.view(count, -1).t().reshape(-1)])
            index = torch.stack([sources.src_index[owners], places])
            for store in (sources, targets):
                assert moments is None or torch.equal(store.seed_time, moments)
            assert "edge_label" not in told
        else:
            index = told.edge_label_index
            assert torch.equal(torch.stack([sources.n_id[index[0]], targets.n_id[index[1]]])[:, :count], links)
            assert moments is None or torch.equal(told.edge_label_time, moments[owners])
            labels = torch.ones(count) if self.labels is None and num_negatives else self.labels
            if labels is None:
                assert "edge_label" not in told
            else:
                labels = labels if self.labels is None else labels[positions]
                assert torch.equal(told.edge_label[:count], labels)
                assert told.edge_label.dtype == labels.dtype
                assert told.edge_label.shape == (count + num_negatives, *labels.shape[1:])
                assert not told.edge_label[count:].any()
        if self.is_disjoint:
            assert torch.equal(sources.batch[index[0]], owners)
            assert torch.equal(targets.batch[index[1]], owners)
        ends = torch.stack([sources.n_id[index[0]], targets.n_id[index[1]]])[:, count:]
        if sampling is not None:
            self._check_negatives(told, ends, None if moments is None else moments[owners[count:]])

    def _check_negatives(self, told, ends, moments):
        known = set(map(tuple, torch.cat([self.links, self.graph.edge_index.get(self.seed_type, self.links)], dim=1).t().tolist()))
        if self.options["exclude_positives"]:
            assert told.num_false_negatives == sum(tuple(pair) in known for pair in ends.t().tolist())
        else:
            assert "num_false_negatives" not in told
        drawn = [(2, self.sampling.dst_weight)] + [(0, self.sampling.src_weight)] * self.sampling.is_binary()
        for end, weight in drawn:
            ids, node_type = ends[end // 2], self.seed_type[end]
            weight = torch.ones(self.graph.num_nodes[node_type]) if weight is None else weight
            assert (weight[ids] > 0).all()
            times = self.graph.rows[node_type].get(self.options["time_attr"]) if moments is not None else None
            if times is not None:
                least = times[weight > 0].min()  # who comes where nobody is there yet
                assert ((times[ids] <= moments) | (least > moments)).all()


def random_link_case(dice, folder):
    case = random_case(dice, folder)
    graph, types = case.graph, list(case.graph.edge_index)
    edge_type, is_homogeneous = dice.choice(types), not isinstance(graph.data, HeteroData)
    if not is_homogeneous and dice.chance(0.1):
        edge_type = (edge_type[0], "new", edge_type[2])
    links, chosen, input_ids = random_links(dice, case, edge_type)
    count = links.shape[1]
    options = {name: value for name, value in case.options.items() if name not in OF_NODES}
    if options["walks"] is not None and {edge_type[0], edge_type[2]} != {case.seed_type}:
        options["walks"] = None  # which begin at nodes of one type
    options["edge_label_index"] = (
        chosen if is_homogeneous else edge_type if chosen is None else dice.choice([tuple, list])((edge_type, chosen))
    )
    if dice.chance(0.2):
        options["input_id"] = input_ids = torch.randperm(count, generator=dice.generator) + 1000
    options["edge_label_time"] = moments = None if case.moments is None else dice.moments(count)
    options["neg_sampling"] = sampling = random_sampling(dice, graph, edge_type)
    options["edge_label"], labels = random_labels(dice, count, sampling)
    if chosen is None and labels is not None and dice.chance(0.5):
        options["edge_label"], labels = labels_by_name(dice, graph, edge_type, sampling)
    options["exclude_positives"], options["exclude_links"] = dice.chance(0.7), dice.choice([None, None, "self", "reverse"])
    try:
        choose_left_out(graph_of(types), edge_type, options["exclude_links"])
    except UsageError:  # several types may be the reverses
        options["exclude_links"] = None
    if options["subgraph_type"] == "bidirectional" and options["exclude_links"] == "self":
        options["exclude_links"] = None
    sequence, given = random_sequence(dice, count, options["seed"])
    known = {field.name: getattr(case, field.name) for field in fields(case)}
    known |= {"seed_type": edge_type, "seeds": torch.arange(count), "input_ids": input_ids, "moments": moments, "given": given}
    return LinkCase(**known | {"options": {**options, **sequence}}, links=links, labels=labels, sampling=sampling)


def graph_of(edge_types):
    """Something that has edge types."""

    class Types:
        adjacency = dict.fromkeys(edge_types)

    return Types


def random_links(dice, case, edge_type):
    """(links, as a user gives them or None for all edges, what a batch says of each)."""
    graph, edges = case.graph, case.graph.edge_index.get(edge_type)
    if edges is not None and edges.shape[1] and dice.chance(0.5):
        by_target, numbers = edges[1].argsort(stable=True), torch.arange(edges.shape[1])
        if not graph.is_for_store:
            return edges, None, numbers
        store = case.source if isinstance(case.source, Store) else Store.open(case.source)  # its edges, in its order
        return edges[:, by_target], None, numbers if store.csc(edge_type).edge_ids is None else by_target
    count = dice.choice([1, 7, 40])
    links = torch.stack([dice.below(graph.num_nodes[t], count) for t in (edge_type[0], edge_type[2])])
    if edges is not None and edges.shape[1]:  # half of them are edges
        links[:, : count // 2] = edges[:, dice.below(edges.shape[1], count // 2)]
    return links, dice.choice([links, links.int(), links.numpy(), links.tolist()]), torch.arange(count)


def random_sampling(dice, graph, edge_type):
    mode = dice.choice([None, "binary", "binary", "triplet"])
    if mode is None:
        return None
    weights = {}
    for name, node_type in (("src_weight", edge_type[0]), ("dst_weight", edge_type[2])):
        if dice.chance(0.3):
            weights[name] = torch.rand(graph.num_nodes[node_type], generator=dice.generator) * dice.below(2, graph.num_nodes[node_type])
            weights[name][dice.randrange(graph.num_nodes[node_type])] = 1.0
    return NegativeSampling(mode, dice.choice([1, 2, 3] if mode == "triplet" else [0.3, 1, 2.5]), **weights)


def random_labels(dice, count, sampling):
    """(as given, as a batch says them of links)."""
    if dice.chance(0.4) or (sampling is not None and sampling.is_triplet()):
        return None, None
    shape, dtype = dice.choice([(), (3,)]), dice.choice([torch.int64, torch.float32, torch.int32, torch.bfloat16])
    labels = dice.below(4, count * math.prod(shape)).view(count, *shape).to(dtype) + dice.randrange(2)
    return labels, labels + 1 if sampling is not None and labels.min() == 0 else labels


def labels_by_name(dice, graph, edge_type, sampling):
    """The same of a field of the edges, in the order of the links that are all of them."""
    rows, order = graph.rows[edge_type], graph.edge_index[edge_type][1].argsort(stable=True)
    if not rows:
        return None, None
    name = dice.choice(sorted(rows))
    labels = rows[name][order] if graph.is_for_store else rows[name]
    return name, labels if sampling is None else labels + 1
