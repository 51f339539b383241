"""What is trained on what, as plain values: for the report, and for whoever watches.

In: a run's parts. Out: what `report/` prints, by name; everything but numbers that change from batch to batch.
"""

from __future__ import annotations

from typing import Any

import torch

from penstock.feed import LinkNeighborLoader, NeighborLoader
from penstock.plan import Plan
from penstock.store import Store
from penstock.store.device_memory import peak_device_bytes
from penstock.train.config import TrainConfig
from penstock.train.data import TrainingData
from penstock.train.learner import Learner
from penstock.train.parts import PartsStore

FROM_STATS = (
    "cache_bytes", "list_bytes", "loaded_bytes", "weight_bytes", "disks", "memory", "device_bytes", "devices", "sampling",
    "device_cache",
)  # fmt: skip
"""What is said of the loader."""


def describe_data(store: Store | PartsStore, data: TrainingData) -> dict[str, Any]:
    """What is trained on."""
    return {
        "store": str(store.path),
        "nodes": dict(data.graph.num_nodes),
        "edges": {"/".join(e): csc.num_edges for e, csc in data.graph.adjacency.items()},
        "features": {t: list(rows.shape) for t, rows in data.x.items()},
        "aggregated": data.aggregated,
        "target": data.what,
        "seeds": "nodes" if data.edges is None else data.edges.what,
        "split": data.split,
        "parts": data.counts,
        "metric": data.task.metric,
    }


def describe_run(config: TrainConfig, plan: Plan, learner: Learner, loader: NeighborLoader | LinkNeighborLoader) -> dict[str, Any]:
    """What is trained, by what."""
    model, stats = learner.model, loader.stats()
    return {
        "model": f"{model.kind} ({type(model).__name__}, {learner.num_weights:,} weights)",
        "num_workers": loader.num_workers,
        "torch_threads": torch.get_num_threads(),
        "plan": None if plan.is_plain and plan.device_policy is None else plan.as_dict(),
        **{name: getattr(stats, name) for name in FROM_STATS},
        "device_peak_bytes": peak_device_bytes(learner.device),
        "config": config.as_dict(),
    }
