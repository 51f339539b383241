"""Formatting numbers for people, and printing lines on standard error."""

from __future__ import annotations

import math
import sys
from typing import Any

SHARES = ("accuracy", "auc", "micro-f1", "hits@10")
"""Metrics that are shown in percent."""


def printable(text: str) -> str:
    """'a\x1b[2Jb' -> 'a\\x1b[2Jb': escape control characters in names and paths, which could move the cursor or reverse text."""
    return "".join(each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode() for each in text)


def say(line: str) -> None:
    """Print a line on standard error. If its disk is full, the line is lost and the work goes on; a closed pipe raises BrokenPipeError."""
    try:
        print(printable(line), file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        return


def count(value: float) -> str:
    """1234567 -> '1.23M'."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * limit:  # also values that round up to it with three digits
            return f"{value / limit:.3g}{unit}"
    return f"{value:.0f}"


def several(number: int, noun: str) -> str:
    """(1, 'thread') -> '1 thread', (2000, 'thread') -> '2,000 threads'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def unit(seeds: str) -> str:
    """What a rate counts, by what the seeds are: 'nodes' -> 'seeds', 'links' -> 'links'."""
    return "seeds" if seeds == "nodes" else seeds


def num_bytes(value: float) -> str:
    """1610612736 -> '1.5 GiB'."""
    for limit, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            return f"{value / limit:.0f} {unit}" if value >= 100 * limit else f"{value / limit:.3g} {unit}"
    return f"{value:.0f} B"


def seconds(value: float) -> str:
    """0.0123 -> '12 ms', 75 -> '1 min 15 s'."""
    if value < 1:
        return f"{value * 1e3:.0f} ms"
    if value < 60:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def score(value: float | None, metric: str) -> str:
    """(0.83125, 'auc') -> '83.13 %'; (0.83125, 'rmse') -> '0.8313', (58432.1, 'rmse') -> '58,432'."""
    if value is None:
        return "-"
    if metric in SHARES:
        return f"{100 * value:.2f} %"
    return f"{value:.4g}" if 0 < abs(value) < 1e-4 else f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value) or 1)))}f}"


def scored_parts(description: dict[str, Any]) -> list[str]:
    """Return which of val and test a run has, according to its description."""
    return [part for part in ("val", "test") if description["parts"].get(part)]


def kept(description: dict[str, Any]) -> str:
    """Return what the plan of a run keeps in memory, with the sum, according to the run's description."""
    plan = description["plan"]
    list_bytes, loaded_bytes = description["list_bytes"], description["loaded_bytes"]
    row_bytes = (description["cache_bytes"] - list_bytes) * bool(description["features"])
    is_shared = plan["neighbor_cache"] == "shared"
    is_fitted = bool(description["memory"])
    share, parts = "a share" if is_shared or is_fitted else plan["cache"], [f"{plan['order']} order"]
    if plan["policy"]:
        rows = f"{share} of the rows: {num_bytes(row_bytes)} with directory and state"
        parts.append(f"{plan['policy']} keeps {rows if description['features'] else 'no rows, for nodes have no features'}")
    if plan["device_policy"] and description["features"]:
        parts.append(f"{plan['device_policy']} keeps {plan['device_cache'] or 'what finds room'} of the rows on the device")
    if plan["neighbor_policy"] and (list_bytes or not is_fitted):
        share = share if is_shared or is_fitted else plan["neighbor_cache"]
        ranking = "presample" if is_fitted else plan["neighbor_policy"]
        parts.append(f"{ranking} keeps {share} of the neighbour lists: {num_bytes(list_bytes)} with their table")
    if loaded_bytes:
        parts.append(f"read into memory: {num_bytes(loaded_bytes)}")
    if sum(amount > 0 for amount in (row_bytes, list_bytes, loaded_bytes)) > 1:
        parts.append(f"{num_bytes(row_bytes + list_bytes + loaded_bytes)} together")
    return ", ".join(parts)
