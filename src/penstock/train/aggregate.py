"""The first layer's neighbourhoods aggregated once: `aggregate` makes a store whose features are what they come to.

In: a store. Out: another, over the same edges: its `x` is each node's row beside the mean or the sum of its neighbours' rows, or their sum
as in GCN. Batches of it need one hop less: the first layer of a model looks at a node's own row alone (`of_aggregated`). Invariant: that
layer has the weights that it would have, and gives what it gives over all neighbours, but for rounding. All other files are the old
store's.

Source: PaGraph (Bai et al. 2021), "PP". SGC (Wu et al. 2019) and SIGN (Frasca et al. 2020) go further, and aggregate for all layers.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, SAGEConv
from torch_geometric.utils import spmm

from penstock.errors import InputError, MissingFieldError, NotSupportedError, StoreError, UsageError, argument
from penstock.feed.inputs.arrays import StoreInput
from penstock.feed.layers import layers
from penstock.inference.steps import WithRows, num_nodes_of_batch, outputs
from penstock.plan import make_plan
from penstock.records import NODE
from penstock.store import ArraySpec, Progress, Quiet, Store, format_bytes
from penstock.store.format import DTYPES, folder_of_nodes
from penstock.store.progress import hearing, stage
from penstock.store.watch import check_bytes
from penstock.store.writer import StoreWriter
from penstock.train.convs import Gcn, gcn_matrix

MODEL_OF = {"mean": "sage", "sum": "gin", "gcn": "gcn"}
"""How features are aggregated, and the standard model that does so."""

X = "x"


def aggregate(
    store: str | os.PathLike[str] | Store,
    dest: str | os.PathLike[str],
    *,
    by: str = "mean",
    overwrite: bool = False,
    batch_size: int | None = None,
    host_memory: str | int | None = None,
    spool: str | int | None = None,
    num_workers: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Make a store whose features are aggregated over all neighbours, for a first layer that samples nothing.

    Args:
        store: of one node type, with features `x` [num_nodes, width]; it stays as it is.
        dest, overwrite: the new store, as of `penstock.ingest`. Its other files are those of the old one by a second name, or copies where
            the file system has no such names, or they would lie on two.
        by: "mean": [row | mean of the in-neighbours' rows], for GraphSAGE; "sum": [row | sum], for GIN; "gcn": the sum over a node and its
            in-neighbours, each divided by the roots of both degrees + 1, for GCN (self-loops that the graph has count besides).
        batch_size, num_workers: as of `penstock.infer`. host_memory, spool: a budget for the whole process, and for rows on the disk (see
            `Plan`).
        progress: hears of it.
    Returns:
        What was made, as plain values.
    Raises:
        UsageError, InputError, NotSupportedError: a store without such features. StoreError: it cannot be read, or `dest` written.
    """
    if by not in MODEL_OF:
        raise UsageError(f"{argument('by')} must be one of {', '.join(MODEL_OF)}; got {by!r}")
    store, progress = store if isinstance(store, Store) else Store.open(store), progress or Quiet()
    spec, entry = _features(store), store.node_entry(NODE)
    dtype, width = _dtype(by, spec.dtype), spec.shape[1] if by == "gcn" else 2 * spec.shape[1]
    loading = {"plan": make_plan(None, host_memory=host_memory, spool=spool), "num_workers": num_workers, "seed": 0}
    adjacency = store.csc()

    def step(batch: Any) -> Tensor:
        (layer,) = layers(batch)
        x = batch.x if batch.x.dtype == torch.float64 else batch.x.float()
        if by == "gcn":
            return gcn_matrix(layer, torch.from_numpy(adjacency.degrees(batch.n_id.numpy())).to(x.dtype)) @ x
        return torch.cat([x[: layer.num_dst], spmm(layer.adj_t(x.new_ones(layer.sources.numel())), x, reduce=by)], dim=1)

    if os.path.realpath(dest) == os.path.realpath(store.path):
        raise UsageError(f"{dest} is the store itself, which stays as it is: choose another path")
    with StoreWriter(dest, overwrite=overwrite) as writer, hearing(progress.note):
        for other in store.manifest.arrays():
            if other is not spec:
                writer.adopt(store, other)
        needed, free = spec.shape[0] * width * DTYPES[dtype].itemsize, shutil.disk_usage(writer.folder).free
        if needed > free:
            raise StoreError(
                f"cannot write {writer.destination}: {format_bytes(needed)} for its features, and the disk has {format_bytes(free)} free: "
                "free some space or choose another disk"
            )
        rows = writer.array(f"{folder_of_nodes(NODE)}/{X}.npy", dtype, (width,))
        rows.properties["aggregated"] = by
        source = WithRows(StoreInput(store), None, (X,))
        size = num_nodes_of_batch(source, NODE) if batch_size is None else batch_size
        with stage(progress, f"{by} of {X} over all neighbours", entry.num_nodes, "nodes"):
            for made, count in outputs(source, step, 0, (NODE, np.arange(entry.num_nodes)), None, batch_size=size, **loading):
                assert made is not None
                rows.append(_stored(made, dtype))
                progress.advance(count)
        check_bytes(store)
        nodes = {NODE: replace(entry, fields={**entry.fields, X: rows.finish()}, packed=None)}
        made_of = {"by": by, "store": store.path.name, "digest": store.digest}
        writer.commit(replace(store.manifest, nodes=nodes, provenance={**store.manifest.provenance, "aggregated": made_of}))
    return {"store": str(writer.destination), "by": by, "model": MODEL_OF[by], "x": [entry.num_nodes, width], "dtype": dtype}


def _features(store: Store) -> ArraySpec:
    """What is aggregated, or raise with what is wrong with it."""
    if not store.is_homogeneous:
        types = f"{len(store.node_types)} node and {len(store.edge_types)} edge types"
        raise NotSupportedError(f"{store.path} has {types}, and aggregate takes stores of one")
    spec = store.node_fields(NODE).get(X)
    if spec is None:
        raise MissingFieldError(f"{store.path} has no features (field {X}): there is nothing to aggregate")
    if len(spec.shape) != 2 or spec.shape[1] == 0:
        raise InputError(f"{store.path}: features must be a matrix of a column at least, got shape {list(spec.shape)}")
    if "aggregated" in spec.properties:
        raise UsageError(f"the features of {store.path} are aggregated already, by {spec.properties['aggregated']}")
    return spec


def _dtype(by: str, dtype: str) -> str:
    """The dtype of the result: means of 16-bit numbers keep it, sums may exceed it."""
    return dtype if dtype == "float64" or (by == "mean" and dtype in ("float16", "bfloat16")) else "float32"


def _stored(rows: np.ndarray, dtype: str) -> np.ndarray:
    """Rows as they lie in a file."""
    if dtype == "bfloat16":
        return torch.from_numpy(rows).bfloat16().view(torch.uint16).numpy()
    return rows.astype(DTYPES[dtype], copy=False)


def of_aggregated(conv: nn.Module, x: Tensor) -> Tensor:
    """Apply a layer to rows whose neighbourhoods are aggregated already.

    Args:
        conv: `SAGEConv` of means, `GINConv` or `GCNConv`, PyG's or one made from it.
        x: [n, width], features of a store that `aggregate` made by "mean", "sum" or "gcn": nobody looks whether it is the one of the layer.
    Returns:
        What the layer gives for these nodes over all their neighbours, [n, outputs].
    Raises:
        NotSupportedError: another layer, or one with settings by which it aggregates otherwise, or does something before.
    """
    if not _begins_by_aggregating(conv):
        raise NotSupportedError(f"{conv} does not begin by what `aggregate` does of its neighbours' rows, in all its settings")
    if isinstance(conv, GCNConv):
        out = conv.lin(x)
        return out if conv.bias is None else out + conv.bias
    own, neighbors = x.chunk(2, dim=-1)
    if isinstance(conv, GINConv):
        return conv.nn(neighbors + (1 + conv.eps) * own)
    assert isinstance(conv, SAGEConv)
    if conv.root_weight:  # one product in place of two, and no sum of them
        out = F.linear(x, torch.cat([conv.lin_r.weight, conv.lin_l.weight], dim=1), conv.lin_l.bias)
    else:
        out = conv.lin_l(neighbors)
    return F.normalize(out, dim=-1) if conv.normalize else out


def _begins_by_aggregating(conv: nn.Module) -> bool:
    """Whether a layer reads what `aggregate` makes, as far as its settings tell."""
    if not isinstance(conv, (SAGEConv, GINConv, GCNConv)) or conv.flow != "source_to_target":
        return False
    if isinstance(conv, SAGEConv):
        return conv.aggr == "mean" and not conv.project
    is_usual = isinstance(conv, (GINConv, Gcn)) or (conv.normalize and conv.add_self_loops and not conv.improved)
    return conv.aggr in ("add", "sum") and is_usual
