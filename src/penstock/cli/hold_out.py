"""`penstock hold-out STORE DEST`: a store without some edges, which it keeps beside the graph as links to predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.console import AsJson, make_progress, show


def hold_out(
    store: Annotated[Path, typer.Argument(help="Folder of the store; it is not changed.")],
    dest: Annotated[Path, typer.Argument(help="Folder of the new store.")],
    edge_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The edges to predict, e.g. user,likes,item. (default: the only type)")
    ] = None,
    val: Annotated[
        str,
        typer.Option(
            metavar="SHARE|FILE",
            help="Share of them for val, 0 for none; or a file of links: .npy, n x 2 node numbers, or .csv or .parquet, with columns src "
            "and dst, your ids.",
        ),
    ] = "0.05",
    test: Annotated[str, typer.Option(metavar="SHARE|FILE", help="The same for test.")] = "0.1",
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

    chosen = None if edge_type is None else tuple(part.strip() for part in edge_type.split(","))
    held_out = {"val": _share_or_file(val), "test": _share_or_file(test)}
    made = make(store, dest, edge_type=chosen, **held_out, by=by, reverse=reverse, seed=seed, overwrite=overwrite, progress=make_progress())
    show(made, lambda: as_text(made), as_json)


def _share_or_file(text: str) -> float | str:
    """Read '0.05'; anything else is a file of links."""
    try:
        return float(text)
    except ValueError:
        return text


def as_text(made: dict[str, Any]) -> str:
    """Return what was made as lines for people."""
    source, name, target = made["edge_type"]
    drawn = f"the largest {made['by']}" if made["by"] else f"by chance, seed {made['seed']}"
    given = {part: " with ".join(["given", *filter(None, [", ".join(names)])]) for part, names in made["given_fields"].items()}
    counts = [f"{count:,} for {part} ({given.get(part, drawn)})" for part, count in made["num_links"].items()]
    lines = [f"{made['store']}: {made['num_edges']:,} edges {source}-{name}->{target} in the graph, {' and '.join(counts)} held out"]
    lines += [f"and {made['num_like_given']:,} like given links left out"] * bool(made["given"])
    lines += [f"and {count:,} of the reverses {each} left out" for each, count in made["num_reverses"].items()]
    lines.append(f"their batches: penstock.LinkNeighborLoader(store, [10, 5], {next(iter(made['num_links']))!r}); all others are 'train'")
    return "\n".join(lines)
