"""Partitions: what each method cuts, how even its parts are, what its sampled batches fetch from other parts, and how long it takes.

    python -m bench.partition DATA FOLDER [GRAPH ...]     DATA: folder with web_cnr2000.npz, ...; FOLDER: for the stores, kept

Real graphs, and "small" of `bench.graphs` (a power law without communities). Traffic: nodes of other parts among the distinct ones that
batches of a part's train nodes sample, as a share of all of these. The first call of a kernel, which compiles it, is not counted in the
seconds. Writes `bench/results/partition.json`; `python -m bench.tables` renders it as docs/results/partitions.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import caching, graphs
from bench.common import begin, one_of, write_result
from penstock.partition import METHODS, assign, measure

if TYPE_CHECKING:
    from penstock.records import Graph

REAL = ("ogbn_arxiv_nofeat", "facebook_pages", "amazon_computers", "coauth_dblp2010", "soc_slashdot0902", "web_cnr2000", "hetero_dblp")
GRAPHS = (*REAL, "small")
PARTS = (4, 8)
TRAIN = 0.1
"""Share of the nodes that are train nodes, where a graph has no split."""

FANOUTS, BATCH, BATCHES = (10, 10), 256, 8
"""Of the batches that are sampled, and how many of each part."""


def make(name: str, data: Path, folder: Path) -> Path:
    """Return the store of that name, made if it is not there."""
    from penstock.store import ingest

    if name == "small":
        return graphs.make(name, folder)
    path = folder / name
    if not (path / "manifest.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        ingest(data / f"{name}.npz", path, undirected=caching.REAL.get(name, False), duplicates="drop")
    return path


def train_nodes(store: Any) -> dict[str, np.ndarray]:
    """The first split's train nodes; of a graph without splits a tenth of the first type, at random."""
    from penstock import rng
    from penstock.order.orders import permutation

    for node_type in store.node_types:
        if store.split_names(node_type):
            return {node_type: store.split("train", store.split_names(node_type)[0], node_type)}
    node_type, count = next(iter(store.graph().num_nodes.items()))
    return {node_type: np.sort(permutation(count, 0, round(TRAIN * count), rng.derive_key(0, 0, rng.PRESAMPLE)))}


def sample_traffic(graph: Graph, parts: dict[str, np.ndarray], num_parts: int, train: dict[str, np.ndarray]) -> float:
    """Share of the sampled nodes that belong to other parts than the batch."""
    from penstock.order import RandomOrder
    from penstock.sample import NeighborSampler, Workspace

    sampler, workspace = NeighborSampler(graph, list(FANOUTS), seed=0), Workspace(graph, disjoint=False)
    [(seed_type, ids)] = train.items()
    foreign = total = 0
    for part in range(num_parts):
        seeds = ids[parts[seed_type][ids] == part]
        order = RandomOrder(seeds.size, 0)
        for index in range(min(order.num_batches(BATCH, False), BATCHES)):
            chosen = {seed_type: seeds[order.batch(0, index, BATCH)]}
            sample = sampler.sample(chosen, epoch=0, batch=index * num_parts + part, workspace=workspace)
            for node_type, nodes in sample.nodes.items():
                foreign += int((parts[node_type][nodes] != part).sum())
                total += nodes.size
    return foreign / max(total, 1)


def measure_graph(store: Any, methods: list[str], note: Any = print) -> dict[str, Any]:
    """number of parts -> method -> what was measured."""
    graph, train, found = store.graph(), train_nodes(store), {}
    num_nodes = sum(graph.num_nodes.values())
    for method in methods:
        if method != "metis":  # has no kernels that others have not
            assign(graph, PARTS[0], method, train=train, seed=0)
    for num_parts in PARTS:
        found[str(num_parts)] = rows = {}
        for method in methods:
            started = time.perf_counter()
            parts = assign(graph, num_parts, method, train=train, seed=0)
            seconds = time.perf_counter() - started
            quality = measure(graph, parts, num_parts, train)
            rows[method] = {
                "seconds": round(seconds, 3),
                "halo_share": sum(quality.halo) / max(num_nodes, 1),
                "traffic": sample_traffic(graph, parts, num_parts, train),
                **quality.as_dict(),
            }
            rows[method] = {key: round(value, 4) if isinstance(value, float) else value for key, value in rows[method].items()}
            note(num_parts, method, {key: value for key, value in rows[method].items() if not isinstance(value, list)})
    num_edges = sum(csc.num_edges for csc in graph.adjacency.values())
    return {"num_nodes": num_nodes, "num_edges": num_edges, "num_train": sum(ids.size for ids in train.values()), "parts": found}


def main() -> None:
    """Measure and write the result."""
    from importlib.util import find_spec

    from penstock.store import Store

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("graphs", nargs="*", type=one_of(GRAPHS), default=list(GRAPHS))
    given = parser.parse_args()
    methods = [name for name in METHODS if name != "metis" or find_spec("pymetis")]
    settings = dict(fanouts=FANOUTS, batch=BATCH, batches=BATCHES, train=TRAIN)
    values = {**begin("python -m bench.partition DATA FOLDER"), **settings, "graphs": {}}
    for name in given.graphs:
        print(name, flush=True)
        values["graphs"][name] = measure_graph(Store.open(make(name, given.data, given.folder)), methods)
    print(write_result("partition", values))


if __name__ == "__main__":
    main()
