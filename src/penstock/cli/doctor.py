"""`penstock doctor`: which optional parts this machine has."""

from __future__ import annotations

from dataclasses import asdict

from penstock.cli.console import AsJson, show


def doctor(as_json: AsJson = False) -> None:
    """List what is available on this machine, and for each missing part what it would bring and why it is missing."""
    from penstock import __version__
    from penstock.report.doctor import examine

    parts = examine()
    show({"penstock": __version__, "parts": [asdict(part) for part in parts]}, lambda: "\n".join(map(str, parts)), as_json)
