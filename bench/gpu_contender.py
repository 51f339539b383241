"""One contender of `bench.gpu_recipes`, in a process of its own: a recipe of Penstock, or PyG, over the arrays of one store.

    python -m bench.gpu_contender NAME STORE '{"batch_size": 1024, ...}'

Answers each word on standard input by a JSON object. begin: measure the link, before anybody else uses it. build: make the loader. prepare:
one round that does not count, in which caches fill and kernels are compiled; PyG, which has neither, tries its settings, some seconds each.
load, train: a round. It begins an epoch, skips batches until all is under way, and times the next ones until the device has done what it
was asked for: load, the batch is complete on the device; train, and a step of GraphSAGE has been taken with it. At the end of a round
nothing is left at work.

Recipes differ in their plan only. Without a device in the plan (`pyg`, `mmap`) rows are gathered by the CPU, and batches copied from pinned
memory. PyG: its `NeighborLoader` with pinned memory, its settings those that were the fastest when tried here (see `PyG.prepare`).
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import psutil
import torch

from bench.contenders import arrays
from bench.gpu_common import cores, synchronize
from bench.gpu_model import penstock_step, pyg_step
from penstock.feed.layers import note_edges
from penstock.kernels._triton import tensor_device
from penstock.store.tiers.grid import programs_over_link

SLOW, FEW = 4, 3
"""Of a contender that would take most of the time there is."""
MOST_BATCHES = 12 << 30
"""Bytes of rows of all batches that are under way at once."""
TRY_S = 2.0
"""Of a setting of PyG's: once so long until all workers have come to deliver, and once to see how fast they are."""
WAIT_S = 20.0
"""For a batch of its workers: where none of them comes by then, none will."""
LOOK_S, IDLE_SHARE = 0.2, 0.2
"""Between two looks at what a contender's processes compute, and how much of one processor is none."""


@dataclass(frozen=True)
class Settings:
    """What is the same for all contenders of a comparison.

    Attributes:
        cache: bytes of rows (ducati: of rows and lists; lists: of those) that are kept on the device.
        seconds, least: a round is over when both have passed, seconds and batches: at least one batch for each worker; after `SLOW` times
            the seconds `FEW` batches do.
        warm_up: batches before it, and one more for each worker; likewise.
    """

    batch_size: int
    fanouts: tuple[int, ...] = (15, 10, 5)
    cache: int = 0
    seconds: float = 2.0
    least: int = 8
    warm_up: int = 3
    model: str = "sage"


def plans(settings: Settings) -> dict[str, tuple[Any, bool]]:
    """Recipe -> (its plan, whether batches are made on the device). rows, lists: all of ducati's budget for one of the two; recorded: as
    gnnlab, of which it is another way to train."""
    from penstock.plan import RECIPES

    kept = {"cache": f"{settings.cache} B"}
    on_device: dict[str, dict[str, Any]] = {
        "pagraph": {**kept, "device_topology": "host"},
        "uva": {"device_topology": "pinned"},
        "gnnlab": {**kept, "device_topology": "device"},
        "ducati": {**kept, "device_topology": "pinned"},
        "bgl": {**kept, "device_topology": "host"},
    }
    made = {name: (replace(RECIPES[name], **changes), True) for name, changes in on_device.items()}
    made["recorded"], ducati = made["gnnlab"], made["ducati"][0]
    made["rows"] = replace(ducati, neighbor_policy=None, neighbor_cache="0"), True
    made["lists"] = replace(ducati, policy=None, cache="0", neighbor_cache=ducati.cache), True
    return {"pyg": (RECIPES["pyg"], False), "mmap": (RECIPES["mmap"], False), **made}


class Penstock:
    """`penstock.NeighborLoader` with the plan of a recipe."""

    def __init__(self, recipe: str, path: str, settings: Settings) -> None:
        import penstock
        from penstock.records import NODE

        self.device, self._settings = tensor_device("cuda"), settings
        plan, self._is_made_there = plans(settings)[recipe]
        store = penstock.open(path)
        width = store.node_field("x", NODE).shape[1]
        samples_here = plan.device_topology == "host" or not self._is_made_there
        self.workers = self._workers(store, settings, 4 * width) if samples_here else 1
        if recipe == "pyg":  # nothing overlaps
            self.workers = 0
        where: dict[str, Any] = {"device": "cuda"} if self._is_made_there else {"pin_memory": True}
        is_recorded = recipe == "recorded"
        self._loader = penstock.NeighborLoader(
            store, list(settings.fanouts), "train", batch_size=settings.batch_size, shuffle=True, num_workers=self.workers, seed=1,
            plan=plan, pad=is_recorded, **where,
        )  # fmt: skip
        self.step = penstock_step(settings.model, width, len(settings.fanouts), self.device, is_recorded=is_recorded)
        self.about: dict[str, Any] = {"workers": self.workers}

    def _workers(self, store: Any, settings: Settings, row_bytes: int) -> int:
        """Threads that sample: all processors but two, as far as memory for the batches goes."""
        from penstock.records import NODE
        from penstock.sample import NeighborSampler

        sampler = NeighborSampler(store.graph(), list(settings.fanouts), seed=1)
        seeds = np.array(store.split("train"))[: settings.batch_size]
        sample = sampler.sample({NODE: seeds}, epoch=0, batch=0, workspace=sampler.workspace())
        under_way = MOST_BATCHES // max(1, sample.nodes[NODE].size * row_bytes)
        return int(max(2, min(cores() - 2, under_way - 1)))

    def epoch(self) -> Iterator[Any]:
        """Batches on the device."""
        return iter(self._loader) if self._is_made_there else map(self._copy, self._loader)

    def _copy(self, batch: Any) -> Any:
        moved = batch.to(self.device, non_blocking=True)
        note_edges(moved)  # else layers would be compared with the edges of the host, once more over the link
        return moved

    def prepare(self) -> None:
        """There is nothing to choose; caches fill, and what is slow only once is over."""
        measure(self, "train", self._settings)

    def rest(self) -> None:
        """Give up what no batch needs now."""
        self._loader.engine.maker.let_go()

    def end(self) -> None:
        """Its threads end with the process."""

    def describe(self) -> dict[str, Any]:
        """What it says of itself."""
        stats = self._loader.stats()
        rows = {name: tier["num_rows"] for name, tier in stats.tiers.items()}
        hits = next((count for name, count in rows.items() if name.endswith("cache")), 0)
        return {
            **self.about, "sampling": stats.sampling, "rows": sorted({how for how in stats.devices.values()}),
            "hit_rate": round(hits / max(1, sum(rows.values())), 4), "device_bytes": stats.device_bytes,
            **({"padding": round(stats.padding_nodes / stats.num_nodes, 4), "sizes": stats.padding_steps} if stats.padding_nodes else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """A setting of PyG's loader. `workers`: processes; `filters_there`: they gather the rows too; `prefetches`: PyG's PrefetchLoader."""

    workers: int
    filters_there: bool = False
    prefetches: bool = False

    def __str__(self) -> str:
        rows = "rows by them" if self.filters_there else "rows by the main process"
        return f"{self.workers} workers, {rows}{', PrefetchLoader' if self.prefetches else ''}"


class PyG:
    """`torch_geometric.loader.NeighborLoader`."""

    def __init__(self, recipe: str, path: str, settings: Settings) -> None:
        import torch_geometric.typing as has
        from torch_geometric.data import Data

        if not has.WITH_PYG_LIB and not has.WITH_TORCH_SPARSE:
            raise CannotRun("PyG samples with pyg-lib or torch-sparse, and neither is installed")
        self.device, self._settings = tensor_device("cuda"), settings
        indptr, indices, train, x, y = map(torch.from_numpy, arrays(path, "indptr", "indices", "train", "x", "y"))
        columns = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff(), output_size=indices.numel())
        data = Data(x=x, y=y, edge_index=torch.stack([indices.long(), columns]), num_nodes=indptr.numel() - 1)
        del indices, columns, indptr
        self._data, self._train, self._sampler = data, train, None
        self._made: dict[Variant, Any] = {}
        self.step = pyg_step(settings.model, x.shape[1], len(settings.fanouts), self.device)
        self.about: dict[str, Any] = {"sampler": "pyg-lib" if has.WITH_PYG_LIB else "torch-sparse"}

    def _variants(self, works: Mapping[Variant, float]) -> Iterator[Variant]:
        """What is tried, given how fast those before were: numbers of workers, then other ways with the better one. The rows of all batches
        under way must find room."""
        most = max(1, cores() - 1)
        yield from (Variant(count) for count in sorted({max(1, most // 2), most}))
        workers = max(works, key=lambda variant: works[variant]).workers if works else most
        yield Variant(workers, prefetches=True)
        sample = next(iter(self._make(Variant(0))))
        if room := MOST_BATCHES // max(1, 2 * sample.x.nbytes):
            yield Variant(min(workers, room), filters_there=True)

    def rest(self) -> None:
        """Its workers stay."""

    def prepare(self) -> None:
        """Choose the fastest setting, while nobody else is at work. Workers of the others stay, idle: torch waits for them in many ways."""
        rates: dict[str, float] = {}
        works: dict[Variant, float] = {}
        for variant in self._variants(works):
            self._loader, self.workers = self._made.setdefault(variant, self._make(variant)), variant.workers
            try:
                works[variant] = self._try()
                rates[str(variant)] = round(works[variant], 1)
            except (RuntimeError, OSError) as error:  # no shared memory, no handles, no batch in time
                rates[f"{variant}: {str(error).splitlines()[0][:120]}"] = 0.0
            settle(self)
        if not works:
            raise CannotRun(f"no setting of PyG's loader works: {rates}")
        best = max(works, key=lambda variant: works[variant])
        self.about |= {"tried_seeds_per_s": rates, "chosen": str(best)}
        self._loader, self.workers = self._made[best], best.workers

    def _try(self) -> float:
        """Seeds a second of the loader that is there."""
        batches, num_seeds, try_s = itertools.chain.from_iterable(iter(self.epoch, None)), 0, TRY_S if self._settings.seconds else 0.0
        next(batches)
        since = time.perf_counter()
        for number, _ in enumerate(batches, 2):
            if number > self.workers or time.perf_counter() - since > try_s:
                break
        synchronize(self.device)
        since = time.perf_counter()
        for batch in batches:
            num_seeds += batch.batch_size
            if time.perf_counter() - since > try_s:
                break
        synchronize(self.device)
        return num_seeds / (time.perf_counter() - since)

    def end(self) -> None:
        """Its workers end with it; by themselves they do not, and torch waits five seconds for each."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch would raise an error for each
        for made in self._made.values():
            iterator = getattr(getattr(made, "loader", made), "_iterator", None)  # of a PrefetchLoader's
            for worker in getattr(getattr(iterator, "iterator", iterator), "_workers", ()):  # of PyG's own iterator's
                worker.kill()

    def _make(self, variant: Variant) -> Any:
        from torch_geometric.loader import NeighborLoader, PrefetchLoader

        how = {"persistent_workers": True, "timeout": WAIT_S, "multiprocessing_context": "fork"}  # other workers would copy the graph
        more = how if variant.workers else {}
        shared = {} if self._sampler is None else {"neighbor_sampler": self._sampler}
        loader = NeighborLoader(
            self._data, list(self._settings.fanouts), input_nodes=self._train, batch_size=self._settings.batch_size, shuffle=True,
            is_sorted=True, num_workers=variant.workers, filter_per_worker=variant.filters_there, pin_memory=not variant.prefetches,
            **more, **shared,
        )  # fmt: skip
        self._sampler = loader.node_sampler
        return PrefetchLoader(loader, self.device) if variant.prefetches else loader

    def epoch(self) -> Iterator[Any]:
        """Batches on the device."""
        return (batch.to(self.device, non_blocking=True) for batch in self._loader)

    def describe(self) -> dict[str, Any]:
        """What it says of itself."""
        return self.about


def measure(contender: Any, mode: str, settings: Settings) -> dict[str, float]:
    """One round."""
    step: Callable[[Any], object] = contender.step if mode == "train" else lambda batch: None
    batches = contender.epoch()
    ahead = contender.workers if settings.seconds else 0
    started, patience_s = time.perf_counter(), SLOW * settings.seconds
    for number, batch in enumerate(islice(batches, settings.warm_up + ahead), 1):
        step(batch)
        if number >= FEW and time.perf_counter() - started > patience_s:
            break
    synchronize(contender.device)
    if contender.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    least, done, seeds, edges, nodes = max(settings.least, ahead), 0, 0, 0, 0
    started = time.perf_counter()
    while (took := time.perf_counter() - started) < settings.seconds or done < (least if took < patience_s else min(least, FEW)):
        batch = next(batches, None)
        if batch is None:
            batches = contender.epoch()
            continue
        step(batch)
        done, seeds, edges, nodes = done + 1, seeds + batch.batch_size, edges + batch.edge_index.shape[1], nodes + batch.x.shape[0]
    synchronize(contender.device)
    took = time.perf_counter() - started
    peak = torch.cuda.max_memory_allocated() if contender.device.type == "cuda" else 0
    del batch, batches
    settle(contender)
    return {"seeds_per_s": seeds / took, "batch_ms": 1e3 * took / done, "batches": done, "edges_per_batch": edges / done,
            "nodes_per_batch": nodes / done, "device_peak_bytes": peak}  # fmt: skip


def settle(contender: Any, patience_s: float = 10.0) -> None:
    """Wait until neither this process nor its workers compute, and give back memory that others may need."""
    synchronize(contender.device)
    end = time.monotonic() + patience_s
    used = -1.0
    while time.monotonic() < end and (now := processor_s()) - used > IDLE_SHARE * LOOK_S:
        used = now
        time.sleep(LOOK_S)
    contender.rest()
    if contender.device.type == "cuda":
        torch.cuda.empty_cache()
        getattr(torch._C, "_host_emptyCache", lambda: None)()


def processor_s() -> float:
    """Seconds of the processors that this process and those below it have used, but for this thread: to look costs it milliseconds."""
    total = -time.thread_time()
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


ended: list[Any] = []
"""Contenders, kept to the end of the process: with their loaders would go iterators that wait for workers."""


class CannotRun(Exception):
    """A contender that this machine has no part of."""


def serve(name: str, path: str, settings: Settings, asked: Iterable[str]) -> Iterator[dict[str, Any]]:
    """What a contender answers to each word."""
    contender: Any = None
    try:
        for word in map(str.strip, asked):
            if word == "begin":
                yield {"programs_over_link": programs_over_link(tensor_device("cuda"))}
            elif word == "build":
                started = time.perf_counter()
                contender = (PyG if name == "PyG" else Penstock)(name, path, settings)
                yield {"ready_s": round(time.perf_counter() - started, 1)}
            elif word == "prepare":
                contender.prepare()
                yield {"about": contender.describe()}
            else:
                yield {**measure(contender, word, settings), "about": contender.describe()}
    except CannotRun as error:
        yield {"failed": str(error)}
    except Exception as error:
        traceback.print_exc()
        message = next((line for line in str(error).splitlines() if line.strip()), "")
        yield {"failed": f"{type(error).__name__}: {message[:300]}"}
    if contender is not None:
        contender.end()
        ended.append(contender)


def main() -> None:
    """Serve rounds until standard input ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print, compiled ones too, must not look like an answer
    warnings.filterwarnings("ignore")
    given = json.loads(sys.argv[3])
    for said in serve(sys.argv[1], sys.argv[2], Settings(**{**given, "fanouts": tuple(given["fanouts"])}), sys.stdin):
        print(json.dumps(said), file=out, flush=True)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
