"""How one batch is made: order -> sample -> gather -> assemble. Runs on any thread.

In: the epoch and index of a batch. Out: the batch and what it took. Invariants: the batch is a pure function of its place; an error
says in which stage of which batch it happened.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import PenstockError, PipelineError
from penstock.feed.assemble import Assembler
from penstock.feed.buffers import BufferPool
from penstock.feed.inputs import Input, Seeds
from penstock.feed.stats import BatchStats
from penstock.feed.subgraph import Subgraph, number_edges, subgraph_of, through_pyg
from penstock.order import Order
from penstock.sample import NeighborSampler, Workspace

Transform = Callable[[Any], Any]


class StageClock:
    """Which stage a batch is in, and the seconds of those before."""

    __slots__ = ("_since", "seconds", "stage")

    def __init__(self, stage: str) -> None:
        self.stage, self._since = stage, time.perf_counter()
        self.seconds: dict[str, float] = {}

    def enter(self, stage: str) -> None:
        """End the stage and begin the next."""
        now = time.perf_counter()
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self._since
        self.stage, self._since = stage, now


def locate(error: Exception, stage: str, index: int) -> Exception:
    """Say where an error happened. Errors of ours keep their type; any other becomes a PipelineError with the error as its cause."""
    if isinstance(error, PenstockError):
        error.args = (f"{error} (stage {stage}, batch {index})",)
        return error
    return PipelineError(f"{type(error).__name__} in stage {stage} of batch {index}: {error}", stage=stage, batch=index)


@dataclass(slots=True, kw_only=True)
class BatchMaker:
    """Makes the batches of a loader.

    Attributes:
        source, seeds, order, sampler, batch_size, subgraph_type: what decides the batches.
        transform_output: the user's, on PyG's `SamplerOutput`.
        transform: the user's, on the batch, where it shall run in the threads; else None.
        pool: gives the memory of the batches.
    """

    source: Input
    seeds: Seeds
    order: Order
    sampler: NeighborSampler
    batch_size: int
    subgraph_type: SubgraphType
    transform_output: Transform | None = None
    transform: Transform | None = None
    pool: BufferPool = field(default_factory=BufferPool)
    _workspaces: queue.SimpleQueue[Workspace] = field(default_factory=queue.SimpleQueue)

    def make(self, assembler: Assembler, epoch: int, index: int) -> tuple[Any, BatchStats]:
        """Make batch `index` of an epoch."""
        clock = StageClock("order")
        try:
            positions = self.order.batch(epoch, index, self.batch_size)
            return self._make(clock, assembler, positions, epoch, index)
        except Exception as error:
            raise locate(error, clock.stage, index) from error

    def make_of(self, assembler: Assembler, positions: np.ndarray, epoch: int, index: int) -> tuple[Any, BatchStats]:
        """Make the batch that the seeds at `positions` of the set of seeds are, drawn as batch `index` of an epoch."""
        clock = StageClock("sample")
        try:
            return self._make(clock, assembler, positions, epoch, index)
        except Exception as error:
            raise locate(error, clock.stage, index) from error

    def _make(self, clock: StageClock, assembler: Assembler, positions: np.ndarray, epoch: int, index: int) -> tuple[Any, BatchStats]:
        clock.enter("sample")
        input_id = torch.from_numpy(positions if self.seeds.input_ids is None else self.seeds.input_ids[positions])
        subgraph = self._sample(self.seeds.ids[positions], input_id, epoch, index)
        clock.enter("gather")
        rows, num_bytes = assembler.gather(subgraph, self.pool.empty)
        clock.enter("assemble")
        batch = assembler.assemble(subgraph, rows, self.seeds.node_type, input_id)
        if self.transform is not None:
            clock.enter("transform")
            batch = self.transform(batch)
        clock.enter("done")
        num_nodes = sum(ids.numel() for ids in subgraph.nodes.values())
        num_edges = sum(edges.edge_index.shape[1] for edges in subgraph.edges.values())
        return batch, BatchStats(positions.size, num_nodes, num_edges, num_bytes, clock.seconds)

    def _sample(self, seeds: np.ndarray, input_id: torch.Tensor, epoch: int, index: int) -> Subgraph:
        workspace = self._borrow_workspace()
        try:
            sample = self.sampler.sample(
                self.seeds.node_type, seeds, epoch=epoch, batch=index, workspace=workspace, allocate=self.pool.empty
            )
        finally:
            self._workspaces.put(workspace)
        subgraph = subgraph_of(sample)
        if self.transform_output is not None or self.subgraph_type == SubgraphType.bidirectional:
            subgraph = through_pyg(
                subgraph,
                is_homogeneous=self.source.graph.is_homogeneous,
                bidirectional=self.subgraph_type == SubgraphType.bidirectional,
                transform=self.transform_output,
                metadata=(input_id, None),
            )
        number_edges(subgraph, self.source.graph, self.pool.empty)
        return subgraph

    def _borrow_workspace(self) -> Workspace:
        try:
            return self._workspaces.get_nowait()
        except queue.Empty:
            return self.sampler.workspace()
