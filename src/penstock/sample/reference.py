"""k-hop neighbour sampling, written to be read. This is the definition; tests compare the samplers with it, byte for byte.

The rule is PyG's. A hop expands each node of its frontier (the nodes first seen in the hop before) once, over every edge type that ends in
the node's type. New sources are appended in the order in which they are seen. Edge types follow the graph's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from penstock import rng
from penstock.kernels.random_walks import reference as walking
from penstock.kernels.relabel import reference as relabel
from penstock.kernels.running_sums import reference as running_sums
from penstock.kernels.sample_layer import reference as layer
from penstock.kernels.sample_neighbors import reference as draw
from penstock.kernels.sample_shared import reference as shared
from penstock.kernels.sample_weighted import reference as weighted
from penstock.kernels.time_windows import reference as time_windows
from penstock.records import Graph, NodeType, Sample, SampledEdges
from penstock.sample.walks import sampled_graph


def sample_hops(
    graph: Graph, fanouts, seeds: Mapping[NodeType, np.ndarray], *, replace, disjoint, seed, epoch, batch, times=None, takes_last=False,
    reach=-1, shared_draws=0, walks=None, layer_wise=False,
) -> Sample:  # fmt: skip
    """Sample the neighbourhood of `seeds`; arguments as in `penstock.sample.neighbor.NeighborSampler`, fanouts one list per edge type."""
    key = rng.derive_key(seed, epoch, rng.WALK if walks else rng.LAYER if layer_wise else rng.SHARED if shared_draws else rng.SAMPLE)
    if walks is not None:
        walks = walks.along(graph)
        path = [(graph.adjacency[each].indptr, graph.adjacency[each].indices) for each in walks.path]
        graph = sampled_graph(graph, walks)
    nodes = {node_type: [] for node_type in graph.num_nodes}  # global ids, or (tree, global id) packed when disjoint
    tables = {node_type: {} for node_type in graph.num_nodes}
    begin = dict.fromkeys(graph.num_nodes, 0)
    span = graph.num_nodes if disjoint else dict.fromkeys(graph.num_nodes, 1 << 62)

    copies, num_trees = {}, 0
    for seed_type, ids in seeds.items():
        keys = np.asarray(ids, dtype=np.int64)
        if disjoint:
            keys = keys + (num_trees + np.arange(keys.size)) * span[seed_type]
            num_trees += keys.size
        copies[seed_type] = relabel.add_seeds(keys, tables[seed_type], nodes[seed_type])
    moments = None if times is None else np.concatenate([times[seed_type] for seed_type in seeds])
    per_hop = {node_type: [len(known)] for node_type, known in nodes.items()}
    rows = {edge_type: [] for edge_type in graph.adjacency}
    cols = {edge_type: [] for edge_type in graph.adjacency}
    positions = {edge_type: [] for edge_type in graph.adjacency}
    edges_per_hop = {edge_type: [] for edge_type in graph.adjacency}
    row_ptr = {edge_type: [0] for edge_type in graph.adjacency}

    for hop in range(len(next(iter(fanouts.values()), []))):
        end = {node_type: len(known) for node_type, known in nodes.items()}
        for number, (edge_type, csc) in enumerate(graph.adjacency.items()):
            src, _, dst = edge_type
            frontier = np.array(nodes[dst][begin[dst] : end[dst]], dtype=np.int64)
            trees = frontier // span[dst]
            if disjoint:
                copies_now = trees
            else:
                copies_now = copies.get(dst) if hop == 0 else None
            sample_neighbors = draw.sample_neighbors
            if csc.sums is not None:
                sample_neighbors = partial(weighted.sample_neighbors, sums=csc.sums)
            indices, fanout = csc.indices, fanouts[edge_type][hop]
            if csc.times is not None:
                last = fanout if takes_last else -1
                assert moments is not None
                windows = time_windows.find_windows(csc.indptr, csc.times, frontier % span[dst], moments[trees], reach=reach, last=last)
                by_time = np.arange(csc.num_edges) if csc.by_time is None else csc.by_time
                indices, sample_neighbors = indices[by_time], partial(sample_neighbors, windows=windows)
            how = {"replace": replace, "batch": batch, "edge_type": number, "copies": copies_now}
            if shared_draws:
                sample_neighbors = shared.sample_neighbors
                how = {"batch": batch // shared_draws, "source": graph.first_from(src)}
            lists = csc.indptr, indices
            if walks is not None:
                sample_neighbors, lists = walking.sample_neighbors, (path,)
                how = {"num": walks.num, "length": walks.length, "end": walks.of_all, "batch": batch, "copies": copies_now}
            elif layer_wise and fanout > 0:
                sample_neighbors = layer.sample_neighbors
                how = {"batch": batch, "edge_type": number, "known": set(tables[src])}
            ptr, taken, neighbors = sample_neighbors(*lists, nodes=frontier % span[dst], fanout=fanout, key=key, hop=hop, **how)
            counts = np.diff(ptr)
            found = neighbors + (np.repeat(trees, counts) * span[src] if disjoint else 0)
            rows[edge_type].append(relabel.relabel(found, tables[src], nodes[src]))
            cols[edge_type].append(np.repeat(np.arange(begin[dst], end[dst]), counts))
            positions[edge_type].append(taken if csc.times is None else by_time[taken])
            edges_per_hop[edge_type].append(taken.size)
            row_ptr[edge_type] += [row_ptr[edge_type][-1] + int(offset) for offset in ptr[1:]]
        begin = end
        for node_type, known in nodes.items():
            per_hop[node_type].append(len(known) - end[node_type])

    edges = {}
    for edge_type in graph.adjacency:
        taken = np.concatenate([np.empty(0, np.int64), *positions[edge_type]])
        edges[edge_type] = SampledEdges(
            edge_index=np.stack([np.concatenate([np.empty(0, np.int64), *half]) for half in (rows[edge_type], cols[edge_type])]),
            row_ptr=np.array(row_ptr[edge_type], dtype=np.int64),
            positions=taken,
            num_per_hop=edges_per_hop[edge_type],
        )
    packed = {node_type: np.array(known, dtype=np.int64) for node_type, known in nodes.items()}
    return Sample(
        nodes={node_type: known % span[node_type] for node_type, known in packed.items()},
        edges=edges,
        num_nodes_per_hop=per_hop,
        trees={node_type: known // span[node_type] for node_type, known in packed.items()} if disjoint else None,
    )


def sample_by_budget(graph: Graph, num_samples, seeds: Mapping[NodeType, np.ndarray], *, seed, epoch, batch) -> dict[NodeType, list[int]]:
    """Return the nodes of a batch as HGT samples them, see `penstock.sample.budget`. `num_samples`: node type -> a number per hop."""
    key = rng.derive_key(seed, epoch, rng.BUDGET)
    nodes = {node_type: [int(each) for each in seeds.get(node_type, ())] for node_type in graph.num_nodes}
    scores = {node_type: {} for node_type in graph.num_nodes}  # candidate -> its score, in first-seen order
    begin = dict.fromkeys(graph.num_nodes, 0)
    for hop in range(len(next(iter(num_samples.values())))):
        end = {node_type: len(known) for node_type, known in nodes.items()}
        for (src, _, dst), csc in graph.adjacency.items():
            known = set(nodes[src])
            for node in nodes[dst][begin[dst] : end[dst]]:
                found = csc.indices[csc.indptr[node] : csc.indptr[node + 1]].tolist()
                for neighbor in found:
                    if neighbor not in known:
                        scores[src][neighbor] = scores[src].get(neighbor, 0.0) + 1 / len(found)
        for number, (node_type, counts) in enumerate(num_samples.items()):
            candidates, counter = list(scores[node_type]), rng.sample_counter(0, number, hop, batch, 0)
            weights = running_sums.as_integers([score * score for score in scores[node_type].values()])
            slots = weighted.draw_slots(weights, fanout=counts[hop], replace=False, counter=counter, key=key)
            for chosen in (candidates[slot] for slot in slots):
                nodes[node_type].append(chosen)
                del scores[node_type][chosen]
        begin = end
    return nodes
