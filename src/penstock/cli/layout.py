"""`penstock layout STORE`: a copy of the features in which rows that are read together share pages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.console import AsJson, Memory, make_progress, require_least_room, show
from penstock.cli.parsing import parse_fanouts


def layout(
    store: Annotated[Path, typer.Argument(help="Folder of the store.")],
    by: Annotated[
        str,
        typer.Option(
            help="Order of the rows: hotness, community, coaccess, coaccess-ids; hot-community, hot-coaccess, hot-coaccess-ids; "
            "bands-coaccess; random. auto: the one that reads the fewest pages."
        ),
    ] = "auto",
    drop: Annotated[bool, typer.Option("--drop", help="Remove the packed copies, without making new ones.")] = False,
    num_neighbors: Annotated[str, typer.Option(help="Fanout per layer, the one next to the seeds first; -1 = all.")] = "15,10",
    batch_size: Annotated[int, typer.Option(help="Seeds per batch.")] = 1024,
    order: Annotated[str, typer.Option(help="Order of the seeds in training: random, proximity, community, sequential.")] = "random",
    cache: Annotated[str, typer.Option(help="Rows kept in memory above the disk: 10%, 2GiB or '5000 rows'.")] = "10%",
    policy: Annotated[
        str, typer.Option(help="Which rows are kept: presample (the hottest), belady, fifo, lru, lfu, clock, sieve, s3-fifo.")
    ] = "presample",
    window: Annotated[int, typer.Option(help="How many batches belady knows.")] = 16,
    field: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Field to copy; may be repeated. (default: all but labels)")
    ] = None,
    node_type: Annotated[str | None, typer.Option(help="Node type whose fields are copied. (default: that of the seeds)")] = None,
    seed_type: Annotated[str | None, typer.Option(help="Node type of the seeds. (default: the one with splits)")] = None,
    split: Annotated[str | None, typer.Option(help="Name of the split. (default: the only one)")] = None,
    train_fraction: Annotated[float | None, typer.Option(help="Take a random share of all nodes as seeds, in place of a split.")] = None,
    weight: Annotated[str | None, typer.Option(help="Edge field to draw neighbours by. (default: uniformly)")] = None,
    page_bytes: Annotated[str, typer.Option(metavar="BYTES", help="Size of a page: what the disk reads at a time.")] = "4KiB",
    memory: Memory = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Add a copy of the node features, ordered so that rows read together share pages, and report the gain. Batches stay the same."""
    fanouts = parse_fanouts(num_neighbors, None)
    require_least_room()
    from penstock.store import parse_bytes
    from penstock.study import LayoutSettings, drop_layout, lay_out

    if drop:
        dropped = drop_layout(store, node_type)
        text = f"{store}: removed the packed copies of {', '.join(dropped)}" if dropped else f"{store}: there are no packed copies"
        show({"store": os.path.abspath(store), "dropped": dropped}, lambda: text, as_json)
        return
    settings = LayoutSettings(
        by=by, num_neighbors=fanouts, batch_size=batch_size, order=order, cache=cache, policy=policy,
        window=window, fields=tuple(field) if field else None,
        node_type=node_type, seed_type=seed_type, split=split, train_fraction=train_fraction, weight=weight,
        page_bytes=parse_bytes(page_bytes), memory=memory, seed=seed,
    )  # fmt: skip
    result = lay_out(store, settings, progress=make_progress())
    show(result, lambda: as_text(result), as_json)


def as_text(result: dict[str, Any]) -> str:
    """Return the result as lines for people."""
    from penstock.store import format_bytes

    measured, settings = result["measured"], result["settings"]
    width = max(map(len, measured["pages"]))
    lines = [
        f"pages of {format_bytes(result['page_bytes'])} per batch, for {measured['rows_per_batch']:,.0f} rows of {result['row_bytes']} "
        f"bytes and for the {measured['missed_rows_per_batch']:,.0f} that a cache of {settings['cache']} misses ({settings['policy']}):"
    ]
    for name, (pages, missed) in measured["pages"].items():
        base = measured["pages"]["original"]
        ratios = f"({pages / max(base[0], 1):.2f}x, {missed / max(base[1], 1):.2f}x)"
        lines.append(f"  {name:<{width}}  {pages:>12,.0f}  {missed:>12,.0f}  {ratios}")
    if result["by"] is None:
        lines.append("nothing was written: no order reads clearly fewer pages than the original one; --by NAME writes one all the same")
    else:
        what = f"{', '.join(result['fields'])} of {result['node_type']}"
        lines.append(f"packed {what} by {result['by']}: {format_bytes(result['num_bytes'])} more on disk")
    return "\n".join(lines)
