"""A sample on a device: `penstock.records.Sample`, made of tensors.

In: tensors of a `DeviceRun`. Out: these tensors; arrays in host memory; or the form that is sent to another process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from penstock.records import EdgeType, Graph, NodeType, Sample, SampledEdges, index_dtype
from penstock.store.tiers.pinned import to_host


@dataclass(slots=True)
class DeviceEdges:
    """`penstock.records.SampledEdges`, made of tensors. `edge_index` and `positions` share their memory."""

    edge_index: torch.Tensor
    row_ptr: torch.Tensor
    positions: torch.Tensor
    num_per_hop: list[int]


@dataclass(slots=True)
class DeviceSample:
    """`penstock.records.Sample`, made of tensors on a device. `num_left_out`: number of drawn edges that were taken out of the sample."""

    nodes: dict[NodeType, torch.Tensor]
    edges: dict[EdgeType, DeviceEdges]
    num_nodes_per_hop: dict[NodeType, list[int]]
    trees: dict[NodeType, torch.Tensor] | None = None
    num_left_out: int = 0

    def to_host(self) -> Sample:
        """The same sample in host memory, as arrays."""
        edges = {e: (each.edge_index, each.row_ptr, each.positions) for e, each in self.edges.items()}
        return self._on_host(edges)

    def for_wire(self, graph: Graph) -> Sample:
        """The part of the sample that `penstock.sample.factored.wire` sends, in host memory. The device converts numbers to 32 bits where
        they fit. Destinations are not copied, since they follow from the rest. `graph`: the graph of the sample."""

        def narrow(values: torch.Tensor, most: int) -> torch.Tensor:
            return values.to(torch.int32 if index_dtype(most) is np.int32 else torch.int64)

        edges = {}
        for e, each in self.edges.items():
            sources = narrow(each.edge_index[:1], self.nodes[e[0]].numel())
            row_ptr = narrow(each.row_ptr, sources.numel())
            edges[e] = sources, row_ptr, narrow(each.positions, graph.adjacency[e].num_edges)
        return self._on_host(edges)

    def _on_host(self, edges: dict[EdgeType, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> Sample:
        trees = self.trees or {}
        arrays = iter(to_host(*self.nodes.values(), *trees.values(), *(each for parts in edges.values() for each in parts)))
        nodes, trees = ({t: next(arrays) for t in each} for each in (self.nodes, trees))
        found = {e: SampledEdges(next(arrays), next(arrays), next(arrays), each.num_per_hop) for e, each in self.edges.items()}
        return Sample(nodes, found, self.num_nodes_per_hop, trees or None)
