"""Arguments of a loader, PyG's and ours, checked and resolved: the order of the seeds, and what is refused by name."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch_geometric.sampler.base import SubgraphType

from penstock.errors import NotSupportedError, UsageError, argument
from penstock.feed.inputs import Input
from penstock.feed.inputs.base import as_numbers
from penstock.feed.options import LoaderOptions
from penstock.gather import TieredTable
from penstock.order import GivenOrder, Order, SequentialOrder, order_by_name
from penstock.order.by_name import NEAR, SPLIT
from penstock.order.split import SplitOrder
from penstock.sample.neighbor import NeighborSampler, check_ids
from penstock.sample.seeds import NodeSeeds, SeedSet
from penstock.sample.times import Timestamps, as_moments, check_moments

logger = logging.getLogger("penstock")

Choose = Callable[[Input, Timestamps | None], SeedSet]
"""Chooses the seeds of a loader: (its input, times if it samples by time) -> the set of seeds."""


def choose_order(order: Order | str | None, options: LoaderOptions, source: Input, seeds: SeedSet, seed: int) -> Order:
    """Return the order of the seeds: by name (`shuffle` is "random"), the user's own, or that of his samplers; else as they are."""
    num_seeds = len(seeds)
    if order is not None and (options.sampler is not None or options.batch_sampler is not None):
        raise UsageError("order excludes sampler and batch_sampler: each says which seeds come when")
    if order == SPLIT:
        if not source.books:
            raise UsageError(f"{argument('order', SPLIT)} gives each process seeds of its part, and this graph has none: join a partition")
        positions, book = seeds.by_place(source.books)
        return SplitOrder(positions, book.num_parts, book.digest, seed, num_trainers=book.num_trainers)
    if isinstance(order, str):
        nodes = seeds.nodes() if order in NEAR else ("", range(num_seeds))
        return order_by_name(order, source.order_from, nodes, seed=seed, batch_size=options.batch_size)
    if order is not None:
        if not all(hasattr(order, name) for name in ("name", "num_seeds", "num_batches", "batch")):
            raise UsageError(f"order must be a name or an order (see penstock.order), got {type(order).__name__}")
        return order
    if options.sampler is not None or options.batch_sampler is not None:
        return GivenOrder(num_seeds, sampler=options.sampler, batch_sampler=options.batch_sampler)
    return SequentialOrder(num_seeds)


def choose_nodes(source: Input, times: Timestamps | None, input_nodes: Any, input_id: Any = None, input_time: Any = None) -> NodeSeeds:
    """Return the set of seeds, with the time of each where samples are by time; UsageError if it is empty."""
    seeds = source.seeds(input_nodes, input_id)
    if seeds.ids.size == 0:
        raise UsageError("input_nodes is empty: there is nothing to load; check the mask, the split or the ids")
    check_ids(source.graph, seeds.node_type, seeds.ids, are_looked_up=source.has_own_ids(seeds.node_type))
    return with_moments(seeds, input_time, times)


def check_non_stop(non_stop: Any, order: Order) -> bool | int:
    """Return `non_stop`, checked: with the user's samplers nobody knows the next epoch before it is asked for."""
    if not isinstance(non_stop, (bool, np.bool_)) and not (isinstance(non_stop, (int, np.integer)) and non_stop > 0):
        raise UsageError(f"non_stop must be True, False or a number of epochs from 1, got {non_stop!r}")
    if non_stop and isinstance(order, GivenOrder):
        raise UsageError("non_stop begins an epoch before it is asked for, and a sampler says what is in it then: leave out one of them")
    return bool(non_stop) if isinstance(non_stop, (bool, np.bool_)) else int(non_stop)


def check_walked(sampler: NeighborSampler, seeds: SeedSet, subgraph_type: SubgraphType, others: Mapping[str, Any]) -> None:
    """Refuse options of a loader that do not go with walks; the sampler refuses its own."""
    assert sampler.walks is not None
    if subgraph_type == SubgraphType.bidirectional or others.get("transform_output") is not None:
        raise NotSupportedError(
            "walks make edges with weights, for which neither bidirectional subgraphs nor PyG's SamplerOutput have a place: take "
            "subgraph_type='directional', and no transform_sampler_output"
        )
    node_type = sampler.walks.edge_type[2]
    if set(seeds.node_types) != {node_type}:
        raise UsageError(f"walks begin at nodes of type '{node_type}', and seeds are of {', '.join(seeds.node_types)}: see Walks.path")


def with_moments(seeds: NodeSeeds, input_time: Any, times: Timestamps | None) -> NodeSeeds:
    """Return the seeds with the time of each: the user's, or else that of the node; without times if nothing is sampled by time."""
    if times is None:
        if input_time is not None:
            raise UsageError("input_time needs time_attr, the attribute that says when nodes or edges came")
        return seeds
    if input_time is None:
        moments = times.of_seeds(seeds.node_type, seeds.ids)
    else:
        given = as_numbers(input_time.cpu() if isinstance(input_time, torch.Tensor) else input_time, "input_time")
        moments = as_moments(given, seeds.ids.size)
    return replace(seeds, times=check_moments(moments, times), rule=times.rule)


def as_rank(rank: Any, num_ranks: Any) -> tuple[int, int]:
    """Return (rank, num_ranks), checked."""
    if not (isinstance(rank, (int, np.integer)) and isinstance(num_ranks, (int, np.integer)) and 0 <= rank < num_ranks):
        raise UsageError(f"rank must be a whole number in [0, num_ranks), got rank={rank!r}, num_ranks={num_ranks!r}")
    return int(rank), int(num_ranks)


def check_batches(num_batches: int, num_seeds: int, batch_size: int, num_ranks: int, *, drop_last: bool, is_said: bool) -> None:
    """Refuse an epoch without batches; warn, if `is_said`, where ranks have unequal numbers of them."""
    if num_batches == 0 and not drop_last:
        raise UsageError("sampler, batch_sampler or order leaves no batch: it names no seed")
    if num_batches == 0:
        ranks = "" if num_ranks == 1 else f", {num_ranks} ranks"
        raise UsageError(
            f"drop_last leaves no batch: {num_seeds} seeds, batch_size {batch_size}{ranks}; take smaller batches, or drop_last=False"
        )
    if num_batches % num_ranks and is_said:
        logger.warning(
            "%d batches for %d ranks: some have one more. Where ranks wait for each other in every step (DDP), that step never ends: "
            "take drop_last=True, which gives all equally many, or model.join()",
            num_batches,
            num_ranks,
        )


_shuffled: Counter[str] = Counter()
"""Configuration of loaders that shuffle by torch's seed -> how many there were."""

_over: dict[str, set[str]] = {}
"""Configuration, without seeds, of loaders that draw by torch's seed -> their sets of seeds."""

MANY = 6
"""So many loaders over different seeds look as if one is made anew for every epoch; fewer may be train, val, test and a few folds."""


def warn_of_the_same_again(seed: int, configuration: Mapping[str, Any], seeds: Mapping[str, Any], *, shuffle: bool) -> None:
    """Warn once where a loader seems to be made anew for every epoch: that gives the same batches again, unlike PyG's loader.

    `configuration`: all that decides the batches, `seeds` included.
    """
    over = _over.setdefault(repr({name: value for name, value in configuration.items() if name not in seeds}), set())
    if len(over) < MANY:
        over.add(repr(seeds))
        if len(over) == MANY:
            logger.warning(
                "%d loaders over the same graph, each of other seeds, draw by the seed of torch or of their generators, %d, and each "
                "begins with the draws of epoch 0. Where one is made anew for every epoch, make one for all, or give each a seed=",
                MANY,
                seed,
            )
    if not shuffle:
        return
    known = repr(configuration)
    _shuffled[known] += 1
    if _shuffled[known] == 2:
        logger.warning(
            "another loader that shuffles by the seed of torch or of its generator, %d: from epoch 0 on it gives the same batches as the "
            "one before. Make one for all epochs, or give each a seed=",
            seed,
        )


_numbers = itertools.count()
"""Numbers of loaders, in the order in which all ranks make theirs."""


def warn_of_equal_ranks(seeds: Mapping[str, Any]) -> None:
    """Warn where a neighbouring rank has made a loader that shuffles the same seeds: then each trains on all of them. Without waiting."""
    if not (dist.is_available() and dist.is_initialized() and (num_ranks := dist.get_world_size()) > 1):
        return
    try:
        from torch.distributed.distributed_c10d import _get_default_store

        store, rank = _get_default_store(), dist.get_rank()
        name, mine = f"penstock/seeds/{next(_numbers)}/", repr(seeds)
        store.set(f"{name}{rank}", mine)
        for other in {(rank + step) % num_ranks for step in (1, -1)}:
            if store.check([f"{name}{other}"]) and store.get(f"{name}{other}").decode() == mine:
                logger.warning(
                    "ranks %d and %d of %d load the same seeds, each of them all: give rank= and num_ranks=, with drop_last=True, or to "
                    "each a part of the seeds. (Lightning and accelerate divide a DataLoader, which this is not.)",
                    rank,
                    other,
                    num_ranks,
                )
                return
    except (ImportError, AttributeError, RuntimeError) as error:  # a store of torch's that cannot do this, or none (MPI)
        logger.debug("whether ranks load the same seeds is not known: %s", error)


def as_positions(index: Any, num_seeds: int) -> np.ndarray:
    """Return int64[n]: positions in the set of seeds; of a mask those where it is set."""
    values = np.asarray(index.cpu() if isinstance(index, torch.Tensor) else index)
    if values.dtype == bool and values.shape == (num_seeds,):
        return np.flatnonzero(values)
    if values.size and values.dtype.kind not in "iu":
        raise UsageError(
            f"positions in the set of seeds are whole numbers, or a mask of {num_seeds} entries; got {values.dtype} {list(values.shape)}"
        )
    return values.astype(np.int64).reshape(-1)


def check_kinds(tables: Any, **functions: Any) -> None:
    """Refuse tables that are none, and what is to be called and cannot be."""
    for key, table in (tables or {}).items():
        if not isinstance(table, TieredTable):
            raise UsageError(f"tables: {key!r} must have a penstock.gather.TieredTable, got {type(table).__name__}")
    for name, value in functions.items():
        if value is not None and not callable(value):
            raise UsageError(f"{name} must be a function, got {type(value).__name__}")


def warn_of_overrides(kind: type) -> None:
    """Say so where a class of the user's overrides what PyG's loader calls and this one does not."""
    for name in ("collate_fn", "filter_fn"):
        if hasattr(kind, name):
            warnings.warn(f"{kind.__name__}.{name} is not called by Penstock: see transform and transform_sampler_output", stacklevel=4)


def refuse_sampler(neighbor_sampler: Any) -> None:
    """Raise for an argument of PyG's that has no meaning here."""
    if neighbor_sampler is not None:
        raise NotSupportedError(
            "neighbor_sampler is not supported: Penstock samples itself; torch_geometric.loader.NodeLoader takes a sampler of your own"
        )


NO_PARTS = "batches are made as a whole, and transform is called on each. In place of PyG's ZipLoader write zip(a, b)"
NO_SAMPLER = "Penstock samples itself. In place of model.inference(loader) write penstock.infer(model, data)"
NO_PROCESSES = "it is for worker processes, and num_workers are threads here"


class Absent:
    """An attribute of PyG's loaders that these have not: `hasattr` says so, and who asks for it learns why, and what to do instead."""

    def __init__(self, why: str) -> None:
        self._why, self._name = why, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, loader: Any, kind: type) -> NoReturn:
        raise AttributeError(f"{kind.__name__} has no {self._name}: {self._why}")
