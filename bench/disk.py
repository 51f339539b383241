"""Reading from the disk, against fio: the same file, page size and depth, in alternation within one run.

    python -m bench.disk FOLDER [--gib 4] [--rounds 15]

Makes a file in FOLDER and removes it afterwards. FOLDER should be on the disk that is meant, not in memory. Each round gives fio and the
tier a second each per workload, the one that goes first changing from round to round, for disks that are shared or limited in their rate
answer differently from second to second; ratios are of neighbours, and their median counts. The tier's figures hold everything from row
numbers to rows in place: sorting, planning, reading, copying, counted as requests of the file. Needs fio (apt-get install fio).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import foreign_load, spread, write_result
from penstock.store.tiers import DiskOptions, DiskTier, RowFile

SLICE_S, PAGE = 1.0, 4096
LONG = 1 << 16
TARGETS = {"rate": 0.9, "us_of_cpu_per_read": 5.0}


@dataclass(frozen=True)
class Workload:
    """What is read.

    Attributes:
        pages: "random", "in order" (all pages of a stretch), "every other" (half of them, with holes that are worth reading).
        depth: requests under way. fio: its options for the same.
        batch: rows per read of the tier. row_bytes: of a row; shorter ones than pages are what features are, and copy less.
    """

    pages: str
    depth: int
    fio: dict[str, str]
    batch: int
    device: str = "io_uring"
    row_bytes: int = PAGE


WORKLOADS = {
    "4 KiB at random, depth 64": Workload("random", 64, {"rw": "randread", "bs": "4k", "iodepth": "64"}, 60_000),
    "4 KiB at random, depth 128": Workload("random", 128, {"rw": "randread", "bs": "4k", "iodepth": "128"}, 60_000),
    "rows of 512 bytes in 4 KiB, depth 128": Workload(
        "random", 128, {"rw": "randread", "bs": "4k", "iodepth": "128"}, 60_000, row_bytes=512
    ),
    "4 KiB at random, pread on 32 threads": Workload("random", 32, {"rw": "randread", "bs": "4k", "iodepth": "32"}, 30_000, "pread"),
    "in order": Workload("in order", 128, {"rw": "read", "bs": "64k", "iodepth": "128"}, 60_000),
    "every other page, holes read along": Workload("every other", 128, {"rw": "read", "bs": "64k", "iodepth": "128"}, 60_000),
}
"""Those that are not at random are compared with fio reading in order, requests as long as ours."""


def make_file(path: Path, num_bytes: int) -> None:
    """Write pages that hold their own number, among noise."""
    noise = np.random.default_rng(0).integers(0, 256, (1 << 14, PAGE), np.uint8)
    with open(path, "wb") as file:
        for first in range(0, num_bytes // PAGE, len(noise)):
            noise[:, :8] = np.arange(first, first + len(noise)).view(np.uint8).reshape(-1, 8)
            file.write(noise.data)
        file.flush()
        os.fsync(file.fileno())


def run_fio(path: Path, options: dict[str, str]) -> dict[str, float]:
    """One slice of fio."""
    settings = {"filename": path, "ioengine": "io_uring", "direct": "1", "runtime": SLICE_S, "time_based": "1", "randrepeat": "0"}
    flags = [f"--{name}={value}" for name, value in {"name": "reads", **settings, **options, "output-format": "json"}.items()]
    done = subprocess.run(["fio", *flags], capture_output=True, text=True, check=True)
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    reads = job["read"]
    return {
        "requests_per_s": reads["iops"],
        "mb_per_s": reads["bw_bytes"] / 1e6,
        "us_of_cpu_per_read": 1e4 * (job["usr_cpu"] + job["sys_cpu"]) * reads["runtime"] / 1e3 / max(reads["total_ios"], 1),
    }


def rows_of(pages: str, batch: int, num_pages: int, random: np.random.Generator) -> np.ndarray:
    """The pages that the next read asks for."""
    if pages == "random":
        return random.integers(0, num_pages, batch)
    step = 1 if pages == "in order" else 2
    return random.integers(0, num_pages - step * batch) + step * np.arange(batch)


def run_ours(tier: DiskTier, workload: Workload, random: np.random.Generator) -> dict[str, float]:
    """One slice of the tier; the pages that came are compared with their numbers."""
    width = workload.row_bytes
    out = np.full(workload.batch * width, 0xA5, np.uint8)  # in memory before the clock runs, as fio's buffers are
    requests, num_bytes, busy_s, cpu_s = tier.stats.num_requests, tier.stats.read_bytes, 0.0, 0.0
    while busy_s < SLICE_S:
        rows, places = rows_of(workload.pages, workload.batch, tier.num_rows, random), np.arange(workload.batch)
        started, cpu = time.perf_counter(), time.process_time()
        tier.submit(rows, [out], places).wait()
        busy_s, cpu_s = busy_s + time.perf_counter() - started, cpu_s + time.process_time() - cpu
        starts_page = rows * width % PAGE == 0
        if (out.reshape(-1, width)[starts_page, :8].copy().view(np.int64).reshape(-1) != rows[starts_page] * width // PAGE).any():
            raise SystemExit("wrong bytes came")
    requests, num_bytes = tier.stats.num_requests - requests, tier.stats.read_bytes - num_bytes
    return {"requests_per_s": requests / busy_s, "mb_per_s": num_bytes / busy_s / 1e6, "us_of_cpu_per_read": 1e6 * cpu_s / requests}


def measure(path: Path, num_pages: int, rounds: int) -> dict[str, Any]:
    """Alternate fio and the tier over all workloads."""
    random, slices = np.random.default_rng(1), {name: {"fio": [], "ours": []} for name in WORKLOADS}
    tiers: dict[str, DiskTier] = {}
    for name, workload in WORKLOADS.items():
        gap = PAGE if workload.pages == "every other" else 0
        options = DiskOptions(depth=workload.depth, block_bytes=PAGE, max_read_bytes=LONG, gap_bytes=gap, device=workload.device)
        width = workload.row_bytes
        tiers[name] = DiskTier([RowFile(path=path, data_offset=0, row_bytes=width)], num_pages * PAGE // width, options=options)
        tiers[name].submit(np.arange(9), [np.empty(9 * width, np.uint8)], np.arange(9)).wait()  # compiles
    for number in range(rounds):
        for name, workload in WORKLOADS.items():
            contenders = {
                "fio": lambda w=workload: run_fio(path, w.fio),
                "ours": lambda w=workload, t=tiers[name]: run_ours(t, w, random),
            }
            for label in sorted(contenders, reverse=bool(number % 2)):
                slices[name][label].append(contenders[label]())
            fio, ours = (slices[name][label][-1] for label in ("fio", "ours"))
            print(
                f"round {number:>2}  {name:<36} fio {fio['requests_per_s']:>9,.0f}/s {fio['mb_per_s']:>7,.0f} MB/s  ours "
                f"{ours['requests_per_s']:>9,.0f}/s {ours['mb_per_s']:>7,.0f} MB/s {ours['us_of_cpu_per_read']:5.1f} us of CPU each",
                flush=True,
            )
    return {name: compare(WORKLOADS[name], **each) for name, each in slices.items()}


def compare(workload: Workload, fio: list[dict[str, float]], ours: list[dict[str, float]]) -> dict[str, Any]:
    """Medians and spreads, and the ratio of neighbours."""
    rate = "requests_per_s" if workload.pages == "random" else "mb_per_s"
    return {
        "fio": {key: spread([one[key] for one in fio]) for key in fio[0]},
        "ours": {key: spread([one[key] for one in ours]) for key in ours[0]},
        "rate_over_fio": spread([a[rate] / b[rate] for a, b in zip(ours, fio, strict=True)]),
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if shutil.which("fio") is None:
        sys.exit("bench.disk compares with fio: apt-get install fio")
    num_pages = int(options.gib * 2**30) // PAGE // (1 << 14) * (1 << 14) or 1 << 14
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        path = Path(temporary) / "pages"
        make_file(path, num_pages * PAGE)
        values: dict[str, Any] = {"command": f"python -m bench.disk FOLDER --gib {options.gib:g} --rounds {options.rounds}"}
        values |= {"file_bytes": num_pages * PAGE, "rounds": options.rounds, "targets": TARGETS}
        gauged = DiskTier([RowFile(path=path, data_offset=0, row_bytes=PAGE)], num_pages)
        values |= {"foreign_load_percent": round(foreign_load(), 1), "read_as": gauged.describe()}
        values["workloads"] = measure(path, num_pages, options.rounds)
    for name, row in values["workloads"].items():
        print(
            f"{name:<36} {row['rate_over_fio']['median']:.2f} of fio, {row['ours']['us_of_cpu_per_read']['median']:.1f} us of CPU per read"
        )
    print(write_result("disk", values))


if __name__ == "__main__":
    main()
