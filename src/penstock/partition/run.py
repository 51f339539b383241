"""Partitioning a store: owners are chosen, measured and written.

In: a store, how many parts, and by which method. Out: a partition, and what is known of it.
"""

from __future__ import annotations

import os
import time
from typing import Any

from penstock.partition.methods import assign
from penstock.partition.quality import measure
from penstock.partition.writer import refuse_existing, write_parts
from penstock.store import Store
from penstock.store.progress import Progress, Quiet


def partition_store(
    path: str | os.PathLike[str] | Store,
    destination: str | os.PathLike[str],
    num_parts: int,
    *,
    method: str = "ldg",
    split: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Cut a store into parts, one for each machine.

    Args:
        path: the store.
        destination: a folder that is not there, or empty: the partition, with a folder for each part.
        num_parts: one or more.
        method: how owners are chosen, see `METHODS`.
        split: whose train nodes are evenly distributed; None takes the only one, of each node type that has one.
        seed: of all that is random.
        progress: told of stages.
    Returns:
        What the manifests say of it: method, seed, seconds, and `Quality.as_dict`.
    Raises:
        UsageError: as of `assign`; there is something at the destination. StoreError: it cannot be read or written.
    """
    store, progress = path if isinstance(path, Store) else Store.open(path), progress or Quiet()
    refuse_existing(destination)
    graph = store.graph()
    with_splits = [t for t in store.node_types if store.node_entry(t).splits and (split is None or split in store.node_entry(t).splits)]
    train = {t: store.split("train", split, t) for t in with_splits}
    if split is not None and not train:
        store.split("train", split)  # says which there are
    started = time.perf_counter()
    progress.note(f"choosing owners by {method}")
    owners = assign(graph, num_parts, method, train=train, seed=seed)
    took_s = time.perf_counter() - started
    quality = measure(graph, owners, num_parts, train)
    made = {"method": method, "seed": seed, "seconds": round(took_s, 3), **quality.as_dict()}
    write_parts(store, owners, num_parts, destination, made=made, progress=progress)
    return {"path": os.path.abspath(destination), "num_parts": num_parts, **made}
