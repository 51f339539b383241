"""What the papers say of feature caches, measured again on other graphs.

    python -m bench.caching DATA [GRAPH ...] [--keep FOLDER]      DATA: folder with web_cnr2000.npz, ogbn_arxiv_nofeat.npz, ...

Seven graphs, twelve settings each; every study is `penstock.study.study_cache`, so that any row can be made again with `penstock study
cache`. Writes `bench/results/caching.json`; `python -m bench.tables` renders it as docs/results/caching.md with its pictures.
Batches are small because the graphs are: what matters is which part of the graph a batch reads (`asked_rows_per_batch`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.common import begin, one_of, write_result

if TYPE_CHECKING:
    from penstock.records import Graph

STATIC = dict(policies=("random", "degree", "ratio", "presample", "oracle"), capacities=("1%", "5%", "10%", "20%"))
TWICE = dict(policies=("random", "degree", "presample", "presample-2", "oracle"), capacities=("1%", "5%", "10%", "20%"))
AHEAD = ("belady", "belady-plain", "superbatch")
DYNAMIC = dict(capacities=("10%", "20%"), windows=(1, 4, 16, 64, 0), epochs=1)
ALL = ("random", "degree", "presample", "oracle", "fifo", "lru", "lfu", "clock", "sieve", "s3-fifo", *AHEAD)
SETTINGS: dict[str, dict[str, Any]] = {
    "2,2 of 65%": dict(num_neighbors=(2, 2), batch_size=64, train_fraction=0.65, epochs=4, **STATIC),
    "10,10 of 65%": dict(num_neighbors=(10, 10), batch_size=64, train_fraction=0.65, epochs=1, **STATIC),
    "10,10 of 10%": dict(num_neighbors=(10, 10), batch_size=64, train_fraction=0.1, epochs=4, **STATIC),
    "10,10 of 1%": dict(num_neighbors=(10, 10), batch_size=64, train_fraction=0.01, epochs=4, **STATIC),
    "15,10,5 of 1%": dict(num_neighbors=(15, 10, 5), batch_size=16, train_fraction=0.01, epochs=4, **TWICE),
    "15,10,5 of 1%, gathered": dict(num_neighbors=(15, 10, 5), batch_size=16, train_fraction=0.01, epochs=4, **STATIC),
    "15,10,5 of 1%, by recency": dict(num_neighbors=(15, 10, 5), batch_size=16, train_fraction=0.01, epochs=4, weight="recency", **TWICE),
    "15,10,5 of 1%, by edge": dict(num_neighbors=(15, 10, 5), batch_size=16, train_fraction=0.01, epochs=4, weight="by_edge", **TWICE),
    "10,10 of 10%, by recency": dict(num_neighbors=(10, 10), batch_size=64, train_fraction=0.1, epochs=4, weight="recency", **TWICE),
    "10,10 of 10%, large batches": dict(num_neighbors=(10, 10), batch_size=1024, train_fraction=0.1, epochs=4, **STATIC),
    "10,10 of 10%, orders": dict(
        num_neighbors=(10, 10), batch_size=32, train_fraction=0.1, orders=("random", "proximity", "one-sequence"), policies=ALL, **DYNAMIC
    ),
    "10,10,10 of 2%": dict(
        num_neighbors=(10, 10, 10), batch_size=8, train_fraction=0.02, policies=("degree", "presample", "oracle", *AHEAD), **DYNAMIC
    ),
}  # fmt: skip
"""name -> settings of a study; "2,2 of 65%" has PaGraph's fanouts and train fraction, "15,10,5 of 1%" GNNLab's on papers100M,
"10,10,10 of 2%" Ginex' fanouts. gathered: train nodes near each other, as the first ones of a traversal are, not a random share.
by recency, by edge: neighbours are drawn by weight, see `weigh`."""

GENERATED: dict[str, dict[str, Any]] = {
    "zipf": dict(num_nodes=200_000, num_edges=3_200_000),
    "rmat": dict(scale=18, num_edges=4_000_000),
    "communities": dict(num_nodes=200_000, num_edges=3_000_000, num_communities=400, mixing=0.1, feature_dim=8),
}
REAL = {"web_cnr2000": False, "ogbn_arxiv_nofeat": True, "soc_slashdot0902": False}
"""name -> whether the reverse of every edge is added, as is usual for citations."""

EXPANDED = {"cit_hepph, 8 copies": ("cit_hepph", True, dict(num_copies=8))}
"""name -> (base, whether its reverses are added, options of the Kronecker expansion)."""

GRAPHS = (*GENERATED, *REAL, *EXPANDED)


def make(name: str, data: Path, folder: Path) -> Path:
    """Return the store of that name, made if it is not there."""
    from penstock.store import generate, ingest

    path = folder / name.replace(", ", "-").replace(" ", "-")
    if (path / "manifest.json").exists():
        return path
    if name in GENERATED:
        generate(name, path, seed=1, **GENERATED[name])
    elif name in REAL:
        ingest(data / f"{name}.npz", path, undirected=REAL[name], duplicates="drop")
    else:
        base, undirected, options = EXPANDED[name]
        if not (folder / base / "manifest.json").exists():
            ingest(data / f"{base}.npz", folder / base, undirected=undirected, duplicates="drop")
        generate("kronecker", path, base=folder / base, seed=1, **options)
    return path


def weigh(path: Path) -> Path:
    """Return the same graph with two fields of skewed weights on its edges, made if it is not there.

    recency: of the source, as in GNNLab, where the later a node came the likelier it is drawn. There are no dates: the n nodes came in
    a random order, and the k-th last has weight n / k. by_edge: 1 / u, u uniform: a power law as skewed, but of each edge by itself.
    """
    import torch
    from torch_geometric.data import Data

    from penstock import rng
    from penstock.order.orders import permutation
    from penstock.store import Store, ingest

    weighted = path.with_name(f"{path.name}-weighted")
    if (weighted / "manifest.json").exists():
        return weighted
    csc = Store.open(path).csc()
    sources, num_nodes = np.array(csc.indices, dtype=np.int64), csc.num_dst
    age = 1 + permutation(num_nodes, 0, num_nodes, rng.derive_key(1, 0, rng.GENERATE))
    words = rng.random_words(rng.derive_key(2, 0, rng.GENERATE), 0, -(-csc.num_edges // 4)).reshape(-1)[: csc.num_edges]
    ends = np.stack([sources, np.repeat(np.arange(num_nodes), np.diff(csc.indptr))])
    data = Data(num_nodes=num_nodes, edge_index=torch.from_numpy(ends))
    data.recency = torch.from_numpy((num_nodes / age[sources]).astype(np.float32))
    data.by_edge = torch.from_numpy((2.0**32 / (words + 0.5)).astype(np.float32))
    ingest(data, weighted)
    return weighted


def measure(store_path: Path, note: Callable[[str], None]) -> dict[str, Any]:
    """All settings on one graph."""
    from penstock.store import Store
    from penstock.study import CacheStudy, study_cache

    plain, weighted, found = Store.open(store_path), Store.open(weigh(store_path)), {}
    graph: dict[str, Any] = {}
    for name, settings in SETTINGS.items():
        started, store = time.perf_counter(), weighted if "weight" in settings else plain
        ids = gather_seeds(store.graph(), settings["train_fraction"]) if name.endswith("gathered") else None
        result = study_cache(store, CacheStudy(**settings), ids=ids)
        graph = result["graph"]
        found[name] = {
            "seconds": round(time.perf_counter() - started, 1),
            "num_seeds": result["num_seeds"],
            "capacities": [each["text"] for each in result["capacities"]],
            "orders": {order: shorten(values) for order, values in result["orders"].items()},
        }
        note(f"  {name}: {found[name]['seconds']} s")
    return {"graph": graph, "settings": found}


def gather_seeds(graph: Graph, share: float) -> np.ndarray:
    """Return int64[n]: nodes near each other, the first ones of a breadth-first traversal."""
    from penstock.order import proximity_order

    ids = np.arange(graph.num_nodes["node"])
    return proximity_order(graph, ids, seed=0, batch_size=1, num_sequences=1).sequences[: max(round(share * ids.size), 1)]


def shorten(order: dict[str, Any]) -> dict[str, Any]:
    """What the page needs of one order."""
    accesses = order["accesses"]
    return {
        "asked_rows_per_epoch": order["asked_rows_per_epoch"],
        "asked_rows_per_batch": round(order["asked_rows_per_batch"], 1),
        "ceiling": [round(share, 5) for share in order["ceiling"]],
        "curves": {
            label: {"hit_rate": [round(rate, 5) for rate in curve["hit_rate"]], "missed_rows": curve["missed_rows"]}
            for label, curve in order["curves"].items()
        },
        "visited_share": round(accesses["rows"]["visited_share"], 5),
        "visited_more_than_once_share": round(accesses["rows"]["visited_more_than_once_share"], 5),
        "most_visits": accesses["rows"]["most_visits"],
        "similarity": round(sum(accesses["similarity_between_epochs"]) / max(len(accesses["similarity_between_epochs"]), 1), 5),
        "rank_correlation_with_visits": {name: round(value, 5) for name, value in accesses["rank_correlation_with_visits"].items()},
        "rows_needed": {share: round(value, 5) for share, value in accesses["rows"]["skew"]["needed"].items()},
        "list_bytes_needed": {share: round(value, 5) for share, value in accesses["lists"]["skew"]["needed"].items()},
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("graphs", nargs="*", type=one_of(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--keep", type=Path, help="folder for the stores (default: a temporary one)")
    given = parser.parse_args()
    settings = {name: {key: value for key, value in each.items() if key != "policies"} for name, each in SETTINGS.items()}
    values = {**begin("python -m bench.caching DATA"), "settings": settings, "graphs": {}}
    started = time.perf_counter()
    with nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory() as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        stores = {name: make(name, given.data, Path(folder)) for name in given.graphs}
        for name, store in stores.items():
            print(name, flush=True)
            values["graphs"][name] = measure(store, lambda line: print(line, flush=True))
    values["seconds"] = round(time.perf_counter() - started, 1)
    print(write_result("caching", values))


if __name__ == "__main__":
    main()
