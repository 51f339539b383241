"""How often nodes will be visited, from few sampled batches: visits that were counted, and what nodes of the same degree get.

In: visits in some sampled batches, and each node's degree. Out: expected visits in as many batches more. Invariant: nodes of about the same
degree have together as many as were counted.

A few batches of a large graph visit most nodes never or once, which says little. So the visits of the nodes of a class of degrees are taken
for draws of Poisson's law whose means follow a gamma law; mean and variance of the class give its parameters, and a node's count moves its
own mean as far as that leaves room for (empirical Bayes, Robbins 1956, in its parametric form). Where degree says nothing, or counts say
enough, the ranking is that of the counts.

A whole epoch says more than that: the seeds are the same in the next one, and much of what lies around them. So its counts stay, as GNNLab
has it, and the law decides among nodes of equal counts, those that nobody visited among them: it adds less than one visit.
"""

from __future__ import annotations

import numpy as np

from penstock.cache.hotness import BLOCK

CLASSES_PER_OCTAVE = 8
"""Of degrees."""


def expected_visits(visits: np.ndarray, degree: np.ndarray, *, is_whole: bool = False) -> np.ndarray:
    """Return float32[n].

    Args:
        visits: int[n], in the sampled batches.
        degree: int[n], 0 or more: out-degrees (`degree_hotness`).
        is_whole: these are all batches of an epoch, or of several, and not a part.
    Cost: 4 bytes a node, the result.
    """
    num_classes = 65 * CLASSES_PER_OCTAVE
    nodes, sums, squares = np.zeros((3, num_classes))
    for first in range(0, visits.size, BLOCK):
        classes, counts = _classes(degree[first : first + BLOCK]), visits[first : first + BLOCK].astype(np.float64)
        nodes += np.bincount(classes, minlength=num_classes)
        sums += np.bincount(classes, counts, num_classes)
        squares += np.bincount(classes, counts * counts, num_classes)
    mean = sums / np.maximum(nodes, 1)
    beyond_poisson = np.maximum(squares / np.maximum(nodes, 1) - mean * mean - mean, 0)  # variance of the means
    trust = beyond_poisson / np.maximum(beyond_poisson + mean, 1e-300)  # in a node's own count
    expected = np.empty(visits.size, np.float32)
    for first in range(0, visits.size, BLOCK):
        classes = _classes(degree[first : first + BLOCK])
        counts = visits[first : first + BLOCK]
        likely = mean[classes] + trust[classes] * (counts - mean[classes])
        expected[first : first + BLOCK] = counts + likely / (1 + likely) if is_whole else likely
    return expected


def _classes(degree: np.ndarray) -> np.ndarray:
    """0 for degree 0, then CLASSES_PER_OCTAVE for each power of two."""
    part, exponent = np.frexp(degree.astype(np.float64))
    return np.where(degree > 0, exponent * CLASSES_PER_OCTAVE + ((2 * part - 1) * CLASSES_PER_OCTAVE).astype(np.int64), 0)
