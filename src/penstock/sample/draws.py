"""Drawing positions from neighbour lists, uniformly, by weight, or among the edges in time: one edge type of one hop.

In: lists, and how many neighbours to draw from each. Out: positions, list after list. Invariant: the draws from a list depend only on its
node, its weights or times, the key and the counter, not on other lists. So a process that has only some of the lists draws from these what
any other process would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock import rng
from penstock.errors import NotSupportedError, damaged_list
from penstock.kernels.edges import cpu as edge_kernels
from penstock.kernels.sample_neighbors import cpu as draw
from penstock.kernels.sample_weighted import cpu as weighted
from penstock.kernels.time_windows import cpu as time_windows
from penstock.records import CSC, EdgeType
from penstock.sample.workspace import Scratch

MakeRoom = Callable[[int], np.ndarray]
"""Number of edges -> int64[>= that number], which receives their positions."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What all draws of one edge type in one hop share.

    Attributes:
        fanout, replace, takes_last, reach: see `NeighborSampler`.
        key: uint64[2], of the random generator.
        batch, hop, number: parts of the counter; `number` is the number of the edge type.
    """

    fanout: int
    replace: bool
    takes_last: bool
    reach: int
    key: np.ndarray
    batch: int
    hop: int
    number: int


@dataclass(frozen=True, slots=True)
class Frontier:
    """The nodes that a hop expands over one edge type.

    Attributes:
        nodes: int64[n], global ids.
        copies: int64[n], part of the counter; None: all are 0.
        until: int64[n], the latest time that an edge of each node may have; None: edges have no times.
    """

    nodes: np.ndarray
    copies: np.ndarray | None = None
    until: np.ndarray | None = None


def draw_positions(
    edge_type: EdgeType, csc: CSC, num_src: int, how: Draw, frontier: Frontier, scratch: Scratch, offsets: np.ndarray, make_room: MakeRoom,
    *, are_read: bool,
) -> tuple[np.ndarray, np.ndarray, int]:  # fmt: skip
    """Draw from each list.

    Args:
        num_src: number of source nodes, to check neighbours.
        offsets: int64[n + 1]: offsets[0] is given; offsets[i + 1], where the edges of list i end, is written.
        are_read: also read the neighbours, from `csc.indices`; else draw only positions.
    Returns:
        (int64[m] positions, indices.dtype[m] neighbours in scratch, m, or -1 if a neighbour that was read is not a node).
    Raises:
        CorruptStoreError: a list lies outside the edges.
        NotSupportedError: a list is too long.
    """
    if csc.sums is not None:
        return _draw_weighted(edge_type, csc, num_src, how, frontier, scratch, offsets, make_room, are_read=are_read)
    nodes, windows = frontier.nodes, None
    if csc.times is None:
        count, longest = draw.count_neighbors(csc.indptr, csc.num_edges, nodes, how.fanout, how.replace)
    else:
        last, windows = how.fanout if how.takes_last else -1, scratch.windows(nodes.size)
        count, longest = time_windows.find_windows(
            csc.indptr, csc.times, nodes, frontier.until, how.reach, last, how.fanout, how.replace, windows
        )
    check_counts(edge_type, csc, nodes, how.fanout, count, longest, rng.MAX_DEGREE)
    bitmap = scratch.bitmap(longest if how.fanout > draw.TILE_FANOUT and not how.replace else 0)
    neighbors, positions = scratch.neighbors(count, csc.indices.dtype), make_room(count)
    taken = draw.sample_neighbors(
        csc.indptr, csc.indices if are_read and csc.by_time is None else None, num_src, nodes, how.fanout, how.replace, how.key,
        how.batch, how.hop, how.number, frontier.copies, *scratch.tile, bitmap, offsets, positions, neighbors, windows,
    )  # fmt: skip
    if csc.by_time is not None:
        edge_kernels.translate(csc.by_time, positions[:count])
        if are_read:
            taken = draw.look_up(csc.indices, num_src, positions[:count], neighbors)
    return positions[:count], neighbors[:count], taken


def _draw_weighted(
    edge_type: EdgeType, csc: CSC, num_src: int, how: Draw, frontier: Frontier, scratch: Scratch, offsets: np.ndarray, make_room: MakeRoom,
    *, are_read: bool,
) -> tuple[np.ndarray, np.ndarray, int]:  # fmt: skip
    """The same by weight. The number of edges is known only after the draws, since edges of weight 0 are never drawn."""
    nodes = frontier.nodes
    most, bad = draw.count_neighbors(csc.indptr, csc.num_edges, nodes, how.fanout, how.replace)
    if most < 0:
        raise damaged_list(edge_type, int(nodes[bad]), csc.num_edges)
    neighbors, positions = scratch.neighbors(most, csc.indices.dtype), make_room(most)
    taken = weighted.sample_neighbors(
        csc.indptr, csc.indices if are_read else None, csc.sums, csc.guide, num_src, nodes, how.fanout, how.replace, how.key,
        how.batch, how.hop, how.number, frontier.copies, *scratch.weighted_scratch(how.fanout), offsets, positions, neighbors,
    )  # fmt: skip
    count = int(offsets[nodes.size] - offsets[0])
    return positions[:count], neighbors[:count], taken


def check_counts(edge_type: EdgeType, csc: CSC, nodes, fanout: int, count: int, longest: int, most: int) -> None:
    """Raise CorruptStoreError if a list is damaged, NotSupportedError if one is longer than draws reach."""
    if count < 0:
        raise damaged_list(edge_type, nodes[longest], csc.num_edges)
    if longest > most and fanout > 0:
        raise NotSupportedError(
            f"edges {'/'.join(edge_type)}: a node has {longest:,} neighbours, and draws reach at most {most:,}: take all of them (-1)"
        )
