"""The pictures of docs/results/caching.md, from `bench/results/caching.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.caching_page import FEW, GINEX, ORDERS, PAGRAPH, TENTH, WINDOWS, Cells
from penstock.study.plots import ORDER_COLOURS, apart, finish, line_of, new_figure

STATIC_SETTINGS = (PAGRAPH, TENTH, FEW)
POLICIES = ("oracle", "presample", "degree", "random", "fifo", "lru", "clock", "sieve", "lfu", "s3-fifo", "belady 16", "belady all")
SEED_ORDERS = ("random", "proximity", "one-sequence")


def draw(result: dict[str, Any], folder: Path) -> None:
    """Write all pictures as PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    cells = {name: Cells(found) for name, found in result["graphs"].items()}
    for name, figure in (("static", draw_static(cells)), ("dynamic", draw_dynamic(cells)), ("windows", draw_windows(cells))):
        figure.savefig(folder / f"caching-{name}.png", dpi=110, metadata={"Software": None})


def draw_static(cells: dict[str, Cells]) -> Any:
    """Hit rate against capacity: a row of panels per setting, a column per graph."""
    figure = new_figure(2.0 * len(cells) + 1.0, 2.0 * len(STATIC_SETTINGS) + 0.6)
    panels = figure.subplots(len(STATIC_SETTINGS), len(cells), sharex=True, sharey=True, squeeze=False)
    for number, (row, setting) in enumerate(zip(panels, STATIC_SETTINGS, strict=True)):
        for panel, (name, graph) in zip(row, cells.items(), strict=True):
            shares = [float(text.rstrip("%")) for text in graph.found["settings"][setting]["capacities"]]
            for label, curve in graph.order(setting)["curves"].items():
                panel.plot(shares, [100 * rate for rate in curve["hit_rate"]], label=label, **line_of(label))
            finish(panel, "" if number else name, shares, top=102, xlabel="")
        row[0].set_ylabel(f"{setting}\nhits, %", fontsize=9)
    figure.supxlabel("rows kept, % of the nodes", fontsize=9)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    return figure


def draw_dynamic(cells: dict[str, Cells]) -> Any:
    """Rows missed at 10% kept: a panel per graph, a row per policy, a dot per order."""
    figure = new_figure(2.0 * len(cells) + 1.4, 4.6)
    panels = figure.subplots(1, len(cells), sharey=True, sharex=True, squeeze=False).ravel()
    for panel, (name, graph) in zip(panels, cells.items(), strict=True):
        for number, (order, colour) in enumerate(zip(SEED_ORDERS, ORDER_COLOURS, strict=False)):
            missed = [100 * graph.missed(ORDERS, label, order=order) for label in POLICIES]
            panel.plot(missed, apart(len(POLICIES), number, len(SEED_ORDERS)), color=colour, marker="o", ms=4, lw=0, label=order)
        finish(panel, name, [100], xlabel="", top=None)
        panel.set_yticks(range(len(POLICIES)), POLICIES, fontsize=8)
        panel.set_ylim(len(POLICIES) - 0.5, -0.5)
    figure.supxlabel("rows missed, % of what the random order asks for; 10% kept, fanouts 10,10", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return figure


def draw_windows(cells: dict[str, Cells]) -> Any:
    """Share of full knowledge's gain by window: sliding and superbatches, a panel per fanouts, a line per graph."""
    figure = new_figure(9.6, 3.8)
    colours = ("#3b6fb6", "#e08a2c", "#3f9d62", "#c8463d", "#7f5fb0", "#37a2a2", "#8b93a1")
    for panel, setting in zip(figure.subplots(1, 2, sharey=True), (ORDERS, GINEX), strict=True):
        for (name, graph), colour in zip(cells.items(), colours, strict=False):
            places = [int(window) for window in WINDOWS]
            panel.plot(
                places, [100 * graph.gain(setting, f"belady {window}") for window in places], color=colour, marker="o", ms=3.5, label=name
            )
            later = places[1:]
            panel.plot(
                later, [100 * graph.gain(setting, f"superbatch {window}") for window in later], color=colour, ls=":", marker="s", ms=3
            )
        finish(panel, setting.split(" of ")[0] + " (dotted: superbatches)", places, xlabel="batches known")
        panel.set_xscale("log", base=4)
        panel.set_xticks(places, WINDOWS)
        panel.set_xlim(0.8, 80)
        panel.set_ylim(-5, 104)
    figure.axes[0].set_ylabel("gain over presample, % of full knowledge's", fontsize=9)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    return figure
