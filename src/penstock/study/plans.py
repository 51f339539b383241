"""Which plan feeds a model fastest on this machine: each plan is tried for some seconds, in its own process.

In: a store and settings. Out: plain data: the measurements of each plan, the one to use, and how well its measurement predicted another
run. There is no cost model: each trial runs the loader that would feed the model, with its plan.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import penstock
from penstock.errors import PenstockError, UsageError, argument
from penstock.feed import LinkNeighborLoader, NeighborLoader
from penstock.feed.delivery import choose_device
from penstock.feed.inputs import StoreFeatures
from penstock.feed.link_arguments import all_edges
from penstock.order import ORDERS, order_by_name
from penstock.plan import RECIPES, Plan, make_plan
from penstock.plan.settings import check_choice, check_positive, settle, show
from penstock.records import EdgeType, NodeType
from penstock.report.words import several, unit
from penstock.store import Progress, Quiet, Store, parse_bytes
from penstock.store.budget import TORCH_BYTES, require_room
from penstock.store.process_memory import free_bytes, usable_cores
from penstock.store.progress import stage
from penstock.study.run import choose_seed_type

Spell = Callable[[str, str | None], str]
Changes = dict[str, Any]
"""A plan as the settings that it changes, as options or arguments of `make_plan`: a `recipe`, and settings that override it."""

ON_CPU, ON_DEVICE = ("mmap", "uva", "pyg"), ("uva", "pagraph", "gnnlab", "ducati")
"""Recipes for stores that fit in memory."""
NEAR = 0.05
"""Rates that differ by less than this share count as equal; then memory, or the number of threads, decides."""
MUCH_SLOWER = 0.2
"""If a plan is slower by this share than with more threads, even fewer threads are not tried."""
FREE_SHARE = 0.8
"""A store fits in memory if it takes at most this share of the free memory."""
BUDGET_SHARE = 0.5
"""Default budget, as a share of the free memory, for plans that need one."""
SPOOL_SHARE = 0.25
"""Default size of a spool, as a share of the free disk space."""
PATIENCE_S = 300.0
"""Seconds that a plan may take for presampling and filling caches, beside the measured ones."""
CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStudy:
    """The training to be planned, and the resources that may be used.

    Attributes:
        num_neighbors: fanout of each hop, element 0 next to the seeds.
        batch_size: seeds per batch.
        num_workers: threads; None: the smallest number that is as fast as all cores.
        host_memory: a budget for the whole process ("2GiB"): only plans within it are tried. None: if the store does not fit in the free
            memory, half of that, for plans that need a budget.
        spool, spool_folder: as in a plan; None: as much as training reads of the store, at most a quarter of the free disk space.
        device: "cuda": batches are delivered there. None: on the CPU.
        recipes: to try; None: those that may be the fastest.
        order, weight, shared_draws, layer_wise: as for a loader; `weight` is the edge field by which neighbours are drawn.
        split: of the train nodes; None if there is only one.
        seed_type: node type whose train nodes are the seeds; or "source,name,target", an edge type whose edges in the graph are. None: the
            only type that links were held out of, as in `penstock train`, or else the node type with splits.
        edge_label: field of these edges that is learnt, in place of links.
        num_negatives: random targets that each link is told from; labels of edges have none.
        seconds: for which each plan is measured, after a warm-up of the same length.
        seed: of everything random.
    """

    num_neighbors: tuple[int, ...] = (15, 10)
    batch_size: int = 1024
    num_workers: int | None = None
    host_memory: str | int | None = None
    spool: str | int | None = None
    spool_folder: str | None = None
    device: str | None = None
    recipes: tuple[str, ...] | None = None
    order: str | None = None
    weight: str | None = None
    shared_draws: int = 0
    layer_wise: bool = False
    split: str | None = None
    seed_type: str | None = None
    edge_label: str | None = None
    num_negatives: int = 1
    seconds: float = 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        settle(self)
        check_positive(self, "num_workers", "num_negatives")
        check_choice(self, "order", (None, *ORDERS))
        for amount in (self.host_memory, self.spool):
            if amount is not None:
                parse_bytes(amount)
        if not 0 < self.seconds < 3600:
            raise UsageError(f"{argument('seconds')} must lie above 0 and below 3600, got {self.seconds}")
        unknown = [name for name in self.recipes or () if name not in RECIPES]
        if unknown or self.recipes == ():
            raise UsageError(f"{argument('recipes')} must be of {', '.join(RECIPES)}; got {unknown[0] if unknown else 'none'!r}")
        if self.spool_folder is not None and not os.path.isdir(self.spool_folder):
            raise UsageError(f"{argument('spool_folder', self.spool_folder)} is no folder: name one on the disk that shall be used")
        if self.recipes is not None and (self.spool is not None or self.spool_folder is not None):
            raise UsageError(f"no recipe spools rows: leave {argument('recipes')} out, or {argument('spool')}")

    __repr__ = show

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)


def as_python(name: str, value: str | None) -> str:
    """Return a setting as a Python argument."""
    return name if value is None else f"{name}={value}"


def study_plans(
    store: Store | str | os.PathLike[str],
    settings: PlanStudy,
    *,
    progress: Progress | None = None,
    spell: Spell = as_python,
) -> dict[str, Any]:
    """Try plans, and choose one.

    Args:
        store: open, or its path.
        progress: receives each plan.
        spell: name and value (as in Python, or None) of a setting -> how it is written in descriptions of plans and failures.
    Returns:
        Plain data. `seeds`: "nodes", "links" or, with labels, "edges"; `seed_type`: theirs; `is_learnt`: whether `penstock train` can learn
        them, as it can edges of which some were held out. `trials`: for each plan its `changes` and `num_workers`, and either `failed`, why
        it does not work, or seeds_per_s, batch_ms, memory_bytes (of the process, without maps), device_bytes, read_bytes_per_batch (from a
        disk; None if the system does not provide it), hit_rate (of rows, by a cache; None without one), ready_s, stage_ms, is_hopeless
        (much slower than another, so only its first batches were measured). `chosen`: index of the trial to use; `again`: the same plan,
        run once more over other batches; `error`: the relative difference of its rate from the forecast.
    Raises:
        UsageError, InputError, StoreError: as for a loader with these settings; UsageError: no plan works.
        BudgetError: the container around this process has no room for another process.
    """
    progress, store = progress or Quiet(), store if isinstance(store, Store) else Store(store)
    choose_device(settings.device, Plan())
    loader = make_loader(store, replace(settings, device=None), Plan(huge_pages=False), num_workers=0)  # refuses what no plan supports
    loader([0])  # compiles kernels, once per machine, which takes memory
    num_batches = len(loader)
    seed_type = choose_type(store, settings)
    seeds = "nodes" if isinstance(seed_type, str) else "links" if settings.edge_label is None else "edges"
    num_bytes = bytes_read(store, settings)
    free = free_bytes()
    cores = usable_cores()
    del loader
    require_room(TORCH_BYTES, "a process that tries a plan", "give the container more memory")
    plans = list(candidates(settings, num_bytes, free, shutil.disk_usage(settings.spool_folder or store.path).free))
    if settings.spool is not None and not any("spool" in changes for changes in plans):
        progress.note(f"{spell('spool', repr(settings.spool))} is for stores that memory does not hold: no plan with it is tried")
    is_small = fits(settings, num_bytes, free)
    if is_small:
        _read_once(store, settings, progress)
    trials: list[dict[str, Any]] = []

    def attempt(changes: Changes, num_workers: int) -> dict[str, Any]:
        best = max((one.get("seeds_per_s", 0.0) for one in trials), default=0.0)
        found = _try(store, settings, changes, num_workers, epoch=len(trials), to_beat=best, spell=spell)
        rate = found.get("failed") or f"{'about ' * found['is_hopeless']}{found['seeds_per_s']:,.0f} {unit(seeds)}/s"
        progress.note(f"{' '.join(spell(name, repr(value)) for name, value in changes.items())}, {several(num_workers, 'thread')}: {rate}")
        progress.advance(1)
        return {"changes": changes, "num_workers": num_workers, **found}

    progress.note(f"each plan runs for {2 * settings.seconds:g} s, of which half count, in a process that takes some seconds to start")
    with stage(progress, "trying plans", len(plans), "plans"):
        for changes in plans:
            trials.append(attempt(changes, settings.num_workers or cores))
    best = choose(trials)
    if settings.num_workers is None and cores > 1:
        with stage(progress, "trying fewer threads", None, "plans"):
            for count in _halves(cores):
                trials.append(attempt(trials[best]["changes"], count))
                if trials[-1].get("seeds_per_s", 0.0) < (1 - MUCH_SLOWER) * trials[best]["seeds_per_s"]:
                    break
        best = choose(trials, changes=trials[best]["changes"])
    with stage(progress, "running it again", 1, "plans"):
        again = attempt(trials[best]["changes"], trials[best]["num_workers"])
    foretold = trials[best]["seeds_per_s"]
    return {
        "penstock": penstock.__version__,
        "store": str(store.path),
        "settings": settings.as_dict(),
        "seeds": seeds,
        "seed_type": seed_type if isinstance(seed_type, str) else ",".join(seed_type),
        "is_learnt": isinstance(seed_type, str) or seed_type in store.types_with_links(),
        "machine": {"cores": cores, "free_bytes": free},
        "read_bytes": num_bytes,
        "is_in_memory": is_small,
        "num_batches": num_batches,
        "trials": trials,
        "chosen": best,
        "again": again,
        "error": None if "failed" in again else again["seeds_per_s"] / foretold - 1,
    }


def fits(settings: PlanStudy, num_bytes: int, free: int) -> bool:
    """Whether `num_bytes` of a store may be in memory."""
    return settings.host_memory is None and num_bytes <= FREE_SHARE * free


def candidates(settings: PlanStudy, num_bytes: int, free: int, disk: int) -> Iterator[Changes]:
    """Yield the plans to try; last, those that are slowest if pages of maps must be read from a disk.

    Args:
        num_bytes: of the features and lists that training reads. free, disk: free bytes of memory, and of the disk for a spool.
    """
    budget = settings.host_memory or f"{int(BUDGET_SHARE * free) >> 20}MiB"
    if settings.recipes is not None:
        within = {} if settings.host_memory is None else {"host_memory": settings.host_memory}
        yield from ({"recipe": name, **within} for name in settings.recipes)
        return
    if fits(settings, num_bytes, free):
        yield from ({"recipe": name} for name in (ON_CPU if settings.device is None else ON_DEVICE))
        return
    size = int(min(num_bytes, SPOOL_SHARE * disk)) >> 20
    folder = {} if settings.spool_folder is None else {"spool_folder": settings.spool_folder}
    if settings.spool is not None or size:
        yield {"host_memory": budget, "spool": settings.spool or f"{size}MiB", **folder}
    yield {"host_memory": budget}
    yield {"host_memory": budget, "features": "disk", "policy": "presample"}
    yield {"host_memory": budget, "features": "disk", "policy": "belady"}
    if settings.host_memory is None:
        yield {"recipe": "mmap", "map_threads": 64}
    yield {"host_memory": budget, "policy": "presample"}
    if settings.host_memory is None:
        yield {"recipe": "mmap"}


def choose(trials: list[dict[str, Any]], *, changes: Changes | None = None) -> int:
    """Return the index of the trial to use: of those about as fast as the fastest, the one with the least memory; among trials of one plan
    (`changes`), the one with the fewest threads.

    Raises:
        UsageError: no plan works.
    """
    able = [place for place, trial in enumerate(trials) if "failed" not in trial and changes in (None, trial["changes"])]
    if not able:
        raise UsageError(f"none of {len(trials)} plans works here: {trials[0]['failed']}")
    fastest = max(trials[place]["seeds_per_s"] for place in able)
    alike = [place for place in able if trials[place]["seeds_per_s"] >= (1 - NEAR) * fastest]
    return min(alike, key=lambda place: trials[place]["memory_bytes" if changes is None else "num_workers"])


def choose_type(store: Store, settings: PlanStudy) -> NodeType | EdgeType:
    """Return the node type whose train nodes are the seeds, or the edge type whose edges are."""
    named = settings.seed_type
    edge_type = store.edges_learnt(named, "seed_type", split=settings.split, edge_label=settings.edge_label, are_held_out=False)
    return edge_type or choose_seed_type(store, named)


def make_loader(store: Store, settings: PlanStudy, plan: Plan, num_workers: int, epoch: int = 0) -> NeighborLoader | LinkNeighborLoader:
    """Return the loader to try, which loads what `penstock train` would, positioned at the beginning of an epoch."""
    seed_type, source, order = choose_type(store, settings), StoreFeatures(store), settings.order or plan.order
    how: dict[str, Any] = dict(
        num_neighbors=list(settings.num_neighbors), batch_size=settings.batch_size, weight_attr=settings.weight, seed=settings.seed,
        num_workers=num_workers, plan=plan, device=settings.device, shared_draws=settings.shared_draws, layer_wise=settings.layer_wise,
    )  # fmt: skip
    if isinstance(seed_type, str):
        nodes = seed_type, store.split("train", settings.split, seed_type)
        order = order_by_name(order, store, nodes, seed=settings.seed, batch_size=settings.batch_size)
        loader = NeighborLoader(source, input_nodes=nodes, order=order, **how)
    else:
        how |= all_edges(source.graph, seed_type, store.reverses_left_out(seed_type))
        negatives = ("triplet", settings.num_negatives) if settings.edge_label is None else None
        loader = LinkNeighborLoader(source, edge_label=settings.edge_label, neg_sampling=negatives, order=order, **how)
    if epoch:
        loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
    return loader


def plan_of(changes: Changes) -> Plan:
    """Return the plan made of changes."""
    return make_plan(changes.get("recipe"), **{name: value for name, value in changes.items() if name != "recipe"})


def bytes_read(store: Store, settings: PlanStudy) -> int:
    """Return the bytes that training may read of a store: neighbour lists with their weights, node features, and labels of edges."""
    return sum(spec.data_bytes for spec in _read_arrays(store, settings))


def _read_arrays(store: Store, settings: PlanStudy) -> list[Any]:
    nodes, edges, seed_type = store.manifest.nodes.values(), store.manifest.edges, choose_type(store, settings)
    features = [entry.fields["x"] for entry in nodes if "x" in entry.fields]
    names = {e: (settings.weight, settings.edge_label if e == seed_type else None) for e in edges}
    of_edges = [entry.fields[name] for e, entry in edges.items() for name in names[e] if name in entry.fields]
    return [*features, *of_edges, *(spec for entry in edges.values() for spec in (entry.indptr, entry.indices))]


def _read_once(store: Store, settings: PlanStudy, progress: Progress) -> None:
    """Read all files once, as the first epoch would, so that the first trial is not the one that loads them into memory."""
    buffer = bytearray(CHUNK_BYTES)
    with stage(progress, "reading the store once", bytes_read(store, settings) >> 20, "MiB"):
        for spec in _read_arrays(store, settings):
            with open(store.path / spec.file, "rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    progress.advance(count >> 20)


def _halves(count: int) -> Iterator[int]:
    while count > 1:
        count //= 2
        yield count


def _try(
    store: Store, settings: PlanStudy, changes: Changes, num_workers: int, *, epoch: int, to_beat: float, spell: Spell
) -> dict[str, Any]:  # fmt: skip
    """Run `penstock.study.trial`; returns its result, or `failed`."""
    asked = {
        "store": str(store.path), "settings": settings.as_dict(), "changes": changes, "num_workers": num_workers, "epoch": epoch,
        "to_beat": to_beat,
    }  # fmt: skip
    paths = [*filter(None, sys.path), str(Path(penstock.__file__).parents[1])]
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-P", "-m", "penstock.study.trial", json.dumps(asked)]
    patience_s, is_late = PATIENCE_S + 3 * settings.seconds, threading.Event()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment)
        timer = threading.Timer(patience_s, lambda: (is_late.set(), process.kill()))
        with process:
            timer.start()
            try:
                assert process.stdout is not None
                answer = process.stdout.read()
                process.wait()
            finally:
                timer.cancel()
                process.kill()  # no effect if it has ended
        if is_late.is_set():
            return {"failed": f"was not done after {patience_s:.0f} s"}
        if process.returncode == 0:
            found = json.loads(answer)
            return {"failed": PenstockError(found["failed"]).spelled(spell)} if "failed" in found else found
        errors.seek(0)
        last = errors.read().decode(errors="replace").strip().rsplit("\n", 1)[-1]
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        return {"failed": f"was ended by {name}" + (", as the system does where memory is short" if name == "SIGKILL" else "")}
    return {"failed": last or f"ended with code {process.returncode}"}


def settings_of(values: dict[str, Any]) -> PlanStudy:
    """Return settings from plain data."""
    return replace(PlanStudy(), **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
