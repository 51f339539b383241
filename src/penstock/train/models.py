"""The standard models for homogeneous graphs: PyG layers, fed layer by layer with what each needs (see `penstock.layers`).

In: features of a batch and its layers. Out: one row per seed. The same `layer` method serves training on samples and inference over
the whole graph, one layer at a time.
Sampled sums (GCN, GIN) are scaled by degree / number drawn, so that they estimate the full sum without bias, and full neighbourhoods
give exactly the full-graph model. Degrees are those of the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from penstock.errors import UsageError
from penstock.feed import Layer
from penstock.records import NodeType
from penstock.train.aggregate import of_aggregated
from penstock.train.convs import Gat, Gcn, Gin, Sage, gcn_matrix, scale
from penstock.train.dropout import dropout
from penstock.train.rows import LearntRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is special about a kind of model.

    Attributes:
        make: (width in, width out, width of hidden layers, whether it is the last layer, dropout of attention, heads) -> a layer that is
            called like PyG's.
        apply: (such a layer, float[num_src, width in], the edges, degrees) -> float[num_dst, width out]; degrees as of `GNN.layer`.
        activate: follows every layer but the last.
        needs_degree: whether `apply` wants the degrees in the whole graph.
    """

    make: Callable[[int, int, int, bool, float, int], nn.Module]
    apply: Callable[[Any, Tensor, Layer, Any], Tensor]
    activate: Callable[[Tensor], Tensor] = torch.relu_
    needs_degree: bool = False


def _make_gat(width_in: int, width_out: int, hidden: int, is_last: bool, dropout: float, heads: int) -> Gat:
    if is_last:
        return Gat(width_in, width_out, heads=1, concat=False, dropout=dropout)
    return Gat(width_in, max(width_out // heads, 1), heads=heads, dropout=dropout)


def _make_gin(width_in: int, width_out: int, hidden: int, *_: Any) -> Gin:
    """The last layer too has the hidden width within: it may have a single output."""
    return Gin(nn.Sequential(nn.Linear(width_in, hidden), nn.ReLU(), nn.Linear(hidden, width_out)), train_eps=True)


KINDS = {
    "sage": Kind(
        make=lambda width_in, width_out, *_: Sage(width_in, width_out),
        apply=lambda conv, x, layer, _: conv((x, x[: layer.num_dst]), layer.adj_t()),
    ),
    "gcn": Kind(
        make=lambda width_in, width_out, *_: Gcn(width_in, width_out, normalize=False, add_self_loops=False),
        apply=lambda conv, x, layer, degree: conv(x, gcn_matrix(layer, degree)),
        needs_degree=True,
    ),
    "gat": Kind(
        make=_make_gat,
        apply=lambda conv, x, layer, _: conv(x, layer.edge_index, size=(layer.num_src, layer.num_dst)),
        activate=F.elu,
    ),
    "gin": Kind(
        make=_make_gin,
        apply=lambda conv, x, layer, degree: conv((x, x[: layer.num_dst]), layer.adj_t(scale(layer, degree)[layer.edge_index[1]])),
        needs_degree=True,
    ),
}
"""Names of PLAIN_MODELS (`train/config.py`) -> what they are."""


class PairHead(nn.Module):
    """What is said of a pair of nodes by the rows of both: a hidden layer over the two.

    Args:
        width: of a row. num_outputs: of what is said. dropout: of the hidden layer.
    """

    def __init__(self, width: int, num_outputs: int, dropout: float) -> None:
        super().__init__()
        self.mix, self.last, self.dropout = nn.Linear(2 * width, width), nn.Linear(width, num_outputs), dropout

    def forward(self, sources: Tensor, targets: Tensor) -> Tensor:
        """float[n, num_outputs] from float[n, width] of either end."""
        mixed = self.mix(torch.cat([sources, targets], dim=1)).relu()
        return self.last(dropout(mixed, self.dropout, self.training))


class GNN(nn.Module):
    """L layers with ReLU and dropout between them.

    Args:
        kind: one of KINDS.
        sizes: L + 1 widths: features, hidden ..., outputs.
        rows: that nodes learn in place of features; None: features are given.
        dropout, input_dropout: on the input of every layer but the first, and of the first.
        heads: of attention.
        is_aggregated: features are those of `penstock.aggregate`, and the first layer has no edges: there is a hop less than layers.
        of_pairs: what is said of pairs of seeds; None: nothing.
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
        of_pairs: PairHead | None = None,
    ) -> None:
        super().__init__()
        self.kind, self.num_layers, self.is_aggregated = kind, len(sizes) - 1, is_aggregated
        self.dropouts = [input_dropout] + [dropout] * (self.num_layers - 1)
        self.rows = rows
        pairs = list(pairwise(sizes))
        last = self.num_layers - 1
        self.convs = nn.ModuleList([KINDS[kind].make(*pair, sizes[1], i == last, dropout, heads) for i, pair in enumerate(pairs)])
        self.of_pairs = of_pairs

    def table(self, node_type: NodeType) -> LearntRows:
        """The rows that nodes learn."""
        assert self.rows is not None
        return self.rows

    @property
    def needs_degree(self) -> bool:
        """Whether `layer` wants the degrees in the whole graph."""
        return KINDS[self.kind].needs_degree

    def layer(self, i: int, x: Tensor, layer: Layer, degree: Tensor | None = None) -> Tensor:
        """Apply layer i.

        Args:
            x: float[num_src, width of layer i - 1].
            layer: its edges.
            degree: float[num_src], in-degrees in the whole graph, if `needs_degree`.
        Returns:
            float[num_dst, width of layer i], activated unless it is the last layer.
        """
        if self.needs_degree and degree is None:
            raise UsageError(f"{self.kind} needs the degrees in the whole graph")
        kind = KINDS[self.kind]
        x = kind.apply(self.convs[i], dropout(x, self.dropouts[i], self.training), layer, degree)
        return x if i == self.num_layers - 1 else kind.activate(x)

    def first(self, x: Tensor) -> Tensor:
        """Apply layer 0, which is not the last, to aggregated features float[n, ...]; returns float[n, width of layer 0]."""
        return of_aggregated(self.convs[0], dropout(x, self.dropouts[0], self.training)).relu_()

    def forward(self, x: Tensor, layers: list[Layer], degree: Tensor | None = None) -> Tensor:
        """Apply all layers; returns float[num_seeds, outputs]."""
        x = self.first(x) if self.is_aggregated else x
        for i, layer in enumerate(layers, start=int(self.is_aggregated)):
            x = self.layer(i, x, layer, None if degree is None else degree[: layer.num_src])
        return x
