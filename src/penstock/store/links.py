"""Links that were held out of a graph, as they lie beside it: in a store, or in each part of a partition of one.

In: a manifest whose edge types may have some. Out: their ends, and what else is known of them, as maps. Nothing is copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from penstock.errors import UsageError, argument, damaged, listed, pick
from penstock.records import EdgeType
from penstock.store.format import ENDS, ArraySpec


class HasLinks(ABC):
    """A store, or a part of a partition.

    Attributes:
        path: of its folder.
        manifest: its description; `edges` is edge type -> an entry with the number of edges and the links.
    """

    path: Path
    manifest: Any

    @abstractmethod
    def map(self, spec: ArraySpec) -> np.ndarray:
        """Return the map of one array."""

    @property
    @abstractmethod
    def held_out(self) -> Mapping[str, Any]:
        """Edge type, its names joined by "/" -> how links were held out of it (see `penstock.hold_out`)."""

    def link_parts(self, edge_type: EdgeType | None = None) -> list[str]:
        """Return the parts of the edges that were held out of the graph ("val", "test"), if there are any. None: the only type that has
        some."""
        return list(self._links(edge_type))

    def links(self, part: str, edge_type: EdgeType | None = None) -> np.ndarray:
        """Return the links of one part, which are edges that were held out of the graph (see `penstock.hold_out`).

        Args:
            part: "val", "test" or another that the store has.
            edge_type: None takes the only type that has links.
        Returns:
            int64[2, n]: source and target of each. Takes 16 bytes per link.
        """
        return np.stack([self.link_field(end, part, edge_type).astype(np.int64) for end in ENDS])

    def link_fields(self, part: str, edge_type: EdgeType | None = None) -> Mapping[str, ArraySpec]:
        """Return name -> dtype, shape and properties of what is known of each link of a part: `src`, `dst`, `edge_id` if the store keeps
        it, and the fields of the edges. None: the only type that has links."""
        where = f"{self.path}: edge type {edge_type or self.type_with_links()!r}"
        return MappingProxyType(pick(self._links(edge_type), part, where, "part of links"))

    def link_field(self, name: str, part: str, edge_type: EdgeType | None = None) -> np.ndarray:
        """Return the map of a field of the links of a part: [n, ...]; bfloat16 as uint16 bits. None: the only type that has links."""
        where = f"{self.path}: links {part!r} of {edge_type or self.type_with_links()!r}"
        return self.map(pick(self.link_fields(part, edge_type), name, where))

    def link_ends(self, part: str, edge_type: EdgeType | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the maps of the sources and of the targets of the links of a part, after looking that all are nodes: CorruptStoreError.
        None: the only type that has links."""
        edge_type = edge_type or self.type_with_links()
        sources, targets = (self.link_field(end, part, edge_type) for end in ENDS)
        for ids, node_type in ((sources, edge_type[0]), (targets, edge_type[2])):
            count = self.manifest.nodes[node_type].num_nodes
            if ids.size and not 0 <= ids.min() <= ids.max() < count:
                what = f"part {part!r} of {'/'.join(edge_type)} has ends outside the {count} nodes of '{node_type}'"
                raise damaged(f"links of {self.path}", what)
        return sources, targets

    def types_with_links(self) -> list[EdgeType]:
        """Return the edge types of which links were held out."""
        return [e for e, entry in self.manifest.edges.items() if entry.links]

    def type_with_links(self) -> EdgeType:
        """Return the only edge type of which links were held out; if there are none, the only edge type."""
        candidates = self.types_with_links() or list(self.manifest.edges)
        if len(candidates) != 1:
            raise UsageError(f"{self.path}: several edge types could have links, name one of {listed(candidates)}")
        return candidates[0]

    def edges_learnt(
        self, named: str | None, by: str, *, split: str | None, edge_label: str | None, are_held_out: bool = True
    ) -> EdgeType | None:
        """Return the edge type whose links, or labels of edges, are learnt; None: labels of nodes are.

        Args:
            named: a node type, or "source,name,target"; None: the only type that links were held out of, if there is one.
            by: the setting that names it. split, edge_label: other settings, which go with nodes or with edges alone.
            are_held_out: a type that is named must be one that links were held out of.
        Raises:
            UsageError: there is no such type, or one must be named; settings that do not go with what is learnt.
        """
        node_types, known = self.manifest.nodes, self.types_with_links()
        as_text = lambda types: " or ".join(map(",".join, types)) or "none"  # noqa: E731
        if named in node_types:
            if edge_label is None:
                return None
            raise UsageError(f"{argument('edge_label')} is of edges, and {argument(by, named)} is a node type: name an edge type")
        if named is None and not known:
            if edge_label is None:
                return None
            raise UsageError(
                f"{argument('edge_label')} is learnt of edges of which some were held out: make such a store of {self.path} first "
                "(`penstock hold-out`)"
            )
        if named is None and len(known) > 1:
            raise UsageError(f"links were held out of several edge types of {self.path}, choose one by {argument(by)}: {as_text(known)}")
        found: Any = known[0] if named is None else tuple(part.strip() for part in named.split(","))
        known = known if are_held_out else list(self.manifest.edges)
        if found not in known:
            raise UsageError(
                f"{argument(by, named)} is not a node type of {self.path}, which are {', '.join(node_types)}, nor an edge type"
                f"{' that links were held out of' * are_held_out}, which are {as_text(known)}"
            )
        if split is not None:
            raise UsageError(f"{argument('split', split)} is of nodes, and edges are learnt, which have one split: leave it out")
        return found

    def reverses_left_out(self, edge_type: EdgeType) -> list[EdgeType]:
        """Return the edge types of which the reverses of links were left out, too, but for the type itself."""
        known = self.held_out.get("/".join(edge_type), {})
        return [(source, name, target) for source, name, target in known.get("reverse", [])]

    def _links(self, edge_type: EdgeType | None) -> Mapping[str, Mapping[str, ArraySpec]]:
        return pick(self.manifest.edges, tuple(edge_type or self.type_with_links()), str(self.path), "edge type").links
