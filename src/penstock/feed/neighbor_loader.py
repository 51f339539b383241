"""`NeighborLoader`: PyG's loader of nodes, argument for argument.

In: a graph and a set of seeds. Out: PyG batches, seeds first. Invariant: batch i of epoch e is a pure function of (graph, seeds,
configuration, seed, e, i); thread count and look-ahead change nothing but the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch_geometric.sampler.base import SubgraphType

from penstock.feed.arguments import choose_nodes
from penstock.feed.loader import Batch, Loader
from penstock.feed.padding import Padding
from penstock.gather import Seat, TieredTable
from penstock.order import Order
from penstock.plan import Plan
from penstock.sample.walks import Walks


class NeighborLoader(Loader):
    """Mini-batches of sampled neighbourhoods. A drop-in for `torch_geometric.loader.NeighborLoader`.

    Args:
        data: `Data`, `HeteroData`, a (FeatureStore, GraphStore) pair, a `penstock.Store`, or the path of one.
        num_neighbors: fanout per hop, -1 = all; a list, or one per edge type.
        input_nodes: seeds: ids, a mask, None for all; for typed graphs (node type, ids); or a split: "train", ("paper", "train").
        replace: sample with replacement.
        subgraph_type: "directional" (sampled edges), "bidirectional" (and their reverses), "induced" (all edges among the nodes).
        disjoint: one tree per seed; the batch then has `batch`, the seed of each node.
        transform: called on each batch, in the caller's thread and in order (in the threads with filter_per_worker=True).
        transform_sampler_output: called on PyG's `SamplerOutput` before features are gathered.
        is_sorted: `edge_index` is already sorted by destination; UsageError where it is not.
        weight_attr: edge attribute to draw by: with a probability in proportion to it, 0 = never (see `penstock.sample.weights`); read
            once. Edge types without it are drawn uniformly.
        directed: False means "induced", as in PyG, where it is deprecated.
        input_id: int64[num_seeds], what the batches' `input_id` says of each seed; default: its position in the set of seeds, of a mask the
            node's id.
        custom_cls: makes the batches of a (FeatureStore, GraphStore) pair; default: `Data` or `HeteroData`.
        time_attr: node or edge attribute, whole numbers: when each came (an edge with its source). No edge of a seed's tree is later than
            the seed's time; trees are disjoint then (see `penstock.sample.times`). Read once. Types without it are always there.
        input_time: int64[num_seeds], the times of the seeds, which the batch then says (`seed_time`); default: those of the seeds as nodes.
        temporal_strategy: "uniform", any of the edges in time, or "last", the latest of them.
        temporal_rule: "<=": an edge at the time of the seed is in time, as in PyG. "<": it is too late, as for links that are edges, whose
            own time would show them.
        neighbor_sampler: not supported, see `docs/compat.md`.
        **kwargs: torch's DataLoader's: batch_size, shuffle, drop_last, num_workers (threads), prefetch_factor, timeout, ...
        seed: of all randomness; default: torch's seed.
        split: for stores with several splits, the one that "train", "val" and "test" mean.
        order: in place of `shuffle`: "random", "sequential", "proximity" or "community" (the last two: near seeds in batches that follow
            each other, each batch as mixed as a random one), or an order of your own (see `penstock.order`).
        rank, num_ranks: this process takes batches rank, rank + num_ranks, ... of the one order. Some ranks have a batch more than others
            unless they divide evenly; with drop_last all have equally many.
        plan: what is kept in faster memory, and the order of the seeds: a `penstock.Plan` or the name of a recipe. Fields that a plan or
            a device keeps in tiers are read once: a pass after they were exchanged is refused, or after a tensor, or what it is a view
            of, was written to. Writes by NumPy or by a tensor's `data` nobody sees.
        device: "cuda" or "cuda:1": batches are delivered there, drawn there where the device can (directional ones; else
            `stats().sampling` says why not), and features gathered there by the plan: out of memory of the host that the device reads, the
            best rows kept on it. Threads make them ahead, one at least. None, or "cpu": batches on the CPU.
        shards: this rank's seat (`penstock.gather.shard_seats`), where several processes have a device each: what the plan keeps on devices
            is shared, a disjoint part on each, read by all; its size is that of each part. All ranks make their loaders at the same point.
        pad: True: hops are filled up, so that nearly all batches have the same size, for models that are compiled or recorded; or sizes,
            those of another loader (`loader.padding`). Nodes that are added have edges among themselves only, zeros or (floating-point) the
            first row, and -1 as `n_id`; `pad_node_mask` and `pad_edge_mask` are False there. See `penstock.feed.Padding`.
        shared_draws: True: the lists of a batch draw by the same numbers, so that they take the same neighbours where they can, and there
            are fewer nodes; 16: those of 16 batches in a row. Each list is still sampled uniformly (see `penstock.sample.shared`).
        non_stop: True: threads begin the next epoch while this one ends, so that none begins with nothing made; 20: so for the first 20
            epochs, and nothing is made in vain after them. Where features are changed or exchanged between epochs, or the next pass begins
            elsewhere, what was made is dropped.
        walks: neighbours are the nodes that random walks visit most, as in PinSAGE: `penstock.Walks(num=10, length=2)`. Edges then are not
            those of the graph: no `e_id` and no edge fields, but `edge_weight`, how often the source was visited.
        layer_wise: `num_neighbors` counts the new nodes of a hop (per edge type), for all its lists together, in place of the neighbours of
            each: those with more edges into the hop are likelier to come. A batch has every edge from a node that it has into the hop, so
            some nodes may have none (see `penstock.sample.layer_wise`).
        tables: node or edge type -> `penstock.gather.TieredTable` whose fields take the place of the input's, rows numbered as there
            (homogeneous: "node" and ("node", "to", "node")).
        step: batch -> anything: a training step, on a copy of the model. Tried on parts of a batch, to learn what memory it takes, where
            the plan has a budget, and in a container that may have too little of it for any.
    Raises:
        UsageError, InputError, NotSupportedError: at construction, for anything that cannot work.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[tuple[str, str, str], Sequence[int]],
        input_nodes: Any = None,
        input_time: torch.Tensor | None = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Batch], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        input_id: torch.Tensor | None = None,
        custom_cls: Callable[[], Any] | None = None,
        temporal_rule: str = "<=",
        seed: int | None = None,
        split: str | None = None,
        order: Order | str | None = None,
        rank: int = 0,
        num_ranks: int = 1,
        plan: Plan | str | None = None,
        tables: Mapping[Any, TieredTable] | None = None,
        step: Callable[[Any], object] | None = None,
        device: Any = None,
        shards: Seat | None = None,
        pad: bool | Padding = False,
        shared_draws: bool | int = False,
        non_stop: bool | int = False,
        walks: Walks | None = None,
        layer_wise: bool = False,
        **kwargs: Any,
    ) -> None:
        self.input_nodes, self.input_time, self.input_id = input_nodes, input_time, input_id
        super().__init__(
            data,
            num_neighbors,
            partial(choose_nodes, input_nodes=input_nodes, input_id=input_id, input_time=input_time),
            replace=replace,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            temporal_strategy=temporal_strategy,
            temporal_rule=temporal_rule,
            time_attr=time_attr,
            weight_attr=weight_attr,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            is_sorted=is_sorted,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=neighbor_sampler,
            directed=directed,
            custom_cls=custom_cls,
            seed=seed,
            split=split,
            order=order,
            rank=rank,
            num_ranks=num_ranks,
            plan=plan,
            tables=tables,
            step=step,
            device=device,
            shards=shards,
            pad=pad,
            shared_draws=shared_draws,
            non_stop=non_stop,
            walks=walks,
            layer_wise=layer_wise,
            **kwargs,
        )

    def beside(self, input_nodes: Any, input_time: torch.Tensor | None = None, *, rank: int = 0, num_ranks: int = 1) -> NeighborLoader:
        """Return a loader over other seeds, in their order, with the same settings and over the same tiers, without memory of its own.

        Args:
            input_nodes, input_time, rank, num_ranks: as for a loader. Batches are those that a new loader over these seeds would give.
        """
        other = self._beside(partial(choose_nodes, input_nodes=input_nodes, input_time=input_time), rank, num_ranks)
        other.input_nodes, other.input_time, other.input_id = input_nodes, input_time, None
        return other
