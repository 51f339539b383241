"""The state of a loader: its position, and its configuration.

In: a configuration (a flat dict of names and values). Out: a few integers and a digest. Invariant: a state is accepted only by a loader
that would deliver the same batches; else the error names the first differences.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xxhash

from penstock.errors import StateError
from penstock.records import CSC, Graph
from penstock.store.fingerprint import fingerprint

VERSION = 2


def describe_graph(graph: Graph) -> dict[str, Any]:
    """Return what identifies a graph: counts and fingerprints per type."""

    def of(csc: CSC) -> str:
        weights = "" if csc.sums is None else f" by weight {fingerprint(csc.sums)}"
        times = "" if csc.timed is None else f" by time {csc.timed}"
        return f"{csc.num_edges} edges {fingerprint(csc.indptr)} {csc.told or fingerprint(csc.indices)}{weights}{times}"

    return {
        **{f"nodes of {node_type}": count for node_type, count in graph.num_nodes.items()},
        **{f"edges of {'/'.join(edge_type)}": of(csc) for edge_type, csc in graph.adjacency.items()},
    }


def make_state(configuration: dict[str, Any], *, epoch: int, batch: int, sequence: str | None = None) -> dict[str, Any]:
    """Return a state that survives JSON: position, configuration and its digest; inside an epoch, `sequence` of a user's sampler, too."""
    position = {"version": VERSION, "epoch": epoch, "batch": batch, **({} if sequence is None else {"sequence": sequence})}
    return {**position, "configuration": configuration, "digest": _digest(configuration)}


def check_state(state: dict[str, Any], configuration: dict[str, Any]) -> tuple[int, int, str | None]:
    """Return (epoch, batch, sequence) of a state, or raise StateError naming what differs."""
    if not isinstance(state, dict) or not {"version", "epoch", "batch", "digest"} <= state.keys():
        raise StateError("not a loader state: take it from loader.state_dict()")
    if state["version"] != VERSION:
        raise StateError(f"the state has version {state['version']}, this Penstock reads version {VERSION}")
    if state["digest"] != _digest(configuration):
        saved = state.get("configuration", {})
        names = [name for name in {**saved, **configuration} if saved.get(name) != configuration.get(name)]
        listed = "; ".join(f"{name}: {saved.get(name)!r} then, {configuration.get(name)!r} now" for name in names[:3])
        raise StateError(f"the state belongs to another configuration ({len(names)} difference{'s' * (len(names) > 1)}): {listed}")
    for name in ("epoch", "batch"):
        if isinstance(state[name], bool) or not isinstance(state[name], (int, np.integer)) or state[name] < 0:
            raise StateError(f"the state has {name} {state[name]!r}, which is no whole number from 0 on: take it from loader.state_dict()")
    return int(state["epoch"]), int(state["batch"]), state.get("sequence")


def _digest(configuration: dict[str, Any]) -> str:
    return xxhash.xxh3_64(json.dumps(configuration, sort_keys=True, default=str).encode()).hexdigest()
