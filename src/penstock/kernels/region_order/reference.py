"""Ids in the order of the regions of a table that they lie in: the definition."""

from __future__ import annotations

import numpy as np


def order_by_region(ids, shift):
    """Return int32[n]: places of int64[n] `ids`, those of smaller regions first; the region of an id is `id >> shift`.

    Places of the same region may come in any order: nothing that is read in this order depends on it. Here it is theirs.
    """
    return np.argsort(ids >> shift, kind="stable").astype(np.int32)
