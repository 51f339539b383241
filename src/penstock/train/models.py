"""The standard models for homogeneous graphs: PyG layers, fed layer by layer with what each needs (see `penstock.layers`).

In: features of a batch and its layers. Out: one row per seed. The same `layer` method serves training on samples and inference over
the whole graph, one layer at a time.
Sampled sums (GCN, GIN) are scaled by degree / number drawn, so that they estimate the full sum without bias, and full neighbourhoods
give exactly the full-graph model. Degrees are those of the whole graph.
"""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from penstock.errors import UsageError
from penstock.feed import Layer
from penstock.records import NodeType
from penstock.train.aggregate import of_aggregated
from penstock.train.convs import Gat, Gcn, Gin, Sage, gcn_matrix, scale
from penstock.train.dropout import dropout
from penstock.train.rows import LearntRows


class GNN(nn.Module):
    """L layers with ReLU and dropout between them.

    Args:
        kind: one of PLAIN_MODELS (`train/config.py`).
        sizes: L + 1 widths: features, hidden ..., outputs.
        rows: that nodes learn in place of features; None: features are given.
        dropout, input_dropout: on the input of every layer but the first, and of the first.
        heads: of attention.
        is_aggregated: features are those of `penstock.aggregate`, and the first layer has no edges: there is a hop less than layers.
    """

    def __init__(
        self,
        kind: str,
        sizes: list[int],
        *,
        dropout: float,
        input_dropout: float,
        heads: int,
        rows: LearntRows | None = None,
        is_aggregated: bool = False,
    ) -> None:
        super().__init__()
        self.kind, self.num_layers, self.is_aggregated = kind, len(sizes) - 1, is_aggregated
        self.dropouts = [input_dropout] + [dropout] * (self.num_layers - 1)
        self.rows = rows
        pairs = list(pairwise(sizes))
        convs = [_make_conv(kind, i == self.num_layers - 1, *pair, sizes[1], dropout, heads) for i, pair in enumerate(pairs)]
        self.convs = nn.ModuleList(convs)

    def table(self, node_type: NodeType) -> LearntRows:
        """The rows that nodes learn."""
        assert self.rows is not None
        return self.rows

    @property
    def needs_degree(self) -> bool:
        """Whether `layer` wants the degrees in the whole graph."""
        return self.kind in ("gcn", "gin")

    def layer(self, i: int, x: Tensor, layer: Layer, degree: Tensor | None = None) -> Tensor:
        """Apply layer i.

        Args:
            x: float[num_src, width of layer i - 1].
            layer: its edges.
            degree: float[num_src], in-degrees in the whole graph, if `needs_degree`.
        Returns:
            float[num_dst, width of layer i], activated unless it is the last layer.
        """
        x = dropout(x, self.dropouts[i], self.training)
        conv, targets = self.convs[i], x[: layer.num_dst]
        if self.kind == "sage":
            x = conv((x, targets), layer.adj_t())
        elif self.kind == "gat":
            x = conv(x, layer.edge_index, size=(layer.num_src, layer.num_dst))
        elif degree is None:
            assert self.needs_degree, f"{self.kind} has no branch here"
            raise UsageError(f"{self.kind} needs the degrees in the whole graph")
        elif self.kind == "gin":
            x = conv((x, targets), layer.adj_t(scale(layer, degree)[layer.edge_index[1]]))
        else:
            assert self.kind == "gcn", f"{self.kind} has no branch here"
            x = conv(x, gcn_matrix(layer, degree))
        if i == self.num_layers - 1:
            return x
        return F.elu(x) if self.kind == "gat" else x.relu_()

    def first(self, x: Tensor) -> Tensor:
        """Apply layer 0, which is not the last, to aggregated features float[n, ...]; returns float[n, width of layer 0]."""
        return of_aggregated(self.convs[0], dropout(x, self.dropouts[0], self.training)).relu_()

    def forward(self, x: Tensor, layers: list[Layer], degree: Tensor | None = None) -> Tensor:
        """Apply all layers; returns float[num_seeds, outputs]."""
        x = self.first(x) if self.is_aggregated else x
        for i, layer in enumerate(layers, start=int(self.is_aggregated)):
            x = self.layer(i, x, layer, None if degree is None else degree[: layer.num_src])
        return x


def _make_conv(kind: str, is_last: bool, width_in: int, width_out: int, between: int, dropout: float, heads: int) -> nn.Module:
    """`between`: the width within a layer of gin, whose last one may have a single output."""
    if kind == "sage":
        return Sage(width_in, width_out)
    if kind == "gcn":
        return Gcn(width_in, width_out, normalize=False, add_self_loops=False)
    if kind == "gin":
        return Gin(nn.Sequential(nn.Linear(width_in, between), nn.ReLU(), nn.Linear(between, width_out)), train_eps=True)
    assert kind == "gat", f"{kind} has no branch here"
    if is_last:
        return Gat(width_in, width_out, heads=1, concat=False, dropout=dropout)
    return Gat(width_in, max(width_out // heads, 1), heads=heads, dropout=dropout)
