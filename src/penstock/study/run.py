"""A study of caches: sample once per order, replay through every policy at every capacity, and collect the results.

In: an open store and settings. Out: plain data, the content of `study.json`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

import penstock
from penstock import rng
from penstock.cache import degree_hotness
from penstock.cache.choose import STATIC
from penstock.cache.workload import Workload
from penstock.errors import MissingFieldError, UsageError, argument
from penstock.order.orders import permutation
from penstock.plan.capacity import parse_capacity, plan_rows
from penstock.records import Graph, NodeType
from penstock.sample import NeighborSampler
from penstock.sample.seeds import NodeSeeds
from penstock.sample.weights import store_weights, with_weights
from penstock.store import Progress, Quiet, Store, parse_bytes
from penstock.store.progress import stage
from penstock.study import measures
from penstock.study.config import ORACLE, CacheStudy
from penstock.study.orders import Seeds, make_order
from penstock.study.replay import Replay, expand
from penstock.study.trace import ListReads, Trace, record

WARM_EPOCHS = 1


def study_cache(
    store: Store | str | os.PathLike[str], settings: CacheStudy, *, progress: Progress | None = None, ids: np.ndarray | None = None
) -> dict[str, Any]:
    """Study caches for the rows of one node type.

    Args:
        store: open, or its path; its features are not read.
        settings: of the study.
        progress: receives batches sampled and accesses simulated.
        ids: int64[num_seeds], distinct: train nodes in place of those given by the settings.
    Returns:
        Plain data: settings, the graph, the capacities, and for each order the accesses and a curve per policy.
    """
    progress, curves = progress or Quiet(), expand(settings.policies, settings.windows)
    if not curves:
        raise UsageError("superbatch needs a window of at least 2 batches that is not all of them: with others it is belady")
    store = store if isinstance(store, Store) else Store(store)
    graph, seeds = store.graph(), choose_seeds(store, settings, ids)
    node_type = settings.node_type or seeds.node_type
    if node_type not in graph.num_nodes:
        raise UsageError(f"'{node_type}' is not a node type of {store.path}; it has {', '.join(store.node_types)}")
    if settings.weight is not None:
        seeds = replace(seeds, graph=with_weights(graph, store_weights(store, settings.weight)))
    features = store.node_fields(node_type).get("x")
    row_bytes = settings.row_bytes or (None if features is None else features.row_bytes)
    capacities = choose_capacities(settings.capacities, graph.num_nodes[node_type], row_bytes)
    orders = {name: _study_order(name, seeds, node_type, settings, curves, capacities, row_bytes, progress) for name in settings.orders}
    return {
        "penstock": penstock.__version__,
        "store": str(store.path),
        "settings": settings.as_dict(),
        "graph": _describe_graph(graph, node_type),
        "seed_type": seeds.node_type,
        "num_seeds": int(seeds.ids.size),
        "row_bytes": row_bytes,
        "capacities": capacities,
        "orders": orders,
    }


def choose_seed_type(store: Store, node_type: NodeType | None) -> NodeType:
    """Return the given node type, or the one to train on."""
    if node_type is None:
        with_splits = [name for name in store.node_types if store.split_names(name)]
        candidates = with_splits or store.node_types
        if len(candidates) > 1:
            raise UsageError(
                f"{store.path} has several node types to train on, choose one with {argument('seed_type')}: {', '.join(candidates)}"
            )
        return candidates[0]
    if node_type not in store.num_nodes:
        raise UsageError(f"'{node_type}' is not a node type of {store.path}; it has {', '.join(store.node_types)}")
    return node_type


def choose_seeds(store: Store, settings: CacheStudy, ids: np.ndarray | None = None) -> Seeds:
    """Return the given nodes, the train nodes of a split, or a random share of all nodes, ascending."""
    graph, node_type = store.graph(), choose_seed_type(store, settings.seed_type)
    if ids is not None:
        ids = np.sort(np.asarray(ids, dtype=np.int64))
    elif settings.train_fraction is not None:
        num_nodes = graph.num_nodes[node_type]
        count = max(round(settings.train_fraction * num_nodes), 1)
        ids = np.sort(permutation(num_nodes, 0, count, rng.derive_key(settings.seed, 0, rng.PRESAMPLE)))
    elif not store.split_names(node_type):
        instead = f"{argument('train_fraction', 0.1)} trains on a tenth of all nodes, at random"
        raise MissingFieldError(f"{store.path}: node type '{node_type}' has no split; {instead}")
    else:
        ids = np.array(store.split("train", settings.split, node_type), dtype=np.int64)
    if ids.size == 0:
        raise MissingFieldError(
            f"{store.path}: there are no train nodes of '{node_type}'; {argument('train_fraction', 0.1)} takes a tenth of all nodes"
        )
    labels = np.asarray(store.node_field("y", node_type)) if "y" in store.node_fields(node_type) else None
    return Seeds(graph, node_type, ids, labels, settings.batch_size, settings.seed)


def choose_capacities(texts: tuple[str, ...], num_nodes: int, row_bytes: int | None) -> list[dict[str, Any]]:
    """Return the capacities, ascending: text, rows, share of the nodes."""
    needing = [text for text in texts if parse_capacity(text)[0] == "bytes"]
    if needing and row_bytes is None:
        instead = f"give {argument('row_bytes')}, or a share such as 10%"
        raise UsageError(f"{argument('capacities', needing[0])} is in bytes, and the store has no field x: {instead}")
    rows = {text: plan_rows(text, {0: num_nodes}, {0: row_bytes or 0}, "capacities")[0] for text in texts}
    ascending = sorted(rows.items(), key=lambda item: item[1])
    return [{"text": text, "rows": count, "share": count / max(num_nodes, 1)} for text, count in ascending]


def _describe_graph(graph: Graph, node_type: NodeType) -> dict[str, Any]:
    """Return size and skew of a graph; skew is the share of edges whose source is among the 1 % of nodes with the highest out-degree."""
    degrees = np.sort(degree_hotness(graph, node_type))[::-1]
    top = max(degrees.size // 100, 1)
    return {
        "node_type": node_type,
        "num_nodes": int(graph.num_nodes[node_type]),
        "num_edges": int(sum(csc.num_edges for csc in graph.adjacency.values())),
        "top_hundredth_of_out_edges": float(degrees[:top].sum() / max(int(degrees.sum()), 1)),
        "never_a_source": float(np.count_nonzero(degrees == 0) / max(degrees.size, 1)),
    }


def _study_order(
    name: str, seeds: Seeds, node_type: NodeType, settings: CacheStudy, curves: dict[str, tuple[str, int | None]],
    capacities: list[dict[str, Any]], row_bytes: int | None, progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    order = make_order(name, seeds)
    sampler = NeighborSampler(seeds.graph, settings.num_neighbors, seed=settings.seed)
    num_epochs, memory = WARM_EPOCHS + settings.epochs, parse_bytes(settings.memory)
    num_batches = num_epochs * order.num_batches(settings.batch_size, False)
    with stage(progress, f"{name}: sampling", num_batches, "batches"):
        trace, lists = record(
            sampler, (seeds.node_type, seeds.ids), order, batch_size=settings.batch_size, num_epochs=num_epochs,
            measured_from=WARM_EPOCHS, node_type=node_type, memory_bytes=memory, advance=progress.advance,
        )  # fmt: skip
    workload = Workload(sampler, NodeSeeds(seeds.node_type, seeds.ids), order, settings.batch_size)
    replay = Replay(trace, workload, node_type, WARM_EPOCHS, [each["rows"] for each in capacities], memory, progress.advance)
    played = {label: curve for label, curve in curves.items() if replay.fits(curve[1])}
    with stage(progress, f"{name}: replaying", sum(replay.cost(each) for each, _ in played.values()), "accesses"):
        hits = {label: replay.play(*curve) for label, curve in played.items()}
    asked = np.array(trace.sizes[num_batches // num_epochs * WARM_EPOCHS :], dtype=np.int64)
    return {
        "num_batches_per_epoch": num_batches // num_epochs,
        "asked_rows_per_epoch": int(asked.sum()) / settings.epochs,
        "asked_rows_per_batch": float(asked.mean()) if asked.size else 0.0,
        "spilled_bytes": trace.spilled_bytes,
        "ceiling": [int(np.minimum(asked, each["rows"]).sum()) / max(int(asked.sum()), 1) for each in capacities],
        "curves": {label: summarize(found, asked, settings.epochs, row_bytes) for label, found in hits.items()},
        "left_out": sorted(set(curves) - set(played)),
        "accesses": _describe_accesses(trace, lists, replay, settings.epochs),
    }


def summarize(hits: np.ndarray, asked: np.ndarray, num_epochs: int, row_bytes: int | None) -> dict[str, Any]:
    """Return one curve, an element per capacity.

    Args:
        hits: int64[num_capacities, num_batches] of the measured epochs.
        asked: int64[num_batches].
    Returns:
        hit_rate: hits / asked of all batches together; mean_batch_hit_rate: the mean of the rates of batches, as in the papers;
        missed_rows: per epoch; by_epoch: missed rows of each epoch; moved_bytes: per epoch, if the length of a row is known.
    """
    by_epoch = (asked - hits).reshape(len(hits), num_epochs, -1).sum(2)
    missed = by_epoch.mean(1)
    curve: dict[str, Any] = {
        "hit_rate": _plain(hits.sum(1) / max(int(asked.sum()), 1)),
        "mean_batch_hit_rate": _plain((hits / np.maximum(asked, 1)).mean(1)),
        "missed_rows": _plain(missed),
        "by_epoch": by_epoch.tolist(),
    }
    if row_bytes is not None:
        curve["moved_bytes"] = _plain(missed * row_bytes)
    return curve


def _describe_accesses(trace: Trace, lists: ListReads, replay: Replay, num_epochs: int) -> dict[str, Any]:
    epochs = [trace.visits(epoch, epoch + 1) for epoch in range(trace.num_epochs)]
    visits = replay.hotness_of(ORACLE)
    replay.hotness_of("degree")
    return {
        "rows": measures.describe_visits(visits, num_epochs),
        "lists": measures.describe_lists(lists, num_epochs),
        "similarity_between_epochs": measures.similarity(epochs),
        "rank_correlation_with_visits": {
            name: measures.rank_correlation(hotness, visits) for name, hotness in replay.hotness.items() if name in STATIC
        },
    }


def _plain(values: np.ndarray) -> list[float]:
    return [float(f"{value:.8g}") for value in values]
