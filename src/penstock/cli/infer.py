"""`penstock infer RUN`: outputs, embeddings or predictions of nodes, by the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.console import AsJson, make_progress, require_least_room, show
from penstock.errors import UsageError, argument


def infer(
    run: Annotated[Path, typer.Argument(help="Folder of a run; penstock train makes one.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the rows: .npy (row i is node or pair i) or .parquet (with your ids); of pairs and predictions also .csv. "
            "(default: in RUN: outputs.npy, hidden.npy or predictions.npy; of the part test outputs-test.npy or pairs-test.npy, of those "
            "in new.csv outputs-new.npy or pairs-new.npy)"
        ),
    ] = None,
    rows: Annotated[
        str,
        typer.Option(
            help="outputs: of the last layer, one number per class, of edges an embedding; hidden: the input of the last layer; "
            "predictions: the class, labels or numbers."
        ),
    ] = "outputs",
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|train|val|test",
            help="Only these nodes: those in a file, .npy, node numbers, or .csv or .parquet, with a column id, your ids; or of a part of "
            "the split. (default: all)",
        ),
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|val|test",
            help="What a run that learnt links or labels of edges says of pairs: those in a file, .npy, n x 2 node numbers, or .csv or "
            ".parquet, with columns src and dst, your ids; or of a part that was held out. (default: none, but rows of nodes)",
        ),
    ] = None,
    node_type: Annotated[
        str | None,
        typer.Option(help="Type of the nodes; of edges between two types either. (default: the target of the training)"),
    ] = None,
    store: Annotated[Path | None, typer.Option(help="Folder of the store. (default: the one used in training)")] = None,
    inductive: Annotated[
        bool,
        typer.Option(
            "--inductive", help="STORE is another graph of the same types than that of the training, for instance of a later day."
        ),
    ] = False,
    batch_size: Annotated[int | None, typer.Option(help="Nodes per batch. (default: depends on the width of the rows)")] = None,
    host_memory: Annotated[
        str | None, typer.Option(help="Memory budget for the whole process, e.g. 2GiB; rows and neighbour lists are then read from disk.")
    ] = None,
    spool: Annotated[
        str | None,
        typer.Option(help="With --host-memory: disk space, e.g. 16GiB, where rows of many batches, read at once, wait for their batch."),
    ] = None,
    num_workers: Annotated[int, typer.Option(help="Sampling threads.")] = 1,
    device: Annotated[str, typer.Option(help="Where the model computes: cpu, cuda, cuda:1.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Compute outputs, embeddings or predictions of nodes by the model of a run, over all neighbours. If killed, the same command
    continues."""
    require_least_room()
    from penstock.kernels.bus_error import explain_bus_errors
    from penstock.train import infer_pairs, infer_run

    explain_bus_errors()
    if pairs is not None:
        without = {"rows": rows != "outputs", "nodes": nodes, "node_type": node_type, "host_memory": host_memory, "spool": spool}
        for name in (name for name, value in without.items() if value):
            raise UsageError(f"{argument('pairs')} goes without {argument(name)}, which is for rows of nodes")
        made = infer_pairs(
            run, pairs, out, store=store, inductive=inductive, batch_size=batch_size, num_workers=num_workers, device=device,
            progress=make_progress(),
        )  # fmt: skip
        show(made, lambda: pairs_as_text(made), as_json)
        return
    made = infer_run(
        run, out, rows=rows, nodes=nodes, node_type=node_type, store=store, inductive=inductive, batch_size=batch_size,
        host_memory=host_memory, spool=spool, num_workers=num_workers, device=device, progress=make_progress(),
    )  # fmt: skip
    show(made, lambda: as_text(made), as_json)


def as_text(made: dict[str, Any]) -> str:
    """Return what was written as a line for people."""
    node_type, count, of = made["node_type"], made["shape"][0], made["num_nodes"]
    what = f"a row for each {node_type}" if count == of else f"a row for {count:,} of {of:,} nodes of type {node_type!r}"
    return _line(made, what, has_array=made["rows"] != "predictions")


def pairs_as_text(made: dict[str, Any]) -> str:
    """The same of pairs."""
    source, name, target = made["edge_type"]
    pair = f"each pair {source}-{name}->{target}"
    return _line(made, f"one for {pair}" if made["out"].endswith(".npy") else f"a row for {pair}")


def _line(made: dict[str, Any], what: str, *, has_array: bool = False) -> str:
    shape = ", ".join(f"{length:,}" for length in made["shape"])
    array = f"{made['dtype']} [{shape}], " if has_array or made["out"].endswith(".npy") else ""
    weights = "the last weights" if made["epoch"] is None else f"the weights of epoch {made['epoch']}"
    return f"{made['out']}: {array}{what}, in {made['seconds']:.1f} s; by {weights}"
