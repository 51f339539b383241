"""One interface to PyG's `Data`, `HeteroData` and (FeatureStore, GraphStore), and to our `Store`, for loaders.

In: the user's object. Out: a `Graph`, the fields of a batch, an empty batch, and the seeds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from penstock.errors import InputError, MissingFieldError, NotSupportedError, UsageError, argument
from penstock.feed.fields import Field
from penstock.feed.links import ChosenLinks, Ends, GivenEnds
from penstock.gather import TieredTable
from penstock.records import EDGE, EdgeType, Graph, NodeType
from penstock.sample.seeds import NodeSeeds
from penstock.sample.times import Timestamps, with_times
from penstock.sample.weights import Weights, with_weights

if TYPE_CHECKING:
    from penstock.partition import Book
    from penstock.store.packing import Packed
    from penstock.store.tiers import Elements

PARTS = ("train", "val", "test")
IDS_GIVEN = "input_id must be a vector of whole numbers"
SEEDS_GIVEN = "input_nodes must be a vector of node ids or a boolean mask"


class Input(ABC):
    """What the loader asks of an input.

    Attributes:
        graph: the topology.
        is_mapped: its arrays are mapped files.
        is_whole: there are no features beside its fields; a user's feature store may have others.
        by_position: rows of edge fields are in CSC order (as in a store), not in the order of the user's edge list.
    """

    graph: Graph
    is_mapped = False
    is_whole = True
    by_position = False

    def seeds(self, input_nodes: Any, input_id: Any) -> NodeSeeds:
        """Return the seeds for ids, a mask, a node type or a part of a split; `input_id`: of each in its batch, None: as PyG chooses."""
        node_type, ids, is_mask = self._resolve(input_nodes)
        if input_id is None:
            return NodeSeeds(node_type, ids, ids if is_mask else None)
        numbers = as_seed_ids(_as_tensor(input_id, IDS_GIVEN), IDS_GIVEN)
        if numbers.size != ids.size:
            raise UsageError(f"input_id must have an entry for each of the {ids.size} input nodes, got {numbers.size}")
        return NodeSeeds(node_type, ids, numbers)

    def _resolve(self, input_nodes: Any) -> tuple[NodeType, np.ndarray, bool]:
        """(node type, int64 ids, whether they were given as a mask)."""
        node_type, chosen = self.choose(input_nodes)
        if isinstance(chosen, str):
            if chosen not in PARTS and chosen not in self.graph.num_nodes and len(self.graph.num_nodes) > 1 and node_type is None:
                raise UsageError(f"input_nodes: '{chosen}' is not a node type; the node types are {self.graph.node_types}")
            return node_type or self._only_type(), self.part(chosen, node_type), False
        node_type = node_type or self._only_type()
        if node_type not in self.graph.num_nodes:
            raise UsageError(f"input_nodes: '{node_type}' is not a node type; the node types are {self.graph.node_types}")
        if chosen is None:
            return node_type, np.arange(self.graph.num_nodes[node_type]), False
        if isinstance(chosen, (list, tuple)) and not chosen:
            return node_type, np.empty(0, np.int64), False
        self._refuse_text(node_type, chosen)
        _refuse_mask_of_numbers(chosen, self.graph.num_nodes[node_type])
        values = _as_tensor(chosen, SEEDS_GIVEN)
        is_mask = values.dtype == torch.bool
        if is_mask:
            check_mask(values, self.graph.num_nodes[node_type])
            values = values.nonzero().view(-1)
        return node_type, as_seed_ids(values), is_mask

    def choose(self, input_nodes: Any) -> tuple[NodeType | None, Any]:
        """(node type where it is named, what is chosen of it): ids, a mask, a part, or None for all."""
        if is_pair(input_nodes, self.graph.num_nodes):
            return input_nodes[0], input_nodes[1]
        if isinstance(input_nodes, str) and input_nodes not in PARTS and input_nodes in self.graph.num_nodes:
            return input_nodes, None
        return None, input_nodes

    def part(self, name: str, node_type: NodeType | None) -> np.ndarray:
        """Nodes of a part of the split."""
        raise UsageError(f"input_nodes={name!r}, but there are no splits; give node ids")

    def _only_type(self) -> NodeType:
        if len(self.graph.num_nodes) > 1:
            raise UsageError(f"input_nodes must name a node type, for instance ('{self.graph.node_types[0]}', 'train')")
        return self.graph.node_types[0]

    def has_own_ids(self, node_type: NodeType) -> bool:
        """Whether nodes of a type have ids of the user's, by which a store finds them."""
        return False

    def _refuse_text(self, node_type: NodeType, chosen: Any) -> None:
        """Raise for seeds that are text: at best they are the user's ids."""
        values = np.asarray(chosen).ravel() if hasattr(chosen, "__array__") and not isinstance(chosen, torch.Tensor) else chosen
        may_be_text = values.dtype.kind in "UOT" if isinstance(values, np.ndarray) else isinstance(values, (list, tuple))
        text = next((one for one in values if isinstance(one, str)), None) if may_be_text else None
        if text is None:
            return
        if not self.has_own_ids(node_type):
            raise UsageError(f"input_nodes are whole numbers or a mask, got {str(text)!r}")
        find = "store.find([...])" if len(self.graph.num_nodes) == 1 else f"store.find([...], '{node_type}')"
        raise UsageError(f"input_nodes are numbers of nodes in the store, got {str(text)!r}: {find} gives those of ids of yours")

    def links(self, edge_label_index: Any) -> ChosenLinks:
        """Resolve the user's choice of links."""
        if isinstance(edge_label_index, str):
            return self.links_by_name(edge_label_index, None)
        edge_type, values = self._choose_links(edge_label_index)
        for node_type in (edge_type[0], edge_type[2]):
            if node_type not in self.graph.num_nodes:
                raise UsageError(f"edge_label_index: '{node_type}' is not a node type; the node types are {self.graph.node_types}")
        if isinstance(values, str):
            return self.links_by_name(values, edge_type)
        return self.all_edges(edge_type) if values is None else ChosenLinks(edge_type, as_ends(values))

    def all_edges(self, edge_type: EdgeType) -> ChosenLinks:
        """All edges of a type as links."""
        if edge_type not in self.graph.adjacency:
            raise UsageError(f"edge_label_index: there are no edges {'/'.join(edge_type)}; the edge types are {self.graph.edge_types}")
        ends, numbers = self.all_links(edge_type)
        return ChosenLinks(edge_type, ends, partial(self.edge_field, edge_type), numbers, are_all=True)

    def links_by_name(self, part: str, edge_type: EdgeType | None) -> ChosenLinks:
        """A part of the links of an edge type, or of the only type that has some: "train", its edges, or another, which was held out."""
        raise no_parts_of_links(part)

    @abstractmethod
    def all_links(self, edge_type: EdgeType) -> tuple[Ends, np.ndarray | Elements | None]:
        """All edges of a type, and the user's number of each."""

    def edge_field(self, edge_type: EdgeType, name: str) -> Callable[[np.ndarray], Any]:
        """Return a function that reads rows of an edge field by int64[n] positions in `all_links`; `name`: of the field in a batch."""
        found = {one.name: one.source for one in self.fields()[1] if (one.key or EDGE) == edge_type}
        if name not in found:
            raise no_such_label(edge_type, name, found)
        return lambda numbers: found[name].gather(numbers, np.empty)

    def _choose_links(self, chosen: Any) -> tuple[EdgeType, Any]:
        """(edge type, the ends given or the name of a part; None for all edges)."""
        named, is_name = list(chosen) if isinstance(chosen, (tuple, list)) else [], _is_name(chosen)
        is_pair = len(named) == 2 and (named[0] is None or _is_name(named[0]))
        if self.graph.is_homogeneous:
            if is_name or (is_pair and named[0] is not None):
                raise UsageError("edge_label_index names an edge type, and the graph has but one: give links alone, or None for all edges")
            return EDGE, named[1] if is_pair else chosen
        if not is_name and not (is_pair and named[0] is not None):
            types = self.graph.edge_types
            raise UsageError(f"edge_label_index must name an edge type of a heterogeneous graph: one of {types}, or a pair of it and links")
        name: Any = named if is_name else named[0]
        return self._edge_type(tuple(name)), None if is_name else named[1]

    def _edge_type(self, name: tuple[str, ...]) -> EdgeType:
        """An edge type by its name, or by its ends if only one type joins them; as in PyG, with relation "to" if none does."""
        if len(name) == 3:
            return name
        if len(name) != 2:
            raise UsageError(f"edge_label_index: an edge type is (source, name, target), got {name}")
        found = edge_type_of(name, self.graph.adjacency)
        if len(found) == 2:
            raise UsageError(f"edge_label_index: {name} may mean any of {self.graph.edge_types}: give one of them")
        return found

    @abstractmethod
    def fields(self) -> tuple[list[Field], list[Field]]:
        """Return (node fields, edge fields); read again at every epoch, so that the user may exchange features in between."""

    def own_rows(self) -> list[np.ndarray]:
        """Of a partition: the arrays that rows and lists of this process's part are read from, for others too."""
        return []

    @abstractmethod
    def new_batch(self) -> Data | HeteroData:
        """Return a batch with everything that is neither per node nor per edge."""

    def weights(self, name: str) -> dict[EdgeType, Weights]:
        """Edge type -> the weights of its edges, under that name."""
        raise NotSupportedError(f"weight_attr={name!r}: weights are read from Data, HeteroData and stores only (as in PyG)")

    def weighted(self, name: str) -> Graph:
        """Return the topology with lists that are drawn from by weight."""
        return with_weights(self.graph, self.weights(name))

    @abstractmethod
    def times(self, name: str) -> Timestamps:
        """Return the times of nodes or edges, from the attribute of that name."""

    def timed(self, graph: Graph, times: Timestamps) -> Graph:
        """Return the graph with its lists in the order of these times."""
        return with_times(graph, times)

    def packed(self, node_type: NodeType, fields: Sequence[str]) -> Packed | None:
        """Copies of node fields whose rows are packed for reads by the page; None where there are none."""
        return None

    def tables(self) -> dict[NodeType | EdgeType, TieredTable]:
        """Node or edge type -> fields that are read from somewhere else than arrays of this process."""
        return {}

    @property
    def books(self) -> Mapping[NodeType, Book]:
        """Node type -> which part owns which node; of a partition."""
        return {}

    @property
    def order_from(self) -> Any:
        """What an order that looks at the graph is made from: the graph, or a store, which has labels too."""
        return self.graph


def is_pair(input_nodes: Any, node_types: Iterable[NodeType]) -> bool:
    """Whether seeds are a node type and what is chosen of it, rather than two ids that are text."""
    if not isinstance(input_nodes, (tuple, list)) or len(input_nodes) != 2 or not isinstance(input_nodes[0], str):
        return False
    return not isinstance(input_nodes[1], str) or input_nodes[0] in node_types or input_nodes[1] in PARTS


def no_parts_of_links(part: str) -> UsageError:
    """What to raise where links are asked for by the name of a part, and have none."""
    return UsageError(
        f"edge_label_index={part!r}: links have parts by name in a store that `penstock hold-out` made; give pairs of nodes, [2, n]"
    )


def no_such_label(edge_type: EdgeType, name: str, known: Iterable[str]) -> MissingFieldError:
    """What to raise where edges have no field of that name."""
    fields = ", ".join(map(repr, known)) or "none"
    return MissingFieldError(f"{argument('edge_label', name)}: edges {'/'.join(edge_type)} have no such field; they have {fields}")


def _is_name(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and bool(value) and all(isinstance(part, str) for part in value)


def edge_type_of(name: Any, edge_types: Collection[EdgeType]) -> Any:
    """An edge type by its ends, where these tell; as in PyG by "to" between them, where there are several or none. Else as it is."""
    if not isinstance(name, tuple) or len(name) != 2:
        return name
    known, found = (name[0], "to", name[1]), [e for e in edge_types if (e[0], e[2]) == name]
    return found[0] if len(found) == 1 else known if known in found or not found else name


def as_ends(values: Any) -> GivenEnds:
    """Return links that were given as int[2, n], or raise UsageError."""
    try:
        array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"edge_label_index is no array of node ids: {error}") from None
    if array.ndim != 2 or array.shape[0] != 2 or array.dtype.kind not in "iu":
        raise UsageError(f"edge_label_index must be whole numbers [2, num_links], got {array.dtype} {list(array.shape)}")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return GivenEnds(np.ascontiguousarray(native[0]), np.ascontiguousarray(native[1]))


def as_numbers(value: Any, name: str) -> np.ndarray:
    """The values of a field that is sampled by, whatever holds them."""
    if not isinstance(value, torch.Tensor):
        try:
            return np.asarray(value)
        except ValueError as error:
            raise InputError(f"{name} is no array of numbers: {error}") from error
    if value.is_cuda:
        raise NotSupportedError(f"{name} is on {value.device}: numbers to sample by are read on the CPU; use data.cpu()")
    if value.layout != torch.strided:
        raise InputError(f"{name} is {value.layout}: numbers to sample by are dense; use to_dense()")
    is_narrow = value.is_floating_point() and value.dtype not in (torch.float64, torch.float32, torch.float16)
    return (value.detach().float() if is_narrow else value.detach()).numpy()


def _as_tensor(values: Any, what: str) -> torch.Tensor:
    """Numbers as a tensor on the CPU, or raise UsageError."""
    try:
        if isinstance(values, np.ndarray):
            values = torch.from_numpy(values.astype(values.dtype.newbyteorder("=")))  # a copy: it may be read-only
        return torch.as_tensor(values, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise UsageError(f"{what}, got {values!r:.60}") from None


def _refuse_mask_of_numbers(chosen: Any, num_nodes: int) -> None:
    """Raise for a mask of uint8, which would be taken for the ids of nodes 0 and 1."""
    is_of_bytes = isinstance(chosen, (torch.Tensor, np.ndarray)) and chosen.dtype in (torch.uint8, np.uint8)
    if is_of_bytes and list(chosen.shape) == [num_nodes] and num_nodes > 2 and chosen.max() <= 1:
        raise UsageError("input_nodes is a mask of uint8: give mask.bool(); as ids these would be nodes 0 and 1 alone")


def check_mask(mask: torch.Tensor, num_nodes: int) -> None:
    """Raise unless a mask has an entry for every node."""
    if list(mask.shape) != [num_nodes]:
        raise UsageError(f"input_nodes: a mask has an entry for each of the {num_nodes} nodes, this one is of shape {list(mask.shape)}")


def as_seed_ids(values: torch.Tensor, what: str = SEEDS_GIVEN) -> np.ndarray:
    """Return int64[n] ids, or raise for anything but a vector of integers."""
    if values.dim() != 1 or values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise UsageError(f"{what}, got {values.dtype} {list(values.shape)}")
    return np.ascontiguousarray(values.cpu().numpy(), dtype=np.int64)
