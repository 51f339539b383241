"""A model whose layers compute only the rows of a batch that later layers read, without a change of its code.

In: a model of PyG's layers. Out: the same model, called as before: `model(batch.x, batch.edge_index)`. Invariant: the rows of the seeds are
what the whole batch gives, up to the order of sums. This module says which models can be trimmed; `train/trimmed.py` computes the layers.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from inspect import iscode, isfunction, unwrap
from typing import Any, TypeVar

from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import trim_to_layer

from penstock.errors import NotSupportedError, UsageError
from penstock.feed.layers import are_counts
from penstock.inference.pyg_models import is_of_one_row
from penstock.train.trimmed import (
    KNOWN,
    OF_PRODUCTS,
    PART,
    Aggregated,
    Forward,
    Replacing,
    Talk,
    Trimmed,
    TrimmedLayer,
    TrimmedOfTypes,
    here,
    name_part,
    signature_of,
)

BY_SOURCES = (
    *(pyg.GCNConv, pyg.GCN2Conv, pyg.LGConv, pyg.SGConv, pyg.SSGConv, pyg.ARMAConv, pyg.EGConv, pyg.ChebConv, pyg.TAGConv, pyg.APPNP),
    *(pyg.MixHopConv, pyg.FAConv, pyg.PDNConv, pyg.PANConv, pyg.GatedGraphConv, pyg.HypergraphConv),
)
"""Layers that need the degrees of sources, or several hops; their subclasses may, too."""

PADDED = (
    *(pyg.LSTMAggregation, pyg.GRUAggregation, pyg.LCMAggregation, pyg.EquilibriumAggregation),
    pyg.aggr.PatchTransformerAggregation,
)
"""Aggregations by which a row depends on the longest list of all rows."""

BY_ALL_ROWS = (pyg.HANConv,)
"""Layers that take means over all rows of a type."""

Model = TypeVar("Model", bound=nn.Module)


def trim(model: Model, also: Collection[type[pyg.MessagePassing]] = ()) -> Model:
    """Make each layer of a model compute only the rows that later layers read, for batches of Penstock's loaders.

    The model is changed, and returned. It is called as before, and its first rows are those of the seeds. Its weights and their names stay
    as they were, and so do its results for edges from elsewhere. What stands between the layers gets fewer rows: a skip connection must
    take the first rows of what it skips, `out + x[: len(out)]`; a batch norm in training sees only the rows that are needed; a sum over all
    rows, such as a virtual node's, changes. A model that cuts rows itself by PyG's `trim_to_layer` does so no more: of the counts of a
    batch that its modules are given, or of a batch itself, all but the first are 0.

    Args:
        model: of PyG's layers, also in `HeteroConv` or made by `to_hetero`; rows of several layers may be joined by `JumpingKnowledge`.
        also: classes of further layers that take (x, edge_index, ...), or (x_dict, edge_index_dict, ...), and whose every row depends only
            on that node and its in-neighbours, and not on how many neighbours these have.
    Raises:
        UsageError: the model has no layer of PyG's.
        NotSupportedError: a layer needs more than the rows of in-neighbours, or may; or a norm is over all rows.
    """
    convs = [part for part in model.modules() if isinstance(part, pyg.MessagePassing)]
    if not convs:
        raise UsageError(f"{type(model).__name__} has no layer of PyG's (MessagePassing): there is nothing to trim")
    for conv in convs:
        _check(conv, also)
    for part in model.modules():
        if not is_of_one_row(part):
            raise NotSupportedError(
                f"{part} looks at all rows of a batch, of which a trimmed model has fewer: take batch_norm, for instance"
            )
    talk = Talk()
    for conv in convs:
        if "forward" not in vars(conv):
            of_class = signature_of(type(conv))
            conv.forward = (Trimmed if "x" in of_class.parameters else TrimmedOfTypes)(conv, type(conv), of_class, talk)
            conv.register_forward_pre_hook(name_part, with_kwargs=True)
            if type(conv) in OF_PRODUCTS:
                conv.message_and_aggregate = Aggregated(conv, type(conv))  # pyright: ignore[reportAttributeAccessIssue]
    if "forward" not in vars(model):
        model.forward = _Explaining(model, type(model))
        model.register_forward_pre_hook(name_part, with_kwargs=True)
    for part in model.modules():
        if isinstance(part, pyg.JumpingKnowledge):
            _hook(part, _cut_alike)
        if _cuts_rows(type(part)):
            _hook(part, _leave_uncut)
    return model


def _hook(part: nn.Module, hook: Any) -> None:
    """Have a part's arguments pass through a function, which is there once."""
    if hook not in part._forward_pre_hooks.values():
        part.register_forward_pre_hook(hook, with_kwargs=True)


def _cuts_rows(kind: type) -> bool:
    """Whether a class of modules cuts rows itself, by PyG's `trim_to_layer`."""
    seen: set[Any] = set()
    return any(_calls_it(method, seen) for base in kind.__mro__ for method in vars(base).values())


def _calls_it(method: Any, seen: set[Any]) -> bool:
    """Whether a function may call `trim_to_layer`, by whatever name: itself, in a function within it, or by one that is not a library's.
    `seen`: functions that were looked at."""
    method = method.__func__ if isinstance(method, staticmethod | classmethod) else method
    method = unwrap(method) if isfunction(method) else method
    if method is trim_to_layer or not isfunction(method) or method in seen:
        return method is trim_to_layer
    seen.add(method)
    codes = [method.__code__]
    for code in codes:  # which grows meanwhile
        codes += filter(iscode, code.co_consts)
    names = {name for code in codes for name in code.co_names}
    used = [method.__globals__.get(name) for name in names]
    for cell in method.__closure__ or ():
        with suppress(ValueError):  # it has nothing yet
            used.append(cell.cell_contents)
    own = (each for each in used if isfunction(each) and (each is trim_to_layer or not str(each.__module__).startswith("torch")))
    return "trim_to_layer" in names or any(_calls_it(each, seen) for each in own)


def _check(conv: Any, also: Collection[type]) -> None:
    name = type(conv).__name__
    if type(conv) not in KNOWN and isinstance(conv, BY_SOURCES):
        raise NotSupportedError(f"{name} needs degrees of its neighbours, or several hops, which a trimmed layer does not see")
    if isinstance(conv, BY_ALL_ROWS):
        raise NotSupportedError(f"{name} takes means over all rows of a type, of which a trimmed model has fewer")
    parameters = signature_of(type(conv)).parameters.keys()
    if not ({"x", "edge_index"} <= parameters or {"x_dict", "edge_index_dict"} <= parameters):
        raise NotSupportedError(
            f"{name} takes no x and edge_index, nor x_dict and edge_index_dict: a trimmed layer knows where it is by these"
        )
    if type(conv) not in (*KNOWN, *also):
        raise NotSupportedError(
            f"{name} is not known to give a node's row from its in-neighbours' rows alone; if it does, whatever their degrees, say so: "
            f"penstock.trim(model, also=[{name}])"
        )
    if "forward" in vars(conv) and not isinstance(conv.forward, TrimmedLayer):
        raise NotSupportedError(f"the forward of {name} was replaced: trim the model before")
    if conv.flow != "source_to_target":
        raise NotSupportedError(f"{name} sends along edges from target to source, and batches have the neighbours that send to their seeds")
    if getattr(conv, "cached", False):
        raise NotSupportedError(f"{name} keeps the edges of its first batch (cached=True): make the model without that")
    if type(conv) is pyg.GCNConv and conv.aggr not in ("add", "sum"):
        raise NotSupportedError(f"{name} with aggr={conv.aggr!r}: trim takes 'add'")
    for part in conv.modules():
        if isinstance(part, PADDED):
            raise NotSupportedError(f"{type(part).__name__} in {name}: a row depends on the longest list of neighbours of all rows")


@dataclass(eq=False)
class _Explaining(Replacing):
    """Replaces a model's `forward`: adds to errors about shapes that a trimmed model has fewer rows."""

    model: nn.Module
    kind: type[nn.Module]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model, before = kwargs.pop(PART, self.model), here.forward
        here.forward = Forward()
        try:
            return self.kind.forward(model, *args, **kwargs)
        except (RuntimeError, IndexError) as error:
            if isinstance(error, IndexError) or any(word in str(error).lower() for word in ("size", "narrow")):
                error.add_note(
                    "the model is trimmed: a layer gives fewer rows than it is given, the first ones; skip it by out + x[: len(out)], and "
                    "do not cut rows a second time, but by trim_to_layer with lists that forward() is given"
                )
            raise
        finally:
            here.forward = before


def _leave_uncut(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of a part that calls `trim_to_layer`: the numbers of nodes and edges by hop that it is given, or a batch has that it is given, are
    such that nothing is cut by them. The layers have cut those rows already."""
    return tuple(map(_of_one_hop, args)), {name: _of_one_hop(value) for name, value in kwargs.items()}


def _of_one_hop(counts: Any) -> Any:
    """Numbers by hop of a batch that layers know, also those of each type, or a batch, as if nothing was found after the first; anything
    else as it is, since a list may be there to be filled."""
    if isinstance(counts, Data | HeteroData):
        return _batch_of_one_hop(counts)
    if isinstance(counts, dict) and counts and all(isinstance(value, list) for value in counts.values()):
        cut = {key: _of_one_hop(value) for key, value in counts.items()}
        return cut if any(cut[key] is not value for key, value in counts.items()) else counts
    if not isinstance(counts, list) or not all(isinstance(count, int) for count in counts) or not any(counts[1:]):
        return counts
    return [count if hop == 0 else 0 for hop, count in enumerate(counts)] if are_counts(counts) else counts


def _batch_of_one_hop(batch: Data | HeteroData) -> Data | HeteroData:
    """A shallow copy of a batch with such numbers, or the batch where it has none."""
    copied, is_cut = copy.copy(batch), False
    for store, changed in zip(batch.stores, copied.stores, strict=True):
        for name in ("num_sampled_nodes", "num_sampled_edges"):
            if name in store and (cut := _of_one_hop(store[name])) is not store[name]:
                changed[name], is_cut = cut, True
    return copied if is_cut else batch


def _cut_alike(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Cut the rows of several layers to the first ones, which all have."""
    xs = args[0] if args else kwargs["xs"]
    least = min(map(len, xs))
    cut = [rows[:least] for rows in xs]
    return ((cut, *args[1:]), kwargs) if args else (args, {**kwargs, "xs": cut})
