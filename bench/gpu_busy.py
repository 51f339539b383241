"""How busy a device is while it trains, and what runs on it beside what.

    python -m bench.gpu_busy FOLDER [--minutes 5] [--recipes gnnlab ducati uva] [--dim 128] [--out FOLDER]
    python -m bench.gpu_busy --toy

busy: the time in which at least one kernel runs, over the time that the batches take by the host's clock, to the end of the last kernel;
kernels are those that torch's profiler has seen (CUPTI), on all streams. A kernel that reads rows over the link counts, though it takes a
fifth of the multiprocessors at most; so the share of the model's own stream is there as well. utilization: what the driver says (NVML, as
in nvidia-smi) without the profiler: the share of its sampling periods in which a kernel ran; and what the caller's thread and the busiest
of the others took of a processor meanwhile: one of them near all of it is what the device waits for. Some batches of the middle are kept as
a picture.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import psutil
import torch

from bench import graphs
from bench.gpu_common import KERNEL, KINDS, ResultFile, can_profile, longest_of, profiled, set_up, synchronize
from bench.gpu_contender import Penstock, Settings
from penstock.feed.timeline import merge

RECIPES, MODELS, BATCHES, KEPT = ("gnnlab", "recorded", "ducati", "uva"), ("sage", "gat"), (1024, 8000), 0.1
WARM_UP, PROFILED, SHOWN, MAX_SPANS = 12, 60, 4, 2500
LEAST_S, PIECE_S = 3.0, 35.0
LANES = {"samples": ("_draw", "_claim"), "rows": ("_gather", "_move_rows")}
"""Streams by the kernels that are found on them; the others are the model's."""
GAP_US = 3.0
"""Between spans of a picture that become one."""

Event = tuple[str, str, float, float]
"""(lane, kind, begin, end), in microseconds."""


def events_of(trace: dict[str, Any], kinds: dict[str, str]) -> list[Event]:
    """What ran on the device, by a trace in Chrome's format."""
    found = [event for event in trace["traceEvents"] if event.get("cat") in kinds and event.get("ph") == "X"]
    names: dict[Any, set[str]] = {}
    for event in found:
        names.setdefault(event["tid"], set()).add(event["name"])
    lanes = {stream: lane_of(each) for stream, each in names.items()}
    return [(lanes[e["tid"]], kinds[e["cat"]], float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in found]


def lane_of(names: set[str]) -> str:
    """What a stream is for."""
    for lane, beginnings in LANES.items():
        if any(name.startswith(beginnings) for name in names):
            return lane
    return "model"


def covered_us(events: list[Event]) -> float:
    """Microseconds in which at least one of them runs."""
    return sum(end - begin for begin, end in merge((begin, end) for _, _, begin, end in events))


def picture(events: list[Event], num_batches: int) -> dict[str, Any]:
    """Spans of some batches in the middle, in milliseconds from their begin; those of a lane that all but touch are one."""
    if not events:  # the driver does not let everybody profile
        return {"ms": 0.0, "spans": []}
    first, last = min(e[2] for e in events), max(e[3] for e in events)
    length = (last - first) / num_batches * min(SHOWN, num_batches)
    since = (first + last - length) / 2
    spans: list[list[Any]] = []
    latest: dict[tuple[str, str], list[Any]] = {}
    for lane, kind, begin, end in sorted(events, key=lambda event: event[2]):
        begin, end = max(begin - since, 0.0), min(end - since, length)
        if begin >= end:
            continue
        before = latest.get((lane, kind))
        if before is not None and begin - before[3] <= GAP_US:
            before[3] = max(before[3], end)
        elif len(spans) < MAX_SPANS:
            latest[lane, kind] = [lane, kind, begin, end]
            spans.append(latest[lane, kind])
    return {"ms": round(length / 1e3, 4), "spans": [[lane, kind, round(b / 1e3, 4), round(e / 1e3, 4)] for lane, kind, b, e in spans]}


class _Rates(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Utilization:
    """What the driver's own counter says while a block runs, in percent, as in nvidia-smi; None where it is missing."""

    def __init__(self) -> None:
        self.percent: float | None = None
        self._is_over = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Ask ten times a second."""
        said: list[int] = []
        reader = threading.Thread(target=self._watch, args=(said,), daemon=True)
        reader.start()
        try:
            yield
        finally:
            self._is_over.set()
            reader.join(5)
        inner = said[2:] or said  # it looks back
        self.percent = round(mean(inner), 1) if inner else None

    def _watch(self, said: list[int]) -> None:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        handle, rates = ctypes.c_void_p(), _Rates()
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)):
            return
        while not self._is_over.wait(0.1):
            if library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)) == 0:
                said.append(rates.gpu)
        library.nvmlShutdown()


def measure(contender: Penstock, settings: Settings, num_batches: int, least_s: float) -> dict[str, Any]:
    """Train: warm up, watch from outside, then profile."""
    device, batches = contender.device, endless(contender)
    if not can_profile(device):
        sys.exit("this torch has no profiler of GPUs")
    for batch in islice(batches, WARM_UP if least_s else 1):
        contender.step(batch)
    synchronize(device)
    watch, done, threads_s, started = Utilization(), 0, processor_s_by_thread(), time.perf_counter()
    with watch.watched():
        while done < num_batches or time.perf_counter() - started < least_s:
            contender.step(next(batches))
            done += 1
        synchronize(device)
        plain_s = time.perf_counter() - started
    used = {thread: (took - threads_s.get(thread, 0.0)) / plain_s for thread, took in processor_s_by_thread().items()}
    trace, took_s = profiled(partial(train, contender, batches, num_batches), device)
    del batch, batches
    events = events_of(trace, KINDS if device.type == "cuda" else {"cpu_op": KERNEL})
    kernels = [event for event in events if event[1] == KERNEL]
    lanes = {lane: [event for event in kernels if event[0] == lane] for lane in (*LANES, "model")}
    return {
        "busy": round(covered_us(kernels) / 1e6 / took_s, 4),
        "busy_or_copying": round(covered_us(events) / 1e6 / took_s, 4),
        "busy_by_stream": {lane: round(covered_us(each) / 1e6 / took_s, 4) for lane, each in lanes.items()},
        "utilization_percent": watch.percent,
        "processor": {"caller": round(used.pop(threading.get_native_id()), 2), "others": round(max(used.values(), default=0.0), 2)},
        "batch_ms": round(1e3 * plain_s / done, 4),
        "batch_ms_profiled": round(1e3 * took_s / num_batches, 4),
        "seeds_per_s": round(settings.batch_size * done / plain_s, 1),
        "longest_ms": longest_of(trace, num_batches),
        "about": contender.describe(),
        "picture": picture(events, num_batches),
    }


def processor_s_by_thread() -> dict[int, float]:
    """Seconds of a processor that each thread of this process has taken."""
    return {thread.id: thread.user_time + thread.system_time for thread in psutil.Process().threads()}


def train(contender: Penstock, batches: Iterator[Any], num_batches: int) -> None:
    """On so many of them."""
    for batch in islice(batches, num_batches):
        contender.step(batch)


def measure_recipe(recipe: str, store: str, settings: Settings, num_batches: int, least_s: float) -> dict[str, Any]:
    """With a loader that is gone afterwards."""
    return measure(Penstock(recipe, store, settings), settings, num_batches, least_s)


def brief(piece: str, found: dict[str, Any]) -> str:
    """A line of what was found."""
    return f"{piece}: {json.dumps({key: value for key, value in found.items() if key not in ('picture', 'about', 'longest_ms')})}"


def endless(contender: Penstock) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from contender.epoch()


def main(arguments: list[str] | None = None) -> None:
    """Measure what is not in the result yet, as long as there is time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where the graph is, or is made")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--batches", type=int, nargs="+", choices=BATCHES, default=list(BATCHES))
    parser.add_argument("--dim", type=int, default=128)
    options, device, deadline, command = set_up("gpu_busy", parser, arguments, minutes=5.0)
    result = ResultFile("gpu_busy", options, device, command, dim=options.dim)
    with tempfile.TemporaryDirectory() as temporary:
        if options.toy:
            from penstock.store import generate

            store = generate("zipf", Path(temporary) / "toy", num_nodes=300, num_edges=1500, feature_dim=4, num_classes=50, train=0.5).path
            settings = [Settings(batch_size=16, fanouts=(2, 2), cache=4096, model=options.models[0])]
            recipes, num_batches, least_s = options.recipes[:1], 1, 0.0
        else:
            store = graphs.make(f"ten-{options.dim}", options.folder)
            kept = int(KEPT * 10_000_000 * 4 * options.dim)
            settings = [Settings(batch_size=size, cache=kept, model=model) for model in options.models for size in options.batches]
            settings = [one for one in settings if (one.model, one.batch_size) != ("gat", max(BATCHES))]
            if not settings:
                parser.error(f"gat is not measured with batches of {max(BATCHES)}: its messages take the device's memory")
            recipes, num_batches, least_s = options.recipes, PROFILED, LEAST_S
        for recipe in recipes:
            for one in settings:
                piece = f"{recipe}, {one.model}, batches of {one.batch_size}"
                if piece in result or not deadline.allows(PIECE_S if least_s else 1, piece):
                    continue
                result.measure(piece, partial(measure_recipe, recipe, str(store), one, num_batches, least_s), partial(brief, piece))
                gc.collect()
                if device.type == "cuda":
                    torch.cuda.empty_cache()
    result.end()


if __name__ == "__main__":
    main()
