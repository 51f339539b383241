"""A graph and its fields as plain arrays, memory-mapped or not: what a store is to the loader.

In: a `Graph` and arrays with one row per node or edge (in CSC order). Out: an input like PyG's `Data` or `HeteroData` with these arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from penstock.feed.fields import PYG_EDGE_NAMES, Field, TensorRows
from penstock.feed.inputs.base import Input, no_such_label
from penstock.feed.inputs.held_out import links_held_out
from penstock.feed.links import ChosenLinks, EdgeEnds, Ends
from penstock.records import EdgeType, Graph, NodeType
from penstock.sample.times import PYG_NAMES, Timestamps, choose_times, store_times, times_are_bfloat16
from penstock.sample.weights import Weights, choose_weights, decoded, store_weights
from penstock.store import Store
from penstock.store.format import BFLOAT16

Arrays = Mapping[Any, Mapping[str, np.ndarray]]

if TYPE_CHECKING:
    from penstock.store.packing import Packed


class ArrayInput(Input):
    """A graph with arrays for fields.

    Args:
        graph: the topology.
        node_arrays: node type -> field -> array[num_nodes, ...].
        edge_arrays: edge type -> field -> array[num_edges, ...] in CSC order.
        split: (part, node type or None) -> int64 ids, for seeds given by the name of a part.
        is_bfloat16: tells of (type, field) whether its uint16 values are bfloat16.
        is_mapped: arrays are files, mapped.
        packed_in: the store whose arrays these are: it may have copies of them whose rows are packed for reads by the page.
    """

    by_position = True

    def __init__(
        self,
        graph: Graph,
        node_arrays: Arrays,
        edge_arrays: Arrays | None = None,
        split: Callable[[str, NodeType | None], np.ndarray] | None = None,
        is_bfloat16: Callable[[Any, str], bool] = lambda key, name: False,
        *,
        is_mapped: bool = False,
        packed_in: Store | None = None,
    ) -> None:
        self.graph, self._node_arrays, self._edge_arrays = graph, node_arrays, edge_arrays or {}
        self._split = split
        self._is_bfloat16 = is_bfloat16
        self.is_mapped = is_mapped
        self._packed_in = packed_in

    def part(self, name: str, node_type: NodeType | None) -> np.ndarray:
        """Nodes of a part of the split."""
        return super().part(name, node_type) if self._split is None else self._split(name, node_type)

    def all_links(self, edge_type: EdgeType) -> tuple[Ends, np.ndarray | None]:
        """All edges in CSC order, numbered as `e_id` says."""
        csc = self.graph.adjacency[edge_type]
        return EdgeEnds(edge_type, csc, self.graph.num_nodes[edge_type[0]], csc.indices), csc.edge_ids

    def fields(self) -> tuple[list[Field], list[Field]]:
        """Every array, under the name PyG gives it."""
        nodes = [self._field(t, name, name, array) for t, arrays in self._node_arrays.items() for name, array in arrays.items()]
        edges = [
            self._field(e, name, PYG_EDGE_NAMES.get(name, name), array)
            for e, arrays in self._edge_arrays.items()
            for name, array in arrays.items()
        ]
        return nodes, edges

    def weights(self, name: str) -> dict[EdgeType, Weights]:
        """The weights of edges of that name, by edge type, in CSC order."""
        fields = {e: {stored: (array, self._is_bfloat16(e, stored)) for stored, array in of.items()} for e, of in self._edge_arrays.items()}
        chosen = choose_weights(fields, name, "the graph")
        return {e: Weights(decoded(*found), name, by_position=True) for e, found in chosen.items()}

    def times(self, name: str) -> Timestamps:
        """The times of that name, of nodes or of edges, the latter in CSC order."""
        of_nodes, of_edges = choose_times(self._node_arrays, self._edge_arrays, name, "the graph", PYG_NAMES)
        stored_as = [*((t, name) for t in of_nodes), *of_edges.items()]
        if any(self._is_bfloat16(key, stored) for key, stored in stored_as):
            raise times_are_bfloat16("the graph", name)
        nodes = {t: self._node_arrays[t][name] for t in of_nodes}
        return Timestamps(nodes, {e: self._edge_arrays[e][stored] for e, stored in of_edges.items()}, name, by_position=True)

    def _field(self, key: NodeType | EdgeType, stored: str, name: str, array: np.ndarray) -> Field:
        source = TensorRows(array, f"{key} {stored}", torch.bfloat16 if self._is_bfloat16(key, stored) else None)
        return Field(None if self.graph.is_homogeneous else key, name, source)

    def packed(self, node_type: NodeType, fields: Sequence[str]) -> Packed | None:
        """Copies of node fields whose rows are packed."""
        if self._packed_in is None:
            return None
        from penstock.store.packing import packed_of  # what makes such copies is not loaded before somebody asks

        return packed_of(self._packed_in, node_type, fields)

    def new_batch(self) -> Data | HeteroData:
        """Return an empty batch; types without fields still count their nodes."""
        if self.graph.is_homogeneous:
            return Data(num_nodes=0)
        batch = HeteroData()
        for node_type in self.graph.num_nodes:
            batch[node_type].num_nodes = 0
        return batch


class StoreFeatures(ArrayInput):
    """The features of a store (`x`), and nothing else of its nodes and edges: what the standard models read.

    Args:
        store: open.
    """

    def __init__(self, store: Store) -> None:
        specs = {t: store.node_fields(t)["x"] for t in store.node_types if "x" in store.node_fields(t)}
        super().__init__(
            store.graph().without_edge_numbers(),
            {t: {"x": store.node_field("x", t)} for t in specs},
            is_bfloat16=lambda t, name: specs[t].dtype == BFLOAT16,
            is_mapped=True,
            packed_in=store,
        )
        self.store = store

    def weights(self, name: str) -> dict[EdgeType, Weights]:
        """The weights of edges of that name, by edge type."""
        return store_weights(self.store, name)

    def edge_field(self, edge_type: EdgeType, name: str) -> Callable[[np.ndarray], torch.Tensor]:
        """Labels of edges, as the store has them; without a sign, of more than 8 bits, as int64."""
        specs = self.store.edge_fields(edge_type)
        if name not in specs:
            raise no_such_label(edge_type, name, specs)
        dtype = torch.bfloat16 if specs[name].dtype == BFLOAT16 else None
        rows = TensorRows(self.store.edge_field(name, edge_type), f"{edge_type} {name}", dtype)

        def read(numbers: np.ndarray) -> torch.Tensor:
            labels = rows.gather(numbers, np.empty)
            return labels.long() if labels.dtype in (torch.uint16, torch.uint32, torch.uint64) else labels

        return read


class StoreInput(ArrayInput):
    """A store on disk.

    Args:
        store: open.
        split: name of the split for seeds given as "train", "val" or "test"; None takes the only one.
    """

    def __init__(self, store: Store, split: str | None = None) -> None:
        graph = store.graph()
        super().__init__(
            graph,
            {t: {name: store.node_field(name, t) for name in store.node_fields(t)} for t in graph.num_nodes},
            {e: {name: store.edge_field(name, e) for name in store.edge_fields(e)} for e in graph.adjacency},
            lambda part, node_type: store.split(part, split, node_type),
            lambda key, name: (store.edge_fields(key) if isinstance(key, tuple) else store.node_fields(key))[name].dtype == "bfloat16",
            is_mapped=True,
            packed_in=store,
        )
        self.store = store

    def has_own_ids(self, node_type: NodeType) -> bool:
        """Whether the user's ids were ingested."""
        return self.store.has_original_ids(node_type)

    @property
    def order_from(self) -> Store:
        """The store."""
        return self.store

    def links_by_name(self, part: str, edge_type: EdgeType | None) -> ChosenLinks:
        """Those that were held out of the graph; "train": all edges of their type."""
        return links_held_out(self, self.store, part, edge_type)

    def weights(self, name: str) -> dict[EdgeType, Weights]:
        """The weights of edges of that name, by edge type."""
        return store_weights(self.store, name)

    def times(self, name: str) -> Timestamps:
        """The times of that name, of nodes or of edges."""
        return store_times(self.store, name)
