"""Graphs on disk: the format, the writer that builds it in bounded memory, and the store that is opened.

The modules that write and check stores are imported on first use: opening a store does not need them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from penstock.store.budget import Budget, format_bytes, parse_bytes
from penstock.store.format import ArraySpec
from penstock.store.opened import Store
from penstock.store.progress import Progress, Quiet

if TYPE_CHECKING:
    from penstock.store.checking import CheckReport, Finding, check
    from penstock.store.held_out import hold_out
    from penstock.store.ingestion.forecasting import Forecast
    from penstock.store.ingestion.generation import generate
    from penstock.store.ingestion.run import forecast, ingest

open = Store.open

_HOMES = {
    "CheckReport": "checking",
    "Finding": "checking",
    "Forecast": "ingestion.forecasting",
    "check": "checking",
    "forecast": "ingestion.run",
    "generate": "ingestion.generation",
    "hold_out": "held_out",
    "ingest": "ingestion.run",
}

__all__ = [
    "ArraySpec",
    "Budget",
    "CheckReport",
    "Finding",
    "Forecast",
    "Progress",
    "Quiet",
    "Store",
    "check",
    "forecast",
    "format_bytes",
    "generate",
    "hold_out",
    "ingest",
    "open",
    "parse_bytes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.store' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"penstock.store.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
