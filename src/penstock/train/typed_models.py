"""The standard models for typed graphs, over PyG layers: one GraphSAGE layer per relation (RGCN's idea), and HGT.

Every node type first comes to a common width: through a linear map of its features, or through an embedding of its own where it has
none. Same `layer` method for training and for inference as in `penstock.train.models`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn
from torch_geometric.nn.module_dict import ModuleDict

from penstock.feed import TypedLayer
from penstock.records import EdgeType, NodeType
from penstock.train.convs import Hgt, Sage
from penstock.train.dropout import dropout
from penstock.train.models import PairHead
from penstock.train.rows import LearntRows


class TypedGNN(nn.Module):
    """L layers of `hidden` width and a linear head.

    Args:
        kind: one of TYPED_MODELS (`train/config.py`).
        widths: node type -> feature width, or None where it has no features.
        make_rows: makes what the nodes of a type without features learn.
        edge_types: of the graph.
        target: node type whose labels are learnt, or that the edges lead to that are.
        source: node type that such edges come from; None: the same, or nodes are learnt.
        hidden, num_outputs, num_layers, heads: as usual.
        dropout, input_dropout: on the input of every layer, and on the features.
        of_pairs: what is said of pairs of seeds; None: nothing.
    """

    def __init__(
        self,
        kind: str,
        widths: dict[NodeType, int | None],
        make_rows: Callable[[NodeType], LearntRows],
        edge_types: list[EdgeType],
        target: NodeType,
        source: NodeType | None = None,
        *,
        hidden: int,
        num_outputs: int,
        num_layers: int,
        dropout: float,
        input_dropout: float,
        heads: int,
        of_pairs: PairHead | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.target = target
        self.hidden = hidden
        self.num_layers = num_layers
        self.dropout, self.input_dropout = dropout, input_dropout
        self.inputs = nn.ModuleDict({_safe(t): make_rows(t) if width is None else nn.Linear(width, hidden) for t, width in widths.items()})
        metadata = ([_safe(t) for t in widths], [_safe_ends(e) for e in edge_types])
        if kind == "hgt":
            self.convs = nn.ModuleList([Hgt(hidden, hidden, metadata, heads) for _ in range(num_layers)])
        else:
            assert kind == "rgcn", f"{kind} has no branch here"
            self._names = _names(edge_types)
            convs = [{name: Sage(hidden, hidden) for name in self._names.values()} for _ in range(num_layers)]
            self.convs = nn.ModuleList(map(nn.ModuleDict, convs))
        self.head = nn.Linear(hidden, num_outputs)
        self.source, self.source_head = source, None if source in (None, target) else nn.Linear(hidden, num_outputs)
        self.of_pairs = of_pairs

    def table(self, node_type: NodeType) -> LearntRows:
        """The rows that nodes of a type without features learn."""
        return cast(LearntRows, self.inputs[_safe(node_type)])

    def encode(self, node_type: NodeType, x: Tensor) -> Tensor:
        """Bring features to the common width, which rows that are learnt have."""
        encoder = self.inputs[_safe(node_type)]
        return x if isinstance(encoder, LearntRows) else encoder(dropout(x, self.input_dropout, self.training)).relu()

    def layer(self, i: int, x: dict[NodeType, Tensor], layer: TypedLayer) -> dict[NodeType, Tensor]:
        """Apply layer i to float[num_src, hidden] per node type; returns float[num_dst, hidden] per node type."""
        x = {t: dropout(rows, self.dropout, self.training) for t, rows in x.items()}
        if self.kind == "hgt":
            safe = {_safe(t): rows for t, rows in x.items()}
            num_dst = {_safe(t): count for t, count in layer.num_dst.items()}
            mixed = self.convs[i](safe, {_safe_ends(e): edges.edge_index for e, edges in layer.edges.items()}, num_dst)
            return {t: _cut(mixed.get(_safe(t)), x[t], count).relu() for t, count in layer.num_dst.items()}
        sums: dict[NodeType, Tensor] = {}
        for edge_type, edges in layer.edges.items():
            src, _, dst = edge_type
            conv = cast(nn.ModuleDict, self.convs[i])[self._names[edge_type]]
            message = conv((x[src], x[dst][: edges.num_dst]), edges.adj_t())
            sums[dst] = sums[dst] + message if dst in sums else message
        return {t: _cut(sums.get(t), x[t], count).relu() for t, count in layer.num_dst.items()}

    def last(self, x: Tensor, node_type: NodeType | None = None) -> Tensor:
        """float[n, num_outputs] from the last layer's rows of a type that has outputs; None: the target."""
        head = self.head if self.source_head is None or node_type in (None, self.target) else self.source_head
        return head(dropout(x, self.dropout, self.training))

    def forward(self, x: dict[NodeType, Tensor], layers: list[TypedLayer]) -> Tensor:
        """Apply everything; `x` as for `encode`. Returns float[num_seeds, num_outputs] of the target type."""
        return self.last(self.hidden_rows(x, layers)[self.target])

    def hidden_rows(self, x: dict[NodeType, Tensor], layers: list[TypedLayer]) -> dict[NodeType, Tensor]:
        """Apply everything but `last`; `x` as for `encode`. Returns float[num_seeds, hidden] per node type."""
        x = {t: self.encode(t, rows) for t, rows in x.items()}
        for i, layer in enumerate(layers):
            x = self.layer(i, x, layer)
        return x


def _names(edge_types: list[EdgeType]) -> dict[EdgeType, str]:
    """A name for each, with its number where joined names are equal."""
    names: dict[EdgeType, str] = {}
    for i, edge_type in enumerate(edge_types):
        name = _safe("__".join(edge_type))
        names[edge_type] = f"{name}__{i}" if name in names.values() else name
    return names


def _safe(name: str) -> str:
    """A type's name as a module can have it: without dots, and not that of a method of dictionaries; most names stay."""
    return ModuleDict.to_internal_key(name)


def _safe_ends(edge_type: EdgeType) -> EdgeType:
    return _safe(edge_type[0]), edge_type[1], _safe(edge_type[2])


def _cut(mixed: Tensor | None, before: Tensor, count: int) -> Tensor:
    """The first `count` rows; a type that no edge enters keeps what it has."""
    return (before if mixed is None else mixed)[:count]
