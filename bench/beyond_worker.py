"""One measured run of `bench.beyond_memory`, in a process of its own that is in its control group from the first instruction.

    python -m bench.beyond_worker STORE JSON

JSON: the settings (see `Settings`). Prints one JSON object. A run makes the loader and the model, takes batches until the memory of the
group is in use and at least `warmup` of them are done, and times the `batches` that follow, end to end: waiting and training step.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

KEPT = ("cache_bytes", "list_bytes", "peak_buffer_bytes", "disks", "memory")
GROUP = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run.

    Attributes:
        plan: of the loader, as keywords; `recipe` names what they change.
        model, fanouts, hidden, batch_size, num_workers, prefetch: as usual. num_classes: of the labels, which are made up of node numbers.
        warmup: batches before the timed ones, at least; warmup_s: seconds after which no more is warmed up.
        batches, least_s: timed, and the seconds that they take at least; there are more of them if need be.
        step: whether the model takes part.
        limit_bytes: that the group has from the first batch on; 0 leaves it as it is.
        first: batch of the epoch to begin with; what is sampled to find out what is hot may come from the beginning.
    """

    plan: dict[str, Any] = field(default_factory=dict)
    model: str = "sage"
    fanouts: tuple[int, ...] = (10, 10, 10)
    hidden: int = 64
    batch_size: int = 128
    num_workers: int = 2
    prefetch: int = 1
    num_classes: int = 50
    warmup: int = 8
    warmup_s: float = 25.0
    batches: int = 8
    least_s: float = 5.0
    step: bool = True
    first: int = 200
    seed: int = 1
    limit_bytes: int = 0


class Trainer:
    """A model and its step. GCN normalises by the degrees in the batch, as PyG's does: no contender reads row pointers in its step."""

    def __init__(self, settings: Settings, width: int) -> None:
        from penstock.train.models import GNN

        torch.manual_seed(0)
        sizes = [width, *[settings.hidden] * (len(settings.fanouts) - 1), settings.num_classes]
        self.model = GNN(settings.model, sizes, dropout=0.0, input_dropout=0.0, heads=1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.num_classes, self.seconds, self.losses = settings.num_classes, 0.0, []

    def step(self, batch: Any) -> None:
        """Learn from a batch."""
        from penstock.feed import layers

        started = time.perf_counter()
        degree = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes).float() if self.model.needs_degree else None
        out = self.model(batch.x, layers(batch), degree)
        labels = batch.n_id[: batch.batch_size] % self.num_classes
        loss = torch.nn.functional.cross_entropy(out, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(float(loss.detach()))
        self.seconds += time.perf_counter() - started


def run(store: str, settings: Settings) -> dict[str, Any]:
    """Make everything, warm up, time."""
    import penstock
    from penstock.plan import make_plan
    from penstock.store.process_memory import give_back_freed_memory

    torch.set_num_threads(1)  # the others are busy feeding; two of them wait for each other more than they work
    began = time.perf_counter()
    before = measures()
    plan = dict(settings.plan)
    made = make_plan(plan.pop("recipe", None), **plan)
    width = penstock.open(store).node_fields()["x"].shape[1]
    loader = penstock.NeighborLoader(
        store,
        list(settings.fanouts),
        input_nodes="train",
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.num_workers,
        prefetch_factor=settings.prefetch,
        seed=settings.seed,
        plan=made,
        timeout=300,
        step=Trainer(settings, width).step if made.host_memory else None,
    )
    source = loader.engine.maker.source
    trainer = Trainer(settings, width)
    gc.collect()
    give_back_freed_memory()
    tighten(settings.limit_bytes)
    built = measures()
    result: dict[str, Any] = {"build_s": time.perf_counter() - began, "build_read_bytes": built["read_bytes"] - before["read_bytes"]}
    state = loader.state_dict()
    loader.load_state_dict({**state, "batch": min(settings.first, len(loader) // 2)})
    batches, warm_s = iter(loader), time.perf_counter()
    times: list[float] = []
    own_bytes = 0
    limit = settings.limit_bytes
    while len(times) < settings.warmup or (time.perf_counter() - warm_s < settings.warmup_s and not is_full(loader, before, limit)):
        times.append(take(batches, trainer if settings.step else None))
        own_bytes = max(own_bytes, measures()["own_bytes"])
    result |= {"warmup_batches": len(times), "warmup_s": time.perf_counter() - warm_s, "warmup_batch_s": times}
    first, counted = measures(), counts(loader)
    if settings.step:
        trainer.seconds = 0.0
    started = time.perf_counter()
    timed: list[float] = []
    while len(timed) < settings.batches or time.perf_counter() - started < settings.least_s:
        timed.append(take(batches, trainer if settings.step else None))
    seconds = time.perf_counter() - started
    last, later = measures(), counts(loader)
    result |= {
        "seconds": seconds,
        "batch_s": timed,
        "samples_per_s": len(timed) * settings.batch_size / seconds,
        "step_s": trainer.seconds,
        **{name: last[name] - first[name] for name in ("read_bytes", "cpu_s", "major_faults")},
        **{name: later[name] - counted[name] for name in later},
        "losses": trainer.losses[-2:],
        "stats": {name: value for name, value in loader.stats().as_dict().items() if name in KEPT},
        "own_bytes": max(own_bytes, last["own_bytes"]),
        "row_pointer_bytes": sum(csc.indptr.nbytes for csc in source.graph.adjacency.values()),
    }
    return result


def take(batches: Any, trainer: Trainer | None) -> float:
    """Take one batch and learn from it; returns seconds."""
    started = time.perf_counter()
    batch = next(batches)
    if trainer is not None:
        trainer.step(batch)
    return time.perf_counter() - started


def is_full(loader: Any, began: dict[str, Any], limit_bytes: int) -> bool:
    """Whether what fills by and by is full: the rows of a dynamic cache; where rows come from maps, the page cache of the group."""
    for cache in loader.engine.caches.top.values():
        if not cache.is_static:
            slots = cache.policy.slots
            return int(np.count_nonzero(slots >= 0)) >= 0.98 * cache.policy.num_slots
    if any(tier.startswith("disk") for tier in loader.stats().tiers):
        return True
    return measures()["read_bytes"] - began["read_bytes"] > limit_bytes


def counts(loader: Any) -> dict[str, float]:
    """What was asked of whom, so far."""
    from penstock.gather import SpooledTier

    stats = loader.stats()
    found: dict[str, float] = {"rows": 0, "row_hits": 0, "lists": 0, "list_hits": 0, "requests": 0, "pages": 0, "tier_read_bytes": 0}
    found |= {f"{name}_s": seconds for name, seconds in stats.stage_s.items() if name in ("sample", "gather", "assemble")}
    found["wait_s"], found["nodes"], found["edges"] = stats.wait_s, stats.num_nodes, stats.num_edges
    for kind, tiers in (("row", stats.tiers), ("list", stats.lists)):
        for name, counted in tiers.items():
            number = counted["num_rows" if kind == "row" else "num_lists"]
            number = 0 if name == "disk" and "spool" in tiers else number  # what is read ahead is asked of the spool
            found[f"{kind}s"] += number
            found[f"{kind}_hits"] += number if name == "cache" else 0
            found[f"{kind}_s_in_{name}"] = counted["seconds"]
            if "num_requests" in counted:
                found["requests"] += counted["num_requests"]
                found["pages"] += counted.get("num_pages", 0)
                found["tier_read_bytes"] += counted["read_bytes"]
                found["row_requests"] = found.get("row_requests", 0) + counted["num_requests"]
    found["written_bytes"] = sum(spool.written_bytes for spool in loader.engine.caches.tiers_of(SpooledTier))
    found["decide_s"] = sum(counted["decide_s"] for counted in stats.tiers.values())
    for tier in loader.engine.caches.beneath.values():
        if hasattr(tier.stats, "num_requests"):
            found["list_requests"] = tier.stats.num_requests
            found["requests"] += tier.stats.num_requests
            found["pages"] += getattr(tier.stats, "num_pages", 0)
            found["tier_read_bytes"] += tier.stats.read_bytes
    return found


def measures() -> dict[str, Any]:
    """Bytes that this process had read from devices, processor time, faults, memory of its own: not of files."""
    io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    memory = {line.split(":")[0]: line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Rss")}
    ticks = os.sysconf("SC_CLK_TCK")
    return {
        "read_bytes": int(io["read_bytes"]),
        "cpu_s": (int(fields[11]) + int(fields[12])) / ticks,
        "major_faults": int(fields[9]),
        "own_bytes": 1024 * (int(memory["RssAnon"]) + int(memory["RssShmem"])),
    }


def limit_file() -> Path | None:
    """Where the limit of the group is that this process is in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return GROUP / path.lstrip("/") / "memory.limit_in_bytes"
        if not controllers:
            return Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.max"
    return None


def tighten(limit_bytes: int) -> None:
    """Lower the limit of the group, and count its peak from here on."""
    file = limit_file()
    if limit_bytes and file is not None:
        file.write_text(str(limit_bytes))
        peak = file.with_name("memory.max_usage_in_bytes")
        if peak.exists():
            peak.write_text("0")


def main() -> None:
    """Run and print."""
    values = json.loads(sys.argv[2])
    result = run(sys.argv[1], Settings(**{**values, "fanouts": tuple(values.get("fanouts", (10, 10, 10)))}))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
