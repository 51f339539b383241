"""What a loader is made of: the maker of its batches, and the tables and lists that they are made from.

In: the arguments of a loader, checked. Out: a `BatchMaker` and `Caches`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import UsageError
from penstock.feed.arguments import Choose, as_fanouts, check_walked, choose_order
from penstock.feed.caches import Caches
from penstock.feed.fields import states_of
from penstock.feed.fit import Fitted, device_use, fit_memory
from penstock.feed.inputs import Input
from penstock.feed.maker import BatchMaker
from penstock.feed.options import LoaderOptions
from penstock.feed.setup.bottoms import Access
from penstock.feed.setup.choices import make_caches, workload_of
from penstock.feed.setup.drawing import Drawing, Placement
from penstock.gather import Seat, ShardedCache, ShardGroup, TieredTable, open_shards
from penstock.order import Order
from penstock.plan import Plan
from penstock.sample import NeighborSampler
from penstock.sample.times import check_times
from penstock.sample.walks import Walks
from penstock.store.process_memory import give_back_freed_memory


def make_maker(
    source: Input,
    num_neighbors: Any,
    choose: Choose,
    plan: Plan,
    options: LoaderOptions,
    *,
    order: Order | str | None,
    subgraph_type: SubgraphType,
    replace: bool,
    disjoint: bool,
    weight_attr: str | None,
    time_attr: str | None,
    takes_last: bool,
    is_strict: bool,
    shared_draws: int,
    walks: Walks | None,
    layer_wise: bool,
    seed: int,
    **others: Any,
) -> BatchMaker:
    """Make what decides the batches: the seeds (by `choose`), their order, and the sampler. `others`: attributes of the `BatchMaker`."""
    source.fields()  # refuses what does not fit the graph now rather than at the first batch
    if time_attr is not None and not isinstance(time_attr, str):
        raise UsageError(f"time_attr must be the name of an attribute, got {type(time_attr).__name__}")
    times = None if time_attr is None else dataclasses.replace(source.times(time_attr), is_strict=is_strict)
    if times is not None:
        check_times(source.graph, times)
    seeds = choose(source, times)
    graph = source.graph if weight_attr is None else source.weighted(weight_attr)
    sampler = NeighborSampler(
        graph if times is None else source.timed(graph, times),
        as_fanouts(num_neighbors, source.graph.edge_types),
        replace=replace,
        disjoint=disjoint or times is not None,
        induced=subgraph_type == SubgraphType.induced,
        takes_last=takes_last,
        shared_draws=shared_draws,
        walks=walks,
        layer_wise=layer_wise,
        seed=seed,
    )
    if walks is not None:
        check_walked(sampler, seeds, subgraph_type, others)
    return BatchMaker(
        source=source,
        seeds=seeds,
        order=choose_order(order or (plan.order if options.shuffle else None), options, source, seeds, seed),
        sampler=sampler,
        batch_size=options.batch_size,
        subgraph_type=subgraph_type,
        times=None if times is None else dataclasses.replace(times, of_edges={}),
        **others,
    )


@torch.inference_mode(False)  # a loader that is made in that mode may be used outside it
def fill_caches(
    plan: Plan,
    maker: BatchMaker,
    options: LoaderOptions,
    drawing: Drawing,
    tables: Mapping[Any, TieredTable],
    step: Callable[[Any], object] | None,
    seat: Seat | None,
) -> Caches:
    """Put rows and lists where a plan wants them; the maker samples there from then on.

    Args:
        plan: resolved.
        maker: gets its sampler, on a device where that draws.
        options: of the loader.
        drawing: who draws the samples.
        tables: of the user's and of the input, by node or edge type.
        step: the user's training step, tried where a budget is shared out.
        seat: of this rank, where ranks share what is kept on their devices.
    """
    group = None if seat is None else ShardGroup(seat)
    of_nodes, of_edges = maker.source.fields()
    access = Access(
        is_mapped=maker.source.is_mapped,
        is_whole=maker.source.is_whole,
        packed=maker.source.packed,
        max_readers=max(1, options.num_workers) if plan.host_memory is not None else 8,
        reader=maker.delivery.device,
    )

    if drawing.is_on_device:
        plan = dataclasses.replace(plan, neighbor_layout="prefix")  # the layout of lists that a device keeps
    as_user = maker.delivery.calling()

    def fit(bottom: Caches) -> Fitted:
        assert bottom.graph is not None
        tried = maker.with_own_memory(sampler=maker.sampler.over(bottom.graph))
        in_flight = options.under_way(is_read_ahead=plan.is_read_ahead)
        use = None if access.reader is None else device_use(plan, bottom, topology=drawing.topology, is_mapped=access.is_mapped)
        kept_here = dataclasses.replace(plan, neighbor_policy=None, neighbor_cache="0") if drawing.is_on_device else plan
        with as_user():  # the stream of his step
            return fit_memory(kept_here, tried, bottom, num_workers=options.num_workers, max_in_flight=in_flight, step=step, use=use)

    with maker.delivery.working():
        workload, placement = workload_of(plan, maker), None
        if drawing.is_on_device:
            assert access.reader is not None
            placement = Placement(access.reader, drawing.topology)
            if plan.host_memory is None:  # counts come by way of pinned memory, which no budget has planned
                workload = dataclasses.replace(workload, drawn_by=placement.draw)
        caches = make_caches(
            plan, of_nodes, of_edges, workload, tables, access, fit=fit, is_drawn_on_device=drawing.is_on_device, group=group
        )
        served = {(key, kind.name) for key, table in caches.tables.items() if key not in tables for kind in table.kinds}
        caches.states = {place: state for place, state in states_of(of_nodes, of_edges).items() if place in served}
        maker.sampler = maker.sampler if caches.graph is None else maker.sampler.over(caches.graph)
        if placement is not None:
            maker.device_sampler = placement.draw(maker.sampler, caches.kept)
            maker.looked_at = caches.looked_at
            caches.kept = {} if plan.host_memory is not None else caches.kept
    maker.delivery.settle()
    if group is not None:
        open_shards(group, {key: cache for key, cache in caches.top.items() if isinstance(cache, ShardedCache)})
    if plan.host_memory is not None:
        give_back_freed_memory()
    return caches
