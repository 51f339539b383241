"""Packed layouts: pages that a batch reads, by order of the rows, on graphs of several kinds.

    python -m bench.layout DATA [GRAPH ...] [--keep FOLDER]      DATA: folder with web_cnr2000.npz, ogbn_arxiv_nofeat.npz, ...

Counts, not times, so load does not matter. Each order is made from an epoch that was sampled for it and measured on another one, on all
rows of a batch and on those that a cache of a tenth of the rows misses: a static one of the hottest (`presample`), and Belady with a
window of 16 batches. Writes `bench/results/layout.json`; `python -m bench.tables` renders it as docs/results/layout.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import caching
from bench.common import one_of, write_result
from penstock.sample.seeds import NodeSeeds

if TYPE_CHECKING:
    from penstock.records import Graph

GRAPHS = (*caching.GENERATED, *caching.REAL, "coauth_dblp2010", *caching.EXPANDED)
LARGE = "10,10,10 of 10%"
SETTINGS: dict[str, dict[str, Any]] = {
    "10,10 of 10%": dict(num_neighbors=[10, 10], batch_size=200, train_fraction=0.1),
    "15,10,5 of 1%": dict(num_neighbors=[15, 10, 5], batch_size=16, train_fraction=0.01),
    LARGE: dict(num_neighbors=[10, 10, 10], batch_size=1000, train_fraction=0.1),
}
"""Batches that read a small part of the graph, as those of large graphs do; and, last, a large part, in random order only."""

ORDERS, ROW_BYTES, CACHE, WINDOW = ("random", "community"), (256, 512, 1024, 3072), 0.1, 16
POLICIES = ("none", "presample", "belady")
MEASURED, WARM = 32, 16
"""Batches at most that are measured, and that fill the caches before."""


def make(name: str, data: Path, folder: Path) -> Path:
    """Return the store of that name, made if it is not there."""
    from penstock.store import ingest

    if name in caching.GRAPHS:
        return caching.make(name, data, folder)
    path = folder / name
    if not (path / "manifest.json").exists():
        ingest(data / f"{name}.npz", path, duplicates="drop")
    return path


def measure(graph: Graph, setting: dict[str, Any], order_name: str) -> dict[str, Any]:
    """Pages per batch of one graph under one setting: row bytes -> layout -> policy -> mean."""
    from penstock import rng
    from penstock.cache import sample_batches
    from penstock.cache.packing import LAYOUTS, RANDOM, Layouts, count_pages, record_accesses
    from penstock.order.orders import permutation
    from penstock.sample import NeighborSampler
    from penstock.sample.batches import SampledBatches
    from penstock.study.layout import make_policy, play
    from penstock.study.orders import Seeds, make_order

    num_nodes, batch_size = graph.num_nodes["node"], setting["batch_size"]
    count = max(round(setting["train_fraction"] * num_nodes), 1)
    seeds = np.sort(permutation(num_nodes, 0, count, rng.derive_key(0, 0, rng.PRESAMPLE)))
    order = make_order(order_name, Seeds(graph, "node", seeds, None, batch_size, 0))
    sampler, num_kept = NeighborSampler(graph, setting["num_neighbors"], seed=0), round(CACHE * num_nodes)
    accesses = record_accesses(SampledBatches(sampler, NodeSeeds("node", seeds), order, batch_size))
    started = time.perf_counter()
    layouts = Layouts(graph, "node", accesses, sampler.fanouts, num_hot=num_kept)
    rows = {"original": np.arange(num_nodes, dtype=np.int32)}
    rows |= {name: _rows(layouts.make(name)) for name in (RANDOM, *LAYOUTS)}
    made_s = time.perf_counter() - started
    num_batches = order.num_batches(batch_size, False)
    num_warm = min(WARM, num_batches // 4)
    batches = []
    for ids in sample_batches(sampler, "node", seeds, order, batch_size=batch_size, epochs=[0]):
        batches.append(ids["node"])
        if len(batches) == num_warm + MEASURED:
            break
    left = {"none": batches[num_warm:]}
    for policy in POLICIES[1:]:
        played = play(make_policy(policy, num_nodes, num_kept, WINDOW, accesses.visits["node"]), batches)
        left[policy] = [missed for _, missed in played][num_warm:]
    pages: dict[str, Any] = {str(row_bytes): {} for row_bytes in ROW_BYTES}
    runs: dict[str, Any] = {str(row_bytes): {} for row_bytes in ROW_BYTES}
    for row_bytes in ROW_BYTES:
        for name, mapping in rows.items():
            counted = {policy: count_pages(each, mapping, row_bytes).mean(0) for policy, each in left.items()}
            pages[str(row_bytes)][name] = {policy: round(float(both[0]), 1) for policy, both in counted.items()}
            runs[str(row_bytes)][name] = {policy: round(float(both[1]), 1) for policy, both in counted.items()}
    return {
        "num_batches": len(batches) - num_warm,
        "num_seeds": count,
        "seconds_for_all_orders": round(made_s, 1),
        "rows": {policy: round(float(np.mean([ids.size for ids in each])), 1) for policy, each in left.items()},
        "pages": pages,
        "runs": runs,
    }


def _rows(nodes: np.ndarray) -> np.ndarray:
    rows = np.empty(nodes.size, np.int32)
    rows[nodes] = np.arange(nodes.size, dtype=np.int32)
    return rows


def main() -> None:
    """Measure and write the result."""
    from penstock.store import Store

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("graphs", nargs="*", type=one_of(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--keep", type=Path, help="folder for the stores (default: a temporary one)")
    given = parser.parse_args()
    values: dict[str, Any] = {
        **dict(command="python -m bench.layout DATA", settings=SETTINGS, cache=CACHE, window=WINDOW, page_bytes=4096),
        "graphs": {},
    }
    started = time.perf_counter()
    with nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory() as folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in given.graphs:
            graph, found = Store.open(make(name, given.data, Path(folder))).graph(), {}
            for setting, options in SETTINGS.items():
                for order in ORDERS if setting != LARGE else ORDERS[:1]:
                    found[f"{setting}, {order}"] = measure(graph, options, order)
            size = {"num_nodes": graph.num_nodes["node"], "num_edges": sum(csc.num_edges for csc in graph.adjacency.values())}
            values["graphs"][name] = {**size, "settings": found}
            print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    values["seconds"] = round(time.perf_counter() - started, 1)
    print(write_result("layout", values))


if __name__ == "__main__":
    main()
