"""How often nodes will be visited, from few sampled batches: visits that were counted, and what nodes of the same kind get.

In: visits in some sampled batches, each node's degree, and its inclusion probability where there is one. Out: expected visits in as many
batches more. Invariant: nodes of one kind have together as many as were counted.

A few batches of a large graph visit most nodes never or once, which says little. So the visits of the nodes of a class, of about the same
degree and inclusion probability, are taken for draws of Poisson's law whose means follow a gamma law; mean and variance of the class give
its parameters, and a node's count moves its own mean as far as that leaves room for (empirical Bayes, Robbins 1956, in its parametric
form). Where the class says nothing, or counts say enough, the ranking is that of the counts. An inclusion probability need not be right:
what its class gets is counted.

A whole epoch says more than that: the seeds are the same in the next one, and much of what lies around them. So its counts vary less by
chance than Poisson's law says; how much less is told by batches that are drawn twice (`reads_again`).
"""

from __future__ import annotations

import numpy as np

from penstock.cache.hotness import blocks

CLASSES_PER_OCTAVE = 4
"""Of degrees, and of probabilities."""
NUM_CLASSES = 66 * CLASSES_PER_OCTAVE
"""Of either."""
LEAST_PROBABILITY = 2.0**-64


def expected_visits(visits: np.ndarray, degree: np.ndarray, inclusion: np.ndarray | None = None, *, again: float = 0.0) -> np.ndarray:
    """Return float32[n].

    Args:
        visits: int[n], in the sampled batches.
        degree: int[n], 0 or more: out-degrees (`degree_hotness`).
        inclusion: float[n], the probability that a batch visits each node (`inclusion_probability`).
        again: of what a batch reads, the share that it reads when it is drawn again, where the same seeds come again. That share of the
            variance of Poisson's law is not there.
    Cost: 4 bytes a node, the result.
    """
    num_classes = NUM_CLASSES if inclusion is None else NUM_CLASSES * NUM_CLASSES
    nodes, sums, squares = np.zeros((3, num_classes))
    for block in blocks(visits.size):
        classes, counts = _classes(degree, inclusion, block), visits[block].astype(np.float64)
        nodes += np.bincount(classes, minlength=num_classes)
        sums += np.bincount(classes, counts, num_classes)
        squares += np.bincount(classes, counts * counts, num_classes)
    mean = sums / np.maximum(nodes, 1)
    by_chance = (1 - again) * mean
    of_means = np.maximum(squares / np.maximum(nodes, 1) - mean * mean - by_chance, 0)  # the variance that is left for them
    trust = of_means / np.maximum(of_means + by_chance, 1e-300)  # in a node's own count
    expected = np.empty(visits.size, np.float32)
    for block in blocks(visits.size):
        classes, counts = _classes(degree, inclusion, block), visits[block]
        expected[block] = mean[classes] + trust[classes] * (counts - mean[classes])
    return expected


def _classes(degree: np.ndarray, inclusion: np.ndarray | None, block: slice) -> np.ndarray:
    """int64[n]: the class of each node of a block."""
    of_degree = _octaves(degree[block].astype(np.float64))
    if inclusion is None:
        return of_degree
    likely = inclusion[block].astype(np.float64)
    return of_degree * NUM_CLASSES + _octaves(np.where(likely > 0, np.maximum(likely / LEAST_PROBABILITY, 1), 0))


def _octaves(numbers: np.ndarray) -> np.ndarray:
    """0 for 0, then CLASSES_PER_OCTAVE for each power of two, from 1 to 2**64."""
    part, exponent = np.frexp(numbers)
    return np.where(numbers > 0, exponent * CLASSES_PER_OCTAVE + ((2 * part - 1) * CLASSES_PER_OCTAVE).astype(np.int64), 0)
