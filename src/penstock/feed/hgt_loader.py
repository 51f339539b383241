"""`HGTLoader`: mini-batches for heterogeneous graph transformers. A drop-in for `torch_geometric.loader.HGTLoader`.

In: seeds, and how many nodes of each type a hop adds. Out: batches of these nodes, with all edges among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import UsageError
from penstock.feed.loader import Batch
from penstock.feed.neighbor_loader import NeighborLoader


class HGTLoader(NeighborLoader):
    """Mini-batches with a fixed number of new nodes per hop and node type (see `penstock.sample.budget`).

    Args:
        data, input_nodes, is_sorted, transform, transform_sampler_output, filter_per_worker, and all others: as of `NeighborLoader`.
        num_samples: how many nodes each hop adds: one list for all node types, or node type -> list; -1: all with edges into the batch.
    Raises:
        UsageError, InputError, NotSupportedError: at construction, for anything that cannot work.
    """

    def __init__(
        self,
        data: Any,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: Any,
        is_sorted: bool = False,
        transform: Callable[[Batch], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if num_samples is None:
            raise UsageError("num_samples says how many nodes each hop adds, for instance [1024, 1024]; got None")
        super().__init__(
            data,
            [],
            input_nodes,
            subgraph_type="induced",
            num_samples=num_samples,
            is_sorted=is_sorted,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **kwargs,
        )
