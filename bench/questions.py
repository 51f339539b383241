"""What questions bring: bytes between the processes of a partition for negatives, draws by weight and draws by time, beside whole lists.

    python -m bench.questions [FOLDER]      the store and its parts are made in FOLDER (default: a temporary one) if they are not there

A graph whose ends are drawn in proportion to a power of their rank (200,000 nodes, 3.2M edges), cut in two at random; a process of each
part, played by threads of this one. Counted, not timed: what process 0 asks and is answered in batches of 1,024, by kind of question; and
what the whole lists would take that it asks about: per edge 4 bytes of its position, and 4 of a neighbour, 8 of a sum, or 8 of a time and
its order. Writes `bench/results/questions.json`.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

import penstock
from bench.common import write_result
from penstock.exchange import PartitionedGraph, join
from penstock.exchange.draws import from_numbers
from penstock.exchange.peers import Asked, Peer
from penstock.exchange.tables import PAIRS, draws_by, draws_in_time_of_sources, tables_of
from penstock.records import EDGE

NUM_NODES, NUM_EDGES, SKEW = 200_000, 3_200_000, 2.0
FANOUTS, BATCH, BATCHES = (15, 10), 1024, 20
PER_EDGE = {PAIRS: 8, draws_by("weight"): 12, draws_in_time_of_sources("time"): 12}
"""Bytes of a whole list."""


def make(folder: Path) -> Path:
    """The parts of the store, made if they are not there."""
    if not (folder / "parts").exists():
        random = np.random.default_rng(0)
        ends = (NUM_NODES * random.random((2, NUM_EDGES)) ** SKEW).astype(np.int64)
        ids = random.permutation(NUM_NODES)
        weight, time = torch.from_numpy(random.random(NUM_EDGES, np.float32)), torch.from_numpy(random.integers(0, 1000, NUM_NODES))
        data = Data(edge_index=torch.from_numpy(ids[ends]), edge_weight=weight, time=time, num_nodes=NUM_NODES)
        penstock.ingest(data, folder / "store")
        penstock.partition.partition_store(folder / "store", folder / "parts", 2, method="random")
    return folder / "parts"


@contextmanager
def joined(parts: Path) -> Iterator[PartitionedGraph]:
    """Process 0 of two; the other one gives."""
    doors, graphs = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)], dict[int, PartitionedGraph]()
    addresses = [f"127.0.0.1:{door.getsockname()[1]}" for door in doors]
    for door in doors:
        door.close()
    other = threading.Thread(target=lambda: graphs.update({1: join(parts, addresses=addresses, rank=1)}))
    other.start()
    graphs[0] = join(parts, addresses=addresses, rank=0)
    other.join()
    try:
        yield graphs[0]
    finally:
        for graph in graphs.values():
            graph.close(wait=False)


@contextmanager
def counting(graph: PartitionedGraph, counts: Counter[tuple[str, str]]) -> Iterator[None]:
    """Within, what is asked and answered is counted, by (kind of question, what)."""
    kinds = [key[0] for table in tables_of(graph.part, {}) for key in [table.key]]
    degrees, ask, pieces = np.diff(graph.graph().adjacency[EDGE].indptr), Peer.ask, Asked.pieces
    asked_for: dict[Asked, str] = {}

    def ask_and_count(peer: Peer, table: int, ids: np.ndarray) -> Asked:
        kind, asked = kinds[table], ask(peer, table, ids)
        asked_for[asked] = kind
        counts[kind, "bytes"] += ids.nbytes + 16
        if kind in PER_EDGE:
            nodes = ids // NUM_NODES if kind == PAIRS else from_numbers(ids)[1].nodes
            counts[kind, "lists"] += nodes.size
            counts[kind, "whole_bytes"] += PER_EDGE[kind] * int(degrees[nodes].sum())
        return asked

    def count_pieces(asked: Asked, num_rows: int, row_bytes: int) -> Any:
        counts[asked_for.pop(asked), "bytes"] += num_rows * row_bytes
        return pieces(asked, num_rows, row_bytes)

    Peer.ask, Asked.pieces = ask_and_count, count_pieces
    try:
        yield
    finally:
        Peer.ask, Asked.pieces = ask, pieces


def count(graph: PartitionedGraph, kind: str, loader: Any) -> dict[str, float]:
    """What a batch of a loader asks of one kind: lists, bytes of questions and answers, bytes that whole lists would take."""
    counts: Counter[tuple[str, str]] = Counter()
    with counting(graph, counts):
        for number, _ in enumerate(loader):
            if number == BATCHES - 1:
                break
    return {what: round(counts[kind, what] / BATCHES) for what in ("lists", "bytes", "whole_bytes")}


def main() -> None:
    """Count all kinds."""
    how: dict[str, Any] = {"batch_size": BATCH, "seed": 0, "shuffle": True}
    with tempfile.TemporaryDirectory() as temporary, joined(make(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))) as graph:
        degrees = torch.from_numpy(np.diff(graph.graph().adjacency[EDGE].indptr))
        by_degree = {"mode": "binary", "amount": 1, "dst_weight": degrees**0.75}
        links = {"exclude_links": "self", **how}
        found = {
            "negatives, uniform": (PAIRS, penstock.LinkNeighborLoader(graph, FANOUTS, neg_sampling="binary", **links)),
            "negatives, by degree": (PAIRS, penstock.LinkNeighborLoader(graph, FANOUTS, neg_sampling=by_degree, **links)),
            "by weight": (draws_by("weight"), penstock.NeighborLoader(graph, FANOUTS, weight_attr="weight", **how)),
            "by time": (draws_in_time_of_sources("time"), penstock.NeighborLoader(graph, FANOUTS, time_attr="time", **how)),
        }
        counts = {name: count(graph, *each) for name, each in found.items()}
    for name, one in counts.items():
        print(f"{name}: {one}")
    write_result("questions", {"num_nodes": NUM_NODES, "num_edges": NUM_EDGES, "batches": BATCHES, "a_batch": counts})


if __name__ == "__main__":
    main()
