"""Speed of drawing by weight: the weighted kernel against the uniform one, one thread, in alternation, on the same arrays.

    python -m bench.weighted [FOLDER]      the store small is made in FOLDER (default: a temporary one) if it is not there

Sampled edges per second, fanouts 15, 10, 5, batches of 1,024 seeds, arrays in memory; every kernel that the sampler calls is in the time,
its Python is not. Weights: 1 / u, u uniform, of each edge by itself.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench.common import begin, show_and_write, spread
from bench.graphs import small_store
from bench.kernels import BATCH_SIZE, FANOUTS, SamplingThread, rate
from penstock import rng
from penstock.kernels.relabel import cpu as relabel
from penstock.kernels.sample_neighbors import cpu as draw
from penstock.kernels.sample_weighted import cpu as weighted
from penstock.records import CSC, EDGE
from penstock.sample.weights import Weights, weigh
from penstock.store import Store

ROUNDS, BATCHES = 9, 40


class OneThread(SamplingThread):
    """The same as `SamplingThread`, by weight or not, with or without replacement."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        csc = CSC(self.indptr, self.indices)
        words = rng.random_words(rng.derive_key(2, 0, rng.GENERATE), 0, -(-csc.num_edges // 4)).reshape(-1)[: csc.num_edges]
        values = (2.0**32 / (words + 0.5)).astype(np.float32)
        weigh(EDGE, CSC(np.array([0, 1]), self.indices[:1]), Weights(values[:1]))
        started = time.perf_counter()
        self.csc = weigh(EDGE, csc, Weights(values))
        self.weigh_s = time.perf_counter() - started
        sizes = weighted.scratch_sizes(max(FANOUTS))
        self.scratch = np.empty(sizes[0], np.int64), np.empty(sizes[1], np.uint32)
        self.by_weight = self.replace = False

    def batch(self, number: int) -> int:
        """Sample one batch; returns its edges."""
        seeds = self.train[number * BATCH_SIZE % max(self.train.size - BATCH_SIZE, 1) :][:BATCH_SIZE]
        relabel.add_seeds_direct(seeds, self.table, self.base, self.nodes)
        known, begin, edges, rows = seeds.size, 0, 0, 0
        self.row_ptr[0] = 0
        for hop, fanout in enumerate(FANOUTS):
            end = known
            taken = self._draw(self.nodes[begin:end], fanout, number, hop, self.row_ptr[rows:], self.positions[edges:])
            known = relabel.relabel_direct(self.neighbors, taken, self.table, self.base, known, self.nodes, self.rows[edges:])
            begin, edges, rows = end, edges + taken, rows + end - begin
        self.base += known
        if self.base > 1 << 30:
            self.table.fill(0)
            self.base = 1
        return edges

    def _draw(self, frontier: np.ndarray, fanout: int, number: int, hop: int, row_ptr: np.ndarray, positions: np.ndarray) -> int:
        csc, place = self.csc, (self.key, number, hop, 0, None)
        draw.count_neighbors(csc.indptr, csc.num_edges, frontier, fanout, self.replace)
        if self.by_weight:
            return weighted.sample_neighbors(
                csc.indptr, csc.indices, csc.sums, csc.guide, self.num_nodes, frontier, fanout, self.replace, *place, *self.scratch,
                row_ptr, positions, self.neighbors,
            )  # fmt: skip
        return draw.sample_neighbors(
            csc.indptr, csc.indices, self.num_nodes, frontier, fanout, self.replace, *place, *self.tile, self.nothing,
            row_ptr, positions, self.neighbors,
        )  # fmt: skip


def measure(store: Store) -> dict[str, Any]:
    """Rates of both, in alternation."""
    thread = OneThread(store)
    arrays = (thread.csc.sums, thread.csc.guide)
    values: dict[str, Any] = {
        "weigh_s": round(thread.weigh_s, 3),
        "bytes_per_edge": round(sum(0 if array is None else array.nbytes for array in arrays) / max(thread.csc.num_edges, 1), 3),
    }
    for replace in (False, True):
        rates: dict[bool, list[float]] = {False: [], True: []}
        for number in range(ROUNDS + 1):
            for by_weight, found in rates.items():
                thread.by_weight, thread.replace = by_weight, replace
                edges_per_s = rate([thread], BATCHES)
                if number > 0:
                    found.append(edges_per_s / 1e6)
        label = "with" if replace else "without"
        values[f"uniform_{label}_replacement_m_edges_per_s"] = spread(rates[False])
        values[f"weighted_{label}_replacement_m_edges_per_s"] = spread(rates[True])
        values[f"weighted_over_uniform_{label}_replacement"] = spread([a / b for a, b in zip(rates[True], rates[False], strict=True)])
    return values


def main() -> None:
    """Measure and write the result."""
    with small_store() as store:
        values = {**begin("python -m bench.weighted FOLDER"), **measure(store)}
    show_and_write("weighted", values)


if __name__ == "__main__":
    main()
