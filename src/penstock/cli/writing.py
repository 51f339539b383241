"""Options that `ingest` and `generate` share: how a store is written."""

from __future__ import annotations

from enum import StrEnum
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.console import AsJson, Memory, make_progress, show

if TYPE_CHECKING:
    from penstock.store import Store


class KeepOrDrop(StrEnum):
    """What to do with something."""

    keep = "keep"
    drop = "drop"


class RefuseOrDrop(StrEnum):
    """What to do with something invalid."""

    refuse = "refuse"
    drop = "drop"


def of_the_store(
    memory: Memory = None,
    undirected: Annotated[bool, typer.Option("--undirected", help="Add the reverse of every edge.")] = False,
    duplicates: Annotated[KeepOrDrop, typer.Option(help="Equal (src, dst) pairs: drop keeps the first.")] = KeepOrDrop.keep,
    self_loops: Annotated[KeepOrDrop, typer.Option(help="Edges from a node to itself: keep or drop them.")] = KeepOrDrop.keep,
    dangling: Annotated[
        RefuseOrDrop, typer.Option(help="Edges with an end that is not a node: refuse the input, or drop them.")
    ] = RefuseOrDrop.refuse,
    feature_dtype: Annotated[str | None, typer.Option(metavar="DTYPE", help="Dtype of x: float16, bfloat16, float32 or float64.")] = None,
    edge_ids: Annotated[bool | None, typer.Option(help="Keep each edge's row in the input. (default: if edges have fields)")] = None,
    allow_nan: Annotated[bool, typer.Option("--allow-nan", help="Accept NaN and infinite values; missing floats become NaN.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store at DEST, once the new one is complete.")] = False,
    as_json: AsJson = False,
) -> None:
    """How a store is written."""


def store_options(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of `of_the_store` from `given`, and return them as arguments of `penstock.store.ingest`."""
    options = {name: given.pop(name) for name in signature(of_the_store).parameters if name != "as_json"}
    return {**options, **{name: str(options[name]) for name in ("duplicates", "self_loops", "dangling")}, "progress": make_progress()}


def finish(store: Store, seconds: float, as_json: bool) -> None:
    """Show what was written."""
    from penstock.cli.info import as_text, describe

    show({**describe(store), "seconds": round(seconds, 3)}, lambda: f"{as_text(store)}\nin {seconds:.1f} s{_lacks(store)}", as_json)


def _lacks(store: Store) -> str:
    """A line that says what `penstock train` needs, if there are labels and no split."""
    entries = store.manifest.nodes.values()
    if all("y" not in entry.fields for entry in entries) or any(entry.splits for entry in entries):
        return ""
    return "\nthere are labels but no split: penstock train asks for train, val and test nodes (docs/sources.md)"
