"""How each process of a factored loader makes its loader: the same one, with its own part of the plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from penstock.errors import NotSupportedError, UsageError, argument
from penstock.feed.neighbor_loader import NeighborLoader
from penstock.plan import SAME, SHARED, Plan
from penstock.sample import NeighborSampler
from penstock.sample.factored.process import SamplerSpec
from penstock.sample.seeds import NodeSeeds

Devices = str | None | Sequence[str | None]

_OF_TRAINERS = (
    "transform",
    "transform_sampler_output",
    "filter_per_worker",
    "num_workers",
    "prefetch_factor",
    "timeout",
    "pin_memory",
    "device",
)
"""Options that a sampler does not need."""
_DECIDED = ("order", "shuffle", "generator", "input_id", "split", "rank", "num_ranks", "step")
"""Options whose result all processes take from a loader made before."""
_HERE_ONLY = ("tables", "custom_cls", "sampler", "batch_sampler")


@dataclass(frozen=True, slots=True)
class LoaderSpec:
    """How a process makes its own loader for the same batches.

    Attributes:
        data: path of the store.
        num_neighbors, options: arguments of `NeighborLoader`.
        input_id: ids of the seeds for batches; None: their positions.
    """

    data: str
    num_neighbors: Any
    options: dict[str, Any]
    input_id: np.ndarray | None = None

    def make(self, kind: type[NeighborLoader] = NeighborLoader, **changes: Any) -> Any:
        """Make the loader, of class `kind` and with changed options."""
        input_id = None if self.input_id is None else torch.from_numpy(self.input_id)
        return kind(self.data, self.num_neighbors, **{**self.options, **changes}, input_id=input_id)


def make_specs(template: NeighborLoader, num_neighbors: Any, plan: Plan, options: dict[str, Any]) -> tuple[SamplerSpec, LoaderSpec]:
    """Return (the spec of samplers, the spec of trainers) for the batches of a loader with these `options`."""
    maker, lists = template.engine.maker, plan_of_lists(plan)
    sampler, seeds, path = maker.sampler, maker.seeds, path_of(maker.source.store)  # type: ignore[attr-defined]
    assert isinstance(seeds, NodeSeeds)
    given = {name: value for name, value in options.items() if name not in _DECIDED}
    given |= {"input_nodes": (seeds.node_type, seeds.ids), "order": maker.order, "seed": template.seed}
    make_sampler = None
    if not lists.is_plain:
        apart = {name: value for name, value in given.items() if name not in _OF_TRAINERS} | {"plan": lists}
        make_sampler = partial(_sampler_of, LoaderSpec(path, num_neighbors, apart))
    of_samplers = SamplerSpec(
        path=path, weight=options.get("weight_attr"), time=options.get("time_attr"), settings=sampler.settings,
        seeds=replace(seeds, input_ids=None),
        order=maker.order, batch_size=maker.batch_size, make_sampler=make_sampler,
    )  # fmt: skip
    return of_samplers, LoaderSpec(path, num_neighbors, given | {"plan": plan_of_rows(plan)}, seeds.input_ids)


def _sampler_of(spec: LoaderSpec) -> NeighborSampler:
    """Make a loader whose lists live in tiers, and return its sampler."""
    return spec.make().engine.maker.sampler


def plan_of_rows(plan: Plan) -> Plan:
    """Return a trainer's part of a plan: all but the neighbour lists. It holds samples ahead, not ids, since each sample comes only
    once."""
    rest = _without(plan, "topology", "neighbor_policy", "neighbor_cache", "neighbor_layout", "slow_topology")
    return replace(rest, hold="samples", device_topology="host")


def plan_of_lists(plan: Plan) -> Plan:
    """Return a sampler's part of a plan: the neighbour lists."""
    of_rows = "features", "policy", "cache", "slow", "spool", "spool_folder", "device_policy", "device_cache", "host_memory"
    return _without(plan, "order", *of_rows)


def _without(plan: Plan, *names: str) -> Plan:
    """Return a plan with the settings `names` at their defaults."""
    return replace(plan, **{name: getattr(Plan(), name) for name in names})


def check_plan(plan: Plan, options: dict[str, Any]) -> None:
    """Refuse plans that cannot be divided among several processes."""
    if plan.neighbor_cache == SHARED:
        raise NotSupportedError(
            f"{argument('neighbor_cache', SHARED)} divides one budget between lists and rows, and factored processes have a memory each: "
            "give cache and neighbor_cache"
        )
    if plan.slow_topology == SAME:
        raise NotSupportedError(f"{argument('slow_topology', SAME)}: rows and lists are read by different processes here")
    if plan.host_memory is not None:
        raise NotSupportedError(f"{argument('host_memory', plan.host_memory)} is a budget of one process: give policy and cache")
    if options.get("shards") is not None:
        raise NotSupportedError("shards is for loaders that sample in their own process: use NeighborLoader in each")
    if options.get("non_stop"):
        raise NotSupportedError("non_stop: factored samplers begin an epoch when a trainer asks for it: leave it out")
    for name in _HERE_ONLY:
        if options.get(name) is not None:
            raise NotSupportedError(
                f"{argument(name)} is read in one process only, and samplers are others; {argument('order')} takes an order"
            )


def check_counts(num_samplers: int, num_trainers: int, queue_depth: int, *, switching: bool = False) -> None:
    """Refuse numbers of processes that cannot work."""
    if num_samplers < 1 or num_trainers < (0 if switching else 1):
        raise UsageError(f"there must be a sampler and a trainer at least; got {num_samplers} and {num_trainers}")
    if queue_depth < 1:
        raise UsageError(f"queue_depth must be at least 1, got {queue_depth}")


def path_of(data: Any) -> str:
    """Return the path of a store, which every process can open."""
    if isinstance(data, (str, os.PathLike)):
        return os.fspath(data)
    raise UsageError(
        f"samplers are processes, and each opens the graph again: give a penstock Store or the path of one, got {type(data).__name__}"
    )


def device_of(devices: Devices, number: int) -> str | None:
    """Return the device of a process; devices are assigned in turn."""
    if devices is None or isinstance(devices, str):
        return devices
    return devices[number % len(devices)] if devices else None
