"""A model over the whole graph, layer by layer: seconds and memory beside PyG's `BasicGNN.inference`, and how far each is from the model.

    python -m bench.inference FOLDER [DATA] [--only small|few|large|limited|exact]

Needs pyg-lib in the same environment for PyG's part, root for the limited runs (control groups), and for `large` 32 GB of disk and 10 GB of
memory. Stores small, thin and large are made in FOLDER if they are not there; DATA: the real graphs, for `exact`. Each run is a process of
its own: GraphSAGE of three layers of width 128, rows of 50 for all nodes. small: in turns, three rounds. few: thin, rows of some nodes, two
layers and three, of which each is computed for the nodes that later ones read, or for all; in turns, two rounds. large: one round.
limited: large within a limit that counts the page cache, on a store that is not in it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric import typing as has
from torch_geometric.nn import GCN, GraphSAGE

import penstock
from bench.common import ROOT, begin, commit, read, spread, write_result
from bench.graphs import edges_of, make
from bench.memory_group import drop_from_page_cache, run_limited
from penstock.inference import needed
from penstock.store import Store, ingest

BATCH_SIZE = 4096
LIMIT_GIB, SPOOL = 1.5, "16GiB"
PYG: dict[str, dict[str, Any]] = {"PyG": {"num_workers": 0}, "PyG, 2 workers": {"num_workers": 2}}
OURS: dict[str, dict[str, Any]] = {"Penstock": {}, "Penstock, into a file": {"is_file": True}}
LIMITED: dict[str, dict[str, Any]] = {
    "Penstock, spooled": {"is_file": True, "plan": {"host_memory": f"{LIMIT_GIB}GiB", "spool": SPOOL}},
    "Penstock, mapped files": {"is_file": True},
}
LIMITED_S = 900.0
FEW = (100, 1_000, 100_000)
GRAPHS = {"cora": (GCN, GraphSAGE), "citeseer": (GCN, GraphSAGE), "citation_dblp": (GCN,), "facebook_pages": (GCN,)}
EPOCHS = 100


def run_case(
    store: Store,
    folder: Path,
    *,
    num_workers: int | None = None,
    is_file: bool = False,
    plan: dict[str, Any] | None = None,
    num_layers: int = 3,
    num_wanted: int | None = None,
    are_all: bool = False,
) -> dict[str, float]:
    """Seconds of one inference; by PyG where worker processes are counted. Of ours also the most memory that is the process's own, no pages
    of the store, after any batch. `are_all`: layers are computed for all nodes."""
    torch.manual_seed(0)
    model = GraphSAGE(store.node_field("x").shape[1], 128, num_layers, 50).eval()
    if num_workers is None:
        out = folder / "rows.npy" if is_file else None
        wanted = None if num_wanted is None else torch.randperm(store.num_nodes["node"])[:num_wanted]
        needed.LIMIT = 0 if are_all else needed.LIMIT
        own, started = [own_mib()], time.perf_counter()
        penstock.infer(
            model, store, input_nodes=wanted, out=out, plan=None if plan is None else penstock.Plan(**plan),
            progress=lambda done, total: own.append(own_mib()),
        )  # fmt: skip
        return {"seconds": time.perf_counter() - started, "own_mib": max(own), "own_mib_before": own[0]}
    from torch_geometric.loader import NeighborLoader

    data = edges_of(store)
    data.x = torch.from_numpy(np.array(store.node_field("x")))
    started = time.perf_counter()
    model.inference(NeighborLoader(data, [-1], batch_size=BATCH_SIZE, num_workers=num_workers))
    return {"seconds": time.perf_counter() - started}


def own_mib() -> int:
    """Memory of this process that is no page of a file."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) >> 10


def measure(
    store: Path, folder: Path, case: dict[str, Any], limit_gib: float | None = None, timeout_s: float | None = None
) -> dict[str, Any]:
    """One case in a process of its own."""
    if limit_gib is not None:
        drop_from_page_cache(store)
    command = [sys.executable, "-m", "bench.inference", str(folder), "--store", str(store), "--case", json.dumps(case)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    limit = None if limit_gib is None else int(limit_gib * 2**30)
    ended = run_limited(command, limit, timeout_s=timeout_s, env=environment)
    shutil.rmtree(folder / "rows.npy.unfinished", ignore_errors=True)
    (folder / "rows.npy").unlink(missing_ok=True)
    if ended.exit_code:
        return {"ended": ended.err.strip().splitlines()[-1:] or [f"exit code {ended.exit_code}"], **ended.usage}
    return {**json.loads(ended.out.splitlines()[-1]), **ended.usage}


def in_rounds(store: Path, folder: Path, cases: dict[str, dict[str, Any]], rounds: int) -> dict[str, Any]:
    """Seconds and memory of cases, in turns, and how many times as long as ours in memory they take."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(measure(store, folder, case))
            print(f"{store.name:<8} {name:<28} {found[name][-1]}", flush=True)
    seconds = {name: [each["seconds"] for each in runs] for name, runs in found.items() if all("seconds" in each for each in runs)}
    return {
        "seconds": {name: spread(each) for name, each in seconds.items()},
        "peak_mib": {name: max(each["peak_mib"] for each in found[name]) for name in seconds},
        "own_mib": {name: max(each.get("own_mib", 0) for each in found[name]) for name in seconds},
        "over_penstock": {
            name: spread([a / b for a, b in zip(each, seconds["Penstock"], strict=True)])
            for name, each in seconds.items()
            if "Penstock" in seconds
        },
        "failed": {name: runs for name, runs in found.items() if name not in seconds},
    }  # fmt: skip


def how_exact(folder: Path) -> dict[str, Any]:
    """Test accuracy of trained models over the whole graph at once, and layer by layer; and the largest difference between their rows,
    over the largest row."""
    found: dict[str, Any] = {}
    for name, kinds in GRAPHS.items():
        with tempfile.TemporaryDirectory() as temporary:
            store = ingest(folder / f"{name}.npz", Path(temporary) / name)
            data = edges_of(store)
            data.x, data.y = (torch.from_numpy(np.array(store.node_field(field))) for field in ("x", "y"))
            train, test = (torch.from_numpy(np.array(store.split(part, store.split_names()[0]))) for part in ("train", "test"))
            for kind in kinds:
                torch.manual_seed(0)
                model = kind(data.x.shape[1], 64, 2, int(data.y.max()) + 1, dropout=0.5)
                optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
                for _ in range(EPOCHS):
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(data.x, data.edge_index)[train], data.y[train]).backward()
                    optimizer.step()
                model.eval()
                with torch.no_grad():
                    rows = {"whole graph": model(data.x, data.edge_index), "Penstock": torch.from_numpy(penstock.infer(model, store))}
                if has.WITH_PYG_LIB:
                    from torch_geometric.loader import NeighborLoader

                    rows["PyG"] = model.inference(NeighborLoader(data, [-1], batch_size=512))
                whole = rows["whole graph"]
                found[f"{name}, {kind.__name__}"] = {
                    way: {
                        "accuracy": round(100 * float((each[test].argmax(1) == data.y[test]).float().mean()), 2),
                        "difference": float(f"{float((each - whole).abs().max() / whole.abs().max()):.2g}"),
                    }
                    for way, each in rows.items()
                }
                print(f"{name:<16} {kind.__name__:<10} {found[f'{name}, {kind.__name__}']}", flush=True)
    return found


def main() -> None:
    """Measure and write the result; what is not measured now stays as it was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--only", choices=("small", "few", "large", "limited", "exact"))
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        found = run_case(Store.open(given.store), given.folder, **given.case)
        found |= {"seconds": round(found["seconds"], 2), "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}
        print(json.dumps(found))
        return
    peers, kept = PYG if has.WITH_PYG_LIB else {}, ("small", "few", "large", "within_limit", "exact", "measured_at")
    before = read("inference") or {}
    values = {key: value for key, value in before.items() if key in kept} | begin("python -m bench.inference FOLDER DATA")
    values.setdefault("measured_at", {})[given.only or "all"] = f"{commit()}, {time.strftime('%Y-%m-%d')}"  # parts are kept from other runs
    if given.only in (None, "small"):
        values["small"] = in_rounds(make("small", given.folder), given.folder, peers | OURS, 3)
        write_result("inference", values)
    if given.only in (None, "few"):
        store, values["few"] = make("thin", given.folder), {}
        for num_wanted, num_layers in itertools.product(FEW, (2, 3)):
            case = {"num_layers": num_layers, "num_wanted": num_wanted}
            cases = {"Penstock": case, "all nodes": {**case, "are_all": True}}
            values["few"][f"{num_layers} layers, {num_wanted} nodes"] = in_rounds(store, given.folder, cases, 2)
            write_result("inference", values)
    if given.only in (None, "exact") and given.data is not None:
        values["exact"] = how_exact(given.data)
        write_result("inference", values)
    if given.only in (None, "large"):
        store = make("large", given.folder)
        values["large"] = in_rounds(store, given.folder, OURS, 1)
        write_result("inference", values)
    if given.only in (None, "limited"):
        store = make("large", given.folder)
        values["within_limit"] = {"limit_gib": LIMIT_GIB}
        for name, case in LIMITED.items():
            values["within_limit"][name] = measure(store, given.folder, case, LIMIT_GIB, LIMITED_S)
            write_result("inference", values)
            print(f"{name:<28} {values['within_limit'][name]}", flush=True)
    print(write_result("inference", values))


if __name__ == "__main__":
    main()
