"""The second level of a partition: nodes of a batch, and whose they are, where the seeds of a part are divided among trainers.

    python -m bench.trainers DATA FOLDER [GRAPH ...]     DATA: folder with web_cnr2000.npz, ...; FOLDER: for the stores, kept

Full batches of `order="split"`, of graphs in four parts by ldg and metis, with 1, 2 and 4 trainers of each; fanouts and batches are those
of `bench.partition`, and graphs are its real ones whose train nodes fill a batch of each of 16 trainers. Counts, no times. Writes
`bench/results/trainers.json`; `python -m bench.tables` adds it to docs/results/partitions.md.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.common import one_of, write_result
from bench.partition import BATCH, FANOUTS, GRAPHS, make, train_nodes
from penstock.order.split import SplitOrder
from penstock.partition import assign, make_book, measure
from penstock.partition.trainers import assign_trainers
from penstock.sample import NeighborSampler, Workspace

REAL = ("ogbn_arxiv_nofeat", "facebook_pages", "coauth_dblp2010", "soc_slashdot0902", "web_cnr2000")
METHODS = ("ldg", "metis")
NUM_PARTS = 4
TRAINERS = (1, 2, 4)
BATCHES = 64
"""In all, over parts and trainers in turn."""


def measure_graph(store: Any, method: str) -> dict[str, dict[str, float]]:
    """number of trainers -> mean nodes of a batch, share of them that other parts own, share of edges between trainers of one part."""
    graph, train = store.graph(), train_nodes(store)
    [(seed_type, ids)] = train.items()
    parts = assign(graph, NUM_PARTS, method, train=train, seed=0)
    cut, found = measure(graph, parts, NUM_PARTS, train).edge_cut, {}
    for num_trainers in TRAINERS:
        trainers = assign_trainers(graph, parts, NUM_PARTS, num_trainers, method, train=train, seed=0)
        both = {t: parts[t] * num_trainers + each for t, each in trainers.items()}
        book = make_book(parts[seed_type], NUM_PARTS, trainers[seed_type], num_trainers)
        order = SplitOrder(book.sort(ids), NUM_PARTS, book.digest, 0, num_trainers=num_trainers)
        sampler, workspace = NeighborSampler(graph, list(FANOUTS), seed=0), Workspace(graph, disjoint=False)
        num_batches, nodes, foreign = min(BATCHES, order.num_batches(BATCH, True)), 0, 0
        for index in range(num_batches):
            seeds = {seed_type: ids[order.batch(0, index, BATCH)]}
            for node_type, sampled in sampler.sample(seeds, epoch=0, batch=index, workspace=workspace).nodes.items():
                nodes += sampled.size
                foreign += int((parts[node_type][sampled] != index % NUM_PARTS).sum())
        found[str(num_trainers)] = {
            "nodes": round(nodes / num_batches, 1),
            "traffic": round(foreign / nodes, 4),
            "edge_cut": round(measure(graph, both, NUM_PARTS * num_trainers, train).edge_cut - cut, 4),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("graphs", nargs="*", type=one_of(GRAPHS), default=list(REAL))
    given = parser.parse_args()
    from penstock.store import Store

    found: dict[str, Any] = {}
    for name in given.graphs:
        store = Store.open(make(name, given.data, given.folder))
        for method in METHODS:
            if method != "metis" or find_spec("pymetis"):
                found.setdefault(name, {})[method] = measure_graph(store, method)
                print(name, method, found[name][method], flush=True)
    settings = dict(parts=NUM_PARTS, fanouts=FANOUTS, batch=BATCH, batches=BATCHES)
    print(write_result("trainers", {"command": "python -m bench.trainers DATA FOLDER", **settings, "graphs": found}))


if __name__ == "__main__":
    main()
