"""`penstock generate KIND DEST`: write a generated graph into a store, in bounded memory.

One command per kind, each a function that names the kind's own options; options of all kinds are added to its signature. Defaults are
those of the generators (`penstock.sources.generate`, which is imported only when a command runs): an option that is not given is not
passed on. Options that a kind requires have no default here, and the help marks them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import writing
from penstock.cli.grouping import with_groups

NumEdges = Annotated[int | None, typer.Option(help="Number of edges. (default: 16 per node)")]
Skew = Annotated[
    float | None,
    typer.Option(help="0 is uniform; the number of nodes of degree d falls as d**-(1 + 1/skew). (default: 0.6, communities: 0.33)"),
]


def rmat(
    num_nodes: Annotated[int | None, typer.Option(help="Number of nodes; give this or --scale.")] = None,
    scale: Annotated[int | None, typer.Option(help="log2 of the number of nodes, in place of --num-nodes.")] = None,
    num_edges: NumEdges = None,
    a: Annotated[
        float | None, typer.Option(help="Probability of the quadrant of low sources and low destinations. (default: 0.57)")
    ] = None,
    b: Annotated[float | None, typer.Option(help="Probability of low sources and high destinations. (default: 0.19)")] = None,
    c: Annotated[float | None, typer.Option(help="Probability of high sources and low destinations. (default: 0.19)")] = None,
    permute: Annotated[bool | None, typer.Option(help="Give the nodes random ids. (default: permute)")] = None,
) -> None:
    """R-MAT: each edge descends at random through quadrants of the adjacency matrix. Needs --num-nodes or --scale."""


def zipf(num_nodes: Annotated[int, typer.Option(help="Number of nodes.")], num_edges: NumEdges = None, skew: Skew = None) -> None:
    """Zipf: both ends of every edge are drawn by one power law over ranks. Needs --num-nodes."""


def communities(
    num_nodes: Annotated[int | None, typer.Option(help="Number of nodes. (default: 100000)")] = None,
    num_edges: Annotated[int | None, typer.Option(help="Number of edges. (default: 20 per node)")] = None,
    num_communities: Annotated[
        int | None, typer.Option(help="Number of communities; community c has class c % num_classes. (default: num_classes)")
    ] = None,
    mixing: Annotated[float | None, typer.Option(help="Share of the edges whose source may be anywhere. (default: 0.3)")] = None,
    skew: Skew = None,
    feature_accuracy: Annotated[
        float | None, typer.Option(help="Accuracy that a classifier of the features alone can reach. (default: 0.45)")
    ] = None,
) -> None:
    """Planted communities: classes follow from the graph, and only weakly from features. All options have defaults."""


def kronecker(
    base: Annotated[Path, typer.Option(metavar="STORE", help="Store to expand; its features and labels are copied.")],
    num_copies: Annotated[int | None, typer.Option(help="The result has this many times the nodes. (default: 4)")] = None,
    edge_factor: Annotated[
        float | None, typer.Option(help="The result has this many times the edges. (default: 2.2 times num_copies)")
    ] = None,
    feature_noise: Annotated[float | None, typer.Option(help="Standard deviation of noise added to features. (default: 0)")] = None,
) -> None:
    """Kronecker: a larger version of an existing graph, with its degree distribution and communities. Needs --base."""


def _of_all_kinds(
    seed: Annotated[int | None, typer.Option(help="Random seed; the graph is a function of it and the options. (default: 0)")] = None,
    feature_dim: Annotated[
        int | None,
        typer.Option(help="Width of the features: random; for communities they depend on the class. (default: 0, communities: 64)"),
    ] = None,
    num_classes: Annotated[
        int | None,
        typer.Option(help="Number of classes: random labels; for communities those of the community. (default: 0, communities: 16)"),
    ] = None,
    train: Annotated[float | None, typer.Option(help="Share of the nodes for training. (default: 0, communities: 0.5)")] = None,
    val: Annotated[float | None, typer.Option(help="Share of the nodes for validation. (default: 0, communities: 0.25)")] = None,
    test: Annotated[float | None, typer.Option(help="Share of the nodes for testing. (default: 0, communities: 0.25)")] = None,
) -> None:
    """Options of every generator."""


def _command(kind: Callable[..., None]) -> Callable[..., None]:
    """Make the command of a kind: its own options, those of all kinds, those of the store."""

    def run(dest: Annotated[Path, typer.Argument(help="Folder of the store to make.")], **given: Any) -> None:
        from penstock.store import generate as generate_into_store

        options, as_json = writing.store_options(given), given.pop("as_json")
        chosen = {name: value for name, value in given.items() if value is not None}
        start = time.perf_counter()
        store = generate_into_store(kind.__name__, dest, **options, **chosen)
        writing.finish(store, time.perf_counter() - start, as_json)

    def reword(help: str) -> str:
        """Of '(default: 0, communities: 64)', keep what holds for this kind."""
        return re.sub(r"default: (\S+), communities: (\S+)\)", r"default: \2)" if kind is communities else r"default: \1)", help)

    run.__doc__ = kind.__doc__
    return with_groups(run, {kind: None, _of_all_kinds: "Features, labels and splits", writing.of_the_store: "The store"}, reword)


KINDS = {kind.__name__: kind for kind in (rmat, zipf, communities, kronecker)}

app = typer.Typer(help="Write a generated graph into a store.")
for _name, _kind in KINDS.items():
    app.command(_name)(_command(_kind))
