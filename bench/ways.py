"""Loaders of one kind, Penstock's and PyG's, over the same graph in the same ways, to be measured in turns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch_geometric.loader
from torch_geometric import typing as has

import penstock
from bench.common import spread

WORKERS = 2
PYG, PROCESSES = "PyG, ", f", {WORKERS} workers"
"""What stands before and behind the name of a way, by PyG's loader and by its worker processes."""

Ways = Mapping[str, Mapping[str, Any]]
"""Name -> arguments of a loader."""


def make_loaders(
    kind: str, data: Any, fanouts: list[int], ways: Ways, ours: Ways, **common: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    """(name -> loader, name -> seconds that it took to make): Penstock's in all ways, and PyG's, where pyg-lib is there, in all but `ours`.

    `kind`: their name; `common`: arguments of all.
    """
    makers = [(getattr(penstock, kind), "", "", {**ways, **ours}, {"num_workers": WORKERS, "seed": 0})]
    if has.WITH_PYG_LIB:
        peer = getattr(torch_geometric.loader, kind)
        makers += [(peer, PYG, "", ways, {}), (peer, PYG, PROCESSES, ways, {"num_workers": WORKERS})]
    made, made_s = {}, {}
    for make, before, behind, its_ways, workers in makers:
        for way, how in its_ways.items():
            started = time.perf_counter()
            made[f"{before}{way}{behind}"] = make(data, fanouts, **common, **how, **workers)
            made_s[f"{before}{way}{behind}"] = round(time.perf_counter() - started, 2)
    return made, made_s


def over_pyg(rates: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    """Each of PyG's loaders -> how many times as fast Penstock's is in the same way."""
    peers = [name for name in rates if name.startswith(PYG)]
    return {name: over(rates, name.removeprefix(PYG).removesuffix(PROCESSES), name) for name in peers}


def over(rates: Mapping[str, list[float]], one: str, other: str) -> dict[str, float]:
    """How many times as fast one is as the other, turn by turn."""
    return spread([a / b for a, b in zip(rates[one], rates[other], strict=True)])
