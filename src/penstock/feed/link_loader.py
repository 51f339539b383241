"""`LinkNeighborLoader`: PyG's loader of links, argument for argument.

In: a graph and a set of links. Out: PyG batches of the neighbourhoods of both ends of each link, which say where these ends are. Invariant:
batch i of epoch e, negative links included, is a pure function of (graph, links, configuration, seed, e, i).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import UsageError
from penstock.feed.arguments import choose_nodes
from penstock.feed.link_arguments import choose_links, choose_negatives
from penstock.feed.loader import Batch, Loader
from penstock.feed.padding import Padding
from penstock.feed.sampling_rule import SamplingRule, choose_subgraph
from penstock.gather import Seat, TieredTable
from penstock.order import Order
from penstock.plan import Plan
from penstock.records import EdgeType
from penstock.sample.budget import NumSamples
from penstock.sample.walks import Walks


class LinkNeighborLoader(Loader):
    """Mini-batches of the neighbourhoods of links. A drop-in for `torch_geometric.loader.LinkNeighborLoader`.

    Args:
        data, num_neighbors, and all arguments that are not named here: as of `NeighborLoader`; `batch_size` counts links.
        edge_label_index: the links: int[2, n]; None for all edges. For typed graphs an edge type (all its edges), or (edge type, links).
            Of a store that `penstock.hold_out` made also "train" (all edges), "val" or "test", or (edge type, such a name).
        edge_label: [n, ...], the `edge_label` of each link in its batch; or, where the links are all edges, or a part by name, the name of
            an edge field, which is read batch by batch, and goes up by 1 with binary negatives, whatever its values.
        edge_label_time: int64[n], the time of each link: no edge of its tree is later. Goes with `time_attr`. A part by name has the times
            of its edges.
        neg_sampling: PyG's `NegativeSampling`, or a mode, a dict or a tuple for one. "binary": `amount` pairs of random nodes per link,
            with label 0 in the batch. "triplet": `amount` random targets for the source of each link.
        neg_sampling_ratio: number of binary negatives per link; PyG's older way to ask for them.
        exclude_positives: no negative is an edge of the type of the links, of any time, or one of the loader's links; nor, where these
            were held out of a store's graph, any other one that was. Negatives for which no such pair was found are counted
            (`num_false_negatives`). False: any pair may come, as in PyG.
        exclude_links: "self": edges of the sample that are links of the batch are left out; "reverse": also edges that run the other way,
            of the same type or of the type named "rev_..."; or the edge types to leave them out of, in any direction that fits the links.
            They are counted (`num_excluded_edges`). None: edges stay, as in PyG.
        input_id: int64[n], the `input_id` of each link in its batch; default: its position, or, where the links are all edges of a store,
            `e_id`.
    Raises:
        UsageError, InputError, NotSupportedError: at construction, for anything that cannot work.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[tuple[str, str, str], Sequence[int]],
        edge_label_index: Any = None,
        edge_label: torch.Tensor | str | None = None,
        edge_label_time: torch.Tensor | None = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Batch], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        exclude_positives: bool = True,
        exclude_links: str | Sequence[EdgeType] | None = None,
        input_id: torch.Tensor | None = None,
        custom_cls: Callable[[], Any] | None = None,
        temporal_rule: str = "<=",
        time_window: int | None = None,
        seed: int | None = None,
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
        if "split" in kwargs:
            raise UsageError("links have one split, by `penstock hold-out`: name a part of it (edge_label_index='train')")
        if isinstance(exclude_links, Iterable) and not isinstance(exclude_links, str):
            exclude_links = list(exclude_links)  # for loaders beside this one too
        subgraph_type = choose_subgraph(subgraph_type, directed=directed)
        bidirectional = subgraph_type == SubgraphType.bidirectional
        how = {"exclude_positives": exclude_positives, "exclude_links": exclude_links, "bidirectional": bidirectional}
        self._choose = partial(choose_links, disjoint=disjoint, **how)
        links = {"edge_label_index": edge_label_index, "edge_label": edge_label, "edge_label_time": edge_label_time, "input_id": input_id}
        self.edge_label_index, self.neg_sampling = edge_label_index, choose_negatives(neg_sampling, neg_sampling_ratio)
        rule = SamplingRule(
            num_neighbors=num_neighbors,
            replace=replace,
            subgraph_type=subgraph_type,
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
            partial(self._choose, **links, neg_sampling=self.neg_sampling),
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            is_sorted=is_sorted,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=neighbor_sampler,
            custom_cls=custom_cls,
            seed=seed,
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

    def beside(
        self,
        edge_label_index: Any,
        edge_label: torch.Tensor | str | None = None,
        edge_label_time: torch.Tensor | None = None,
        neg_sampling: Any = None,
    ) -> LinkNeighborLoader:
        """Return a loader over other links, in their order, with the same settings and over the same tiers, without memory of its own.

        Args:
            edge_label_index, edge_label, edge_label_time, neg_sampling: as for a loader. Without `neg_sampling`, no negatives are drawn.
        """
        links = {"edge_label_index": edge_label_index, "edge_label": edge_label, "edge_label_time": edge_label_time}
        negatives = choose_negatives(neg_sampling, None)
        other = self._beside(partial(self._choose, **links, neg_sampling=negatives))
        other.edge_label_index, other.neg_sampling = edge_label_index, negatives
        return other

    def beside_nodes(
        self, input_nodes: Any, input_time: torch.Tensor | None = None, *, rank: int = 0, num_ranks: int = 1
    ) -> LinkNeighborLoader:
        """Return a loader over nodes, in their order, with the same settings and over the same tiers: for the rows of ends of links, say.

        Args:
            input_nodes, input_time, rank, num_ranks: as of `NeighborLoader`.
        """
        other = self._beside(partial(choose_nodes, input_nodes=input_nodes, input_time=input_time), rank, num_ranks)
        other.edge_label_index = other.neg_sampling = None
        return other
