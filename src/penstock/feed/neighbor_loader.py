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
from penstock.feed.sampling_rule import SamplingRule, choose_subgraph
from penstock.gather import Seat, TieredTable
from penstock.order import Order
from penstock.plan import Plan
from penstock.sample.budget import NumSamples
from penstock.sample.walks import Walks


class NeighborLoader(Loader):
    """Mini-batches of sampled neighbourhoods. A drop-in for `torch_geometric.loader.NeighborLoader`.

    Args:
        data: `Data`, `HeteroData`, a (FeatureStore, GraphStore) pair, a `penstock.Store`, or the path of one.
        num_neighbors: fanout of each hop, -1 = all; one list, or one per edge type.
        input_nodes: the seeds: ids, a mask, or None for all; for typed graphs (node type, ids); or a split: "train", ("paper", "train").
        replace: sample with replacement.
        subgraph_type: "directional" (sampled edges), "bidirectional" (and their reverses), "induced" (all edges among the nodes;
            with `num_neighbors=[]` among the seeds, for subgraphs that a `batch_sampler` of yours chooses).
        disjoint: one tree per seed; the batch then has `batch`, the seed of each node.
        transform: called on each batch, in the caller's thread and in order (in the threads with filter_per_worker=True).
        transform_sampler_output: called on PyG's `SamplerOutput` before features are gathered.
        is_sorted: `edge_index` is already sorted by destination; UsageError where it is not.
        weight_attr: edge attribute: edges are drawn with probabilities in proportion to it, 0 = never (see `penstock.sample.weights`). It
            is read once. Edge types without it are drawn uniformly.
        directed: False means "induced", as in PyG, where it is deprecated.
        input_id: int64[num_seeds], the `input_id` of each seed in its batch; default: its position in the set of seeds, or, where
            `input_nodes` is a mask, the node's id.
        custom_cls: makes the batches of a (FeatureStore, GraphStore) pair; default: `Data` or `HeteroData`.
        time_attr: node or edge attribute, whole numbers: the time of each node (edges have their source's), or of each edge. No edge of a
            seed's tree is later than the seed's time; trees are disjoint then (see `penstock.sample.times`). It is read once. Nodes and
            edges of types without it count as always there.
        input_time: int64[num_seeds], the times of the seeds, `seed_time` in their batches; default: those of the seeds as nodes.
        temporal_strategy: "uniform": draw among all edges in time; "last": take the latest of them.
        temporal_rule: "<=": an edge at the seed's own time is in time, as in PyG. "<": it is too late, for instance where the seeds are
            links that are edges of the graph: an edge at the same time would give them away.
        time_window: a whole number in the unit of the times: edges that came more than this before the seed's time are not sampled either;
            None: all earlier ones may be.
        neighbor_sampler: not supported, see `docs/compat.md`.
        **kwargs: torch's DataLoader's: batch_size, shuffle, drop_last, num_workers (threads), prefetch_factor, timeout, ... And
            batches_per_epoch: only the first ones of each epoch, of each rank; shuffled, these are of other seeds every time.
        seed: the seed of all randomness, in [0, 2**64); default: torch's.
        split: for stores with several splits, the one that "train", "val" and "test" refer to.
        order: in place of `shuffle`: "random", "sequential", "proximity" or "community" (these two put near seeds into batches that follow
            each other, each as mixed as a random one), or an order of your own (see `penstock.order`).
        rank, num_ranks: this process takes batches rank, rank + num_ranks, ... of one order for all. Unless the number of batches divides
            evenly, some ranks have one more than others; with drop_last all have equally many.
        plan: what is kept in faster memory, and the order of the seeds: a `penstock.Plan` or the name of a recipe. Fields that a plan or
            a device keeps in tiers are read once. After such a field was replaced, or its tensor or the tensor that it is a view of was
            written to, the next pass is refused; writes by NumPy or through a tensor's `data` go unnoticed.
        device: "cuda" or "cuda:1": batches are delivered there. The device draws the samples where it can (directional ones; else
            `stats().sampling` says why not) and gathers features by the plan, out of host memory that it reads, with the best rows kept on
            it. At least one thread makes batches ahead. None, or "cpu": batches on the CPU.
        shards: this rank's seat (`penstock.gather.shard_seats`), where several processes have a device each: what the plan keeps on devices
            is divided among them, and each reads all of it; sizes in the plan are of each part. All ranks make their loaders at the same
            point.
        pad: True: hops are filled up, so that nearly all batches have the same size, for models that are compiled or recorded; or the sizes
            of another loader (`loader.padding`). Added nodes have edges among themselves only, zeros as rows (the first row, of
            floating-point fields), and -1 as `n_id`; `pad_node_mask` and `pad_edge_mask` are False for what was added. See
            `penstock.feed.Padding`.
        shared_draws: True: all lists of a batch draw by the same random numbers, so that they take the same neighbours where they can and
            the batch has fewer nodes; 16: all lists of 16 batches in a row. Each list is still sampled uniformly (see
            `penstock.sample.shared`).
        non_stop: True: threads begin the next epoch while this one ends, so that its first batches need not be waited for; 20: only for the
            first 20 epochs, so that nothing is made in vain after the last. What was made ahead is dropped where features are changed or
            replaced between epochs, or the next pass begins elsewhere.
        walks: neighbours are the nodes that random walks visit most, as in PinSAGE: `penstock.Walks(num=10, length=2)`. Edges then are not
            those of the graph: they have no `e_id` and no fields, but an `edge_weight`: how often the walks visited the source.
        layer_wise: `num_neighbors` counts the new nodes of a hop (per edge type), drawn for all its lists together, and not the neighbours
            of each: nodes with more edges into the hop are likelier. The batch has every edge from its nodes into the hop; some nodes of
            the hop may have none (see `penstock.sample.layer_wise`).
        num_samples: how many nodes each hop adds, one list for all node types or one per node type, drawn as in HGT in proportion to the
            squares of their normalised edges into the batch (see `penstock.sample.budget`); -1: all. The batch has all edges among its
            nodes. With `num_neighbors=[]` and `subgraph_type="induced"`; `penstock.HGTLoader` has PyG's arguments for it.
        tables: node or edge type -> `penstock.gather.TieredTable` whose fields replace the input's, with rows numbered as in the input
            (homogeneous: "node" and ("node", "to", "node")).
        step: batch -> anything: a training step, on a copy of the model. It is tried on parts of a batch to learn how much memory it takes:
            where the plan has a budget, and in a container that may have too little memory.
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
        time_window: int | None = None,
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
        num_samples: NumSamples | None = None,
        **kwargs: Any,
    ) -> None:
        self.input_nodes, self.input_time, self.input_id = input_nodes, input_time, input_id
        rule = SamplingRule(
            num_neighbors=num_neighbors,
            replace=replace,
            subgraph_type=choose_subgraph(subgraph_type, directed=directed),
            disjoint=disjoint,
            temporal_strategy=temporal_strategy,
            temporal_rule=temporal_rule,
            time_window=time_window,
            time_attr=time_attr,
            weight_attr=weight_attr,
            shared_draws=shared_draws,
            walks=walks,
            layer_wise=layer_wise,
            num_samples=num_samples,
        )
        super().__init__(
            data,
            rule,
            partial(choose_nodes, input_nodes=input_nodes, input_id=input_id, input_time=input_time),
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            is_sorted=is_sorted,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=neighbor_sampler,
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
            non_stop=non_stop,
            **kwargs,
        )

    def beside(self, input_nodes: Any, input_time: torch.Tensor | None = None, *, rank: int = 0, num_ranks: int = 1) -> NeighborLoader:
        """Return a loader over other seeds, taken in their order, with the same settings, that shares this one's tiers and buffers.

        Args:
            input_nodes, input_time, rank, num_ranks: as for a loader. Batches are those that a new loader over these seeds would give.
        """
        other = self._beside(partial(choose_nodes, input_nodes=input_nodes, input_time=input_time), rank, num_ranks)
        other.input_nodes, other.input_time, other.input_id = input_nodes, input_time, None
        return other
