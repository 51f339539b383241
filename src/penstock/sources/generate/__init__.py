"""Graph generators: sources whose rows are a pure function of (options, row number), made chunk by chunk.

rmat          skewed degrees, no communities: recursive choice of quadrants of the adjacency matrix
zipf          both ends of every edge drawn by one power law over ranks: hubs have many edges in both directions
communities   planted classes that a GNN can learn, but that features alone hardly reveal
kronecker     a larger version of a real graph, with its degree distribution and communities
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.sources.generate.communities import Communities
from penstock.sources.generate.kronecker import Kronecker
from penstock.sources.generate.options import GeneratorOptions
from penstock.sources.generate.rmat import RMat
from penstock.sources.generate.zipf import Zipf
from penstock.sources.source import Source

KINDS: dict[str, type[GeneratorOptions]] = {"rmat": RMat, "zipf": Zipf, "communities": Communities, "kronecker": Kronecker}

__all__ = ["KINDS", "Communities", "GeneratorOptions", "Kronecker", "RMat", "Zipf", "generate"]


def generate(kind: str, **options: Any) -> Source:
    """Describe a generated graph; except for the splits, nothing is computed before its tables are read.

    Args:
        kind: one of `KINDS`.
        **options: the fields of the kind's class.
    """
    if kind not in KINDS:
        raise UsageError(f"no generator {kind!r}; there are {', '.join(KINDS)}")
    known = [field.name for field in fields(KINDS[kind])]
    for name in options:
        if name not in known:
            raise UsageError(f"generator {kind!r} has no option {name!r}; its options are {', '.join(known)}")
    options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    return KINDS[kind](**options).source()
