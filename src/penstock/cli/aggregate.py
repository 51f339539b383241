"""`penstock aggregate STORE DEST`: a store whose features are aggregated once, so that batches need one hop less."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.console import AsJson, make_progress, require_least_room, show


def aggregate(
    store: Annotated[Path, typer.Argument(help="Folder of the store, of one node type; it is not changed.")],
    dest: Annotated[Path, typer.Argument(help="Folder of the new store.")],
    by: Annotated[str, typer.Option(help="mean (for sage), sum (for gin) or gcn.")] = "mean",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store at DEST.")] = False,
    batch_size: Annotated[int | None, typer.Option(help="Nodes per batch. (default: depends on the width of the rows)")] = None,
    host_memory: Annotated[
        str | None, typer.Option(help="Memory budget for the whole process, e.g. 2GiB; rows and neighbour lists are then read from disk.")
    ] = None,
    spool: Annotated[
        str | None,
        typer.Option(help="With --host-memory: disk space, e.g. 16GiB, where rows of many batches, read at once, wait for their batch."),
    ] = None,
    num_workers: Annotated[int, typer.Option(help="Sampling threads.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Make a store whose features are aggregated over all neighbours, so that a model's first layer needs no sampling."""
    require_least_room()
    from penstock.kernels.bus_error import explain_bus_errors
    from penstock.train import aggregate as make

    explain_bus_errors()
    made = make(
        store, dest, by=by, overwrite=overwrite, batch_size=batch_size, host_memory=host_memory, spool=spool, num_workers=num_workers,
        progress=make_progress(),
    )  # fmt: skip
    show(made, lambda: as_text(made), as_json)


def as_text(made: dict[str, Any]) -> str:
    """Return what was made as lines for people."""
    from penstock.report import words

    (num_nodes, width), place = made["x"], words.printable(shlex.quote(made["store"]))
    return (
        f"{made['store']}: x is {made['dtype']} [{num_nodes:,}, {width}] now, by {made['by']}\n"
        f"for a {made['model']} of two layers, of which the second one samples: penstock train {place} --num-neighbors 15"
    )
