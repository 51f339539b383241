"""`penstock partition STORE DEST`: a store cut into parts, one for each machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.console import AsJson, make_progress, show

SHOWN = 16
"""Most parts that are described."""


def partition(
    store: Annotated[Path, typer.Argument(help="Folder of the store.")],
    dest: Annotated[Path, typer.Argument(help="Folder of the partition; must be new or empty.")],
    num_parts: Annotated[int, typer.Option(help="Number of parts, one per machine.")],
    trainers_per_part: Annotated[
        int, typer.Option(help="Processes that train on each part; its seeds are divided among them by the same method.")
    ] = 1,
    method: Annotated[str, typer.Option(help="How nodes are assigned to parts: random, ldg, bgl, pagraph, metis.")] = "ldg",
    split: Annotated[str | None, typer.Option(help="Split whose train nodes are divided evenly. (default: the only one)")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Cut a store into parts, one per machine, and report how many edges cross between them. The store is not changed."""
    from penstock.partition import partition_store

    result = partition_store(
        store,
        dest,
        num_parts,
        trainers_per_part=trainers_per_part,
        method=method,
        split=split,
        seed=seed,
        progress=make_progress(),
    )
    show(result, lambda: as_text(result), as_json)


def as_text(made: dict[str, Any]) -> str:
    """Return the description of a partition as lines for people."""
    which = f"part {made['part']} of {made['num_parts']}" if "part" in made else f"{made['num_parts']} part{'s' * (made['num_parts'] != 1)}"
    if "method" not in made:
        return f"{made['path']}: {which}, whose owners were given"
    written = f", written in {made['written_s']:.1f} s" if "written_s" in made else ""
    of_train = f", train nodes {made['train_balance']:.2f}" * any(made["train"])
    crossing = f"{made['edge_cut']:.1%} of the edges come from another part"
    lines = [
        f"{made['path']}: {which} by {made['method']}, chosen in {made['seconds']:.1f} s{written}; {crossing}",
        f"largest over mean: nodes {made['nodes_balance']:.2f}{of_train}, edges {made['edges_balance']:.2f}",
    ]
    if "trainers_per_part" in made:
        lines.append(
            f"{made['trainers_per_part']} trainers of each: {made['trainers_edge_cut']:.1%} of the edges come from another of its part; "
            f"their train nodes, largest over mean: {made['trainers_train_balance']:.2f}"
        )
    for edge_type, links in made.get("links", {}).items():
        lines.append(f"held out of {edge_type}, in each part: " + ", ".join(f"{part} {count:,}" for part, count in links.items()))
    of_parts = list(zip(*(made[name] for name in ("nodes", "train", "edges", "halo")), strict=True))
    for part, (nodes, train, edges, halo) in enumerate(of_parts[:SHOWN]):
        lines.append(f"part-{part}: {nodes:,} nodes ({train:,} train), {edges:,} edges, {halo:,} halo nodes (of other parts)")
    if len(of_parts) > SHOWN:
        lines.append(f"... and {len(of_parts) - SHOWN} more parts; --json says all of them")
    return "\n".join(lines)
