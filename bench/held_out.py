"""What links score that were held out: learnt by `penstock train`, and by a loop as users of PyG write it, on the same links.

    python -m bench.held_out DATA     DATA: the real graphs

Of each graph, held out once per seed (a twentieth for val, a tenth for test): GraphSAGE of two layers and the product of the ends, the same
widths, batches, fanouts and epochs. Both are scored alike, by the rows of all nodes over all neighbours, at the epoch that is best on val:
the mean reciprocal rank among 100 targets that are no links, and the area under the curve against these, which are the same for both.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from bench.common import begin, show_and_write, spread
from penstock import LinkNeighborLoader, hold_out
from penstock.records import NODE
from penstock.store import Store, ingest
from penstock.train import TrainConfig, train
from penstock.train.data import read_training_data
from penstock.train.ranks import Ranks

SEEDS = 5
FANOUTS, BATCH_SIZE, HIDDEN, DROPOUT, LR = (10, 5), 512, 64, 0.2, 0.005
EPOCHS, GRAPHS, METRICS = 20, ("cora", "citeseer"), ("mrr", "auc")


def ours(config: TrainConfig, folder: Path) -> float:
    """The score on test of `penstock train`."""
    test = train(config, folder).test
    assert test is not None
    return test


def by_hand(config: TrainConfig, store: Store) -> float:
    """The same, learnt from batches as PyG's loader gives them: they show their links, and negatives may be edges."""
    torch.manual_seed(config.seed)
    data: Any = Data(x=torch.from_numpy(np.array(store.node_field("x"))).float(), edge_index=torch.from_numpy(store.edge_index()))
    learnt = read_training_data(store, config)
    assert learnt.edges is not None
    loader = LinkNeighborLoader(
        data, FANOUTS, batch_size=BATCH_SIZE, shuffle=True, neg_sampling="binary", exclude_positives=False, seed=config.seed
    )
    model = GraphSAGE(data.x.shape[1], HIDDEN, 2, dropout=DROPOUT)
    optimizer, best, nodes = torch.optim.Adam(model.parameters(), lr=LR), (0.0, 0.0), np.arange(data.x.shape[0])
    for _ in range(config.epochs):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            source, target = model(batch.x, batch.edge_index)[batch.edge_label_index]
            logits = (source * target).sum(-1) / HIDDEN**0.5
            torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.edge_label).backward()
            optimizer.step()
        with torch.no_grad():
            rows = {NODE: (nodes, copy.deepcopy(model).eval()(data.x, data.edge_index).numpy())}
        val, test = (learnt.edges.score(None, learnt.graph, part, rows, learnt.task, Ranks()) for part in ("val", "test"))
        best = max(best, (val, test))
    return best[1]


def main() -> None:
    """Measure and write the result."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    values: dict[str, Any] = {**begin("python -m bench.held_out DATA"), "test": {}}
    for name in GRAPHS:
        found: dict[str, dict[str, list[float]]] = {metric: {"penstock train": [], "by hand": []} for metric in METRICS}
        for seed in range(SEEDS):
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                hold_out(ingest(Path(sys.argv[1]) / f"{name}.npz", folder / "whole"), folder / "store", seed=seed)
                for metric in METRICS:
                    config = TrainConfig(
                        store=str(folder / "store"), num_neighbors=FANOUTS, batch_size=BATCH_SIZE, hidden=HIDDEN, dropout=DROPOUT, lr=LR,
                        epochs=EPOCHS, seed=seed, evaluation="full", metric=metric,
                    )  # fmt: skip
                    found[metric]["penstock train"].append(ours(config, folder / metric))
                    found[metric]["by hand"].append(by_hand(config, Store.open(folder / "store")))
        values["test"][name] = {metric: {who: spread(each) for who, each in of.items()} for metric, of in found.items()}
        print(f"{name:<16} {values['test'][name]}", flush=True)
    show_and_write("held_out", values)


if __name__ == "__main__":
    main()
