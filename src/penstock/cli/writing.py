"""Options that `ingest` and `generate` share: how a store is written."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.console import make_progress, show
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.store import Store


class KeepOrDrop(StrEnum):
    """What to do with something."""

    keep = "keep"
    drop = "drop"


Memory = Annotated[
    str | None, typer.Option(metavar="BYTES", help="Bound for the whole process, e.g. 2GiB. (default: half of what is free)")
]
Undirected = Annotated[bool, typer.Option("--undirected", help="Add the reverse of every edge.")]
Duplicates = Annotated[KeepOrDrop, typer.Option(help="Equal (src, dst) pairs: drop keeps the first.")]
SelfLoops = Annotated[KeepOrDrop, typer.Option(help="Edges from a node to itself.")]
FeatureDtype = Annotated[str | None, typer.Option(metavar="DTYPE", help="Of x: float16, bfloat16, float32 or float64.")]
EdgeIds = Annotated[bool | None, typer.Option(help="Keep the row of each edge. (default: where edges have fields)")]
AllowNan = Annotated[bool, typer.Option("--allow-nan", help="Take NaN and infinite values.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a store at DEST, once the new one is complete.")]
Pairs = list[str] | None


def finish(store: Store, seconds: float, as_json: bool) -> None:
    """Show what was written."""
    from penstock.cli.info import as_text, describe

    show({**describe(store), "seconds": round(seconds, 3)}, lambda: f"{as_text(store)}\nin {seconds:.1f} s", as_json)


def parse_pairs(items: Pairs, option: str) -> dict[str, str]:
    """Parse repeated NAME=VALUE options."""
    pairs = {}
    for item in items or []:
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            raise UsageError(f"{option} takes NAME=VALUE, got {item!r}")
        if name in pairs:
            raise UsageError(f"{option} is given twice for {name!r}, as {pairs[name]} and as {value}: leave one out")
        pairs[name] = value
    return pairs


def common_options(**options: Any) -> dict[str, Any]:
    """Turn the shared options into arguments of `penstock.store.ingest`."""
    rules = {name: str(options.pop(name)) for name in ("duplicates", "self_loops")}
    return {**options, **rules, "progress": make_progress()}
