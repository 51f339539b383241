"""Speed of loaders of links, in turns, of the same graph: PyG's too, where pyg-lib is there. And what a model scores that learns by each.

    python -m bench.links FOLDER [DATA]     the store small is made in FOLDER if it is not there; DATA: the real graphs, for the scores

Speed: batches without features, fanouts 15, 10, 1,024 links drawn from all edges: links per second. Scores: GraphSAGE and a dot product
between the ends, a tenth of the edges kept aside; the area under the curve of these against as many pairs that are no edges.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric import typing as has
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE
from torch_geometric.transforms import RandomLinkSplit, ToUndirected

from bench.common import begin, in_turns, show_and_write, spread
from bench.graphs import edges_of, make
from bench.ways import make_loaders, over, over_pyg
from penstock import LinkNeighborLoader
from penstock.store import Store, ingest

FANOUTS, BATCH_SIZE = [15, 10], 1024
WAYS: dict[str, dict[str, Any]] = {"links": {}, "binary": {"neg_sampling": "binary"}, "triplets": {"neg_sampling": "triplet"}}
OURS: dict[str, dict[str, Any]] = {
    "binary, any pair": {"neg_sampling": "binary", "exclude_positives": False},
    "binary, links left out": {"neg_sampling": "binary", "exclude_links": "reverse"},
}
"""What PyG's has not; and its way with negatives."""

GRAPHS, SEEDS, EPOCHS, HIDDEN = ("cora", "citeseer"), 5, 20, 64


def measure(store: Store) -> dict[str, Any]:
    """Rates of all, in turns."""
    found, made_s = make_loaders("LinkNeighborLoader", edges_of(store), FANOUTS, WAYS, OURS, batch_size=BATCH_SIZE, shuffle=True)
    rates = in_turns(found, lambda batch: batch.input_id.numel())
    return {
        "made_s": made_s,
        "links_per_s": {name: spread(each) for name, each in rates.items()},
        "over_pyg": over_pyg(rates),
        "over_binary": {name: over(rates, name, "binary") for name in OURS},
    }


def score(data: Data, seed: int, loader_class: Any, **how: Any) -> float:
    """Area under the curve, in percent, of a model that learns from a loader's batches."""
    torch.manual_seed(seed)
    train, _, test = RandomLinkSplit(num_val=0.0, num_test=0.1, is_undirected=True, add_negative_train_samples=False)(data)
    loader = loader_class(train, [10, 10], edge_label_index=train.edge_index, batch_size=512, shuffle=True, neg_sampling="binary", **how)
    model = GraphSAGE(data.num_features, HIDDEN, 2, dropout=0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            source, target = model(batch.x, batch.edge_index)[batch.edge_label_index]
            torch.nn.functional.binary_cross_entropy_with_logits((source * target).sum(-1), batch.edge_label).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        source, target = model(test.x, test.edge_index)[test.edge_label_index]
    logits, is_edge = (source * target).sum(-1), test.edge_label == 1
    ranks = logits.argsort().argsort().double() + 1
    positives, negatives = int(is_edge.sum()), int((~is_edge).sum())
    return 100 * float(ranks[is_edge].sum() - positives * (positives + 1) / 2) / (positives * negatives)


def scores(folder: Path) -> dict[str, Any]:
    """What models score: by our loader as PyG's does it, with links left out of the samples, and by PyG's."""
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "as PyG": (LinkNeighborLoader, {"exclude_positives": False}),
        "exact negatives": (LinkNeighborLoader, {}),
        "links left out": (LinkNeighborLoader, {"exclude_links": "reverse"}),
    }
    if has.WITH_PYG_LIB:
        from torch_geometric.loader import LinkNeighborLoader as Peer

        kinds["PyG"] = Peer, {}
    found = {}
    for name in GRAPHS:
        with tempfile.TemporaryDirectory() as temporary:
            store = ingest(folder / f"{name}.npz", Path(temporary) / name)
            data = ToUndirected()(edges_of(store))
            data.x = torch.from_numpy(np.array(store.node_field("x")))
        found[name] = {kind: spread([score(data, seed, made, **how) for seed in range(SEEDS)]) for kind, (made, how) in kinds.items()}
        print(f"{name:<12} {found[name]}", flush=True)
    return found


def main() -> None:
    """Measure and write the result."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    store = Store.open(make("small", Path(sys.argv[1])))
    values = {**begin("python -m bench.links FOLDER DATA"), **measure(store)}
    if len(sys.argv) > 2:
        values["area_under_curve"] = scores(Path(sys.argv[2]))
    show_and_write("links", values)


if __name__ == "__main__":
    main()
