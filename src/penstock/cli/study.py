"""`penstock study cache STORE`: which cache would help, before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.console import AsJson, make_progress, require_least_room, show
from penstock.cli.parsing import names, parse_fanouts, parse_windows
from penstock.errors import StoreError, reason_of

app = typer.Typer(help="Measure the effect of a choice without training.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure the effect of a choice without training."""


@app.command("cache")
def cache(
    store: Annotated[Path, typer.Argument(help="Folder of the store.")],
    num_neighbors: Annotated[str, typer.Option(help="Fanout per layer, the one next to the seeds first; -1 = all.")] = "15,10",
    batch_size: Annotated[int, typer.Option(help="Seeds per batch.")] = 1024,
    orders: Annotated[
        str, typer.Option(help="Orders of the seeds: random, sequential, proximity, community, one-sequence; separated by commas.")
    ] = "random",
    policies: Annotated[
        str,
        typer.Option(
            help="Static: random, degree, ratio, presample (presample-2: two epochs), inclusion, oracle (the best fixed content). "
            "Dynamic: fifo, lru, lfu, clock, sieve, s3-fifo. Looking ahead: belady, belady-plain (no hotness), superbatch. "
            "Separated by commas."
        ),
    ] = "random,degree,presample,oracle,fifo,lru,belady",
    capacities: Annotated[
        str, typer.Option(help="How many rows are kept: 10%, 2GiB or '5000 rows'; separated by commas.")
    ] = "1%,5%,10%,20%",
    windows: Annotated[str, typer.Option(help="How many batches look-ahead policies know, or all; separated by commas.")] = "16,all",
    epochs: Annotated[int, typer.Option(help="Epochs to measure, after one that warms the caches.")] = 2,
    train_fraction: Annotated[float | None, typer.Option(help="Take a random share of all nodes as seeds, in place of a split.")] = None,
    split: Annotated[str | None, typer.Option(help="Name of the split. (default: the only one)")] = None,
    seed_type: Annotated[str | None, typer.Option(help="Node type of the seeds. (default: the one with splits)")] = None,
    node_type: Annotated[str | None, typer.Option(help="Node type whose rows are cached. (default: that of the seeds)")] = None,
    row_bytes: Annotated[int | None, typer.Option(help="Bytes per row. (default: those of field x)")] = None,
    weight: Annotated[str | None, typer.Option(help="Edge field to draw neighbours by. (default: uniformly)")] = None,
    memory: Annotated[str, typer.Option(metavar="BYTES", help="Memory for recorded accesses; the rest goes to a temporary file.")] = "2GiB",
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for study.json and pictures. (default: nothing is written)")] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate cache policies on the accesses of training: what each would miss, by capacity and order of the seeds."""
    fanouts, num_batches = parse_fanouts(num_neighbors, None), parse_windows(windows)
    require_least_room()
    from penstock.store import Store
    from penstock.study import CacheStudy, study_cache
    from penstock.study.text import as_text

    settings = CacheStudy(
        num_neighbors=fanouts, batch_size=batch_size, orders=names(orders), policies=names(policies), capacities=names(capacities),
        windows=num_batches, epochs=epochs, train_fraction=train_fraction, split=split, seed_type=seed_type, node_type=node_type,
        row_bytes=row_bytes, weight=weight, memory=memory, seed=seed,
    )  # fmt: skip
    opened = Store.open(store)
    if out is not None:
        make_folder(out)
    result = study_cache(opened, settings, progress=make_progress())
    written = write(result, out) if out is not None else []
    where = f"\n\n{len(written)} files in {out}" if written else ""
    show({**result, "files": list(map(str, written))}, lambda: as_text(result) + where, as_json)


def write(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write `study.json` and the pictures; returns their paths."""
    from penstock.study.plots import write_pictures

    path = folder / "study.json"
    try:
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {reason_of(error)}") from error
    return [path, *write_pictures(result, folder)]


def make_folder(folder: Path) -> None:
    """Make the folder of the results. Called before the work, so that errors come early."""
    from penstock.store.results import refuse_in_store

    refuse_in_store(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write in {folder}: {reason_of(error)}; choose another --out") from error
