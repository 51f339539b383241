"""`penstock hold-out STORE DEST`: a store without some edges, which it keeps beside the graph as links to predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.console import AsJson, make_progress, show
from penstock.cli.parsing import names


def hold_out(
    store: Annotated[Path, typer.Argument(help="Folder of the store; it is not changed.")],
    dest: Annotated[Path, typer.Argument(help="Folder of the new store.")],
    edge_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The edges to predict, e.g. user,likes,item. (default: the only type)")
    ] = None,
    val: Annotated[float, typer.Option(help="Share of them for val; 0 for none.")] = 0.05,
    test: Annotated[float, typer.Option(help="Share of them for test; 0 for none.")] = 0.1,
    by: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Hold out the largest values of an edge field, e.g. the latest. (default: by chance)"),
    ] = None,
    reverse: Annotated[
        str, typer.Option(metavar="TYPE", help="The edges that hold their reverses, left out of the graph too; none; auto: by its name.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of the chance.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store at DEST.")] = False,
    as_json: AsJson = False,
) -> None:
    """Hold edges out of a graph, to be predicted: make a store without them, which has them as links beside it."""
    from penstock.store import hold_out as make

    chosen = None if edge_type is None else names(edge_type)
    made = make(
        store, dest, edge_type=chosen, val=val, test=test, by=by, reverse=reverse, seed=seed, overwrite=overwrite, progress=make_progress()
    )
    show(made, lambda: as_text(made), as_json)


def as_text(made: dict[str, Any]) -> str:
    """Return what was made as lines for people."""
    source, name, target = made["edge_type"]
    how = f"the largest {made['by']}" if made["by"] else f"by chance, seed {made['seed']}"
    held_out = " and ".join(f"{count:,} for {part}" for part, count in made["num_links"].items())
    lines = [f"{made['store']}: {made['num_edges']:,} edges {source}-{name}->{target} in the graph, {held_out} held out ({how})"]
    lines += [f"and {count:,} of the reverses {each} left out" for each, count in made["num_reverses"].items()]
    lines.append(f"their batches: penstock.LinkNeighborLoader(store, [10, 5], {next(iter(made['num_links']))!r}); all others are 'train'")
    return "\n".join(lines)
