"""docs/results/layout.md, rendered from `bench/results/layout.json`."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from bench.common import machine, table

CHOSEN = ("hotness", "community", "coaccess", "coaccess-ids", "hot-community", "hot-coaccess", "hot-coaccess-ids", "bands-coaccess")
SHOWN = ("random", *CHOSEN)
WORDS = {"none": "all rows", "presample": "what a static cache of the hottest tenth misses", "belady": "what Belady misses"}


def render(result: dict[str, Any]) -> str:
    """The page."""
    lines = [
        "# Packed layouts",
        "",
        "Pages of 4 KiB that a batch reads from a file of rows, by the order of the rows: quotients by the order that the file had; below",
        "1 is fewer, the best of what `penstock layout` chooses from is bold. What the names mean is in",
        "[design/layout.md](../design/layout.md). Orders are made from one sampled epoch and measured on another.",
        "`python -m bench.layout DATA` makes it; everything is in `bench/results/layout.json`.",
        "",
    ]
    for policy, words in WORDS.items():
        lines += [f"## Rows of 512 bytes, random order of seeds: {words}", ""]
        lines += [*table(["graph", "batches", "rows", "pages", *SHOWN], rows_of(result, policy, "512")), ""]
    lines += [
        "## Other rows",
        "",
        "The best of what `penstock layout` chooses from, against the order that the file had, and in brackets against a random one:",
        "geometric means over the graphs.",
        "",
        *table(["batches", "order of seeds", "of", *(f"{size} bytes" for size in sizes(result))], by_size(result)),
        "",
        "## Requests",
        "",
        "Runs of consecutive pages, which one request can read; rows of 512 bytes, random order of seeds, geometric means likewise. Where",
        "nearly all pages are read, they are few runs in any order.",
        "",
        *table(["batches", *WORDS.values()], by_runs(result)),
        "",
        machine(result),
        "",
    ]
    return "\n".join(lines)


def sizes(result: dict[str, Any]) -> list[str]:
    """Row bytes that were measured."""
    return list(next(iter(next(iter(result["graphs"].values()))["settings"].values()))["pages"])


def rows_of(result: dict[str, Any], policy: str, size: str) -> list[list[str]]:
    """A row per setting and graph."""
    rows = []
    for setting in result["settings"]:
        for name, graph in result["graphs"].items():
            found = graph["settings"][f"{setting}, random"]
            pages = {layout: values[policy] for layout, values in found["pages"][size].items()}
            best = min(pages[layout] for layout in (*CHOSEN, "original"))
            cells = [f"{'**' if pages[each] == best else ''}{quotient(pages[each], pages['original'])}" for each in SHOWN]
            cells = [f"{cell}**" if cell.startswith("**") else cell for cell in cells]
            rows.append([name, setting, f"{found['rows'][policy]:,.0f}", f"{pages['original']:,.0f}", *cells])
    return rows


def quotient(value: float, base: float) -> str:
    """To two digits; where nothing was read, nothing was saved."""
    return f"{value / base if base else 1.0:.2f}"


def means(result: dict[str, Any], setting: str, policy: str, kind: str, size: str) -> str:
    """Geometric means over the graphs: best against original (best against random)."""
    pairs = []
    for graph in result["graphs"].values():
        values = {layout: each[policy] for layout, each in graph["settings"][setting][kind][size].items()}
        best = min(values[layout] for layout in (*CHOSEN, "original"))
        if best > 0:
            pairs.append((best / values["original"], best / values["random"]))
    if not pairs:
        return "-"
    return f"{geometric_mean(one for one, _ in pairs):.2f} ({geometric_mean(other for _, other in pairs):.2f})"


def by_size(result: dict[str, Any]) -> list[list[str]]:
    """A row per setting, order of seeds and policy."""
    both = dict.fromkeys(name for graph in result["graphs"].values() for name in graph["settings"])
    return [
        [*name.rsplit(", ", 1), words, *(means(result, name, policy, "pages", size) for size in sizes(result))]
        for name in both
        for policy, words in WORDS.items()
    ]


def by_runs(result: dict[str, Any]) -> list[list[str]]:
    """A row per setting."""
    return [[setting, *(means(result, f"{setting}, random", policy, "runs", "512") for policy in WORDS)] for setting in result["settings"]]
