"""Partitioning a store: owners are chosen, measured and written.

In: a store, a number of parts, and a method. Out: a partition, and its description.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from penstock.errors import UsageError, argument
from penstock.partition.methods import MAX_PARTS, assign, check_choice, most_bytes
from penstock.partition.quality import measure
from penstock.partition.trainers import assign_trainers
from penstock.partition.writer import refuse_existing, write_parts
from penstock.store import Store
from penstock.store.budget import format_bytes, require_room
from penstock.store.format import ENDS
from penstock.store.progress import Progress, Quiet, hearing


def partition_store(
    path: str | os.PathLike[str] | Store,
    destination: str | os.PathLike[str],
    num_parts: int,
    *,
    trainers_per_part: int = 1,
    method: str = "ldg",
    split: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Cut a store into parts, one per machine.

    Args:
        path: the store.
        destination: folder of the partition; must not exist, or be empty. It gets a folder per part.
        num_parts: from one up to the number of nodes.
        trainers_per_part: processes that train on each part; if there are several, its nodes are divided among them once more, so that
            with `order="split"` the seeds of each are near each other.
        method: how owners are chosen, see `METHODS`.
        split: the split whose train nodes are balanced; None: the only split of each node type that has one.
        seed: of everything random.
        progress: receives the stages.
    Returns:
        The description as in the manifests: method, seed, seconds of choosing owners, and `Quality.as_dict`; with several trainers also
        their number, the share of edges between trainers of one part, and the balance of their train nodes. `links`, if some were held
        out: edge type -> part -> number. `written_s`: seconds of writing.
    Raises:
        UsageError: as for `assign`; the destination is not empty. StoreError: reading or writing failed.
    """
    store, progress = path if isinstance(path, Store) else Store.open(path), progress or Quiet()
    refuse_existing(destination)
    check_choice(num_parts, method, min(MAX_PARTS, max(sum(store.num_nodes.values()), 1)))
    graph = store.graph()
    with_splits = [t for t in store.node_types if store.node_entry(t).splits and (split is None or split in store.node_entry(t).splits)]
    train = {t: store.split("train", split, t) for t in with_splits}
    if split is not None and not train:
        store.split("train", split)  # raises, naming the splits
    num_train = sum(ids.size for ids in train.values())
    most = max(min(MAX_PARTS, num_train or MAX_PARTS) // num_parts, 1)
    if not isinstance(trainers_per_part, int) or not 1 <= trainers_per_part <= most:
        of = f"{num_parts} parts{f' and {num_train} train nodes' * bool(num_train)}"
        raise UsageError(f"{argument('trainers_per_part')} must lie in [1, {most}] for {of}, got {trainers_per_part!r}")
    started = time.perf_counter()
    num_bytes, frugal = most_bytes(graph, method), argument("method", "ldg")
    require_room(num_bytes, argument("method", method), f"take {frugal}" if method == "metis" else "take more memory")
    progress.note(f"choosing owners by {method}, in about {format_bytes(num_bytes)} of memory")
    with hearing(progress.note):
        owners = assign(graph, num_parts, method, train=train, seed=seed)
    took_s = time.perf_counter() - started
    quality = measure(graph, owners, num_parts, train)
    made = {"method": method, "seed": seed, "seconds": round(took_s, 3), **quality.as_dict()}
    links = {"/".join(e): {part: len(store.link_field(ENDS[0], part, e)) for part in store.link_parts(e)} for e in store.types_with_links()}
    made |= {"links": links} if links else {}
    trainers = None
    if trainers_per_part > 1:
        progress.note(f"dividing each part among {trainers_per_part} trainers")
        started = time.perf_counter()
        with hearing(progress.note):
            trainers = assign_trainers(graph, owners, num_parts, trainers_per_part, method, train=train, seed=seed)
        made["seconds"] = round(took_s + time.perf_counter() - started, 3)
        both = {t: owners[t] * np.int16(trainers_per_part) + each for t, each in trainers.items()}
        among = measure(graph, both, num_parts * trainers_per_part, train)
        made |= {"trainers_per_part": trainers_per_part, "trainers_edge_cut": among.edge_cut - quality.edge_cut}
        made["trainers_train_balance"] = among.balance("train")
    started = time.perf_counter()
    write_parts(store, owners, num_parts, destination, trainers=trainers, num_trainers=trainers_per_part, made=made, progress=progress)
    written_s = round(time.perf_counter() - started, 3)
    return {"path": os.path.abspath(destination), "num_parts": num_parts, **made, "written_s": written_s}
