"""Training on stores ten times as large as memory: `ginex` and `ours` against `mmap` (PyG+) and `ali+pg` under one limit; their settings.

    python -m bench.beyond_memory FOLDER DATA [--store NAME ...] [--part main|ours|sensitivity|dimension ...] [--rounds 3] [--batches 8]

Makes FOLDER/<store> if it is not there (`bench.beyond_stores`; --remove removes it afterwards). Every measured run is a process in a
control group of its own, whose limit is a tenth of the store and which counts the page cache; the page cache is empty before. Contenders
alternate. What is measured is added to `bench/results/beyond_memory.json` piece by piece, so that what was stopped goes on where it was:
a piece that is there is not measured again (--again). Needs root (control groups), fio and FOLDER on the disk that is meant.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from copy import copy
from pathlib import Path
from typing import Any

import penstock
from bench import common
from bench.beyond_group import run_in_group
from bench.beyond_stores import FAR, GROUP, IN_STEP, NEAR, STORES, make
from bench.common import foreign_load, write_result
from bench.disk import run_fio
from penstock.study.layout import LayoutSettings, drop_layout, lay_out

SHARE = 0.1
"""Memory over store."""

RESERVE, DIRECT_RESERVE = 0.12, 0.06
"""Shares of the limit that no cache is given: fluctuations, and some page cache for whoever reads maps."""

DIRECTORY = 8
"""Bytes a node that Belady's tables take of a cache's capacity."""

STATIC_DIRECTORY = 4
"""The same of a static policy."""

SPLITS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of one budget between neighbour lists and rows: Ginex 5.1 tuned Ali+PG by these."""

THREADS = (8, 16, 32, 64)
"""Threads that read maps, tried for `mmap`."""

SEEDS = {"zipf-256": 128, "twitter-128": 128, "cnr-768": 128, "rmat-64": 128}
WARMED_UP = 48
"""Batches before those of whoever looks ahead are timed: three windows, a window and a half where it is 32."""
PIECE = bytearray(8 << 20)
SPOOL = 0.75
"""Bytes of the spool over those of the store."""
SPOOLED = dict(warmup=2 * GROUP, warmup_s=0, batches=2 * GROUP, num_workers=4)
"""Settings of runs with a spool: whole groups. With 16 threads and what they sample ahead no memory was left for rows on zipf-256."""
JOINT = dict(warmup=WARMED_UP, batches=6 * IN_STEP, num_workers=IN_STEP)
"""Of runs without one: samples come by as many as there are threads."""
PACKED = "proximity order, packed layout"
MODELS = {
    "sage": lambda store: dict(model="sage", fanouts=(10, 10, 10), batch_size=SEEDS[store]),
    "gcn": lambda store: dict(model="gcn", fanouts=(10, 10), batch_size=8 * SEEDS[store]),
}
WINDOWS, MEMORY, SIZES = (2, 4, 8, 16, 32, 64, 128), (0.75, 1.0, 1.5, 2.0), (32, 64, 128, 256)
WIDTHS = (128, 256, 512, 768)
GINEX = dict(window=16, presample_batches=16)
GINEX_SPLITS = (0.05, 0.2, 0.4)
"""Tried for `ginex`, which keeps both caches at the same time."""


class Notebook:
    """The results so far, kept in the file after every run."""

    def __init__(self, name: str) -> None:
        self.name, path = name, common.RESULTS / f"{name}.json"
        self.values: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"stores": {}}

    def page(self, *keys: str) -> dict[str, Any]:
        """A dictionary of dictionaries, made where it is missing."""
        at = self.values["stores"]
        for key in keys:
            at = at.setdefault(key, {})
        return at

    def keep(self) -> None:
        """Write."""
        stamped = {key: value for key, value in self.values.items() if key not in ("commit", "date", "machine")}
        write_result(self.name, stamped)


class Bench:
    """Runs of one store.

    Args:
        name, path: of the store. notes: where results go. options: of the command line.
    """

    def __init__(self, name: str, path: Path, notes: Notebook, options: argparse.Namespace) -> None:
        self.name, self.path, self.notes, self.options, self.inside = name, path, notes, options, ()
        self.store_bytes = sum(file.stat().st_size for file in path.rglob("*.npy"))
        self.limit, store = int(SHARE * self.store_bytes), penstock.open(path)
        sizes = dict(num_nodes=sum(store.num_nodes.values()), num_edges=sum(store.num_edges.values()))
        made = dict(made_by=STORES[name].words, dim=STORES[name].dim)
        notes.page(name).update(store_bytes=self.store_bytes, limit_bytes=self.limit, **sizes, **made)

    def page(self, *where: str) -> dict[str, Any]:
        """Results of this store at a place."""
        return self.notes.page(self.name, *self.inside, *where)

    def of_width(self, dim: int) -> Bench:
        """The same graph with features of another width, within the same memory; its results are kept below `dimension`."""
        other = copy(self)
        other.path, other.inside = make(self.name, self.options.folder, self.options.data, self.options.scale, dim), ("dimension", str(dim))
        read_in_order(other.path)
        return other

    def run(self, where: tuple[str, ...], settings: dict[str, Any], limit: int | None = None, keep: str = "runs") -> dict[str, Any]:
        """Run once, add it to the list at `where`, and print a line."""
        result = run_in_group(self.path, {"batches": self.options.batches, **settings}, limit or self.limit)
        page = self.page(*where)
        page.setdefault(keep, []).append({"settings": settings, **result})
        self.notes.keep()
        if "error" in result:
            print(f"{self.name} {'/'.join(where)}: FAILED {result['error'][-300:]}", flush=True)
            return result
        rows, lists, count = max(result["rows"], 1), max(result["lists"], 1), len(result["batch_s"])
        print(
            f"{self.name} {'/'.join(where)}: {result['samples_per_s']:.1f} samples/s, {result['seconds'] / count:.2f} s/batch "
            f"(step {result['step_s'] / count:.2f}), rows hit {result['row_hits'] / rows:.0%} of {rows:,}, lists "
            f"{result['list_hits'] / lists:.0%}, {result['requests']:,} requests, read {result['read_bytes'] / 1e6:,.0f} MB, build "
            f"{result['build_s']:.0f} s, warm-up {result['warmup_batches']} in {result['warmup_s']:.0f} s, peak "
            f"{result['group_peak_bytes'] / 2**20:,.0f} of {(limit or self.limit) / 2**20:,.0f} MiB",
            flush=True,
        )
        return result

    def needed(self, model: str, settings: dict[str, Any], window: int = 1, *, is_spooled: bool = False) -> int:
        """Bytes that a run takes beside its caches, measured once per model, settings and window: direct reads, as good as nothing kept."""
        key = f"{model} {settings.get('batch_size')}" + (f" window {window}" if window > 1 else "") + is_spooled * " spooled"
        key += f" threads {settings['num_workers']}" if "num_workers" in settings else ""
        page = self.page("needed")
        if key not in page:
            per_node = STATIC_DIRECTORY if is_spooled else DIRECTORY if window > 1 else 0
            table = per_node * self.notes.page(self.name)["num_nodes"]
            plan: dict[str, Any] = dict(features="disk", topology="disk", window=window)
            if table:
                plan |= dict(policy="belady", cache=kib(table + (1 << 20)), presample_batches=GINEX["presample_batches"])
            if is_spooled:
                plan |= dict(policy="presample", spool=kib(SPOOL * self.store_bytes))
            warm = dict(warmup=4 + window, warmup_s=0, batches=2, least_s=0) | (dict(SPOOLED, warmup=4, batches=2) if is_spooled else {})
            result = self.run(("profile", key), {**settings, "plan": plan, **warm}, limit=2 * self.limit)
            page[key] = result["own_bytes"] + result["row_pointer_bytes"] - table if "error" not in result else None
            self.notes.keep()
        return page[key]

    def budget(self, model: str, settings: dict[str, Any], limit: int | None = None, window: int = 1) -> int:
        """Bytes for caches: what is left beside a run without caches and, with a window, beside the batches that it holds ahead."""
        reserve = DIRECT_RESERVE if window > 1 else RESERVE
        return int((1 - reserve) * (limit or self.limit)) - self.needed(model, settings, window)

    def ours(self, model: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Our own recipe, settings and plan: `ginex` in community order where rows lie near each other, rows spooled where they
        lie far apart, else `ginex`; lists that lie far apart are read for many samples together."""
        if self.name in NEAR:
            return self.near(model, settings, "community")
        settings = settings | (SPOOLED if self.name in FAR else JOINT)
        if self.name not in FAR:
            return settings | dict(plan=self.ginex(model, settings, 0.0))
        room = int((1 - DIRECT_RESERVE) * self.limit) - self.needed(model, settings, 2 * GROUP, is_spooled=True)
        plan = dict(
            features="disk", topology="disk", policy="presample", presample_batches=GINEX["presample_batches"], cache=kib(room),
            window=2 * GROUP, spool=kib(SPOOL * self.store_bytes),
        )  # fmt: skip
        return settings | dict(plan=plan)

    def near(self, model: str, settings: dict[str, Any], order: str) -> dict[str, Any]:
        """`ginex` in an order that puts near seeds into batches that follow each other."""
        return settings | dict(warmup=WARMED_UP, plan=self.ginex(model, settings, max(GINEX_SPLITS), order=order))

    def ginex(
        self, model: str, settings: dict[str, Any], share: float, *, window: int = GINEX["window"], limit: int | None = None, **changes: Any
    ) -> dict[str, Any]:
        """The plan `ginex`: Belady over direct reads; `share` of what its window leaves for neighbour lists."""
        return ginex_plan(self.budget(model, settings, limit, window), share, window=window, **changes)

    def is_done(self, *where: str, count: int = 1) -> bool:
        """Whether so many runs are there."""
        return len(self.page(*where).get("runs", [])) >= count and not self.options.again


def mmap_plan(threads: int) -> dict[str, Any]:
    """PyG+."""
    return dict(recipe="mmap", map_threads=threads)


def ali_pg_plan(threads: int, budget: int, share: float) -> dict[str, Any]:
    """Static caches over maps; `share` of the budget for neighbour lists."""
    plan: dict[str, Any] = dict(recipe="ali+pg", map_threads=threads)
    if share == 0:
        plan |= dict(neighbor_cache="0 lists")
    else:
        plan |= dict(neighbor_cache=kib(share * budget))
    return plan | dict(cache="0 rows" if share == 1 else kib((1 - share) * budget))


def ginex_plan(budget: int, share: float, **changes: Any) -> dict[str, Any]:
    """Belady over direct reads; `share` of the budget for neighbour lists."""
    lists = kib(share * budget) if share else "0 lists"
    return {"recipe": "ginex", **GINEX, "neighbor_cache": lists, "cache": kib((1 - share) * budget), **changes}


def budget_plan(limit: int, **changes: Any) -> dict[str, Any]:
    """The recipe ginex within a budget for the whole process: window and caches are fitted."""
    return {"recipe": "ginex", "host_memory": kib(limit), **changes}


def kib(number: float) -> str:
    """Bytes as a capacity."""
    return f"{int(number) >> 10}KiB"


def best_of(bench: Bench, *where: str, by: str = "samples_per_s") -> Any:
    """The key of the page whose first run was the best: the fastest, or that read least by a count that noise leaves alone."""
    page = bench.page(*where)
    runs = {key: each["runs"][0] for key, each in page.items() if each.get("runs") and "error" not in each["runs"][0]}
    if by == "samples_per_s":
        return max(runs, key=lambda key: runs[key][by])
    return min(runs, key=lambda key: runs[key][by] / len(runs[key]["batch_s"]))


PILOT = dict(warmup=4, warmup_s=20, batches=4, least_s=3)


def pilot(bench: Bench) -> tuple[int, float, float]:
    """Find the number of threads of the maps (by time), the splits of ali+pg (by pages read) and of ginex (by reads), on GraphSAGE."""
    threads = bench.options.map_threads or pilot_threads(bench)
    settings = MODELS["sage"](bench.name)
    splits = []
    for name, shares, by in (("ali+pg", bench.options.splits, "major_faults"), ("ginex", bench.options.ginex_splits, "requests")):
        for share in shares if len(shares) > 1 else ():
            if not bench.is_done(f"pilot {name}", str(share)):
                static = ali_pg_plan(threads, bench.budget("sage", settings), share)
                plan = static if name == "ali+pg" else bench.ginex("sage", settings, share)
                bench.run((f"pilot {name}", str(share)), {**settings, **PILOT, "plan": plan})
        splits.append(float(best_of(bench, f"pilot {name}", by=by)) if len(shares) > 1 else shares[0])
    return threads, splits[0], splits[1]


def pilot_threads(bench: Bench) -> int:
    """The number of threads at which maps are read fastest."""
    for threads in bench.options.threads:
        if not bench.is_done("pilot mmap", str(threads)):
            bench.run(("pilot mmap", str(threads)), {**MODELS["sage"](bench.name), **PILOT, "plan": mmap_plan(threads)})
    return int(best_of(bench, "pilot mmap"))


def part_main(bench: Bench) -> None:
    """mmap, ali+pg, ginex and ours in alternation, for both models; fio between them."""
    threads, split, lists = pilot(bench)
    for model in bench.options.models:
        settings = MODELS[model](bench.name)
        budget = bench.budget(model, settings)
        for number in range(bench.options.rounds):
            runs = {
                "ginex": settings | dict(warmup=WARMED_UP, plan=bench.ginex(model, settings, lists)),
                "mmap": settings | dict(plan=mmap_plan(threads)),
                "ali+pg": settings | dict(plan=ali_pg_plan(threads, budget, split)),
                "ours": bench.ours(model, settings),
            }
            for name, run in runs.items():
                if not bench.is_done("main", model, name, count=number + 1):
                    measure_fio(bench, model)
                    bench.run(("main", model, name), run)


def measure_fio(bench: Bench, model: str) -> None:
    """What the device gives at this moment: 4 KiB at random, depth 128, over the features."""
    path = bench.path / "nodes" / "node" / "x.npy"
    found = run_fio(path, {"rw": "randread", "bs": "4k", "iodepth": "128"})
    bench.page().setdefault("fio", []).append({"at": time.strftime("%H:%M:%S"), "model": model, **found})


def part_ours(bench: Bench) -> None:
    """Parts of our own recipe, one added after the other."""
    settings = MODELS["sage"](bench.name)
    _, _, lists = pilot(bench)
    ahead, joint = settings | dict(warmup=WARMED_UP), settings | JOINT
    steps: dict[str, dict[str, Any]] = {
        "direct reads, no caches": settings | dict(plan=dict(features="disk", topology="disk", window=1)),
        "ginex": ahead | dict(plan=bench.ginex("sage", settings, lists)),
        "window 32": ahead | dict(plan=bench.ginex("sage", settings, lists, window=32)),
        "host_memory: all fitted": ahead | dict(plan=budget_plan(bench.limit)),
    }
    if bench.name in NEAR:
        steps["proximity order"] = bench.near("sage", settings, "proximity")
        steps["community order"] = bench.ours("sage", settings)
    else:
        steps["lists read together"] = joint | dict(plan=bench.ginex("sage", joint, 0.0))
    if bench.name in FAR:
        steps["rows spooled"] = bench.ours("sage", settings)
        fitted = dict(host_memory=kib(bench.limit), spool=kib(SPOOL * bench.store_bytes))
        steps["rows spooled, host_memory: all fitted"] = settings | SPOOLED | dict(plan=fitted)
    for number in range(bench.options.rounds):
        for name, run in steps.items():
            if not bench.is_done("ours", name, count=number + 1):
                bench.run(("ours", name), run)
    if bench.options.packed and not bench.is_done("ours", PACKED, count=bench.options.rounds):
        fanouts, batch_size = tuple(settings["fanouts"]), settings["batch_size"]
        how = LayoutSettings(num_neighbors=fanouts, batch_size=batch_size, order="proximity", fields=("x",), by="hot-coaccess")
        bench.page("layout").update(lay_out(bench.path, how)["measured"])
        try:
            for _ in range(bench.options.rounds):
                bench.run(("ours", PACKED), bench.near("sage", settings, "proximity"))
        finally:
            drop_layout(bench.path)


def part_sensitivity(bench: Bench) -> None:
    """Window, memory and batch size."""
    threads, split, lists = pilot(bench)
    base = MODELS["sage"](bench.name)
    for window in WINDOWS:
        if not bench.is_done("window", str(window)):
            warmup = max(WARMED_UP, 3 * window // 2)
            bench.run(("window", str(window)), {**base, "warmup": warmup, "plan": bench.ginex("sage", base, lists, window=window)})
    for factor in MEMORY:
        three(bench, ("memory", str(factor)), base, threads, split, lists, limit=int(factor * bench.limit))
    for size in SIZES:
        three(bench, ("batch size", str(size)), {**base, "batch_size": size}, threads, split, lists)


def part_dimension(bench: Bench) -> None:
    """The same graph and memory, rows of other widths."""
    threads, split, lists = pilot(bench)
    for dim in WIDTHS:
        wide = bench.of_width(dim)
        for number in range(bench.options.rounds):
            three(wide, (), MODELS["sage"](bench.name), threads, split, lists, count=number + 1)


def three(
    bench: Bench, where: tuple[str, ...], settings: dict[str, Any], threads: int, split: float, lists: float, *, limit: int | None = None,
    count: int = 1,
) -> None:  # fmt: skip
    """mmap, ali+pg and ginex at one point, where fewer runs than `count` are there."""
    runs = {
        "mmap": settings | dict(plan=mmap_plan(threads)),
        "ali+pg": settings | dict(plan=ali_pg_plan(threads, bench.budget("sage", settings, limit), split)),
        "ginex": settings | dict(warmup=WARMED_UP, plan=bench.ginex("sage", settings, lists, limit=limit)),
    }
    for name, run in runs.items():
        if not bench.is_done(*where, name, count=count):
            bench.run((*where, name), run, limit=limit)


def read_in_order(store: Path) -> None:
    """Read all of a store once: a virtual disk answers several times slower where nobody has read before, or not for long."""
    for file in store.rglob("*.npy"):
        with file.open("rb", buffering=0) as data:
            while data.readinto(PIECE):
                pass


PARTS = {
    "threads": pilot_threads,
    "pilot": pilot,
    "main": part_main,
    "ours": part_ours,
    "sensitivity": part_sensitivity,
    "dimension": part_dimension,
}


def main(arguments: list[str] | None = None) -> int:
    """Measure what is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path, help="graphs that are expanded")
    parser.add_argument("--store", nargs="*", default=list(STORES), choices=list(STORES), dest="stores")
    parser.add_argument("--part", nargs="*", default=["main", "ours", "sensitivity"], choices=list(PARTS), dest="parts")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--threads", nargs="*", type=int, default=list(THREADS), help="tried for mmap")
    parser.add_argument("--map-threads", type=int, help="for maps; default: the best of --threads")
    parser.add_argument("--splits", nargs="*", type=float, default=list(SPLITS), help="of ali+pg")
    parser.add_argument("--ginex-splits", nargs="*", type=float, default=list(GINEX_SPLITS))
    parser.add_argument("--packed", action="store_true", help="of part ours, also the packed layout: needs room for the features again")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--scale", type=float, default=1.0, help="of the stores, for trying it out")
    parser.add_argument("--name", default="beyond_memory", help="of the result")
    parser.add_argument("--again", action="store_true", help="measure also what is there")
    parser.add_argument("--remove", action="store_true", help="remove each store after it")
    options = parser.parse_args(arguments)
    notes = Notebook(options.name)
    notes.values["command"] = "python -m bench.beyond_memory FOLDER DATA"
    notes.values.setdefault("foreign_load_percent", []).append(round(foreign_load(), 1))
    for name in options.stores:
        bench = Bench(name, make(name, options.folder, options.data, options.scale), notes, options)
        read_in_order(bench.path)
        for part in options.parts:
            PARTS[part](bench)
        notes.keep()
        if options.remove:
            shutil.rmtree(bench.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
