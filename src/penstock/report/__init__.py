"""Reporting a run: live progress in the terminal, and a report as one HTML page and as JSON."""
