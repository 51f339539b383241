"""One budget of a device's memory, divided between neighbour lists and rows by what a hit of each saves there.

In: what will be sampled, and tables that the device reads over the link. Out: the nodes whose lists are kept on the device (a prefix,
`penstock.sample.device_graph`) and the rows that are (`penstock.gather.FusedCache`). Invariant: what is kept, with the tables that find it,
fits the budget.
Source: DUCATI (SIGMOD'23): sampling is timed with random lists on the device, gathering with random rows; both are nearly lines over the
hits, and their slopes are what a hit saves. Random lists are placed for it, as in the paper; rows that would be hits are left out of the
read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from penstock.cache.choose import Workload
from penstock.cache.presample import distinct_nodes, draw_apart, iterate_samples, lists_read
from penstock.feed.slopes import NUM_BATCHES, SHARES, Line, time_rows
from penstock.gather import TieredTable
from penstock.plan import plan_shared
from penstock.records import EdgeType, NodeType, Sample
from penstock.sample import NeighborSampler

if TYPE_CHECKING:
    import torch

    from penstock.sample.device import DeviceSampler

Kept = dict[EdgeType, np.ndarray]
Rows = dict[NodeType, np.ndarray]


def plan_device_split(
    budget: str,
    workload: Workload,
    tables: Mapping[NodeType, TieredTable],
    device: torch.device,
    *,
    num_epochs: int = 1,
    num_batches: int = NUM_BATCHES,
) -> tuple[Kept, Rows]:
    """Divide a budget.

    Args:
        budget: bytes, "2GiB", which cover lists, rows and the tables of both; or a share of the bytes of all lists and rows.
        workload: what will be sampled, from arrays.
        tables: node type -> its rows, delivered to the device, without a cache.
        device: from `tensor_device`.
        num_epochs: sampled for visits.
        num_batches: read and sampled again and again, for slopes.
    Returns:
        (edge type -> int64 nodes whose lists are kept, node type -> int64 rows kept), best first.
    """
    visits, (per_list, per_row) = workload.visits(num_epochs), measure_device_slopes(workload, tables, device, num_batches=num_batches)
    row_bytes = {t: sum(table.tier.row_bytes) for t, table in tables.items()}
    return plan_shared(
        budget, visits.lists, {t: visits.nodes[t] for t in tables}, row_bytes, workload.sampler.graph.adjacency, "prefix",
        seconds_per_list_hit=per_list, seconds_per_row_hit=per_row,
    )  # fmt: skip


def measure_device_slopes(
    workload: Workload, tables: Mapping[NodeType, TieredTable], device: torch.device, *, num_batches: int = NUM_BATCHES
) -> tuple[dict[EdgeType, float], dict[NodeType, float]]:
    """Return (edge type -> seconds per list hit, node type -> seconds per row hit) on a device; arguments as in `plan_device_split`."""
    apart, random = draw_apart(workload.sampler), np.random.default_rng(workload.sampler.seed)
    order = iterate_samples(apart, workload.seed_type, workload.seeds, workload.order, batch_size=workload.batch_size, epochs=[0])
    samples = [sample for _, sample in zip(range(num_batches), order, strict=False)]
    of_lists = {e: _list_slope(apart, workload.seed_type, samples, e, device, random) for e in apart.graph.adjacency}
    of_rows = {t: Line() for t in tables}
    for number, sample in enumerate((samples[0], *samples)):  # the first one twice, as with lists
        nodes = distinct_nodes(apart, sample)
        for node_type, table in tables.items():
            time_rows(of_rows[node_type] if number else Line(), table, nodes[node_type], random)
    return of_lists, {t: line.slope() for t, line in of_rows.items()}


def place_lists(sampler: NeighborSampler, device: torch.device, kept: Mapping[EdgeType, np.ndarray]) -> DeviceSampler:
    """A sampler of the device over pinned lists, some of them kept on it."""
    from penstock.sample.device import DeviceSampler
    from penstock.sample.device_graph import place_graph

    return DeviceSampler(sampler, place_graph(sampler.graph, device, "pinned", kept))


def _list_slope(
    apart: NeighborSampler,
    seed_type: NodeType,
    samples: list[Sample],
    edge_type: EdgeType,
    device: torch.device,
    random: np.random.Generator,
) -> float:
    """Seconds per hit of one edge type: the samples drawn again, with random lists of it on the device."""
    line, csc = Line(), apart.graph.adjacency[edge_type]
    lengths = np.diff(csc.indptr)
    reads = [lists_read(sample, edge_type) for sample in samples]
    for share in SHARES:
        is_missed = random.random(csc.num_dst) < share
        ours = place_lists(apart, device, {edge_type: np.flatnonzero(~is_missed & (lengths > 0))})
        workspace = ours.workspace()
        for number, sample in enumerate((samples[0], *samples)):  # the first one twice: kernels are compiled, memory is taken
            seeds, batch = np.ascontiguousarray(sample.nodes[seed_type][: sample.num_seeds]), max(0, number - 1)
            started = time.perf_counter()
            ours.sample(seed_type, seeds, epoch=0, batch=batch, workspace=workspace)
            _settle(device)
            if number:
                line.note(int(np.count_nonzero(is_missed[reads[batch]])), time.perf_counter() - started)
    return line.slope()


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
