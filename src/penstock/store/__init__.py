"""Graphs on disk: the format, the writer that builds it in bounded memory, and the store that is opened."""

from penstock.store.budget import Budget, format_bytes, parse_bytes
from penstock.store.check import CheckReport, Finding, check
from penstock.store.forecast import Forecast
from penstock.store.format import ArraySpec
from penstock.store.generation import generate
from penstock.store.ingestion import forecast, ingest
from penstock.store.opened import Store
from penstock.store.progress import Progress, Quiet

open = Store.open

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
    "ingest",
    "open",
    "parse_bytes",
]
