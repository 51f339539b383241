"""Penstock: train graph neural networks on graphs bigger than the GPU or bigger than memory.

Public are the names below, and what the modules named in `_MODULES` have in their `__all__` (of `errors`: its tree). All is loaded on
first use, so that `import penstock` stays fast and needs neither a GPU nor a compiler.
"""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import cache as cache
    from penstock import errors as errors
    from penstock import exchange as exchange
    from penstock import feed as feed
    from penstock import gather as gather
    from penstock import inference as inference
    from penstock import order as order
    from penstock import partition as partition
    from penstock import plan as plan
    from penstock import sources as sources
    from penstock import store as store
    from penstock import study as study
    from penstock import train as train
    from penstock.errors import PenstockError
    from penstock.feed import HGTLoader, LinkNeighborLoader, NeighborLoader, Walks, digest, layers
    from penstock.inference import infer
    from penstock.plan import Plan
    from penstock.store import Store, generate, hold_out, ingest, open
    from penstock.train import aggregate, trim

__version__ = "0.1.0"

_HOMES = {
    "HGTLoader": "penstock.feed",
    "LinkNeighborLoader": "penstock.feed",
    "NeighborLoader": "penstock.feed",
    "Plan": "penstock.plan",
    "PenstockError": "penstock.errors",
    "Store": "penstock.store",
    "Walks": "penstock.feed",
    "aggregate": "penstock.train",
    "digest": "penstock.feed",
    "generate": "penstock.store",
    "hold_out": "penstock.store",
    "infer": "penstock.inference",
    "ingest": "penstock.store",
    "layers": "penstock.feed",
    "open": "penstock.store",
    "trim": "penstock.train",
}

_MODULES = (
    "cache",
    "errors",
    "exchange",
    "feed",
    "gather",
    "inference",
    "order",
    "partition",
    "plan",
    "sources",
    "store",
    "study",
    "train",
)

__all__ = [
    "HGTLoader", "LinkNeighborLoader", "NeighborLoader", "PenstockError", "Plan", "Store", "Walks", "aggregate", "digest", "generate",
    "hold_out", "infer", "ingest", "layers", "open", "trim",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _load(f"penstock.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    globals()[name] = value = getattr(_load(_HOMES[name]), name)
    return value


def _load(module: str) -> Any:
    """Import a module, and all that its kernels need, with the garbage collector at rest: otherwise it walks through all of torch
    meanwhile, which takes 0.15 s each time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        loaded = importlib.import_module(module)
        if module == "penstock.feed":
            importlib.import_module("penstock.kernels._compile").load_compiler()
        return loaded
    finally:
        if was_enabled:
            gc.enable()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
