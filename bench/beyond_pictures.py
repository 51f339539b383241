"""The pictures of docs/results/disk.md, drawn from `bench/results/beyond_memory.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.beyond_page import CONTENDERS, MODELS, SENSITIVITIES, TARGETS, cells, rate, runs_of
from penstock.study.plots import finish, new_figure

COLOURS = {"mmap": "#8b93a1", "ali+pg": "#e08a2c", "ginex": "#3b6fb6", "ours": "#3f8f5f"}


def draw(result: dict[str, Any], folder: Path) -> None:
    """Write the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_main(result["stores"]).savefig(folder / "disk-main.png", dpi=110, metadata={"Software": None})
    figure = draw_sensitivity(result["stores"])
    if figure is not None:
        figure.savefig(folder / "disk-sensitivity.png", dpi=110, metadata={"Software": None})


def draw_main(stores: dict[str, Any]) -> Any:
    """Speed over that of mmap, a group of bars per store and model."""
    found = cells(stores)
    figure = new_figure(1.6 * len(found) + 1.6, 3.2)
    panel = figure.subplots(1, 1)
    labels = {contender: contender for contender in CONTENDERS}  # each once
    for place, (_, _, runs) in enumerate(found):
        for number, contender in enumerate(CONTENDERS):
            if runs[contender] and runs["mmap"]:
                height = rate(runs[contender]) / rate(runs["mmap"])
                panel.bar(place + 0.2 * (number - 1.5), height, 0.19, color=COLOURS[contender], label=labels.pop(contender, None))
    panel.axhline(TARGETS["mmap"], color="#1d2433", lw=0.8, ls=":", label=f"wanted: {TARGETS['mmap']:.0f}")
    panel.axhspan(1.83, 2.67, color="#3b6fb6", alpha=0.12, lw=0, label="ginex in the paper")
    panel.set_xticks(range(len(found)), [f"{name}\n{MODELS[model]}" for name, model, _ in found], fontsize=8)
    panel.set_ylabel("samples/s over mmap's", fontsize=9)
    panel.set_xlim(-0.6, len(found) - 0.4)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=6, frameon=False, fontsize=8)
    return figure


def draw_sensitivity(stores: dict[str, Any]) -> Any:
    """Curves: a panel per parameter and store."""
    panels = [(name, what) for name, store in stores.items() for what in SENSITIVITIES if store.get(what)]
    if not panels:
        return None
    figure = new_figure(3.2 * len(panels) + 0.4, 3.2)
    for panel, (name, what) in zip(figure.subplots(1, len(panels), squeeze=False).ravel(), panels, strict=True):
        points = sorted(stores[name][what], key=float)
        for contender in CONTENDERS[:3] if what != "window" else ("ginex",):
            keys = {point: (what, point, contender) if what != "window" else (what, point) for point in points}
            there = [point for point in points if runs_of(stores[name], *keys[point])]
            heights = [rate(runs_of(stores[name], *keys[point])) for point in there]
            panel.plot([float(p) for p in there], heights, color=COLOURS[contender], marker="o", ms=3.5, label=contender)
        finish(panel, name, [float(point) for point in points], xlabel=SENSITIVITIES[what], top=None)
        panel.set_xlim(float(points[0]) / 1.2, float(points[-1]) * 1.25)
        panel.set_xscale("log", base=2)
        panel.set_xticks([float(point) for point in points], points)
        panel.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("samples/s", fontsize=9)
    figure.legend(*figure.axes[-1].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure
