"""Shared by the benchmarks of a GPU: the device, its clock, results that are written piece by piece, and a limit on time.

Figures of Triton's interpreter mean nothing: there the benchmarks run with `--toy` only, at toy size, and write nothing but to a folder
that is named. What a benchmark has measured is in its result file at once, so that a run that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, supported_activities

from bench import common
from penstock.errors import NotSupportedError
from penstock.kernels._triton import is_interpreted, tensor_device

SMI_FIELDS = {
    "driver": "driver_version", "link_generation": "pcie.link.gen.max", "link_lanes": "pcie.link.width.max",
    "sm_mhz": "clocks.max.sm", "memory_mhz": "clocks.max.memory", "power_limit_w": "power.limit",
}  # fmt: skip


SHARE = 0.2
"""Of the multiprocessors, for a gather over the link."""
AT_MOST, UNORDERED = f"{SHARE:.1%}", "as they stand"
"""Entries of a result: by programs on so many of them; rows that are not read region by region."""
ALONE, RECORDED = "alone", "recorded, "
"""Entries of a result: a step with nothing beside it; before the name of a step, that it is launched as a CUDA graph."""
WAYS = {"": (1, 1), ", two under way": (1, 2), ", four under way": (1, 4), ", two threads": (2, 1)}
"""How a sampler on a device is given its batches: by so many threads, each of which has so many under way."""
KERNEL, COPY = "kernel", "copy"
KINDS = {"kernel": KERNEL, "gpu_memcpy": COPY, "gpu_memset": COPY}
"""What runs on a device, by the categories of a trace."""
LONGEST = 30
"""Of what runs there, that are told by name."""
HEAD_START = 4_000_000
"""Cycles: two milliseconds, in which dozens of launches are asked for."""


def set_up(
    name: str, parser: argparse.ArgumentParser, arguments: Sequence[str] | None, minutes: float = 9.0
) -> tuple[argparse.Namespace, torch.device, Deadline, str]:
    """Read the options of a benchmark, those that all of a GPU have among them; ends the program where it cannot measure.

    Args:
        name: of its module. minutes: that it has if nothing else is said.
    Returns:
        (options, device, deadline, its command with placeholders for places).
    """
    parser.add_argument(
        "--toy", action="store_true", help="tiny, in Triton's interpreter too; checks the flow, writes nothing without --out"
    )
    parser.add_argument("--out", type=Path, help="folder of the result file; default bench/results")
    parser.add_argument("--minutes", type=float, default=minutes, help="begin nothing that would end later; run again for the rest")
    options = parser.parse_args(arguments)
    device, places = choose_device(options.toy), []
    if "folder" in options:
        places = [str(options.folder)]
        if options.folder is None and not options.toy:
            parser.error("a folder for the graphs is needed")
    command = placeholder(f"bench.{name}", sys.argv[1:] if arguments is None else arguments, places)
    return options, device, Deadline(options.minutes), command


def choose_device(is_toy: bool) -> torch.device:
    """The device; ends the program where there is none, and in the interpreter unless it is only a try."""
    try:
        device = tensor_device("cuda")
    except NotSupportedError as error:
        sys.exit(str(error))
    if is_interpreted() and not is_toy:
        sys.exit(
            "Triton's interpreter is on, and its figures mean nothing: set TRITON_INTERPRET=0 on a machine with a GPU, or try the flow by "
            "--toy"
        )
    return device


def synchronize(device: torch.device) -> None:
    """Wait for all that the device was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long the device takes for what `work` asks of the current stream, by its own clock.

    The device is kept waiting until much of it is asked for, so that asking is not counted.
    """
    if device.type == "cpu":
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    if hasattr(torch.cuda, "_sleep"):
        torch.cuda._sleep(HEAD_START)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def can_profile(device: torch.device) -> bool:
    """Whether torch can tell what runs on the device; in the interpreter, what the CPU does."""
    return device.type == "cpu" or ProfilerActivity.CUDA in supported_activities()


def profiled(work: Callable[[], object], device: torch.device) -> tuple[dict[str, Any], float]:
    """(what ran on the device, a trace in Chrome's format; seconds that the work took, to the end of the last kernel)."""
    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]):  # the first one sets things up
        synchronize(device)
    with profile(activities=[activity]) as profiler:
        started = time.perf_counter()
        work()
        synchronize(device)
        took_s = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text()), took_s


def longest_of(trace: dict[str, Any], num_batches: int) -> dict[str, list[float]]:
    """Name of what runs on the device -> (its milliseconds of a batch, how often in one), those that take longest first."""
    times: dict[str, list[float]] = {}
    for event in trace["traceEvents"]:
        if event.get("cat") in KINDS and event.get("ph") == "X":
            times.setdefault(event["name"][:60], []).append(event["dur"] / 1e3)
    longest = sorted(times, key=lambda name: -sum(times[name]))[:LONGEST]
    return {name: [round(sum(times[name]) / num_batches, 4), round(len(times[name]) / num_batches, 2)] for name in longest}


def alternate(contenders: dict[Any, Callable[[], float]], rounds: int) -> dict[Any, list[float]]:
    """Figures of all contenders, one after the other in each round; a first round is not counted."""
    figures: dict[Any, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            figure = run()
            if number:
                figures[name].append(figure)
    return figures


def spread_of(figures: dict[Any, list[float]]) -> dict[str, dict[str, float]]:
    """Medians and extremes by name."""
    return {str(name): common.spread(each) for name, each in figures.items()}


def describe_device(device: torch.device) -> dict[str, Any]:
    """The device, its driver and its link; under the interpreter, that it is none."""
    import torch_geometric
    import triton

    versions = {"triton": triton.__version__, "torch_geometric": torch_geometric.__version__, "cuda": torch.version.cuda}
    if device.type == "cpu":
        return {"name": "Triton's interpreter", **versions}
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "l2_mib": round(properties.L2_cache_size / 2**20, 1),
        **ask_smi(),
        **versions,
    }


def ask_smi() -> dict[str, str]:
    """What nvidia-smi says of the first device; nothing where it is missing."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(SMI_FIELDS.values())}", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(SMI_FIELDS, map(str.strip, lines[0].split(",")), strict=False)) if lines else {}


class Deadline:
    """When a command has to be over.

    Attributes:
        longest_s: what the longest part took so far, if parts are told.
    """

    def __init__(self, minutes: float) -> None:
        self._end, self.longest_s = time.monotonic() + 60 * minutes, 0.0

    def left_s(self) -> float:
        """Seconds that are left."""
        return self._end - time.monotonic()

    def allows(self, expected_s: float, what: str) -> bool:
        """Whether something may begin; says so where not."""
        if expected_s <= self.left_s():
            return True
        print(f"{what}: not begun, {expected_s:.0f} s expected and {self.left_s():.0f} s left; run the command again for it", flush=True)
        return False


class ResultFile:
    """A result that grows: `pieces` of what was measured, written after each.

    Args:
        name: of the file, without its ending.
        options: see `set_up`.
        command: that makes it, with placeholders for places.
    Attributes:
        values: all of it. A file of another device or graph is begun anew; what was measured of another commit stays, with that commit,
            until it is measured again.
        failed: pieces that were tried and not measured.
    """

    def __init__(self, name: str, options: argparse.Namespace, device: torch.device, command: str, **about: Any) -> None:
        self._name, self._folder, self.failed = name, options.out or (None if options.toy else common.RESULTS), list[str]()
        self.values: dict[str, Any] = {
            "command": command, "interpreted": is_interpreted(), "is_toy": options.toy, "device": describe_device(device),
            "foreign_load_percent": round(common.foreign_load(0.2), 1), **about, "earlier": [], "pieces": {},
        }  # fmt: skip
        self._resume()

    def _resume(self) -> None:
        path = None if self._folder is None else self._folder / f"{self._name}.json"
        if path is None or not path.exists():
            return
        before = json.loads(path.read_text())
        now = json.loads(json.dumps(self.values))
        changing = ("pieces", "earlier", "foreign_load_percent", "command")
        if any(before.get(key) != now[key] for key in now if key not in changing):
            print(f"{path} is of another device or setting: begun anew", flush=True)
            return
        self.values["earlier"] = before.get("earlier", [])
        if before["commit"] == common.commit():
            self.values["pieces"] = before["pieces"]
            return
        replaced = {piece for one in self.values["earlier"] for piece in one["pieces"]}  # by what is not whole, and may be nothing
        stay = {
            piece: found for piece, found in before["pieces"].items() if piece not in replaced or any(found.get("seeds_per_s", {}).values())
        }
        if stay:
            said = {key: before[key] for key in ("commit", "date", "machine", "command", "foreign_load_percent")}
            self.values["earlier"] = [*self.values["earlier"], {**said, "pieces": stay}]
            print(f"{path}: {', '.join(stay)} of commit {before['commit']} stay until they are measured again", flush=True)

    def __contains__(self, piece: str) -> bool:
        return piece in self.values["pieces"]

    def put(self, piece: str, found: Any, said: str = "", *, replaces: bool = True) -> None:
        """Add a piece and write the file; `said`: a line for who looks on. `replaces`: it is whole, and an earlier one goes."""
        self.values["pieces"][piece] = found
        for one in self.values["earlier"] if replaces else ():
            one["pieces"].pop(piece, None)
        self.values["earlier"] = [one for one in self.values["earlier"] if one["pieces"]]
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            common.write_result(self._name, self.values, self._folder)
        print(said or f"{piece}: {json.dumps(found)[:400]}", flush=True)

    def measure(self, piece: str, work: Callable[[], Any], say: Callable[[Any], str] = lambda found: "") -> None:
        """Add what `work` finds. Where it fails that is told, and the pieces after it are measured all the same; see `end`."""
        try:
            found = work()
        except (Exception, SystemExit):
            traceback.print_exc()
            self.failed.append(piece)
        else:
            self.put(piece, found, say(found))

    def end(self) -> None:
        """End the program with an error where a piece has failed."""
        if self.failed:
            sys.exit(f"failed: {'; '.join(self.failed)}")


def filled(num_bytes: int, device: str, *, is_pinned: bool = False) -> torch.Tensor:
    """A uint8 tensor of random bytes, which repeat."""
    tensor = torch.empty(num_bytes, dtype=torch.uint8, device=device, pin_memory=is_pinned)
    block = torch.randint(0, 256, (min(num_bytes, 1 << 22),), dtype=torch.uint8).to(device)
    whole = num_bytes // block.numel() * block.numel()
    tensor[:whole].view(-1, block.numel()).copy_(block)
    tensor[whole:] = block[: num_bytes - whole]
    return tensor


def id_sets(num_rows: int, count: int, num_sets: int, device: torch.device, seed: int = 0) -> list[torch.Tensor]:
    """Sets of distinct random row numbers, no two of the same rows where there are enough: a second read finds nothing in a cache."""
    order = torch.randperm(num_rows, device=device, generator=torch.Generator(device).manual_seed(seed))
    count = min(count, num_rows)
    starts = [(number * count) % max(1, num_rows - count + 1) for number in range(num_sets)]
    return [order[start : start + count].contiguous() for start in starts]


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def placeholder(module: str, arguments: Sequence[str], places: Sequence[str] = ()) -> str:
    """The command of a benchmark as it stands in results: places of one machine by name."""
    words, skip = [], False
    for word in arguments:
        if skip:
            skip = False
        elif word in ("--out", "--minutes"):
            skip = True
        else:
            words.append("FOLDER" if word in places else word)
    return " ".join([f"python -m {module}", *words])
