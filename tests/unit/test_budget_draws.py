"""Proof that nodes are drawn as in HGT: without replacement, in proportion to the squares of their normalised edges into the batch.

`tests/unit/test_p_values.py` runs CASES.
"""

from fractions import Fraction

import numpy as np

from penstock.records import NODE
from penstock.sample import NeighborSampler
from tests.unit.p_values import graph_of
from tests.unit.test_layer_draws import LISTS, NUM_BATCHES, p_between, p_of_sets, probabilities


def chosen(graph, num_samples, seeds, *, seed, epoch=0):
    """Per batch the new nodes of each hop: list of lists of int64."""
    sampler = NeighborSampler(graph, [], num_samples=num_samples, seed=seed)
    workspace, found = sampler.workspace(), []
    for batch in range(NUM_BATCHES):
        sample = sampler.sample({NODE: np.array(seeds)}, epoch=epoch, batch=batch, workspace=workspace)
        found.append(np.split(sample.nodes[NODE], np.cumsum(sample.num_nodes_per_hop[NODE])[:-1])[1:])
    return found


def squares(lists):
    """Node outside the batch -> the square of its score, exactly."""
    scores = {}
    for sources in lists.values():
        for node in sources:
            scores[node] = scores.get(node, 0) + Fraction(1, len(sources))
    return {node: score * score for node, score in scores.items() if node not in lists}


def without_rare_ones(expected):
    """Set -> the sets that count as one with it, so that each is expected five times at least, and their probabilities: a chi-square test
    asks for that, and squares make some sets rare."""
    rarest, *others = sorted(expected, key=expected.get)
    joined = {rarest: [rarest]}
    for each in others:
        if NUM_BATCHES * sum(expected[one] for one in joined[rarest]) < 5:
            joined[rarest].append(each)
        else:
            joined[each] = [each]
    name_of = {one: name for name, ones in joined.items() for one in ones}
    return name_of, {name: sum(expected[one] for one in ones) for name, ones in joined.items()}


def p_of_choice(name, count, seed):
    lists = LISTS[name]
    name_of, expected = without_rare_ones(probabilities(squares(lists), count))
    sets = [name_of[frozenset(new.tolist())] for (new,) in chosen(graph_of(lists, 20), [count], sorted(lists), seed=seed)]
    return p_of_sets(sets, expected)


def p_of_second_hop(seed):
    """Candidates keep the scores that they had: 2 has 1/2 of the seed's list, and 1/4 more where the first hop took 1."""
    graph = graph_of({0: [1, 2], 1: [2, 10, 11, 0]}, 20)
    both = [(int(first[0]), int(second[0])) for first, second in chosen(graph, [1, 1], [0], seed=seed) if first[0] == 1]
    left = {2: Fraction(9, 16), 10: Fraction(1, 16), 11: Fraction(1, 16)}
    return p_of_sets(both, {(1, node): square / sum(left.values()) for node, square in left.items()})


CASES = [
    *((f"{count} of {name}", lambda s, n=name, k=count: p_of_choice(n, k, s)) for name in LISTS for count in (1, 2, 3)),
    ("second hop, given the first", p_of_second_hop),
    *((f"independent {what}", lambda s, what=what: p_between(s, what, chosen)) for what in ("batches", "epochs", "seeds")),
]


def wrong():
    """In proportion to scores themselves, and whatever their edges are."""
    lists, random = LISTS["of hubs"], np.random.default_rng(0)
    expected = probabilities(squares(lists), 1)
    weights = np.sqrt([float(square) for square in squares(lists).values()])
    nodes = np.array(list(squares(lists)))
    draws = (random.choice(nodes, NUM_BATCHES, p=p) for p in (weights / weights.sum(), np.full(nodes.size, 1 / nodes.size)))
    return tuple(p_of_sets([frozenset([int(each)]) for each in drawn], expected) for drawn in draws)
