"""A model cut into steps over the whole graph, and the loop over them.

In: an input, functions of a batch, one for each layer. Out: the rows that the last one gives, of the nodes that are wanted. Invariant: each
node's row of each layer is computed once at most, from the rows of all its neighbours. Which are is told (`needed.py`); where the rows lie
is the shelf's affair (`shelves.py`).
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
"""Rows that a batch of all neighbours reads, about; several batches are under way."""

PLENTY = 64
"""Batches, for which there is room without a trial."""
BATCHES_LEFT = 16
"""Batches that a container has room for: those under way, and what a step makes of one."""

Step = Callable[[Any], Any]
"""A batch, of which seeds come first and have all their neighbours, and whose `x` is what the step before gave -> a row for each seed,
maybe more after these. Typed graphs: the seeds' type is the one with a `batch_size`; a dictionary by node type will do."""


@dataclasses.dataclass(frozen=True, slots=True)
class OfRows:
    """A step that looks at a node's own row alone: an encoder before the first layer, a classifier after the last.

    Attributes:
        function: as any step; the batch has no edges.
    """

    function: Step

    def __call__(self, batch: Any) -> Any:
        """Apply the function."""
        return self.function(batch)


class WithRows(Input):
    """An input whose nodes have other features.

    Args:
        base: what it was.
        rows: node type -> [num_nodes, ...], `x` of the batches; types that are not named have none. None: as they were.
        names: fields of nodes and edges that batches carry; None: all of them.
        has_edges: False: nodes alone.
    """

    def __init__(self, base: Input, rows: Mapping[NodeType, np.ndarray] | None, names: Sequence[str] | None, *, has_edges: bool = True):
        self._base, self._rows, self._names = base, rows, names
        self.graph, self.is_mapped, self.is_whole, self.by_position = base.graph, base.is_mapped, base.is_whole, base.by_position
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
        """That of the base, without the fields that are left out: it may have them whole."""
        batch: Any = self._base.new_batch()
        for key, name in self._left_out:
            place: Any = batch if key is None else batch[key]
            if name in place:
                del place[name]
        return batch

    def packed(self, node_type: NodeType, fields: Sequence[str]) -> Any:
        """Copies of the base's features, as long as it is these that are read."""
        return self._base.packed(node_type, fields) if self._rows is None else None

    def fields(self) -> tuple[list[Field], list[Field]]:
        """Those of the base that are wanted, and the rows."""
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
    """Its nodes."""
    empty = {
        e: CSC(np.zeros(graph.num_nodes[e[2]] + 1, np.int64), np.empty(0, np.int32), None) for e in graph.adjacency
    }  # zeros that nobody reads are not in memory
    return dataclasses.replace(graph, adjacency=empty)


def num_rows(graph: Graph, steps: Sequence[Step], num_wanted: int) -> int:
    """Rows that all steps together compute, where they are computed for all nodes."""
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
        steps: one for each layer.
        needed: what `find_needed` says of these: the nodes that each step is computed for.
        shelf: where the rows of each step are put, and which are there from before.
        names: fields that batches carry besides the rows; None: all.
        batch_size: in nodes; None goes by the width of the rows that a step reads, and the mean degree.
        plan, num_workers: as of a loader.
        device: where the steps compute; batches are made on the CPU and moved there one by one.
        advance: told of rows done, `needed.num_rows` in all; also of those that were there.
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
    """The plan of a step; of one for fewer than half of the nodes, maps stay maps: whole copies in huge pages would be mostly unread."""
    if 2 * sum(counts.values()) >= sum(graph.num_nodes.values()) or (plan is not None and plan.host_memory is not None):
        return plan
    return dataclasses.replace(Plan() if plan is None else plan, huge_pages=False)


def outputs(
    source: WithRows, step: Step, number: int, wanted: tuple[NodeType, np.ndarray], device: torch.device | None, **loading: Any
) -> Iterator[tuple[np.ndarray | None, int]]:
    """Yield what a step gives for nodes of a type (NumPy, C-contiguous), None for nothing, and how many they are, batch after batch, in the
    order of the nodes. Arguments as of `run`; `loading`: of the loader."""
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
        del batch  # its memory is another's while the rows are written
        yield rows, count


def moved(batch: Any, device: torch.device | None) -> Any:
    """A batch where a model computes. Its edges are those of the loader: they are not compared there."""
    if device is not None and device.type != "cpu":
        batch = batch.to(device)
        note_edges(batch)
    return batch


def rows_of_seeds(given: Any, node_type: NodeType, count: int, number: int) -> np.ndarray | None:
    """The rows of the seeds, of what a step gave."""
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
    """Nodes per batch, by the fields that it carries."""
    of_nodes, _ = source.fields()
    row_bytes = {t: sum(one.source.row_bytes for one in of_nodes if (one.key or NODE) == t) for t in source.graph.num_nodes}
    return num_nodes_by_bytes(source.graph, row_bytes, node_type)


def num_nodes_by_bytes(graph: Graph, row_bytes: Mapping[NodeType, int], node_type: NodeType) -> int:
    """As many nodes of a type as read `BATCH_BYTES` with their neighbours, if they have the mean degree and share none; fewer where the
    container around this process has little left."""
    read = sum(csc.num_edges * row_bytes[src] for (src, _, dst), csc in graph.adjacency.items() if dst == node_type)
    per_node = row_bytes[node_type] + read // max(graph.num_nodes[node_type], 1)
    left = free_in_container()
    batch_bytes = BATCH_BYTES if left is None else min(BATCH_BYTES, left // BATCHES_LEFT)
    return min(max(batch_bytes // max(per_node, 1), 64), 4096)
