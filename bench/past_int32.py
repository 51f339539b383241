"""A graph of more than 2**31 edges: neighbour lists, batches and parts beyond that number, compared with an independent reading.

    python -m bench.past_int32 FOLDER [NUM_EDGES]      2.4 billion edges by default: 45 GB in FOLDER, 24 GiB of memory, half an hour

The store is generated within 6 GiB. Compared are: the lists of some thousand nodes with the generator's edges, in the order of its chunks;
batches read from memory, maps and the disk, with caches and without, by their digests, the last one of each made again (`verify`); and the
lists and rows of each part of a partition with the store's. Times are of single runs.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from bench.common import begin, show_and_write
from penstock.partition import Part, partition_store
from penstock.records import EDGE, NODE
from penstock.sources.generate import generate as describe
from penstock.sources.source import DST, SRC
from penstock.store import Store

NUM_EDGES, DEGREE, NUM_PARTS, NUM_BATCHES, SOME = 2_400_000_000, 20, 4, 12, 1500
PLANS = {
    "memory": penstock.Plan(),
    "maps": "mmap",
    "features on the disk": penstock.Plan(features="disk"),
    "all on the disk": penstock.Plan(features="disk", topology="disk"),
    "lru above the disk": penstock.Plan(features="disk", policy="lru", cache="5%"),
    "a budget of 6 GiB": penstock.Plan(host_memory="6GiB"),
}


class Timed:
    """Results, and the seconds of each step."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        """Do it."""
        started = time.perf_counter()
        result = work()
        self.values[f"{name}, s"] = round(time.perf_counter() - started, 1)
        print(f"{name}: {self.values[f'{name}, s']} s", flush=True)
        return result


def some_of(count: int, random: np.random.Generator) -> np.ndarray:
    """Some numbers below `count`: of all, and of the last tenth."""
    return np.unique(np.concatenate([random.integers(0, count, SOME), random.integers(count - count // 10, count, SOME)]))


def lists_of_source(graph: dict[str, int], nodes: np.ndarray) -> dict[int, np.ndarray]:
    """Node -> its in-neighbours, in the order of the generator's edges, all of which are read."""
    wanted = np.zeros(graph["num_nodes"], bool)
    wanted[nodes] = True
    sources, targets = [], []
    for chunk in describe("zipf", **graph).edges[EDGE].table.chunks(4_000_000, (SRC, DST)):
        is_wanted = wanted[chunk.columns[DST]]
        sources.append(chunk.columns[SRC][is_wanted])
        targets.append(chunk.columns[DST][is_wanted])
    source, target = np.concatenate(sources), np.concatenate(targets)
    order = np.argsort(target, kind="stable")
    ends = np.searchsorted(target[order], [nodes, nodes + 1])
    return {node: source[order][first:last] for node, first, last in zip(nodes.tolist(), *ends, strict=True)}


def digests(store: Store, plan: Any) -> list[str]:
    """Digests of the first batches."""
    common = {"input_nodes": "train", "batch_size": 1024, "shuffle": True, "num_workers": 2, "seed": 3}
    loader = penstock.NeighborLoader(store, [10, 10], **common, plan=plan)
    found = []
    for batch in islice(loader, NUM_BATCHES):
        found.append(penstock.digest(batch))
    loader.verify(batch)
    return found


def compare_parts(store: Store, path: Path, random: np.random.Generator) -> int:
    """How many nodes' lists and rows of the parts were compared; AssertionError where one differs."""
    csc, x, num_compared = store.csc(EDGE), store.map(store.node_entry(NODE).fields["x"]), 0
    for number in range(NUM_PARTS):
        part = Part(path, number)
        of_nodes, of_edges, book = part.manifest.nodes[NODE], part.manifest.edges[EDGE], part.books[NODE]
        blocks = range(0, csc.num_dst, 10_000_000)
        owners = (book.owners(np.arange(first, min(first + 10_000_000, csc.num_dst))) for first in blocks)
        own = np.concatenate([first + np.flatnonzero(each == number) for first, each in zip(blocks, owners, strict=True)])
        list_ptr, indices, rows = part.map(of_edges.list_ptr), part.map(of_edges.indices), part.map(of_nodes.fields["x"])
        for row in some_of(len(own), random):
            node = own[row]
            np.testing.assert_array_equal(indices[list_ptr[row] : list_ptr[row + 1]], csc.indices[csc.indptr[node] : csc.indptr[node + 1]])
            np.testing.assert_array_equal(rows[row], x[node])
            num_compared += 1
    return num_compared


def main() -> None:
    """Compare, and write the result."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder, num_edges = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else NUM_EDGES
    graph, random = {"num_nodes": num_edges // DEGREE, "num_edges": num_edges}, np.random.default_rng(0)
    fields = {"feature_dim": 20, "feature_dtype": "float16", "num_classes": 5, "train": 0.02}
    values = begin("python -m bench.past_int32 FOLDER") | graph
    timed = Timed(values)
    path = folder / "past-int32"
    timed("generate", lambda: penstock.generate("zipf", path, **graph, **fields, memory="6GiB", overwrite=True))
    store = Store.open(path)
    csc = store.csc(EDGE)
    nodes = some_of(csc.num_dst, random)
    lists = timed("lists of the source", lambda: lists_of_source(graph, nodes))
    for node, neighbors in lists.items():
        np.testing.assert_array_equal(csc.indices[csc.indptr[node] : csc.indptr[node + 1]], neighbors)
    values["lists compared"] = len(nodes)
    values["of them past 2**31"] = int((csc.indptr[nodes] > 1 << 31).sum())
    found = {name: timed(f"{NUM_BATCHES} batches, {name}", lambda plan=plan: digests(store, plan)) for name, plan in PLANS.items()}
    assert all(each == found["memory"] for each in found.values()), found
    parts = folder / "past-int32-parts"
    shutil.rmtree(parts, ignore_errors=True)
    made = timed("partition", lambda: partition_store(store, parts, NUM_PARTS))
    values["edge cut"] = round(made["edge_cut"], 3)
    values["nodes of parts compared"] = timed("compare parts", lambda: compare_parts(store, parts, random))
    shutil.rmtree(parts)
    show_and_write("past_int32", values)


if __name__ == "__main__":
    main()
