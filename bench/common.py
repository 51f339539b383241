"""Shared by the benchmarks: what machine this is, how busy it is, result files, and what the pages about them are made of."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory, versions."""
    import numba
    import numpy
    import torch

    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**20, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "numpy": numpy.__version__,
    }


def commit() -> str:
    """The commit of the checkout, with a mark where files differ from it; BENCH_COMMIT, if that is set: copies have no history."""
    if said := os.environ.get("BENCH_COMMIT"):
        return said
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        dirty = subprocess.run(["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+changes" if dirty.strip() else "")


def begin(command: str) -> dict[str, Any]:
    """What a result begins with: the command that makes it, and what other programs take of the machine."""
    return {"command": command, "foreign_load_percent": round(foreign_load(), 1)}


def write_result(name: str, values: dict[str, Any], folder: Path | None = None) -> Path:
    """Write `<name>.json`, in bench/results if no folder is given, with machine, commit and date; if it is killed, the last one stays."""
    folder = folder or RESULTS
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    stamped = {"commit": commit(), "date": time.strftime("%Y-%m-%d"), "machine": describe_machine(), **values}
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(stamped, indent=1) + "\n")
    return aside.replace(path)


def show_and_write(name: str, values: dict[str, Any]) -> None:
    """Print a result, a line for each of its values, and write it."""
    for key, value in values.items():
        print(f"{key:<52} {value}", flush=True)
    print(write_result(name, values))


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """A type of argparse's: one of these names."""
    known = list(names)

    def check(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(known)}")
        return name

    return check


def read(name: str) -> dict[str, Any] | None:
    """A result, or None where that was never run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def machine(result: dict[str, Any]) -> str:
    """One line on where a result comes from."""
    at = result["machine"]
    hardware = f"{at['processor']}, {at['cores']} cores, {at['memory_gib']:.0f} GiB"
    return f"{hardware}; torch {at['torch']}, numba {at['numba']}; commit {result['commit']}, {result['date']}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]


def spread(values: list[float], digits: int = 3) -> dict[str, float]:
    """Median, least and largest."""
    return {
        "median": float(f"{statistics.median(values):.{digits + 1}g}"),
        "min": float(f"{min(values):.{digits + 1}g}"),
        "max": float(f"{max(values):.{digits + 1}g}"),
    }


def in_turns(
    loaders: Mapping[str, Iterable[Any]], amount: Callable[[Any], int], *, rounds: int = 7, seconds: float = 3.0
) -> dict[str, list[float]]:
    """Rates of loaders, one after the other in each round, the first of which is not counted: name -> `amount` of batches a second."""
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    for number in range(rounds + 1):
        for name, loader in loaders.items():
            batches = iter(loader)
            next(batches)  # worker processes begin
            started, total = time.perf_counter(), 0
            for batch in batches:
                total += amount(batch)
                if time.perf_counter() - started > seconds:
                    break
            if number:
                rates[name].append(total / (time.perf_counter() - started))
    return rates


def foreign_load(seconds: float = 1.0) -> float:
    """Share of the machine, in percent, that other processes use right now."""
    before = _jiffies()
    time.sleep(seconds)
    total, idle, own = (later - earlier for later, earlier in zip(_jiffies(), before, strict=True))
    return max(0.0, 100.0 * (total - idle - own) / max(total, 1))


def fold(text: str) -> list[str]:
    """Lines of at most 140 characters, for a page: a paragraph, or a point of a list."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.wrap(" ".join(text.split()), 140, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def fold_all(text: str) -> list[str]:
    """The same of several paragraphs and lists, with an empty line after each."""
    paragraphs = [text.replace("\n- ", "\n\0- ").split("\0") for text in text.split("\n\n")]
    return [line for points in paragraphs for line in (*(line for point in points for line in fold(point)), "")]


def _jiffies() -> tuple[int, int, int]:
    numbers = list(map(int, _lines("/proc/stat")[0].split()[1:9]))
    own = sum(map(int, Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    return sum(numbers), numbers[3] + numbers[4], own


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return [""]
