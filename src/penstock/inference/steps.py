"""A model as steps over the whole graph, and the loop over the steps.

In: an input, and functions of a batch, one per layer. Out: the rows of the last layer, of the requested nodes. Invariant: each node's row
of each layer is computed at most once, from the rows of all its neighbours. `needed.py` says which rows are needed, `shelves.py` stores
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from penstock.errors import UsageError
from penstock.feed import NeighborLoader
from penstock.feed.fields import Field, TensorRows
from penstock.feed.inputs import Input
from penstock.feed.layers import note_edges
from penstock.feed.links import Ends
from penstock.inference.shelves import Shelf
from penstock.plan import Plan
from penstock.records import CSC, NODE, EdgeType, Graph, NodeType
from penstock.sample.seeds import NodeSeeds
from penstock.sample.times import Timestamps
from penstock.store.process_memory import free_in_container
from penstock.store.tiers import Elements

if TYPE_CHECKING:
    from penstock.inference.needed import Needed

BATCH_BYTES = 128 << 20
"""Approximate bytes of rows that a batch of all neighbours reads; several batches are under way."""

PLENTY = 64
"""If the container has room for this many batches, no step is tried first."""
BATCHES_LEFT = 16
"""Batches for which a container must have room: those under way, and what a step makes of one."""

Step = Callable[[Any], Any]
"""A batch whose seeds come first and have all their neighbours, and whose `x` is the result of the step before -> a row for each seed,
possibly followed by more rows. In typed graphs, the seeds' type is the one with a `batch_size`; a dictionary by node type may be
returned."""


@dataclasses.dataclass(frozen=True, slots=True)
class OfRows:
    """A step that reads only a node's own row: an encoder before the first layer, or a classifier after the last.

    Attributes:
        function: like any step; the batch has no edges.
    """

    function: Step

    def __call__(self, batch: Any) -> Any:
        """Apply the function."""
        return self.function(batch)


class WithRows(Input):
    """An input with other node features.

    Args:
        base: the original input.
        rows: node type -> [num_nodes, ...], the `x` of batches; other types have none. None: the original features.
        names: fields of nodes and edges in batches; None: all.
        has_edges: False: only nodes.
    """

    def __init__(self, base: Input, rows: Mapping[NodeType, np.ndarray] | None, names: Sequence[str] | None, *, has_edges: bool = True):
        self._base, self._rows, self._names = base, rows, names
        self.graph = base.graph
        self.is_mapped = base.is_mapped
        self.is_whole = base.is_whole
        self.by_position = base.by_position
        self._has_edges = has_edges
        if not has_edges:
            self.graph = without_edges(self.graph)
        given, left = ({(one.key, one.name) for fields in each.fields() for one in fields} for each in (base, self))
        self._left_out = given - left

    def seeds(self, input_nodes: Any, input_id: torch.Tensor | None) -> NodeSeeds:
        """Those of the base."""
        return self._base.seeds(input_nodes, input_id)

    def all_links(self, edge_type: EdgeType) -> tuple[Ends, np.ndarray | Elements | None]:
        """Those of the base."""
        return self._base.all_links(edge_type)

    def times(self, name: str) -> Timestamps:
        """Those of the base."""
        return self._base.times(name)

    def new_batch(self) -> Any:
        """Return the batch of the base without fields that are left out, which it may have as a whole."""
        batch: Any = self._base.new_batch()
        for key, name in self._left_out:
            place: Any = batch if key is None else batch[key]
            if name in place:
                del place[name]
        return batch

    def packed(self, node_type: NodeType, fields: Sequence[str]) -> Any:
        """Return the packed copies of the base, if its own features are read."""
        return self._base.packed(node_type, fields) if self._rows is None else None

    def fields(self) -> tuple[list[Field], list[Field]]:
        """Return the selected fields of the base, and the rows."""
        of_nodes, of_edges = self._base.fields()
        names = self._names
        nodes = [one for one in of_nodes if names is None or one.name in names]
        edges = [one for one in of_edges if names is None or one.name in names] if self._has_edges else []
        if self._rows is not None:
            nodes = [one for one in nodes if one.name != "x"]
            for t, rows in self._rows.items():
                nodes.append(Field(None if self.graph.is_homogeneous else t, "x", TensorRows(rows, f"rows of {t}")))
        return nodes, edges


def without_edges(graph: Graph) -> Graph:
    """Return the graph with its nodes only."""
    empty = {
        e: CSC(np.zeros(graph.num_nodes[e[2]] + 1, np.int64), np.empty(0, np.int32), None) for e in graph.adjacency
    }  # zeros that are never touched take no memory
    return dataclasses.replace(graph, adjacency=empty)


def num_rows(graph: Graph, steps: Sequence[Step], num_wanted: int) -> int:
    """Return the number of rows that all steps together compute, if they are computed for all nodes."""
    return sum(graph.num_nodes.values()) * (len(steps) - 1) + num_wanted


def run(
    base: Input,
    steps: Sequence[Step],
    needed: Needed,
    shelf: Shelf,
    *,
    names: Sequence[str] | None = None,
    batch_size: int | None = None,
    plan: Plan | None = None,
    num_workers: int = 0,
    device: torch.device | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> np.ndarray:
    """Apply all steps, one after the other.

    Args:
        base: the graph and its features.
        steps: one per layer.
        needed: from `find_needed`: the nodes for which each step is computed.
        shelf: stores the rows of each step; may have some from an earlier process.
        names: fields in batches besides the rows; None: all.
        batch_size: in nodes; None: depends on the width of the rows that a step reads, and the mean degree.
        plan, num_workers: as for a loader.
        device: where the steps compute; batches are made on the CPU and moved there one by one.
        advance: called with numbers of rows done, `needed.num_rows` in all, including existing ones.
    Returns:
        The rows of the last step [n, ...].
    """
    target = needed.wanted[0]
    rows = shelf.begun()
    for number, step in enumerate(steps):
        is_last, counts = number == len(steps) - 1, needed.counts[number]
        if number < shelf.num_done:
            advance(sum(counts.values()))
            continue
        source = WithRows(base, rows, names, has_edges=not isinstance(step, OfRows))
        loading = {"plan": _plan_of(plan, base.graph, counts), "num_workers": num_workers, "seed": 0}
        for node_type, count in counts.items():
            passed = num_there = shelf.num_rows(number, node_type)
            advance(num_there)
            ids = needed.nodes(number, node_type)
            places, room = (np.arange(count), count) if is_last else (ids, base.graph.num_nodes[node_type])
            size = num_nodes_of_batch(source, node_type) if batch_size is None else batch_size
            for made, num_seeds in outputs(source, step, number, (node_type, ids[num_there:]), device, batch_size=size, **loading):
                if made is not None:
                    shelf.append(number, node_type, made, places[passed : passed + num_seeds], room, is_sparse=count < room)
                passed += num_seeds
                if shelf.num_rows(number, node_type) not in (0, passed):
                    raise UsageError(
                        f"layer {number} gives rows for some batches of {node_type!r} and nothing for others: it must for all, or for none"
                    )
                advance(num_seeds)
        rows = {t: shelf.rows(number, t) for t in counts if shelf.num_rows(number, t)}
        if target not in rows:
            raise UsageError(f"layer {number} gives nothing for nodes of {target!r}, whose rows are wanted")
        shelf.step_done(number)
    assert rows is not None
    return rows[target]


def _plan_of(plan: Plan | None, graph: Graph, counts: Mapping[NodeType, int]) -> Plan | None:
    """Return the plan of a step. If it is computed for fewer than half of the nodes, maps are not copied into huge pages, most of which
    would not be read."""
    if 2 * sum(counts.values()) >= sum(graph.num_nodes.values()) or (plan is not None and plan.host_memory is not None):
        return plan
    return dataclasses.replace(Plan() if plan is None else plan, huge_pages=False)


def outputs(
    source: WithRows, step: Step, number: int, wanted: tuple[NodeType, np.ndarray], device: torch.device | None, **loading: Any
) -> Iterator[tuple[np.ndarray | None, int]]:
    """Yield (rows, number of nodes) batch after batch, in the order of the nodes: the result of a step for nodes of a type (NumPy,
    C-contiguous), or None if it returns nothing. Arguments as for `run`; `loading`: arguments of the loader."""
    node_type, ids = wanted
    if not ids.size:
        return
    plan, is_homogeneous = loading["plan"], source.graph.is_homogeneous
    hops = [] if isinstance(step, OfRows) else [-1]
    left = free_in_container()
    is_tried = (plan is not None and plan.host_memory is not None) or (left is not None and left < PLENTY * BATCH_BYTES)
    tried = torch.no_grad()(lambda batch: step(moved(batch, device))) if is_tried else None
    for batch in NeighborLoader(source, hops, input_nodes=ids if is_homogeneous else wanted, step=tried, **loading):
        count = (batch if is_homogeneous else batch[node_type]).batch_size
        rows = rows_of_seeds(step(moved(batch, device)), node_type, count, number)
        del batch  # its memory is reused by another batch while the rows are written
        yield rows, count


def moved(batch: Any, device: torch.device | None) -> Any:
    """Return a batch moved to the model's device, marked as having the loader's edges, so that they need not be compared there."""
    if device is not None and device.type != "cpu":
        batch = batch.to(device)
        note_edges(batch)
    return batch


def rows_of_seeds(given: Any, node_type: NodeType, count: int, number: int) -> np.ndarray | None:
    """Return the rows of the seeds from the result of a step."""
    if isinstance(given, Mapping):
        given = given.get(node_type)
    if given is None:
        return None
    if isinstance(given, torch.Tensor):
        given = given.detach()
        given = (given.float() if given.dtype == torch.bfloat16 else given).cpu().numpy()
    if not isinstance(given, np.ndarray) or given.ndim == 0 or len(given) < count:
        what = f"{given.dtype} {list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
        raise UsageError(f"layer {number} must give a row for each of the {count} seeds of a batch, which come first; got {what}")
    return np.ascontiguousarray(given[:count])


def num_nodes_of_batch(source: WithRows, node_type: NodeType) -> int:
    """Return the nodes per batch, by the fields in it."""
    of_nodes, _ = source.fields()
    row_bytes = {t: sum(one.source.row_bytes for one in of_nodes if (one.key or NODE) == t) for t in source.graph.num_nodes}
    return num_nodes_by_bytes(source.graph, row_bytes, node_type)


def num_nodes_by_bytes(graph: Graph, row_bytes: Mapping[NodeType, int], node_type: NodeType) -> int:
    """Return how many nodes of a type read `BATCH_BYTES` with their neighbours, assuming mean degrees and no shared neighbours; fewer if
    the container around this process has little memory left."""
    read = sum(csc.num_edges * row_bytes[src] for (src, _, dst), csc in graph.adjacency.items() if dst == node_type)
    per_node = row_bytes[node_type] + read // max(graph.num_nodes[node_type], 1)
    left = free_in_container()
    batch_bytes = BATCH_BYTES if left is None else min(BATCH_BYTES, left // BATCHES_LEFT)
    return min(max(batch_bytes // max(per_node, 1), 64), 4096)
