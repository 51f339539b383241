"""Ingestion under a hard memory limit against ingestion without one, in one run.

    python -m bench.ingest_bounded [--data /tmp/ingest]

Makes three Parquet files of edges (128M pairs of node numbers, which are 2 GB as int64; a smaller one with sparse 64-bit ids; a smaller
one with strings), and ingests each in turn without limit and inside a control group that counts the page cache too. Needs the right to
make control groups (root) and about 9 GB of disk. The input is dropped from the page cache before each run. Writes medians and all runs
as JSON; exits with 1 where a run was killed, a store differs, or the limit costs more than `--target` times.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.common import foreign_load, write_result
from bench.memory_group import drop_from_page_cache, run_limited

ROW_GROUP = 1 << 20


def skewed_ends(num_edges: int, num_nodes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sources evenly, destinations by a power law: hubs at low numbers."""
    random = np.random.default_rng(0)
    for first in range(0, num_edges, ROW_GROUP):
        count = min(ROW_GROUP, num_edges - first)
        yield random.integers(0, num_nodes, count), (num_nodes * random.random(count) ** 3).astype(np.int64)


def write_input(path: Path, kind: str, num_edges: int, num_nodes: int) -> None:
    """Write a Parquet file of edges, plain: no dictionary and no compression, so that bytes are what they seem."""
    if path.exists():
        return
    ids = np.random.default_rng(1).integers(-(2**62), 2**62, num_nodes)
    names = pa.array([f"user-{value:x}" for value in ids]) if kind == "strings" else None
    schema = pa.schema([(end, pa.string() if kind == "strings" else pa.int64()) for end in ("src", "dst")])
    partial = path.with_suffix(".partial")
    with pq.ParquetWriter(partial, schema, compression="NONE", use_dictionary=False) as writer:
        for ends in skewed_ends(num_edges, num_nodes):
            columns = ends if kind == "numbers" else [ids[end] if names is None else names.take(pa.array(end)) for end in ends]
            writer.write_table(pa.table(list(columns), schema=schema))
    partial.rename(path)


def ingest(source: Path, dest: Path, options: list[str], limit_bytes: int | None, memory: str) -> dict[str, object]:
    """Run `penstock ingest` in a process of its own; returns what was measured."""
    shutil.rmtree(dest, ignore_errors=True)
    drop_from_page_cache(source)
    command = [sys.executable, "-m", "penstock", "ingest", str(source), str(dest), "--json", *options]
    command += ["--memory", memory] if limit_bytes else []
    ended = run_limited(command, limit_bytes)
    if ended.exit_code != 0:
        raise SystemExit(f"{' '.join(command)} ended with {ended.exit_code}: {ended.err.strip().splitlines()[-1:]} {ended.usage}")
    result = json.loads(ended.out)
    return {
        "seconds": round(ended.seconds, 3),
        "digest": result["digest"],
        "num_edges": result["edges"][0]["num_edges"],
        **ended.usage,
    }


def run_case(kind: str, num_edges: int, num_nodes: int, arguments: argparse.Namespace) -> dict[str, object]:
    """Alternate runs without and with the limit over one input."""
    source = arguments.data / f"{kind}-{num_edges}.parquet"
    write_input(source, kind, num_edges, num_nodes)
    options = {"numbers": [], "sparse": ["--ids", "int"], "strings": ["--ids", "string"]}[kind]
    runs: dict[str, list[dict[str, object]]] = {"unlimited": [], "limited": []}
    for _ in range(arguments.repeats):
        for mode, limit_bytes in (("unlimited", None), ("limited", arguments.limit_mib << 20)):
            measured = ingest(source, arguments.data / f"store-{mode}", options, limit_bytes, f"{arguments.memory_mib}MiB")
            runs[mode].append(measured)
            print(f"{kind:8} {mode:9} {measured['seconds']:7.2f} s", file=sys.stderr)
    medians = {mode: statistics.median(float(str(run["seconds"])) for run in each) for mode, each in runs.items()}
    digests = {run["digest"] for each in runs.values() for run in each}
    return {
        "kind": kind,
        "input_bytes": source.stat().st_size,
        "num_edges": num_edges,
        "num_nodes": num_nodes,
        "median_seconds": medians,
        "ratio": round(medians["limited"] / medians["unlimited"], 3),
        "killed": sum(int(str(run["killed"])) for run in runs["limited"]),
        "same_store": len(digests) == 1 and same_files(arguments.data / "store-unlimited", arguments.data / "store-limited"),
        "runs": runs,
    }


def same_files(one: Path, other: Path) -> bool:
    """Compare two stores file by file, byte by byte; the manifests differ in their dates."""
    names = [sorted(str(path.relative_to(store)) for path in store.rglob("*.npy")) for store in (one, other)]
    return names[0] == names[1] and all(
        subprocess.run(["cmp", "--silent", str(one / name), str(other / name)], check=False).returncode == 0 for name in names[0]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run all cases; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("/tmp/penstock-ingest-bounded"), help="where inputs and stores go")
    parser.add_argument("--edges", type=int, default=128_000_000, help="of the largest input; the others have a quarter")
    parser.add_argument("--limit-mib", type=int, default=768, help="of the control group")
    parser.add_argument("--memory-mib", type=int, default=640, help="declared to penstock ingest")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--target", type=float, default=3.0, help="largest ratio of the medians")
    parser.add_argument("--keep", action="store_true", help="keep inputs and stores")
    chosen = parser.parse_args(arguments)
    chosen.data.mkdir(parents=True, exist_ok=True)
    load = round(foreign_load(), 1)
    small = chosen.edges // 4
    cases = [("numbers", chosen.edges, chosen.edges // 16), ("sparse", small, small // 16), ("strings", small, small // 16)]
    results = [run_case(*case, chosen) for case in cases]
    values = {
        "command": "python -m bench.ingest_bounded",
        "foreign_load_percent": load,
        "configuration": {"limit_mib": chosen.limit_mib, "memory_mib": chosen.memory_mib, "repeats": chosen.repeats},
        "cases": results,
    }
    print(write_result("ingest_bounded", values))
    if not chosen.keep:
        shutil.rmtree(chosen.data)
    for case in results:
        print(
            f"{case['kind']:8} {case['num_edges']:>12,} edges: {case['median_seconds']} s, ratio {case['ratio']}, same {case['same_store']}"
        )
    failed = [case for case in results if case["killed"] or not case["same_store"] or float(str(case["ratio"])) > chosen.target]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
