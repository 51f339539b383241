"""The stores of `bench.beyond_memory`: two generated power-law graphs and two Kronecker expansions of real ones, by width of the features.

python -m bench.beyond_stores FOLDER DATA [NAME ...] [--scale 1.0]      makes FOLDER/<name>

Every node-sized table of a run (row pointers, directories, places of neighbour lists: about 21 bytes a node) has to fit into a tenth of the
store beside the process, which is what decides how many edges a node with narrow features has here.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a store is made.

    Attributes:
        kind: of generator. dim: width of the features, float32, random: what they hold does not matter here.
        num_nodes, num_edges: of a generated graph. base: of an expanded one, a graph of the data folder; copies: factor on its nodes,
            or two, one expansion over the other: an expansion takes time in proportion to copies squared.
    """

    kind: str
    dim: int
    num_nodes: int = 0
    num_edges: int = 0
    base: str = ""
    copies: tuple[int, ...] = ()
    words: str = ""


STORES = {
    "zipf-256": Recipe(kind="zipf", dim=256, num_nodes=18_500_000, num_edges=296_000_000, words="power law (Zipf), 16 edges a node"),
    "twitter-128": Recipe(kind="kronecker", dim=128, base="ego_twitter", copies=(24, 11), words="Kronecker, 264 times ego_twitter"),
    "cnr-768": Recipe(kind="kronecker", dim=768, base="web_cnr2000", copies=(9,), words="Kronecker, 9 times web_cnr2000"),
    "rmat-64": Recipe(kind="rmat", dim=64, num_nodes=10_000_000, num_edges=2_000_000_000, words="R-MAT, 200 edges a node"),
}
"""20 and 17 GB, and two of 9 to 11 GB, of features and topology. Edges of an expansion: 2.2 times as many a node, as Ginex has it."""

NEAR, FAR = ("cnr-768",), ("zipf-256", "twitter-128")
"""Where the rows of batches that follow each other are much the same, in community order; where each row is a request by itself, and there
is room on the disk to spool them."""
GROUP = 96
"""Batches that are spooled at once."""
IN_STEP = 16
"""Threads that sample, where lists lie far apart: they are read for all of them together."""


def make(name: str, folder: Path, data: Path, scale: float = 1.0, dim: int | None = None) -> Path:
    """Return the store of that name, made if it is not there; `dim`: with features of another width."""
    from penstock.store import generate

    recipe = STORES[name]
    if dim is not None and dim != recipe.dim:
        recipe, name = replace(recipe, dim=dim), f"{name.removesuffix(f'-{recipe.dim}')}-{dim}"
    path = folder / (name if scale == 1.0 else f"{name}-at-{scale:g}")
    if (path / "manifest.json").exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = dict(feature_dim=recipe.dim, train=0.1, seed=1, memory="4GiB", overwrite=True)
    if recipe.kind == "kronecker":
        base, factor = base_store(recipe.base, folder, data), 2.2 ** (1 / len(recipe.copies))
        for copies in recipe.copies[:-1]:
            middle = folder / f"{recipe.base}-times-{copies}"
            if not (middle / "manifest.json").exists():
                generate("kronecker", middle, base=base, num_copies=copies, edge_factor=factor * copies, memory="4GiB", overwrite=True)
            base = middle
        last = max(2, round(recipe.copies[-1] * scale))
        generate("kronecker", path, base=base, num_copies=last, edge_factor=min(factor * last, last**2), **options)
    else:
        generate(recipe.kind, path, num_nodes=round(recipe.num_nodes * scale), num_edges=round(recipe.num_edges * scale), **options)
    return path


def base_store(name: str, folder: Path, data: Path) -> Path:
    """The structure of a graph of the data folder, alone, as a store."""
    import torch
    from torch_geometric.data import Data

    import penstock

    path = folder / f"{name}-base"
    if not (path / "manifest.json").exists():
        with np.load(data / f"{name}.npz") as arrays:
            graph = Data(edge_index=torch.from_numpy(arrays["edge_index"].astype(np.int64)), num_nodes=int(arrays["num_nodes"]))
        penstock.ingest(graph, path, memory="4GiB", overwrite=True)
    return path


def main() -> None:
    """Make the stores named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(STORES))
    parser.add_argument("--scale", type=float, default=1.0)
    chosen = parser.parse_args()
    for name in chosen.names:
        print(make(name, chosen.folder, chosen.data, chosen.scale), flush=True)


if __name__ == "__main__":
    main()
