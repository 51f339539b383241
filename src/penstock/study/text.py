"""Studies as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.report import words

UNSURE = 0.2
"""Error from which on a forecast counts as unreliable."""


def as_text(result: dict[str, Any]) -> str:
    """Return the tables of a study: missed rows (and hit rate) per epoch, by policy and capacity."""
    graph, settings = result["graph"], result["settings"]
    fanouts = ",".join(map(str, settings["num_neighbors"]))
    lines = [
        f"{result['store']}: {words.count(graph['num_nodes'])} nodes of '{graph['node_type']}', {words.count(graph['num_edges'])} edges, "
        f"{words.count(result['num_seeds'])} train nodes, fanouts {fanouts}, batches of {settings['batch_size']:,}"
    ]
    for name, order in result["orders"].items():
        lines += ["", *_order_lines(name, order, result)]
    return "\n".join(lines)


def _order_lines(name: str, order: dict[str, Any], result: dict[str, Any]) -> list[str]:
    row_bytes, rows, lists = result["row_bytes"], order["accesses"]["rows"], order["accesses"]["lists"]
    moved = f" = {words.num_bytes(order['asked_rows_per_epoch'] * row_bytes)}" if row_bytes else ""
    alike = order["accesses"]["similarity_between_epochs"]
    lines = [
        f"{name} order: {words.count(order['asked_rows_per_epoch'])} rows asked for per epoch{moved}, "
        f"{words.count(order['asked_rows_per_batch'])} per batch",
        f"{_percent(rows['visited_share'])} of the nodes are read, half of the reads go to {_percent(rows['skew']['needed']['0.5'])} of "
        f"the nodes; 98% of the reads of lists go to {_percent(lists['skew']['needed']['0.98'])} of their bytes; "
        f"hot rows of two epochs: {_percent(sum(alike) / max(len(alike), 1))} alike",
    ]
    head = ["missed rows per epoch (hits)", *(each["text"] for each in result["capacities"])]
    table = [[label, *_cells(curve)] for label, curve in order["curves"].items()]
    table.append(["at most, any policy", *(_percent(share) for share in order["ceiling"])])
    if row_bytes and order["curves"]:
        best = min(order["curves"].values(), key=lambda curve: curve["missed_rows"][-1])
        table.append(["bytes moved by the best", *(words.num_bytes(value) for value in best["moved_bytes"])])
    lines += align([head, *table])
    return lines + [f"{label}: left out, what it must know of accesses exceeds --memory" for label in order["left_out"]]


def _cells(curve: dict[str, Any]) -> list[str]:
    pairs = zip(curve["missed_rows"], curve["hit_rate"], strict=True)
    return [f"{words.count(missed)} ({_percent(rate)})" for missed, rate in pairs]


def align(rows: list[list[str]]) -> list[str]:
    """Return lines with aligned columns; the first column is left-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def plan_lines(result: dict[str, Any], name: Callable[[dict[str, Any]], str]) -> list[str]:
    """Return the table of tried plans, and the forecast for the chosen one. `name`: writes the settings that a plan changes."""
    settings, trials, again = result["settings"], result["trials"], result["again"]
    chosen, unit = trials[result["chosen"]], f"{words.unit(result['seeds'])}/s"
    what = "" if result["seeds"] == "nodes" else f" {result['seeds']} ({result['seed_type']})"
    fanouts = ",".join(map(str, settings["num_neighbors"]))
    where = (
        "fits memory, and was read once" if result["is_in_memory"] else f"beside {words.num_bytes(result['machine']['free_bytes'])} free"
    )
    lines = [
        f"{result['store']}: {words.num_bytes(result['read_bytes'])} of features and lists, {where}; fanouts {fanouts}, batches of "
        f"{settings['batch_size']:,}{what}, {result['machine']['cores']} cores",
        "",
    ]
    head = ["plan", "threads", unit, "an epoch", "a batch", "memory", "from disk/batch", "from the cache", "ready after"]
    lines += align([head, *([name(one["changes"]), f"{one['num_workers']}", *_plan_cells(one, result)] for one in trials)])
    lines += [f"{name(one['changes'])}: {one['failed']}" for one in trials if "failed" in one]
    lines += [
        "",
        f"Use {name(chosen['changes'])}, {words.several(chosen['num_workers'], 'thread')}: {words.count(chosen['seeds_per_s'])} {unit}.",
    ]
    if result["error"] is None:
        return [*lines, f"Run again over other batches, it failed: {again['failed']}"]
    is_known = abs(result["error"]) <= UNSURE
    return [
        *lines,
        f"Run again over other batches: {words.count(again['seeds_per_s'])} {unit}, {100 * result['error']:+.0f}% of what was foretold, "
        f"{words.num_bytes(again['memory_bytes'])} of memory." + ("" if is_known else " That is not known well: give --seconds more."),
    ]


def _plan_cells(trial: dict[str, Any], result: dict[str, Any]) -> list[str]:
    if "failed" in trial:
        return ["-"] * 7
    read, hits = trial["read_bytes_per_batch"], trial["hit_rate"]
    return [
        "~" * trial["is_hopeless"] + words.count(trial["seeds_per_s"]),
        words.seconds(result["num_batches"] * trial["batch_ms"] / 1e3),
        words.seconds(trial["batch_ms"] / 1e3),
        words.num_bytes(trial["memory_bytes"]),
        "-" if read is None else words.num_bytes(read),
        "-" if hits is None else _percent(hits),
        words.seconds(trial["ready_s"]),
    ]
