"""Showing what happened: live progress in the terminal, and a report of a run as one HTML page and as JSON.

Both are loaded on first use: `penstock.report.doctor` needs neither, nor anything that they import.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.report.live import choose_observer
    from penstock.report.page import write_report

_HOMES = {"choose_observer": "live", "write_report": "page"}

__all__ = ["choose_observer", "write_report"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.report' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"penstock.report.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
