"""How often nodes will be visited, estimated from a few sampled batches: from each node's own visits, and those of similar nodes.

In: visits in some sampled batches, each node's degree, and its inclusion probability if available. Out: expected visits in as many further
batches. Invariant: over all nodes of a class, expected visits sum to those counted.

A few batches of a large graph visit most nodes never or once, which says little. So visits are modelled per class of nodes with similar
degree and inclusion probability: each node's count is a Poisson draw, and the means of these draws follow a gamma distribution, fitted to
the mean and variance of the class. The estimate for a node lies between the mean of its class and its own count; the more the class varies,
the closer it is to the count (parametric empirical Bayes, Robbins 1956). If classes carry no information, or counts carry enough, the
ranking is that of the counts. Inclusion probabilities need not be accurate: they only select the class, whose visits are counted.

Counts of a whole epoch say more, since the next epoch has the same seeds and reads much of the same neighbourhoods. So they vary less by
chance than a Poisson distribution; how much less is measured by drawing some batches twice (`reads_again`).
"""

from __future__ import annotations

import numpy as np

from penstock.cache.hotness import blocks

CLASSES_PER_OCTAVE = 4
"""Classes per power of two, of degrees and of probabilities."""
NUM_CLASSES = 66 * CLASSES_PER_OCTAVE
"""Classes of degrees, and classes of probabilities."""
LEAST_PROBABILITY = 2.0**-64


def expected_visits(visits: np.ndarray, degree: np.ndarray, inclusion: np.ndarray | None = None, *, again: float = 0.0) -> np.ndarray:
    """Return float32[n]: the expected visits of each node.

    Args:
        visits: int[n], counted in the sampled batches.
        degree: int[n], 0 or more: out-degrees (`degree_hotness`).
        inclusion: float[n], the probability that a batch visits each node (`inclusion_probability`).
        again: the share of what a batch reads that it reads again when it is drawn again, if the same seeds will come. The variance by
            chance is that much smaller than Poisson's.
    Cost: 4 bytes per node, for the result.
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
    of_means = np.maximum(squares / np.maximum(nodes, 1) - mean * mean - by_chance, 0)  # the variance of the means: what chance leaves
    trust = of_means / np.maximum(of_means + by_chance, 1e-300)  # in a node's own count
    expected = np.empty(visits.size, np.float32)
    for block in blocks(visits.size):
        classes, counts = _classes(degree, inclusion, block), visits[block]
        expected[block] = mean[classes] + trust[classes] * (counts - mean[classes])
    return expected


def _classes(degree: np.ndarray, inclusion: np.ndarray | None, block: slice) -> np.ndarray:
    """Return int64[n]: the class of each node of a block."""
    of_degree = _octaves(degree[block].astype(np.float64))
    if inclusion is None:
        return of_degree
    likely = inclusion[block].astype(np.float64)
    return of_degree * NUM_CLASSES + _octaves(np.where(likely > 0, np.maximum(likely / LEAST_PROBABILITY, 1), 0))


def _octaves(numbers: np.ndarray) -> np.ndarray:
    """Return class numbers: 0 for 0, then CLASSES_PER_OCTAVE classes per power of two, from 1 to 2**64."""
    part, exponent = np.frexp(numbers)
    return np.where(numbers > 0, exponent * CLASSES_PER_OCTAVE + ((2 * part - 1) * CLASSES_PER_OCTAVE).astype(np.int64), 0)
