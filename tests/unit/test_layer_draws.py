"""Proof that layers are chosen by successive sampling without replacement, in proportion to a node's edges into the hop.

`tests/unit/test_p_values.py` runs CASES.
"""

from fractions import Fraction
from itertools import permutations

import numpy as np
from scipy import stats

from penstock.records import NODE
from penstock.sample import NeighborSampler
from tests.unit.p_values import SMALLEST_P, graph_of, p_of_slots, p_of_table

NUM_BATCHES = 2000


def probabilities(counts, fanout):
    """Frozenset of `fanout` nodes -> the probability that edges in random order meet these first; exact, over all orders of nodes."""
    found = {}
    for order in permutations(counts, fanout):
        left, probability = sum(counts.values()), Fraction(1)
        for node in order:
            probability *= Fraction(counts[node], left)
            left -= counts[node]
        found[frozenset(order)] = found.get(frozenset(order), 0) + probability
    assert sum(found.values()) == 1
    return found


def chosen(graph, fanouts, seeds, *, seed, epoch=0, num_batches=NUM_BATCHES):
    """Per batch the new nodes of each hop: list of lists of int64."""
    sampler = NeighborSampler(graph, fanouts, layer_wise=True, seed=seed)
    workspace, found = sampler.workspace(), []
    for batch in range(num_batches):
        sample = sampler.sample({NODE: np.array(seeds)}, epoch=epoch, batch=batch, workspace=workspace)
        found.append(np.split(sample.nodes[NODE], np.cumsum(sample.num_nodes_per_hop[NODE])[:-1])[1:])
    return found


def p_of_sets(sets, expected):
    counts = [sum(one == each for one in sets) for each in expected]
    assert sum(counts) == len(sets)
    return stats.chisquare(counts, [float(p) * len(sets) for p in expected.values()]).pvalue


LISTS = {
    "even": {0: [10, 11, 12], 1: [13, 14]},
    "shared": {0: [10, 11, 12], 1: [10, 11, 13], 2: [10, 13]},
    "one list, nodes twice": {0: [10, 10, 10, 11, 12, 12, 13]},
    "of hubs": {v: [10] + [11] * (v < 3) + [12] * (v == 0) + [13] * (v == 5) for v in range(8)},
    "seeds among them": {0: [10, 1, 11, 0], 1: [10, 12, 1, 0], 2: [1, 13]},
}


def p_of_choice(name, fanout, seed):
    lists = LISTS[name]
    of_edges = np.bincount(np.concatenate(list(lists.values())))
    counts = {node: int(count) for node, count in enumerate(of_edges.tolist()) if count and node not in lists}
    sets = [frozenset(new.tolist()) for (new,) in chosen(graph_of(lists, 20), [fanout], sorted(lists), seed=seed)]
    return p_of_sets(sets, probabilities(counts, fanout))


def p_of_second_hop(seed):
    """Given the first hop, the second is chosen by the edges into its nodes."""
    graph = graph_of({0: [1, 2], 1: [10, 11, 0], 2: [10, 11, 11, 12, 12, 12]}, 20)
    both = [(int(first[0]), int(second[0])) for first, second in chosen(graph, [1, 1], [0], seed=seed)]
    expected = {
        (1, 10): Fraction(1, 4),
        (1, 11): Fraction(1, 4),
        (2, 10): Fraction(1, 12),
        (2, 11): Fraction(1, 6),
        (2, 12): Fraction(1, 4),
    }
    return p_of_sets(both, expected)


def p_between(seed, what, chosen=chosen):
    """What is chosen at two places that differ in one part of the counter or key is independent; so are hops over the same lists."""
    graph, options = graph_of({0: [10, 11, 12, 13], **{v: [14, 15, 16, 17] for v in (10, 11, 12, 13)}}, 20), {"seed": seed}
    if what == "hops":
        first, second = zip(*chosen(graph, [1, 1], [0], **options), strict=True)
        return p_of_table(np.concatenate(first) - 10, np.concatenate(second) - 14, 4)
    one = np.concatenate([new for (new,) in chosen(graph, [1], [0], **options)]) - 10
    if what == "batches":
        return p_of_table(one[1:], one[:-1], 4)
    options = {"seed": seed + (1 << 20)} if what == "seeds" else {"seed": seed, "epoch": 1}
    return p_of_table(one, np.concatenate([new for (new,) in chosen(graph, [1], [0], **options)]) - 10, 4)


CASES = [
    *((f"{fanout} of {name}", lambda s, n=name, k=fanout: p_of_choice(n, k, s)) for name in LISTS for fanout in (1, 2, 3)),
    ("second hop, given the first", p_of_second_hop),
    *((f"independent {what}", lambda s, what=what: p_between(s, what)) for what in ("hops", "batches", "epochs", "seeds")),
]


def wrong():
    """Nodes chosen whatever their edges are."""
    counts, random = {10: 3, 11: 2, 12: 1, 13: 2}, np.random.default_rng(0)
    sets = [frozenset(random.permutation(list(counts))[:2].tolist()) for _ in range(NUM_BATCHES)]
    return (p_of_sets(sets, probabilities(counts, 2)),)


def test_a_long_list():
    """Numbers come two in a block, some blocks at once: no place in a long list is likelier than another, and every one comes."""
    graph = graph_of({0: np.arange(1, 1008)}, 1008)
    taken = np.concatenate([new for (new,) in chosen(graph, [100], [0], seed=5, num_batches=1000)])
    assert p_of_slots(taken - 1, 1007, fanout=100, num_bands=1007) > SMALLEST_P


def test_a_seed_that_comes_twice_counts_once():
    """Its edges have the same numbers both times, so that who is chosen does not depend on how often it comes."""
    graph = graph_of({0: [10, 11, 12, 13], 1: [12, 13, 14, 15]}, 20)
    for one, other in zip(*(chosen(graph, [2], seeds, seed=1, num_batches=200) for seeds in ([0, 1], [0, 0, 1, 0])), strict=True):
        assert one[0].tolist() == other[0].tolist()
