"""Showing what happened: live progress in the terminal, and a report of a run as one HTML page and as JSON."""

from penstock.report.live import choose_observer
from penstock.report.page import write_report

__all__ = ["choose_observer", "write_report"]
