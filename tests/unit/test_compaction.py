"""The table of a sampling thread, when its numbers run out."""

import numpy as np
import pytest

from penstock.sample.compaction import DirectTable

LAST = np.iinfo(np.int32).max


@pytest.mark.parametrize("before_the_end", range(-3, 6))
def test_seeds_at_the_end_of_the_numbers(before_the_end):
    """What was seen of earlier batches has numbers near the end; a batch then begins anew, and gives what a new table gives."""
    ids, more = np.array([3, 7, 7, 1]), np.array([1, 9, 3, 9, 8])
    found = []
    for base in (1, LAST - before_the_end):
        table = DirectTable(10)
        table._table.fill(min(base - 1, LAST))
        table._base = base
        nodes, positions = np.zeros(9, np.int64), np.empty(more.size, np.int64)
        repetitions = table.add_seeds(ids, nodes)
        known = table.relabel(more, more.size, ids.size, nodes, positions)
        table.finish(known)
        found.append((repetitions, known, nodes.tolist(), positions.tolist()))
    assert found[0] == found[1]
