"""The last stage before the user: a sampled subgraph and its rows become a PyG batch with every attribute that PyG sets.

Beyond PyG, each edge store carries `row_ptr`: the edges into destination i are `edge_index[:, row_ptr[i]:row_ptr[i + 1]]`.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch_geometric.data import Data, HeteroData

from penstock.feed.fields import Field
from penstock.feed.inputs import Input, RemoteInput
from penstock.feed.subgraph import Subgraph, SubgraphEdges, as_numpy
from penstock.records import EDGE, NODE, Allocator, EdgeType, NodeType


class Assembler:
    """Makes batches of one input.

    Args:
        source: the input; its fields are read when the assembler is made.
    """

    def __init__(self, source: Input) -> None:
        self._source = source
        self._is_homogeneous = source.graph.is_homogeneous
        self.node_fields, self.edge_fields = source.fields()

    def gather(self, subgraph: Subgraph, allocate: Allocator) -> tuple[list[tuple[Field, Any]], int]:
        """Return ([(field, its rows)], bytes moved)."""
        rows, num_bytes = [], 0
        for field in self.node_fields:
            ids = subgraph.nodes.get(cast(NodeType, field.key or NODE))
            ids = torch.empty(0, dtype=torch.int64) if ids is None else ids
            rows.append((field, field.source.gather(as_numpy(ids), allocate)))
            num_bytes += ids.numel() * field.source.row_bytes
        for field in self.edge_fields:
            edges = subgraph.edges.get(cast(EdgeType, field.key or EDGE))
            ids = None if edges is None else edges.positions if field.by_position else edges.edge_ids
            rows.append((field, None if ids is None else field.source.gather(as_numpy(ids), allocate)))
            num_bytes += 0 if ids is None else ids.numel() * field.source.row_bytes
        return rows, num_bytes

    def assemble(self, subgraph: Subgraph, rows: list[tuple[Field, Any]], seed_type: NodeType, input_id: torch.Tensor) -> Data | HeteroData:
        """Put a batch together."""
        batch = self._source.new_batch()
        for node_type in self._source.graph.num_nodes:
            nodes = subgraph.nodes.get(node_type)
            self._set_nodes(self._store(batch, node_type, NODE), node_type, nodes, subgraph)
        for edge_type in self._source.graph.adjacency:
            edges = subgraph.edges.get(edge_type)
            if edges is None:
                nothing = torch.empty(0, dtype=torch.int64)
                edges = SubgraphEdges(nothing.view(2, 0), None, nothing, nothing, None)
            self._set_edges(self._store(batch, edge_type, EDGE), edges)
        for field, value in rows:
            self._store(batch, field.key, None)[field.name] = value
        if isinstance(self._source, RemoteInput):
            self._source.fetch(batch, subgraph.nodes)
        seeds = self._store(batch, seed_type, NODE)
        seeds.input_id, seeds.batch_size = input_id, input_id.numel()
        return batch

    def _store(self, batch: Any, key: Any, homogeneous_key: Any) -> Any:
        return batch if self._is_homogeneous or key == homogeneous_key else batch[key]

    def _set_nodes(self, store: Any, node_type: NodeType, nodes: torch.Tensor | None, subgraph: Subgraph) -> None:
        nodes = torch.empty(0, dtype=torch.int64) if nodes is None else nodes
        if "num_nodes" in store:
            store.num_nodes = nodes.numel()
        store.n_id = nodes
        store.batch = None if subgraph.trees is None else subgraph.trees.get(node_type)
        store.num_sampled_nodes = (subgraph.num_nodes_per_hop or {}).get(node_type)

    def _set_edges(self, store: Any, edges: SubgraphEdges) -> None:
        store.edge_index = edges.edge_index
        store.row_ptr = edges.row_ptr
        store.e_id = edges.edge_ids
        store.num_sampled_edges = edges.num_per_hop
        store._orig_edge_index = edges.original
