"""Grow blocks of connected nodes, merge them, and assign them to parts. Same result as `reference.py`, byte for byte."""

from __future__ import annotations

import numpy as np

from penstock.kernels._compile import helper, kernel
from penstock.kernels._memory import load, prefetch_read, prefetch_write, store
from penstock.kernels._typed_lists import list_of

AHEAD = 16


@helper
def _take(neighbors, start, stop, first, block, max_size, blocks, sizes, queue, tail):
    """Add the nodes of a list that are in no block to `block`, and append them to the queue. Returns the queue's new end."""
    for i in range(start, stop):
        if i + AHEAD < stop:
            prefetch_write(blocks, np.int64(load(neighbors, i + AHEAD)) + first)
        node = np.int64(load(neighbors, i)) + first
        if load(blocks, node) < 0:
            if sizes[block] >= max_size:
                break
            store(blocks, node, block)
            sizes[block] += 1
            queue[tail] = node
            tail += 1
    return tail


@kernel
def grow(indptrs, indices, firsts, out_ptr, out_nodes, sources, max_size, blocks, sizes, queue):
    """Put every node into a block; see `reference.grow`. Returns the number of blocks.

    Args:
        indptrs, indices, firsts, out_ptr, out_nodes: see `breadth_first.cpu`.
        sources: int32 or int64[num_nodes], a permutation.
        blocks, sizes: results, same dtype, [num_nodes], -1 and 0 at first. queue: scratch, same dtype and shape.
    """
    num_blocks, head, tail, source = 0, 0, 0, 0
    while tail < blocks.size:
        wanted = num_blocks + (blocks.size - tail + max_size - 1) // max_size
        while num_blocks < wanted and source < sources.size:
            node = sources[source]
            source += 1
            if blocks[node] < 0:
                blocks[node] = num_blocks
                sizes[num_blocks] = 1
                num_blocks += 1
                queue[tail] = node
                tail += 1
        while head < tail:
            node = np.int64(queue[head])
            head += 1
            block = blocks[node]
            if sizes[block] >= max_size:
                continue
            for e in range(len(indptrs)):
                start, stop = list_of(indptrs[e], firsts[e, 1], node)
                tail = _take(indices[e], start, stop, firsts[e, 0], block, max_size, blocks, sizes, queue, tail)
            start, stop = list_of(out_ptr, 0, node)
            tail = _take(out_nodes, start, stop, 0, block, max_size, blocks, sizes, queue, tail)
    return num_blocks


@helper
def _meet(neighbors, start, stop, first, blocks, counts, met, num_met):
    """Count the edges of a list to each block, and append each newly met block to `met`. Returns the length of `met`."""
    for i in range(start, stop):
        if i + AHEAD < stop:
            prefetch_read(blocks, np.int64(load(neighbors, i + AHEAD)) + first)
        block = np.int64(load(blocks, np.int64(load(neighbors, i)) + first))
        if counts[block] == 0:
            met[num_met] = block
            num_met += 1
        counts[block] += 1
    return num_met


@helper
def _meet_all(indptrs, indices, firsts, out_ptr, out_nodes, members, start, stop, blocks, counts, met):
    """As `_meet`, for all lists of members[start:stop]."""
    num_met = 0
    for m in range(start, stop):
        node = np.int64(members[m])
        for e in range(len(indptrs)):
            begin, end = list_of(indptrs[e], firsts[e, 1], node)
            num_met = _meet(indices[e], begin, end, firsts[e, 0], blocks, counts, met, num_met)
        begin, end = list_of(out_ptr, 0, node)
        num_met = _meet(out_nodes, begin, end, 0, blocks, counts, met, num_met)
    return num_met


@kernel
def join(indptrs, indices, firsts, out_ptr, out_nodes, members, member_ptr, blocks, is_large, max_size, sizes, targets, counts, met):
    """Merge small blocks into large neighbours; see `reference.join`.

    Args:
        members: int32 or int64[num_nodes], nodes sorted by block. member_ptr: int64[num_blocks + 1], where the nodes of each block begin.
        blocks, sizes: as `grow` leaves them. is_large: bool[num_blocks].
        targets: same dtype, [num_blocks]: receives the block that each block is merged into, or its own number.
        counts: int64[num_blocks], zero before and after. met: int64[num_blocks], scratch.
    """
    for block in range(is_large.size):
        targets[block] = block
        if is_large[block]:
            continue
        start, stop = member_ptr[block], member_ptr[block + 1]
        num_met = _meet_all(indptrs, indices, firsts, out_ptr, out_nodes, members, start, stop, blocks, counts, met)
        best, most = block, 0
        for k in range(num_met):
            other = met[k]
            if is_large[other] and counts[other] > most and sizes[other] + stop - start <= max_size:
                best, most = other, counts[other]
            counts[other] = 0
        if best != block:
            targets[block] = best
            sizes[best] += stop - start
            sizes[block] = 0


@kernel
def link(indptrs, indices, firsts, out_ptr, out_nodes, members, member_ptr, blocks, link_ptr, links, weights, counts, met):
    """Write the distinct neighbour blocks of each block, without itself, and the number of edges to each; see `reference.link`.

    Args:
        link_ptr: int64[num_blocks + 1], link_ptr[0] = 0: receives where the neighbours of each block begin.
        links, weights: int64[m], or empty: then only link_ptr is written.
        other arguments: see `join`.
    """
    for block in range(member_ptr.size - 1):
        start, stop = member_ptr[block], member_ptr[block + 1]
        num_met = _meet_all(indptrs, indices, firsts, out_ptr, out_nodes, members, start, stop, blocks, counts, met)
        at = link_ptr[block]
        for k in range(num_met):
            other = met[k]
            if other != block:
                if links.size > 0:
                    links[at], weights[at] = other, counts[other]
                at += 1
            counts[other] = 0
        link_ptr[block + 1] = at


@kernel
def place(link_ptr, links, weights, order, contents, capacities, loads, owners, counts):
    """Assign each block to a part; see `reference.place`.

    Args:
        link_ptr, links, weights: as `link` writes them.
        order: int64[num_blocks]. contents: int64[num_blocks, num_measures]. capacities: float64[num_measures].
        loads: int64[num_measures, num_parts], zero at first. owners: int16[num_blocks], -1 at first, the result. counts: int64[num_parts],
            scratch, zero before and after.
    """
    for block in order:
        for i in range(link_ptr[block], link_ptr[block + 1]):
            owner = np.int64(owners[links[i]])
            if owner >= 0:
                counts[owner] += weights[i]
        best, best_score, best_penalty, best_fullness = -1, 0.0, 0.0, 0.0
        for part in range(counts.size):
            penalty, fullness = 1.0, 0.0
            for k in range(capacities.size):
                if contents[block, k] > 0:
                    share = np.float64(loads[k, part]) / capacities[k]
                    penalty *= max(1.0 - share, 0.0)
                    fullness = max(fullness, share)
            score = np.float64(counts[part]) * penalty
            counts[part] = 0
            is_better = score > best_score or (
                score == best_score and (penalty > best_penalty or (penalty == best_penalty and fullness < best_fullness))
            )
            if best < 0 or is_better:
                best, best_score, best_penalty, best_fullness = part, score, penalty, fullness
        owners[block] = best
        for k in range(capacities.size):
            loads[k, best] += contents[block, k]
