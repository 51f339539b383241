"""One contender of a comparison, in a process of its own: Penstock, PyG, DGL or its GraphBolt over the same arrays.

    python contenders.py NAME STORE MODE WORKERS

Runs in the contender's own environment and imports nothing else. Reads the arrays of a store made by `penstock generate zipf` and says the
versions of what it runs on; then, for every line `run WARMUP BATCHES` on standard input, starts an epoch, skips the warm-up, times the
batches and prints one JSON object.

MODE: sample (neighbourhoods only), features (with x and y); and with the step of a 3-layer GraphSAGE of width 128: train (as each library
runs it fastest, Penstock over `penstock.layers`), plain (as most write it, `model(x, edge_index)`; plain-gcn and plain-gat: of other
layers), loop (with the same model trimmed by hand, layer by layer). In the last two, Penstock's is the same model behind `penstock.trim`,
or without it: what changing the import alone brings.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
import time
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

FANOUTS, BATCH_SIZE, HIDDEN, CLASSES = [15, 10, 5], 1024, 128, 50
TRAINS = ("train", "loop", "plain", "plain-gcn", "plain-gat")

warnings.filterwarnings("ignore")


def arrays(store: str, *names: str) -> list[np.ndarray]:
    """Arrays of the store, read into memory."""
    folder = Path(store)
    places = {
        "indptr": "edges/node__to__node/indptr.npy",
        "indices": "edges/node__to__node/indices.npy",
        "x": "nodes/node/x.npy",
        "y": "nodes/node/y.npy",
        "train": "nodes/node/splits/default/train.npy",
    }
    return [np.load(folder / places[name]) for name in names]


def convs_of(mode: str, width: int):
    """Three layers of PyG's; attention has four heads."""
    import torch
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    if mode == "plain-gat":
        sizes = ((width, HIDDEN // 4, 4), (HIDDEN, HIDDEN // 4, 4), (HIDDEN, CLASSES, 1))
        return torch.nn.ModuleList([GATConv(a, b, heads) for a, b, heads in sizes])
    layer = GCNConv if mode == "plain-gcn" else SAGEConv
    return torch.nn.ModuleList([layer(a, b) for a, b in ((width, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES))])


def model_of(mode: str, width: int):
    """The same as a model, which cuts rows where it is given their numbers by hop."""
    import torch
    from torch_geometric.utils import trim_to_layer

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = convs_of(mode, width)

        def forward(self, x, edges, nodes_per_hop=None, edges_per_hop=None):
            for i, conv in enumerate(self.convs):
                if nodes_per_hop is not None:
                    x, edges, _ = trim_to_layer(i, nodes_per_hop, edges_per_hop, x, edges)
                x = conv(x, edges)
                x = x.relu() if i < 2 else x
            return x

    return Model()


class Penstock:
    """`penstock.NeighborLoader` over the store on disk, and PyG's layers over `penstock.layers`, or in a model behind `penstock.trim`."""

    packages = ("torch", "numba", "torch_geometric")
    is_kept = False
    is_trimmed = True

    def __init__(self, store: str, mode: str, workers: int) -> None:
        import torch

        import penstock
        from penstock.feed.inputs import ArrayInput
        from penstock.records import NODE

        self.torch, self.cut = torch, penstock.layers
        opened = penstock.open(store)
        data = opened if mode != "sample" else ArrayInput(opened.graph(), {})
        train = np.array(opened.split("train"))
        self.loader = penstock.NeighborLoader(
            data, FANOUTS, input_nodes=(NODE, train), batch_size=BATCH_SIZE, shuffle=True, num_workers=workers, seed=1
        )
        if mode in TRAINS:
            if mode == "train" or self.is_kept:
                from penstock.train import keep_freed_memory

                keep_freed_memory()
            torch.manual_seed(0)
            width = opened.node_field("x", NODE).shape[1]
            self.model, self.is_cut = (convs_of if mode == "train" else model_of)(mode, width), mode == "loop"
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
            self.step = self._step_over_layers if mode == "train" else partial(PyG.step, self)
            if mode != "train" and self.is_trimmed:
                penstock.trim(self.model)

    def epoch(self):
        return iter(self.loader)

    def count(self, batch) -> tuple[int, int, int, int]:
        bytes_ = batch.x.numel() * batch.x.element_size() if "x" in batch else 0
        return batch.batch_size, batch.edge_index.shape[1], batch.n_id.numel(), bytes_

    def _step_over_layers(self, batch) -> None:
        x = batch.x
        for i, (conv, layer) in enumerate(zip(self.model, self.cut(batch), strict=True)):
            x = conv((x, x[: layer.num_dst]), layer.adj_t())
            x = x.relu() if i < 2 else x
        loss = self.torch.nn.functional.cross_entropy(x, batch.y[: batch.batch_size])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Kept(Penstock):
    """The same, and memory that a step frees is kept for the next one."""

    is_kept = True


class Untrimmed(Penstock):
    """The same without `penstock.trim`."""

    is_trimmed = False


class PyG:
    """`torch_geometric.loader.NeighborLoader`, on pyg-lib where that is installed, else on torch-sparse."""

    packages = ("torch", "torch_geometric", "pyg_lib", "torch_sparse")

    def __init__(self, store: str, mode: str, workers: int) -> None:
        import torch
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader

        self.torch, self.is_cut = torch, not mode.startswith("plain")
        indptr, indices, train = map(torch.from_numpy, arrays(store, "indptr", "indices", "train"))
        columns = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff(), output_size=indices.numel())
        data = Data(edge_index=torch.stack([indices.long(), columns]), num_nodes=indptr.numel() - 1)
        del indices, columns, indptr
        if mode != "sample":
            data.x, data.y = map(torch.from_numpy, arrays(store, "x", "y"))
        more = {"num_workers": workers, "persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
        self.loader = NeighborLoader(data, FANOUTS, input_nodes=train, batch_size=BATCH_SIZE, shuffle=True, is_sorted=True, **more)
        if mode in TRAINS:
            torch.manual_seed(0)
            self.model = model_of(mode, data.x.shape[1])
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def epoch(self):
        return iter(self.loader)

    count = Penstock.count

    def step(self, batch) -> None:
        said = batch.to_dict()  # its hops: by pyg-lib, not by torch-sparse
        counts = [said.get("num_sampled_nodes"), said.get("num_sampled_edges")] if self.is_cut else []
        x = self.model(batch.x, batch.edge_index, *counts)
        loss = self.torch.nn.functional.cross_entropy(x[: batch.batch_size], batch.y[: batch.batch_size])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class DGL:
    """Classic `dgl.dataloading.DataLoader` with `NeighborSampler`."""

    packages = ("torch", "dgl")

    def __init__(self, store: str, mode: str, workers: int) -> None:
        import dgl
        import torch
        from dgl.nn import SAGEConv

        self.torch, self.mode = torch, mode
        indptr, indices, train = map(torch.from_numpy, arrays(store, "indptr", "indices", "train"))
        nothing = torch.tensor([], dtype=torch.int64)
        graph = dgl.graph(("csc", (indptr, indices.long(), nothing)), num_nodes=indptr.numel() - 1)
        more = {}
        if mode != "sample":
            graph.ndata["x"], graph.ndata["y"] = map(torch.from_numpy, arrays(store, "x", "y"))
            more = {"prefetch_node_feats": ["x"], "prefetch_labels": ["y"]}
        sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1], **more)  # input layer first
        self.loader = dgl.dataloading.DataLoader(
            graph, train, sampler, batch_size=BATCH_SIZE, shuffle=True, num_workers=workers,
            **({"persistent_workers": True} if workers else {}),
        )  # fmt: skip
        if mode in TRAINS:
            self._model(graph.ndata["x"].shape[1], SAGEConv)

    def _model(self, width: int, layer) -> None:
        self.torch.manual_seed(0)
        sizes = ((width, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES))
        self.convs = self.torch.nn.ModuleList([layer(a, b, "mean") for a, b in sizes])
        self.optimizer = self.torch.optim.Adam(self.convs.parameters(), lr=3e-3)

    def epoch(self):
        return iter(self.loader)

    def count(self, batch) -> tuple[int, int, int, int]:
        inputs, outputs, blocks = batch
        bytes_ = 0
        if self.mode != "sample":
            features = blocks[0].srcdata["x"]
            bytes_ = features.numel() * features.element_size()
            blocks[-1].dstdata["y"]
        return len(outputs), sum(block.num_edges() for block in blocks), len(inputs), bytes_

    def step(self, batch) -> None:
        _, _, blocks = batch
        self._step(blocks, blocks[0].srcdata["x"], blocks[-1].dstdata["y"])

    def _step(self, blocks, x, y) -> None:
        for i, (conv, block) in enumerate(zip(self.convs, blocks)):  # noqa: B905
            x = conv(block, x)
            x = x.relu() if i < 2 else x
        loss = self.torch.nn.functional.cross_entropy(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class GraphBolt(DGL):
    """`dgl.graphbolt.DataLoader` over a `FusedCSCSamplingGraph`; 32-bit neighbours, as the store has them, its faster way."""

    packages = ("torch", "dgl", "torchdata")

    def __init__(self, store: str, mode: str, workers: int) -> None:
        import dgl.graphbolt as gb
        import torch
        from dgl.nn import SAGEConv

        self.torch, self.mode = torch, mode
        indptr, indices, train = map(torch.from_numpy, arrays(store, "indptr", "indices", "train"))
        graph = gb.fused_csc_sampling_graph(indptr, indices)
        train = train.to(indices.dtype)
        features: dict = {}
        if mode == "sample":
            items = gb.ItemSet(train, names="seed_nodes")
        else:
            x, y = map(torch.from_numpy, arrays(store, "x", "y"))
            items = gb.ItemSet((train, y[train.long()]), names=("seed_nodes", "labels"))
            features = {("node", None, "x"): gb.TorchBasedFeature(x)}
        stages = gb.ItemSampler(items, batch_size=BATCH_SIZE, shuffle=True).sample_neighbor(graph, FANOUTS[::-1])  # input layer first
        stages = stages.fetch_feature(gb.BasicFeatureStore(features), node_feature_keys=["x"] if features else None)
        self.loader = gb.DataLoader(stages, num_workers=workers)
        if mode in TRAINS:
            self._model(x.shape[1], SAGEConv)

    def count(self, batch) -> tuple[int, int, int, int]:
        edges = sum(graph.sampled_csc.indices.numel() for graph in batch.sampled_subgraphs)
        features = batch.node_features.get("x") if batch.node_features else None
        bytes_ = 0 if features is None else features.numel() * features.element_size()
        return batch.sampled_subgraphs[-1].original_column_node_ids.numel(), edges, batch.input_nodes.numel(), bytes_

    def step(self, batch) -> None:
        self._step(batch.blocks, batch.node_features["x"], batch.labels)


CONTENDERS = {
    "penstock": Penstock,
    "penstock, kept": Kept,
    "penstock, untrimmed": Untrimmed,
    "pyg": PyG,
    "dgl": DGL,
    "graphbolt": GraphBolt,
}


def measure(contender, mode: str, warmup: int, num_batches: int) -> dict[str, float]:
    """One round."""
    batches = contender.epoch()
    for _ in range(warmup):
        batch = next(batches)
        if mode in TRAINS:
            contender.step(batch)
    totals, done, step_s = [0, 0, 0, 0], 0, 0.0
    started = time.perf_counter()
    for batch in batches:
        if mode in TRAINS:
            stepped = time.perf_counter()
            contender.step(batch)
            step_s += time.perf_counter() - stepped
        totals = [total + value for total, value in zip(totals, contender.count(batch))]  # noqa: B905
        done += 1
        del batch
        if done == num_batches:
            break
    seconds = time.perf_counter() - started
    del batches
    seeds, edges, nodes, moved = totals
    return {
        "seconds": seconds, "batches": done, "seeds_per_s": seeds / seconds, "edges_per_batch": edges / done,
        "nodes_per_batch": nodes / done, "features_gb_per_s": moved / seconds / 1e9, "batch_ms": 1e3 * seconds / done,
        "step_ms": 1e3 * step_s / done, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Of those that are installed."""
    return {name: version(name) for name in packages if importlib.util.find_spec(name)}


def main() -> None:
    """Serve rounds until standard input ends."""
    name, store, mode, workers = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    contender = CONTENDERS[name](store, mode, workers)
    print(json.dumps({"versions": versions(contender.packages)}), flush=True)
    for line in sys.stdin:
        warmup, num_batches = map(int, line.split()[1:])
        print(json.dumps(measure(contender, mode, warmup, num_batches)), flush=True)


if __name__ == "__main__":
    main()
