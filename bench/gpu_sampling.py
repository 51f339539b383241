"""Sampling on a device against the CPU kernels on all cores, in alternation, batch for batch the same samples.

    python -m bench.gpu_sampling FOLDER [--graphs small ten-128] [--how "by weight"] [--minutes 9] [--out FOLDER]
    python -m bench.gpu_sampling --toy

Stores are made in FOLDER if they are not there. Sampled edges per second, fanouts 15, 10, 5, batches of 1,024 and 8,000 seeds, Python
included; the same numbered batches by each contender, and the bytes of one of them compared for each place of the graph. It is in memory of
the host, in the device's, in pinned memory that the device reads, or there with the lists of the nodes of the most out-edges, 20 % of all
edges, on the device as well. --how "by weight": neighbours are drawn by weights, Pareto's, of which a tenth are 0; "disjoint": each seed
has a tree of its own; "by time": so, and edges came at random, a half before a seed looks in the mean; "shared": by shared draws. A device
is given one batch after the other by one thread, or two or four at a time, a stream each, or by two threads; what a batch asks for is asked
for as one (a CUDA graph), or kernel by kernel. Memory of samples is used again, on the CPU as on a device. Before it is timed, each
contender samples a quarter as much: clocks of a device that had nothing to do are slow.
In the end, what takes longest on the device, by torch's profiler, one batch after the other.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench import graphs
from bench.common import spread
from bench.gpu_common import WAYS, ResultFile, can_profile, cores, longest_of, profiled, set_up, synchronize
from penstock.feed.buffers import BufferPool
from penstock.plan import plan_lists
from penstock.records import CSC, EDGE, NODE, Graph, Sample
from penstock.sample import NeighborSampler
from penstock.sample.device_graph import DeviceGraph, place_graph
from penstock.sample.times import Timestamps, with_times
from penstock.sample.weights import Weights, with_weights
from penstock.store import Store

FANOUTS, ROUNDS, KEPT = (15, 10, 5), 5, "20%"
BATCHES = {1024: 128, 8000: 24}
"""Batches of a round, by seeds of a batch."""
GRAPHS, EXPECTED_S = ("small", "ten-128"), 25.0
HOW = ("uniformly", "by weight", "disjoint", "by time", "shared")

LATEST = 1 << 20
"""Of the times of edges."""

Run = Callable[[range], int]
"""Samples the batches of a range; returns their edges, all of which are there."""


class Bench:
    """The contenders over one graph."""

    def __init__(self, store: Store, device: torch.device, fanouts: tuple[int, ...], batch_size: int, how: str) -> None:
        csc, random = store.csc(), np.random.default_rng(1)
        graph = Graph({NODE: csc.num_dst}, {EDGE: CSC(np.array(csc.indptr), np.array(csc.indices))}, True)
        if how == "by weight":
            graph = with_weights(graph, {EDGE: Weights(random.pareto(1.5, csc.num_edges) * (random.random(csc.num_edges) < 0.9))})
        if how == "by time":
            graph = with_times(graph, Timestamps({}, {EDGE: random.integers(0, LATEST, csc.num_edges)}, by_position=True))
        self.train, self.device, self.batch_size = np.array(store.split("train")), device, batch_size
        self.moments = random.integers(0, LATEST, self.train.size)
        self.sampler = NeighborSampler(graph, fanouts, disjoint=how in ("disjoint", "by time"), shared_draws=how == "shared", seed=1)

    def batch(self, number: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Its seeds, and what else a sampler takes of it."""
        first = number * self.batch_size % max(self.train.size - self.batch_size, 1)
        seeds, moments = ({NODE: each[first:][: self.batch_size]} for each in (self.train, self.moments))
        return seeds, {"epoch": 0, "batch": number, "times": moments if self.sampler.is_temporal else None}

    def on_cpu(self, num_threads: int) -> Run:
        """The kernels of the CPU on so many threads, a batch on each."""
        return self.on_threads(self.sampler, num_threads, allocate=BufferPool().empty)

    def place(self, topology: str, kept: dict | None = None) -> DeviceGraph:
        """The graph where the device reads it; samples of it are compared with the CPU's."""
        from penstock.sample.device import DeviceSampler

        placed = place_graph(self.sampler.graph, self.device, topology, kept, for_shared_draws=self.sampler.shared_draws > 0)
        ours = DeviceSampler(self.sampler, placed)
        seeds, place = self.batch(0)
        sample = ours.sample(seeds, **place, workspace=ours.workspace()).to_host()
        expected = self.sampler.sample(seeds, **place, workspace=self.sampler.workspace())
        if bytes_of(sample) != bytes_of(expected):
            sys.exit(f"topology {topology!r}: the sample differs from the CPU's")
        return placed

    def on_device(self, placed: DeviceGraph, *, is_recorded: bool = True, num_threads: int = 1, under_way: int = 1) -> Run:
        """The kernels of the device; those of a batch asked for as one, or one by one. `under_way`: batches of each thread at a time."""
        from penstock.sample.device import DeviceSampler

        return self.on_threads(DeviceSampler(self.sampler, placed, is_recorded=is_recorded), num_threads, under_way)

    def on_threads(self, sampler: Any, num_threads: int, under_way: int = 1, **how: Any) -> Run:
        """A sampler's batches, on so many threads; on a device with a stream each. `how`: more of what `sample` takes."""
        is_device = sampler is not self.sampler
        places = [[self.place_of(sampler) for _ in range(under_way)] for _ in range(num_threads)]
        synchronize(self.device)
        pool = ThreadPoolExecutor(num_threads)

        def work(numbers: Iterator[int], mine: list[tuple[Any, Any]]) -> int:
            if not is_device:
                [(workspace, _)] = mine
                batches = map(self.batch, numbers)
                samples = (sampler.sample(seeds, **place, workspace=workspace, **how) for seeds, place in batches)
            else:
                samples = self.ask_ahead(sampler, numbers, mine)
            return sum(map(num_edges, samples))

        def run(numbers: range) -> int:
            edges = sum(pool.map(partial(work, iter(numbers)), places))  # who is done takes the next one
            synchronize(self.device)
            return edges

        return run

    def place_of(self, sampler: Any) -> tuple[Any, Callable[[], Any]]:
        """What a batch in the making needs: a workspace, and what leads to a stream of its own."""
        is_cuda = sampler is not self.sampler and self.device.type == "cuda"
        return sampler.workspace(), partial(torch.cuda.stream, torch.cuda.Stream(self.device)) if is_cuda else nullcontext

    def ask_ahead(self, sampler: Any, numbers: Iterator[int], places: list[tuple[Any, Any]]) -> Iterator[Any]:
        """Samples, of which as many are asked for before the first is waited for as there are places."""
        asked: deque[tuple[Any, Any]] = deque()

        def finish() -> Any:
            run, stream = asked.popleft()
            with stream():
                return run.finish()

        for (seeds, place), (workspace, stream) in zip(map(self.batch, numbers), cycle(places), strict=False):
            if len(asked) == len(places):
                yield finish()
            with stream():
                asked.append((sampler.ask(seeds, **place, workspace=workspace), stream))
        while asked:
            yield finish()

    def contenders(self) -> dict[str, Run]:
        """Name -> how its batches are sampled."""
        graph = self.sampler.graph
        csc = graph.adjacency[EDGE]
        out_degrees = np.bincount(csc.indices, minlength=csc.num_dst).astype(np.float64)
        kept = plan_lists(KEPT, {EDGE: out_degrees}, graph.adjacency, "prefix")
        placed = {where: self.place(where) for where in ("device", "pinned")}
        return {
            "cpu": self.on_cpu(cores()),
            **{
                f"{where} memory{way}": self.on_device(one, num_threads=threads, under_way=each)
                for where, one in placed.items()
                for way, (threads, each) in WAYS.items()
            },
            "device memory, kernel by kernel": self.on_device(placed["device"], is_recorded=False),
            f"pinned memory, {KEPT} kept": self.on_device(self.place("pinned", kept)),
        }


def num_edges(sample: Any) -> int:
    """How many were sampled."""
    return sum(sum(edges.num_per_hop) for edges in sample.edges.values())


def bytes_of(sample: Sample) -> list[bytes]:
    """All arrays of a sample."""
    arrays = [
        *sample.nodes.values(),
        *(sample.trees or {}).values(),
        *(a for e in sample.edges.values() for a in (e.edge_index, e.row_ptr, e.positions)),
    ]
    return [array.tobytes() for array in arrays]


def measure(
    store: Store,
    device: torch.device,
    batch_size: int,
    num_batches: int,
    fanouts: tuple[int, ...] = FANOUTS,
    rounds: int = ROUNDS,
    *,
    how: str = HOW[0],
) -> dict[str, Any]:
    """Rates of all contenders, in alternation."""
    started = time.perf_counter()
    contenders = Bench(store, device, fanouts, batch_size, how).contenders()
    ready_s = time.perf_counter() - started
    for run in contenders.values():
        run(range(num_batches))
    edges: dict[str, set[int]] = {name: set() for name in contenders}
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, run in contenders.items():
            first = number * num_batches
            run(range(first, first + num_batches // 4))
            started = time.perf_counter()
            count = run(range(first, first + num_batches))
            rates[name].append(count / (time.perf_counter() - started) / 1e6)
            edges[name].add(count)
    if len({frozenset(each) for each in edges.values()}) > 1:
        sys.exit(f"the contenders sampled different numbers of edges: {edges}")
    first = next(iter(rates.values()))
    rows = {
        name: {"m_edges_per_s": spread(each), "over_cpu": spread([a / b for a, b in zip(each, first, strict=True)])}
        for name, each in rates.items()
    }
    longest = {}
    for name in ("device memory", "pinned memory") if can_profile(device) else ():
        trace, took_s = profiled(partial(contenders[name], range(num_batches)), device)
        longest[name] = {"one batch": [round(1e3 * took_s / num_batches, 4), 1.0], **longest_of(trace, num_batches)}
    return {"ready_s": round(ready_s, 1), "cpu_threads": cores(), "contenders": rows, "longest_ms": longest}


def named(graph: str, how: str) -> str:
    """What a result is called; uniform draws go without saying."""
    return graph if how == HOW[0] else f"{graph} {how}"


def main(arguments: list[str] | None = None) -> None:
    """Measure the graphs that are not in the result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where the graphs are, or are made")
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS))
    parser.add_argument("--how", choices=HOW, default=HOW[0], help="draws neighbours")
    options, device, deadline, command = set_up("gpu_sampling", parser, arguments)
    result = ResultFile("gpu_sampling", options, device, command, fanouts=FANOUTS)
    with tempfile.TemporaryDirectory() as temporary:
        if options.toy:
            from penstock.store import generate

            store = generate("zipf", Path(temporary) / "toy", num_nodes=300, num_edges=1500, train=0.5, seed=1)
            for how in HOW:
                result.put(named("toy", how), measure(store, device, 32, 1, (3, 2), rounds=1, how=how))
            return
        for graph in options.graphs:
            for batch_size, num_batches in BATCHES.items():
                name = f"{named(graph, options.how)}, batches of {batch_size}"
                if name in result or not deadline.allows(EXPECTED_S, name):
                    continue
                store = Store.open(graphs.make(graph, options.folder))
                if deadline.allows(EXPECTED_S, name):
                    result.measure(name, partial(measure, store, device, batch_size, num_batches, how=options.how))
    result.end()


if __name__ == "__main__":
    main()
