"""What the result files of a GPU hold, and how a cell of their page is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NOT_RUN = "not run"
Table = Callable[[list[str], list[list[str]]], list[str]]
Results = dict[str, dict[str, Any] | None]


def pieces(results: Results, name: str) -> dict[str, Any]:
    """What a benchmark has measured so far, at this commit or an earlier one: that stays until this one's is whole."""
    result = results.get(name) or {}
    found = dict(result.get("pieces", {}))
    for one in reversed(result.get("earlier", [])):  # the latest first
        found |= {piece: joined(before, found.get(piece, {}), one["commit"]) for piece, before in one["pieces"].items()}
    return found


def joined(before: dict[str, Any], now: dict[str, Any], commit: str) -> dict[str, Any]:
    """Contenders that have gone a round of each kind anew, and of those that have before only, those; of all else, what was before.

    `earlier`: contender -> commit, of those that are of an earlier run.
    """
    if "seeds_per_s" not in now:
        return before
    through, through_before = (set.intersection(*map(set, one["seeds_per_s"].values())) for one in (now, before))
    new = [name for name in now["contenders"] if name in through or name not in through_before]
    old = [name for name in before["contenders"] if name not in new]
    medians = {
        mode: {
            name: rate for names, found in ((old, before), (new, now)) for name, rate in found["seeds_per_s"][mode].items() if name in names
        }
        for mode in before["seeds_per_s"]
    }
    contenders = {name: before["contenders"][name] for name in old} | {name: now["contenders"][name] for name in new}
    return {"contenders": contenders, "seeds_per_s": medians, "earlier": now.get("earlier", {}) | dict.fromkeys(old, commit)}


def times(value: float | None) -> str:
    """A ratio."""
    return NOT_RUN if value is None else f"{value:.2f}x"


def spread(values: dict[str, float] | None, unit: str = "") -> str:
    """Median (least to most)."""
    if values is None:
        return NOT_RUN
    middle, least, most = (f"{values[name]:.0f}" if values[name] >= 100 else f"{values[name]:.3g}" for name in ("median", "min", "max"))
    return f"{middle}{unit} ({least} to {most})"


def verdict(value: float | None, target: float, *, at_most: bool = False) -> str:
    """Whether a target is met."""
    if value is None:
        return "-"
    return "yes" if (value <= target if at_most else value >= target) else "**no**"


def row(what: str, target: str, paper: str, found: str, met: str) -> list[str]:
    """A row of the tables of figures that are asked for."""
    return [what, target, paper, found, met]
