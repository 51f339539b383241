"""What tests of draws have in common: chi-square tests over pairs, bands of a long list and subsets of a short one."""

from itertools import combinations

import numpy as np
from scipy import stats

from penstock.records import CSC, EDGE, NODE, Graph

SMALLEST_P = 1e-3
NUM_BANDS = 64


def graph_of(lists, num_nodes=None):
    """A graph of int32 lists of in-neighbours: of nodes 0, 1, ..., or of those that a dict names; the other nodes have none."""
    lists = lists if isinstance(lists, dict) else dict(enumerate(lists))
    num_nodes = len(lists) if num_nodes is None else num_nodes
    indptr = np.concatenate([[0], np.cumsum([len(lists.get(v, ())) for v in range(num_nodes)])]).astype(np.int64)
    return Graph({NODE: num_nodes}, {EDGE: CSC(indptr, np.concatenate([lists[v] for v in sorted(lists)]).astype(np.int32))}, True)


def p_of_table(first, second, degree):
    """Two draws from the same list are independent: the table of pairs."""
    return stats.chisquare(np.bincount(first * degree + second, minlength=degree * degree)).pvalue


def p_of_slots(slots, degree, *, fanout=1, num_bands=NUM_BANDS):
    """Slots of a list come equally often, or bands of a long one do.

    Without replacement the counts of a draw of `fanout` vary less than those of a multinomial one by (1 - share drawn): the statistic is
    scaled.
    """
    num_bands = min(degree, num_bands)
    expected = slots.size * np.bincount(np.arange(degree) * num_bands // degree, minlength=num_bands) / degree
    counts = np.bincount(slots.reshape(-1) * num_bands // degree, minlength=num_bands)
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum() * (degree - 1) / (degree - fanout), num_bands - 1)


def subsets_of(degree, fanout):
    """Subset of a short list -> its number."""
    return {subset: number for number, subset in enumerate(combinations(range(degree), fanout))}


def p_of_subsets(slots, degree):
    """Every subset of a short list is equally likely."""
    subsets = subsets_of(degree, slots.shape[1])
    return stats.chisquare(np.bincount([subsets[tuple(sorted(row))] for row in slots.tolist()], minlength=len(subsets))).pvalue


def positions_of_hub(sampler, num_epochs, num_batches):
    """Positions that batches of node 0 take, through the public sampler, over batches and epochs."""
    workspace = sampler.workspace()
    places = [(epoch, batch) for epoch in range(num_epochs) for batch in range(num_batches)]
    taken = [sampler.sample({NODE: np.array([0])}, epoch=epoch, batch=batch, workspace=workspace) for epoch, batch in places]
    return np.concatenate([sample.edges[EDGE].positions for sample in taken])
