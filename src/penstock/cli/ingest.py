"""`penstock ingest SOURCE DEST`: files into a store, in bounded memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import writing
from penstock.cli.grouping import with_groups
from penstock.cli.parsing import parse_pairs

SOURCE_HELP = (
    "A .npz graph, edges as CSV, Parquet, .npy or .pt (file, folder, pattern), a .mtx matrix, a .json description, or an OGB, MAG240M or "
    "GraphBolt folder."
)


def _ingest(
    source: Annotated[str, typer.Argument(help=SOURCE_HELP)],
    dest: Annotated[Path, typer.Argument(help="Folder of the store to make.")],
    src: Annotated[str | None, typer.Option(metavar="COLUMN", help="Tables: column of the sources.")] = None,
    dst: Annotated[str | None, typer.Option(metavar="COLUMN", help="Tables: column of the destinations.")] = None,
    edge_field: Annotated[
        list[str] | None, typer.Option(metavar="NAME=COLUMNS", help="Tables: an edge field, for instance x=a,f*; may be repeated.")
    ] = None,
    nodes: Annotated[str | None, typer.Option(metavar="PATH", help="Tables: node table.")] = None,
    num_nodes: Annotated[int | None, typer.Option(help="Tables: number of nodes, if there is no node table.")] = None,
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Node table: column of ids.")] = None,
    ids: Annotated[str | None, typer.Option(metavar="KIND", help="Ids are: number (0..n-1), int (any, mapped), string (mapped).")] = None,
    node_field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COLUMNS", help="A node field: columns (x=a,f*), a .npy or .pt file, a GraphBolt feature; repeatable."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Node table: column with train, val or test; OGB: name of the split; GraphBolt: of the task.")
    ] = None,
    splits: Annotated[str | None, typer.Option(metavar="FOLDER", help="Folder with train.*, valid.*, test.*.")] = None,
    header: Annotated[bool | None, typer.Option(help="CSV: the first line names the columns. (default: detected)")] = None,
    delimiter: Annotated[str | None, typer.Option(help="CSV: separator of the columns. (default: detected)")] = None,
    **given: Any,
) -> None:
    """Write a graph from files into a store."""
    from penstock.store import ingest as ingest_into_store

    source_options = {
        **dict(src=src, dst=dst, nodes=nodes, num_nodes=num_nodes, id=id, ids=ids, split=split, splits=splits),
        **dict(header=header, delimiter=delimiter),
        "edge_fields": parse_pairs(edge_field, "--edge-field") or None,
        "node_fields": parse_pairs(node_field, "--node-field") or None,
    }
    options = writing.store_options(given) | {name: value for name, value in source_options.items() if value is not None}
    start = time.perf_counter()
    writing.finish(ingest_into_store(source, dest, **options), time.perf_counter() - start, given["as_json"])


ingest = with_groups(_ingest, {writing.of_the_store: "The store"})
