"""What random walks (PinSAGE) cost beside drawing of lists, and which cache serves what they read.

    python -m bench.walks FOLDER DATA     the store small is made in FOLDER if it is not there; DATA: folder with soc_slashdot0902.npz, ...

On small, 1,024 seeds a batch, in turns: seeds a second of walks as GNNLab and as DGL's example have them, and of uniform draws with the
same fanouts; samples alone, with one thread also by plain NumPy, which does the same a step of all walks at a time; and with features in
memory. Then the share of the rows of an epoch that a cache of a tenth has, by what it is ranked by; on small and on real graphs, of which
one node in ten is a seed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import begin, in_turns, spread, write_result
from bench.graphs import edges_of, make
from penstock import NeighborLoader, Walks, ingest
from penstock.cache.hotness import degree_hotness
from penstock.cache.presample import distinct_nodes, iterate_samples, oracle_hotness, presample_visits
from penstock.order import RandomOrder
from penstock.records import NODE, Graph
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.seeds import NodeSeeds
from penstock.store import Store

SETTINGS = {
    "GNNLab: 5, 5, 5 of 4 walks of 3": ([5, 5, 5], Walks(num=4, length=3, end=0.5)),
    "DGL's example: 3, 3 of 10 walks of 2": ([3, 3], Walks(num=10, length=2, end=0.5)),
}
BATCH_SIZE, ROUNDS, SECONDS = 1024, 5, 3.0
SHARE = 0.1
REAL = ("soc_slashdot0902", "web_cnr2000", "coauth_dblp2010", "ogbn_arxiv_nofeat")


class PlainWalks:
    """The same walks by plain NumPy, one thread: an epoch of batches, each told by its number of seeds."""

    def __init__(self, graph: Graph, seeds: np.ndarray, fanouts: list[int], walks: Walks) -> None:
        (csc,) = graph.adjacency.values()
        self.indptr, self.indices, self.seeds = np.array(csc.indptr), np.array(csc.indices), seeds
        self.fanouts, self.walks, self.random = fanouts, walks, np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        """Sample every batch."""
        order = self.random.permutation(self.seeds)
        for first in range(0, order.size - BATCH_SIZE + 1, BATCH_SIZE):
            known = frontier = order[first : first + BATCH_SIZE]
            for fanout in self.fanouts:
                sources, _, _ = self.neighborhoods(frontier, fanout)
                frontier = np.setdiff1d(sources, known)
                known = np.concatenate([known, frontier])
            yield BATCH_SIZE

    def neighborhoods(self, starts: np.ndarray, fanout: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(who was visited, by the walks of which start, how often), the most visited of each start."""
        owners, at = np.repeat(np.arange(starts.size), self.walks.num), np.repeat(starts, self.walks.num)
        pairs = []
        for step in range(self.walks.length):
            goes_on = self.indptr[at + 1] > self.indptr[at]
            goes_on &= self.random.random(at.size) >= (self.walks.end if step else 0)
            owners, at = owners[goes_on], at[goes_on]
            begins = self.indptr[at]
            at = self.indices[begins + (self.random.random(at.size) * (self.indptr[at + 1] - begins)).astype(np.int64)]
            pairs.append(owners * self.indptr.size + at)
        pairs, counts = np.unique(np.concatenate(pairs), return_counts=True)
        owners, nodes = np.divmod(pairs, self.indptr.size)
        order = np.lexsort((-counts, owners))
        ranks = np.arange(order.size) - np.searchsorted(owners, owners)
        chosen = order[ranks < fanout]
        return nodes[chosen], owners[chosen], counts[chosen]


def time_loading(store: Store) -> dict[str, Any]:
    """Seeds a second in turns, and over those of uniform draws."""
    edges, seeds = edges_of(store), store.split("train")
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "samples, one thread": (edges, {"input_nodes": seeds}),
        "samples": (edges, {"input_nodes": seeds, "num_workers": 2}),
        "features in memory": (store, {"input_nodes": "train", "num_workers": 2}),
    }
    found: dict[str, Any] = {}
    for setting, (fanouts, walks) in SETTINGS.items():
        for kind, (source, options) in kinds.items():
            how = {"batch_size": BATCH_SIZE, "shuffle": True, "drop_last": True, "seed": 0, **options}
            loaders: dict[str, Any] = {
                name: NeighborLoader(source, fanouts, **how, walks=each) for name, each in (("uniform", None), ("walks", walks))
            }
            if kind == "samples, one thread":
                loaders["NumPy"] = PlainWalks(store.graph(), seeds, fanouts, walks)
            rates = in_turns(loaders, lambda batch: getattr(batch, "batch_size", batch), rounds=ROUNDS, seconds=SECONDS)
            over = {
                name: {"seeds_per_s": spread(each), "over_uniform": spread([a / b for a, b in zip(each, rates["uniform"], strict=True)])}
                for name, each in rates.items()
            }
            found.setdefault(setting, {})[kind] = over
            print(setting, kind, {name: each["over_uniform"] for name, each in over.items()}, flush=True)
    return found


def count_hits(graph: Graph, seeds: np.ndarray, fanouts: list[int], walks: Walks | None) -> dict[str, float]:
    """Share of the rows of epoch 1 that a cache of a tenth of the nodes has, by what it is ranked by, and nodes of a batch."""
    sampler, num_nodes = NeighborSampler(graph, fanouts, walks=walks, seed=0), graph.num_nodes[NODE]
    batches = SampledBatches(sampler, NodeSeeds(NODE, seeds), RandomOrder(seeds.size, 0), BATCH_SIZE)
    read = [distinct_nodes(sampler, sample)[NODE].copy() for sample in iterate_samples(batches, epochs=[1])]
    visits, random = oracle_hotness(read, num_nodes), np.random.default_rng(0)
    rankings = {
        "degree": degree_hotness(graph, NODE),
        "presample": presample_visits(batches).nodes[NODE],
        "oracle": visits,
        "random": np.zeros(num_nodes),
    }
    found = {"nodes_of_a_batch": float(round(visits.sum() / len(read)))}
    for name, hotness in rankings.items():
        by_chance = random.permutation(num_nodes)  # who comes first where they are equal
        kept = by_chance[np.argsort(-hotness[by_chance].astype(np.float64), kind="stable")[: int(SHARE * num_nodes)]]
        found[name] = round(float(visits[kept].sum() / visits.sum()), 4)
    return found


def compare_caches(name: str, graph: Graph, seeds: np.ndarray) -> dict[str, Any]:
    """Hit rates for uniform draws and for walks."""
    found = {}
    for setting, (fanouts, walks) in SETTINGS.items():
        for kind, each in (("uniform", None), ("walks", walks)):
            found[f"{setting}, {kind}"] = count_hits(graph, seeds, fanouts, each)
            print(name, setting, kind, found[f"{setting}, {kind}"], flush=True)
    return found


def main() -> None:
    """Measure and write the result."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    values = begin("python -m bench.walks FOLDER DATA")
    store = Store.open(make("small", Path(sys.argv[1])))
    values["loading"] = time_loading(store)
    values["hits"] = {"small": compare_caches("small", store.graph(), np.array(store.split("train")))}
    with tempfile.TemporaryDirectory() as folder:
        for name in REAL:
            graph = ingest(Path(sys.argv[2]) / f"{name}.npz", Path(folder) / name).graph()
            seeds = np.random.default_rng(1).permutation(graph.num_nodes[NODE])[: graph.num_nodes[NODE] // 10]
            values["hits"][name] = compare_caches(name, graph, seeds)
    print(write_result("walks", values))


if __name__ == "__main__":
    main()
