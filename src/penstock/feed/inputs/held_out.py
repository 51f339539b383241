"""Links by the names of their parts, from whoever has those that were held out: a store, or a part of a partition of one.

In: an input, and what has its links. Out: the choice of links that a loader makes its seeds of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from penstock.feed.fields import PYG_EDGE_NAMES, TensorRows
from penstock.feed.inputs.base import Input, no_parts_of_links, no_such_label
from penstock.feed.links import ChosenLinks, GivenEnds
from penstock.records import EdgeType
from penstock.store.format import BFLOAT16, ArraySpec
from penstock.store.links import HasLinks


def links_held_out(source: Input, held: HasLinks, part: str, edge_type: EdgeType | None) -> ChosenLinks:
    """See `Input.links_by_name`: links as they lie in `held`; "train": all edges of their type."""
    if not held.types_with_links() or edge_type not in (None, *held.types_with_links()):
        raise no_parts_of_links(part)
    edge_type = held.type_with_links() if edge_type is None else edge_type
    specs: dict[str, ArraySpec] = held.manifest.edges[edge_type].fields
    names = {PYG_EDGE_NAMES.get(name, name): name for name in specs}

    def field(name: str) -> Callable[[np.ndarray], Any]:
        """Of links, by the name in the store or in a batch."""
        stored = names.get(name, name)
        if stored not in specs:
            raise no_such_label(edge_type, name, names)
        if part == "train":
            return source.edge_field(edge_type, PYG_EDGE_NAMES.get(stored, stored))
        dtype = torch.bfloat16 if specs[stored].dtype == BFLOAT16 else None
        rows = TensorRows(held.link_field(stored, part, edge_type), f"links {part} {name}", dtype)
        return lambda numbers: rows.gather(numbers, np.empty)

    if part == "train":
        return replace(source.all_edges(edge_type), field=field, is_part=True)

    def known() -> GivenEnds:
        parts = zip(*(held.link_ends(each, edge_type) for each in held.link_parts(edge_type)), strict=True)
        return GivenEnds(*map(np.concatenate, parts))

    return ChosenLinks(edge_type, GivenEnds(*held.link_ends(part, edge_type)), field, is_part=True, known=known)
