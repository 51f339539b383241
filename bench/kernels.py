"""Speed of the CPU kernels alone: sampling on one thread and on two, gathering against torch.index_select.

    python -m bench.kernels [FOLDER [PYTHON]]      stores small and large are made in FOLDER (default: a temporary one) if not there

Sampled edges per second, fanouts 15, 10, 5, batches of 1,024 seeds, arrays in memory; every kernel that the sampler calls is in the time,
its Python is not. PYTHON is the interpreter of an environment with PyG and pyg-lib: its loader then samples in alternation, in one process.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common import begin, spread, write_result
from bench.graphs import make
from bench.peers import Contender
from penstock import rng
from penstock.feed.buffers import BufferPool
from penstock.gather import RowTable
from penstock.kernels.relabel import cpu as relabel
from penstock.kernels.sample_neighbors import cpu as draw
from penstock.records import NODE
from penstock.store import Store

FANOUTS, BATCH_SIZE, ROUNDS = (15, 10, 5), 1024, 7


class SamplingThread:
    """Calls the kernels for batch after batch, with scratch memory of its own."""

    def __init__(self, store: Store) -> None:
        csc = store.csc()
        self.indptr, self.indices, self.num_nodes = np.array(csc.indptr), np.array(csc.indices), csc.num_dst
        self.train = np.array(store.split("train"))
        self.table, self.base = np.zeros(self.num_nodes, np.int32), 1
        most = BATCH_SIZE * (15 + 150 + 750)
        self.nodes, self.row_ptr = np.empty(most + BATCH_SIZE, np.int64), np.empty(most, np.int64)
        self.positions, self.rows, self.neighbors = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, self.indices.dtype)
        self.tile = np.empty(draw.SCRATCH_OFFSETS, np.int64), np.empty(draw.SCRATCH_WORDS, np.uint32)
        self.key, self.nothing = rng.derive_key(1, 0, rng.SAMPLE), np.empty(0, np.uint64)

    def batch(self, number: int) -> int:
        """Sample one batch; returns its edges."""
        seeds = self.train[number * BATCH_SIZE % (self.train.size - BATCH_SIZE) :][:BATCH_SIZE]
        if self.base > 1 << 30:
            self.table.fill(0)
            self.base = 1
        relabel.add_seeds_direct(seeds, self.table, self.base, self.nodes)
        known, begin, edges, rows = BATCH_SIZE, 0, 0, 0
        self.row_ptr[0] = 0
        for hop, fanout in enumerate(FANOUTS):
            end = known
            frontier = self.nodes[begin:end]
            draw.count_neighbors(self.indptr, self.indices.size, frontier, fanout, False)
            taken = draw.sample_neighbors(
                self.indptr, self.indices, self.num_nodes, frontier, fanout, False, self.key, number, hop, 0, None, *self.tile,
                self.nothing, self.row_ptr[rows:], self.positions[edges:], self.neighbors,
            )  # fmt: skip
            known = relabel.relabel_direct(self.neighbors, taken, self.table, self.base, known, self.nodes, self.rows[edges:])
            begin, edges, rows = end, edges + taken, rows + end - begin
        self.base += known
        return edges


def rate(threads: list[SamplingThread], num_batches: int) -> float:
    """Sampled edges per second of all threads together, each on batches of its own."""
    edges = [0] * len(threads)

    def work(which: int) -> None:
        for number in range(num_batches):
            edges[which] += threads[which].batch(number * len(threads) + which)

    workers = [threading.Thread(target=work, args=(which,)) for which in range(len(threads))]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(edges) / (time.perf_counter() - started)


def measure_sampling(store: Store, pyg: str | None) -> dict[str, Any]:
    """Rates on one thread and two, and of PyG's loader, in alternation."""
    threads = [SamplingThread(store) for _ in range(2)]
    threads[1].indptr, threads[1].indices = threads[0].indptr, threads[0].indices
    peer = None if pyg is None else Contender("pyg", pyg, str(store.path), "sample", 0)
    rate(threads, 20)
    one, two, theirs = [], [], []
    for _ in range(ROUNDS):
        one.append(rate(threads[:1], 60) / 1e6)
        two.append(rate(threads, 60) / 1e6)
        if peer is not None:
            done = peer.run(1, 10)
            theirs.append(done["edges_per_batch"] * done["batches"] / done["seconds"] / 1e6)
    values = {"one_thread_m_edges_per_s": spread(one), "two_threads_m_edges_per_s": spread(two)}
    values["speedup"] = spread([b / a for a, b in zip(one, two, strict=True)])
    if peer is not None:
        peer.close()
        values["pyg_m_edges_per_s"] = spread(theirs)
        values["one_thread_over_pyg"] = spread([a / b for a, b in zip(one, theirs, strict=True)])
    return values


def measure_gather(store: Store) -> dict[str, Any]:
    """GB/s of a gather into recycled memory over torch.index_select into a reused buffer, on one thread."""
    x = store.node_field("x", NODE)
    ids = np.random.default_rng(0).permutation(len(x))[:300_000].astype(np.int64)
    table, pool, reused = RowTable(x, "x"), BufferPool(), torch.empty(ids.size, x.shape[1])
    tensor, index = torch.from_numpy(np.array(x)), torch.from_numpy(ids)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    ours, theirs = [], []
    for number in range(ROUNDS + 2):
        started = time.perf_counter()
        rows = table.gather(ids, pool.empty)
        middle = time.perf_counter()
        torch.index_select(tensor, 0, index, out=reused)
        if number >= 2:
            theirs.append(reused.numel() * 4 / (time.perf_counter() - middle) / 1e9)
            ours.append(rows.nbytes / (middle - started) / 1e9)
        del rows
    torch.set_num_threads(before)
    ratio = [a / b for a, b in zip(ours, theirs, strict=True)]
    return {"row_bytes": x.shape[1] * 4, "gather_gb_per_s": spread(ours), "index_select_gb_per_s": spread(theirs), "ratio": spread(ratio)}


def main() -> None:
    """Measure both graphs and write the result."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        pyg = sys.argv[2] if len(sys.argv) > 2 else None
        values = begin("python -m bench.kernels FOLDER PYTHON")
        for name in ("small", "large"):
            store = Store.open(make(name, folder))
            values[name] = {**measure_sampling(store, pyg), **measure_gather(store)}
            for key, value in values[name].items():
                print(f"{name:<6} {key:<28} {value}", flush=True)
    print(write_result("kernels", values))


if __name__ == "__main__":
    main()
