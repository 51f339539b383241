"""What a loader is made of: the maker of its batches, the tables and lists that they are made from, and the engine that runs both.

In: the arguments of a loader, checked. Out: a `BatchMaker`, and an `Engine`.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from penstock.feed.arguments import Choose, check_walked, choose_order
from penstock.feed.caches import Caches
from penstock.feed.engine import Engine
from penstock.feed.fields import states_of
from penstock.feed.fit import Fitted, check_room, device_use, fit_memory
from penstock.feed.fit.memory import Bound
from penstock.feed.huge_pages import HugePages, read_at_random
from penstock.feed.inputs import Input
from penstock.feed.maker import BatchMaker
from penstock.feed.options import LoaderOptions, samples_ahead
from penstock.feed.sampling_rule import SamplingRule
from penstock.feed.setup.bottoms import Access
from penstock.feed.setup.choices import make_caches, workload_of
from penstock.feed.setup.device_cache import CacheToCome
from penstock.feed.setup.drawing import Drawing, Placement, choose_drawing
from penstock.feed.verify import PlainMaker
from penstock.gather import Seat, ShardedCache, ShardGroup, TieredTable, open_shards
from penstock.order import FirstBatches, Order
from penstock.plan import Plan
from penstock.store.process_memory import give_back_freed_memory, processes_here
from penstock.threads import Threads


def make_maker(
    source: Input,
    rule: SamplingRule,
    choose: Choose,
    plan: Plan,
    options: LoaderOptions,
    *,
    order: Order | str | None,
    seed: int,
    num_ranks: int,
    **others: Any,
) -> BatchMaker:
    """Make what decides the batches: the seeds (by `choose`), their order, and the sampler. `others`: attributes of the `BatchMaker`."""
    source.fields()  # refuses what does not fit the graph now rather than at the first batch
    times = rule.times(source)
    seeds = choose(source, times)
    sampler = rule.sampler(source, times, seed)
    if rule.walks is not None:
        check_walked(sampler, seeds, rule.subgraph_type, others)
    order = choose_order(order or (plan.order if options.shuffle else None), options, source, seeds, seed)
    return BatchMaker(
        source=source,
        seeds=seeds,
        order=order if options.batches_per_epoch is None else FirstBatches(order, options.batches_per_epoch * num_ranks),
        sampler=sampler,
        batch_size=options.batch_size,
        subgraph_type=rule.subgraph_type,
        times=None if times is None else dataclasses.replace(times, of_edges={}),
        **others,
    )


@torch.inference_mode(False)  # a loader that is made in that mode may be used outside it
def _fill_caches(
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


def make_engine(
    plan: Plan,
    maker: BatchMaker,
    options: LoaderOptions,
    *,
    tables: Mapping[Any, TieredTable] | None,
    step: Callable[[Any], object] | None,
    shards: Seat | None,
    num_ranks: int,
    **others: Any,
) -> Engine:
    """Put rows and lists where a plan wants them, and make what passes work with.

    Args:
        plan, maker, options, step: see `_fill_caches`.
        tables: the user's, by node or edge type; the input has more.
        shards: seat of this rank, where ranks share what is kept on their devices.
        num_ranks: of the loader.
        others: attributes of the `Engine`.
    """
    tables = {**maker.source.tables(), **(tables or {})}
    drawing = choose_drawing(plan, maker)
    plain = maker.with_own_memory(transform=None)  # before anything is put elsewhere
    caches = _fill_caches(plan, maker, options, drawing, tables, step, shards)
    plain_maker = PlainMaker(plain, caches.only(tables))
    cache_to_come = CacheToCome(plan, maker, caches) if plan.is_device_cache_found else None
    options, bound = _fit_to_memory(plan, maker, plain_maker, caches, options, step, num_ranks)
    may_move = plan.huge_pages and plan.host_memory is None and bound is None
    engine = Engine(
        maker=maker,
        plain_maker=plain_maker,
        caches=caches,
        sampled_by=drawing.why,
        options=options,
        sampling_options=dataclasses.replace(options, max_in_flight=max(1, samples_ahead(plan, options.num_workers))),
        workers=Threads(options.num_workers, "penstock"),
        samplers=Threads(options.num_workers, "penstock"),
        bound=bound,
        cache_to_come=cache_to_come,
        huge_pages=HugePages(partial(read_at_random, plan, maker) if may_move else tuple),
        num_ranks=num_ranks,
        **others,
    )
    weakref.finalize(engine, engine.huge_pages.stop)
    return engine


def _fit_to_memory(
    plan: Plan,
    maker: BatchMaker,
    plain_maker: PlainMaker,
    caches: Caches,
    options: LoaderOptions,
    step: Callable[[Any], object] | None,
    num_ranks: int,
) -> tuple[LoaderOptions, Bound | None]:
    """Settle how many threads and batches in flight there are. Returns (the options, what keeps the process within its memory or None).

    A plan's budget has settled both. Without one, in a container, batches of `plain_maker` are looked at, and `step` is tried on them, to
    see that both fit.
    """
    if caches.fitted is not None:
        settled = {"num_workers": caches.fitted.num_workers, "max_in_flight": caches.fitted.max_in_flight}
        return dataclasses.replace(options, **settled), caches.fitted.bound
    options = dataclasses.replace(options, max_in_flight=options.under_way(is_read_ahead=plan.is_read_ahead))
    if maker.delivery.device is not None:
        return options, None
    tried = dataclasses.replace(plain_maker.maker, transform=maker.transform)
    room = check_room(
        tried, plain_maker.caches, caches, plan, num_threads=options.num_workers, max_in_flight=options.max_in_flight,
        step=step, num_here=processes_here(num_ranks), files=read_at_random(plan, maker),
    )  # fmt: skip
    if room is None:
        return options, None
    return dataclasses.replace(options, num_workers=room.num_workers, max_in_flight=room.max_in_flight), room.bound
