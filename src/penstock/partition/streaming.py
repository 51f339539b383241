"""Partitioning node by node: linear deterministic greedy, and PaGraph's partition around train nodes.

Both read one list at a time, and take memory linear in nodes. Nothing is random.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.kernels.greedy_parts import cpu as greedy
from penstock.kernels.train_reach import cpu as train_reach
from penstock.order.traversal import traverse_nodes
from penstock.order.view import read_at_random
from penstock.partition.kinds import SLACK_PERCENT, by_type, count_kinds, label_kinds, share_out, stream, view_parts
from penstock.records import Graph, NodeType

MAX_PASSES = 10
"""Of `assign_greedy`. On real graphs, 5 passes cut up to a tenth more edges, and 1 pass twice as many."""

NUM_HOPS, LIMIT = 2, 1024
"""Of `assign_pagraph`: the number of hops that batches are assumed to read, and the most nodes of these that are considered. Limits between
256 and 4,096 made no difference to the cut on citation graphs."""


def assign_greedy(graph: Graph, num_parts: int, *, train: Mapping[NodeType, np.ndarray], seed: int) -> dict[NodeType, np.ndarray]:
    """Linear deterministic greedy in several passes, starting from pieces of a breadth-first traversal.

    If the stream starts from empty parts, its first nodes go to all parts in turn, and later passes hardly bring them together. Starting
    from pieces, the cut was a tenth of that on a web graph, and two thirds on a citation graph.

    Returns:
        node type -> int16[num_nodes]. No part has more than its share of a kind plus 5 %, rounded up.
    Cost: a traversal, and up to MAX_PASSES passes over all edges in their order, with nodes * parts steps each; 13 bytes per node (21 from
        2**31 on) beside the view.
    Source: Stanton and Kliot 2012; passes: Nishimura and Ugander 2013.
    """
    view, kinds = view_parts(graph), label_kinds(graph, train)
    owners = np.empty(kinds.size, np.int16)
    order = traverse_nodes(view)
    for part in range(num_parts):
        owners[order[part * order.size // num_parts : (part + 1) * order.size // num_parts]] = part
    order.sort()  # lists are then read in file order; passes in the order of the traversal cut no fewer edges
    stream(view, order, kinds, num_parts, count_kinds(graph, kinds), owners, MAX_PASSES)
    return by_type(graph, owners)


def assign_pagraph(graph: Graph, num_parts: int, *, train: Mapping[NodeType, np.ndarray], seed: int) -> dict[NodeType, np.ndarray]:
    """PaGraph's partition: train nodes, in the order of a traversal, each with the nodes that its batches read.

    Another node belongs to the first part that included it; nodes that no train node reaches are placed by one greedy pass.

    Returns:
        node type -> int16[num_nodes]. Train nodes of each type are balanced; of other kinds no part has more than its share plus 5 %.
    Cost: at most train nodes * LIMIT steps; 20 bytes per node, plus a bit per part, beside the view.
    Source: Lin et al. 2020, algorithm 1.
    """
    view, kinds = view_parts(graph), label_kinds(graph, train)
    counts = count_kinds(graph, kinds)
    slack = np.where(np.arange(counts.size) % 2, 0, SLACK_PERCENT)
    capacities, sizes = share_out(counts, num_parts, slack), np.zeros((counts.size, num_parts), np.int64)
    owners, met = np.full(kinds.size, -1, np.int16), np.zeros(num_parts, np.int64)
    order = traverse_nodes(view)
    order = order[kinds[order] % 2 == 1]
    held, num_held = np.zeros((kinds.size, -(-num_parts // 8)), np.uint8), np.zeros(num_parts, np.int64)
    turns, queue = np.full(kinds.size, -1, view.id_dtype), np.empty(LIMIT, view.id_dtype)
    of_kinds = (kinds, capacities, sizes)
    with read_at_random(view):
        train_reach.place(view.indptrs, view.indices, view.firsts, order, NUM_HOPS, *of_kinds, held, num_held, owners, turns, queue, met)
    del order, held, turns
    greedy.place(*view.arrays, np.flatnonzero(owners < 0).astype(view.id_dtype), *of_kinds, owners, met)
    return by_type(graph, owners)
