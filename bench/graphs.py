"""The graphs of the benchmarks: power-law, both ends of an edge from one Zipf law, degree exponent about 2.7.

    python -m bench.graphs small|thin|large|wide|ten-128|ten-256 FOLDER        makes the store FOLDER/<name>

small: 1M nodes, 16M edges, 128 features; thin: the same with 8M edges; large: 8M nodes, 128M edges, 64 features; all with 100k train nodes
and 50 classes.
wide: 8M nodes, 64M edges, 128 features, for what depends on the size of a store.
ten-128, ten-256: 10M nodes, 200M edges, 1M train nodes, 128 and 256 features, for a GPU.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GRAPHS = {
    "small": dict(num_nodes=1_000_000, num_edges=16_000_000, feature_dim=128, train=0.1),
    "thin": dict(num_nodes=1_000_000, num_edges=8_000_000, feature_dim=128, train=0.1),
    "large": dict(num_nodes=8_000_000, num_edges=128_000_000, feature_dim=64, train=0.0125),
    "wide": dict(num_nodes=8_000_000, num_edges=64_000_000, feature_dim=128, train=0.0125),
    "ten-128": dict(num_nodes=10_000_000, num_edges=200_000_000, feature_dim=128, train=0.1),
    "ten-256": dict(num_nodes=10_000_000, num_edges=200_000_000, feature_dim=256, train=0.1),
}


def make(name: str, folder: Path) -> Path:
    """Return the store of that name, made if it is not there."""
    from penstock.store import generate

    path = folder / name
    if not (path / "manifest.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        generate("zipf", path, num_classes=50, seed=1, **GRAPHS[name])
    return path


@contextmanager
def small_store() -> Iterator[Any]:
    """The small store in the folder that is the first word of the command line, or in a temporary one."""
    from penstock.store import Store

    with tempfile.TemporaryDirectory() as temporary:
        yield Store.open(make("small", Path(sys.argv[1] if len(sys.argv) > 1 else temporary)))


def edges_of(store: Any) -> Any:
    """The graph of a store as PyG's `Data`: its edges in its order, and no fields."""
    import numpy as np
    import torch
    from torch_geometric.data import Data

    csc = store.csc()
    indptr, indices = torch.from_numpy(np.array(csc.indptr)), torch.from_numpy(np.array(csc.indices)).long()
    return Data(edge_index=torch.stack([indices, torch.repeat_interleave(torch.arange(csc.num_dst), indptr.diff())]), num_nodes=csc.num_dst)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in GRAPHS:
        sys.exit(__doc__)
    print(make(sys.argv[1], Path(sys.argv[2])))
