"""Hotness by samples that a device draws: exactly the same counts as `penstock.cache.presample.presample_visits`.

In: the batches of a loader whose samples a device draws. Out: visits. Samples stay on the device. Imports Triton.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from penstock.cache.presample import Visits, count_types, draw_apart, places_of, spread
from penstock.kernels.edges.cpu import are_distinct
from penstock.records import NodeType
from penstock.sample import NeighborSampler
from penstock.sample.batches import SampledBatches
from penstock.sample.device import DeviceSampler
from penstock.sample.device_sample import DeviceSample
from penstock.store.device_memory import settle
from penstock.store.progress import told
from penstock.store.tiers.pinned import to_device, to_host

logger = logging.getLogger("penstock")

UNDER_WAY = 2
"""Batches that are under way on the device before the first of them is counted."""


def count_on_device(
    batches: SampledBatches, drawn_by: Callable[[NeighborSampler], DeviceSampler], *, num_epochs: int = 1, max_batches: int | None = None
) -> Visits | None:
    """Sample and count as `presample_visits`, on the current stream of a device; None if it has no room for the counts.

    `drawn_by`: sampler -> the device's sampler for it.
    """
    ours = drawn_by(draw_apart(batches.sampler))
    device = ours.graph.device
    try:
        return _visits(batches, ours, num_epochs, max_batches)
    except RuntimeError as error:  # raised by torch or the driver
        if not isinstance(error, torch.OutOfMemoryError) and "out of memory" not in str(error):
            raise
        logger.warning(
            "%s has no room to count what samples visit, and the CPU does it, which takes longer: leave more of its memory free, or count "
            "fewer batches (presample_batches=)", device,
        )  # fmt: skip
        return None
    finally:
        settle(device)  # samples may still be under way, and read the topology
        if device.type == "cuda":
            torch.cuda.empty_cache()  # the free memory determines how much is kept


def _visits(batches: SampledBatches, ours: DeviceSampler, num_epochs: int, max_batches: int | None) -> Visits:
    graph, device = batches.sampler.graph, ours.graph.device
    num_batches = num_epochs * len(spread(batches.num_batches, max_batches))
    nodes = {t: torch.zeros(count, dtype=torch.int32, device=device) for t, count in graph.num_nodes.items()}
    lists = {e: torch.zeros(csc.num_dst, dtype=torch.int32, device=device) for e, csc in graph.adjacency.items()}
    for seeds, sample in told(_drawn(ours, batches, num_epochs, max_batches), "finding out what is hot: batch", num_batches):
        _count(sample, seeds, nodes, lists)
    narrow, wide = count_types(ours.host, num_batches)
    return Visits({t: _narrowed(each, narrow) for t, each in nodes.items()}, {e: _narrowed(each, wide) for e, each in lists.items()})


def _drawn(
    ours: DeviceSampler, batches: SampledBatches, num_epochs: int, max_batches: int | None
) -> Iterator[tuple[dict[NodeType, np.ndarray], DeviceSample]]:
    """Yield samples, and the seeds of each."""
    idle, asked = [ours.workspace() for _ in range(UNDER_WAY)], deque[tuple[dict[NodeType, np.ndarray], Any, Any]]()
    for epoch, batch in places_of(batches, range(num_epochs), max_batches):
        if not idle:
            before, run, workspace = asked.popleft()
            yield before, run.finish()
            idle.append(workspace)
        workspace, seeds = idle.pop(), batches.seeds_of(epoch, batch)
        run = ours.ask(seeds.nodes, epoch=epoch, batch=batch, workspace=workspace, times=seeds.times)
        asked.append((seeds.nodes, run, workspace))
    for before, run, _ in asked:
        yield before, run.finish()


def _count(sample: DeviceSample, seeds: dict[NodeType, np.ndarray], nodes: dict[str, torch.Tensor], lists: dict[Any, torch.Tensor]) -> None:
    """Add a sample to the counts: a row once, a list as often as it is read."""
    for node_type, ids in sample.nodes.items():
        counts, known, given = nodes[node_type], ids, seeds.get(node_type)
        if sample.trees is not None:
            known = ids.unique()
        elif given is not None and not are_distinct(given):  # only seeds can occur twice
            known = torch.cat([to_device(np.unique(given), ids.device), ids[given.size :]])
        counts.index_add_(0, known, counts.new_ones(1).expand(known.numel()))
    for edge_type, edges in sample.edges.items():
        is_read = (edges.row_ptr.diff() > 0).to(torch.int32)
        lists[edge_type].index_add_(0, sample.nodes[edge_type[2]][: is_read.numel()], is_read)


def _narrowed(counts: torch.Tensor, dtype: np.dtype) -> np.ndarray:
    """Return counts of a device as an array of narrow integers, saturating."""
    [array] = to_host(counts.clamp_(max=min(np.iinfo(dtype).max, np.iinfo(np.int32).max)))
    return array.astype(dtype)
