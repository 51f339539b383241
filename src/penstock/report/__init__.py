"""Showing what happened: live progress in the terminal, and a report of a run as one HTML page and as JSON."""
