"""The pictures of a report, as SVG text inside the page: readable at any width."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from penstock.feed.stats import sources_of
from penstock.report import words
from penstock.train import EpochRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE = "#3b6fb6"
ORANGE = "#e08a2c"
GREEN = "#3f9d62"
RED = "#c8463d"
GREY = "#b8bec8"
PURPLE = "#7f5fb0"
TEAL = "#2f97a0"
STAGE_COLOURS = {"order": PURPLE, "sample": BLUE, "gather": GREEN, "assemble": ORANGE, "move": TEAL, "transform": RED, "idle": GREY}
CALLER_COLOURS = {"model step": BLUE, "waiting for batches": RED, "evaluation": ORANGE, "other": GREY}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; sizes in inches."""
    from matplotlib.figure import Figure  # imported late: only needed at the end of a run

    return Figure(figsize=(width, height), layout="constrained")


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure with one picture, and its axes."""
    figure = new_figure(width, height)
    return figure, figure.subplots()


def _marker(history: list[EpochRecord]) -> dict[str, Any]:
    return {"marker": "o", "markersize": 3} if len(history) < 40 else {}


def save(figure: Figure, target: IO[str] | Path, kind: str) -> None:
    """Write a figure as "svg", with text as paths, or "png". The same figure gives the same bytes."""
    import matplotlib as mpl

    nothing = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "penstock"}):
        figure.savefig(target, format=kind, dpi=130, metadata=nothing)


def as_svg(figure: Figure) -> str:
    """Return a figure as SVG text."""
    text = io.StringIO()
    save(figure, text, "svg")
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def frame(axes: Axes, title: str) -> None:
    """Add a title, a grid, and lines on two sides."""
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _style(axes: Axes, title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    frame(axes, title)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def draw_loss(history: list[EpochRecord]) -> str:
    """Training loss over epochs."""
    figure, axes = new_axes(3.8, 2.7)
    axes.plot([record.epoch + 1 for record in history], [record.loss for record in history], color=BLUE, **_marker(history))
    _style(axes, "training loss")
    return as_svg(figure)


def draw_scores(history: list[EpochRecord], metric: str) -> str:
    """The metric over epochs: training, val and test."""
    (figure, axes), marker = new_axes(3.8, 2.7), _marker(history)
    factor, unit = (100, ", %") if metric in words.SHARES else (1, "")
    for name, label, colour in (("train_score", "train (sampled, dropout)", GREY), ("val", "val", BLUE), ("test", "test", ORANGE)):
        points = [(record.epoch + 1, factor * getattr(record, name)) for record in history if getattr(record, name) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, label=label, **marker)
    if axes.lines:
        axes.legend(frameon=False, fontsize=8)
    _style(axes, metric + unit)
    return as_svg(figure)


def draw_tiers(history: list[EpochRecord], kind: str = "tiers") -> str:
    """Share of the rows ("tiers") or neighbour lists ("lists") that each tier served, epoch by epoch."""
    counted = "num_rows" if kind == "tiers" else "num_lists"
    counts = [{tier: each[counted] for tier, each in sources_of(getattr(record, kind)).items()} for record in history]
    figure, axes = new_axes(5.6, 2.3)
    epochs, below = [record.epoch + 1 for record in history], [0.0] * len(history)
    for tier, colour in zip(counts[-1], (GREEN, GREY, BLUE, ORANGE, PURPLE, RED) * 4, strict=False):
        shares = [100 * each.get(tier, 0) / (sum(each.values()) or 1) for each in counts]
        axes.bar(epochs, shares, bottom=below, color=colour, label=tier.replace("$", r"\$"), width=0.8)
        below = [low + share for low, share in zip(below, shares, strict=True)]
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _style(axes, f"{counted.removeprefix('num_')} by tier, %")
    return as_svg(figure)


def draw_stages(history: list[EpochRecord], num_workers: int) -> str:
    """Where the time went: one bar for the caller's thread, one for the sampling threads."""
    caller, feeding = split_caller(history), split_feeding(history, num_workers)
    figure, axes = new_axes(5.6, 2.3)
    bars = [("caller", caller, CALLER_COLOURS)]
    if num_workers:
        bars.append((f"{num_workers} sampling\nthread{'s' if num_workers > 1 else ''}", feeding, STAGE_COLOURS))
    for row, (_, parts, colours) in enumerate(bars):
        total, left = sum(parts.values()) or 1.0, 0.0
        for name, value in parts.items():
            share, colour = 100 * value / total, colours.get(name, GREY)
            axes.barh(row, share, left=left, color=colour, edgecolor="white", linewidth=0.8, height=0.55)
            if share > 7:
                shown = name if share > 16 else name.split()[0]
                ink = "black" if colour == GREY else "white"
                axes.text(left + share / 2, row, f"{shown}\n{share:.0f} %", ha="center", va="center", fontsize=7.5, color=ink)
            left += share
    axes.set_yticks(range(len(bars)), [f"{name}\n{words.seconds(sum(parts.values()))}" for name, parts, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the time, %")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    return as_svg(figure)


def draw_throughput(history: list[EpochRecord], unit: str) -> str:
    """Seeds per second of each epoch. `unit`: what they are."""
    figure, axes = new_axes(5.6, 1.9)
    axes.bar([record.epoch + 1 for record in history], [record.seeds_per_s for record in history], color=BLUE, width=0.8)
    _style(axes, f"{unit} trained per second")
    axes.yaxis.set_major_formatter(lambda value, position: words.count(value))
    return as_svg(figure)


def split_caller(history: list[EpochRecord]) -> dict[str, float]:
    """Seconds of the caller's thread by what it did."""
    step, wait = sum(record.step_s for record in history), sum(record.wait_s for record in history)
    train, evaluation = sum(record.train_s for record in history), sum(record.eval_s for record in history)
    return {"model step": step, "waiting for batches": wait, "evaluation": evaluation, "other": max(train - step - wait, 0.0)}


def split_feeding(history: list[EpochRecord], num_workers: int) -> dict[str, float]:
    """Seconds of the sampling threads by stage, idle time included."""
    stages: dict[str, float] = {}
    for record in history:
        for name, value in record.stage_s.items():
            stages[name] = stages.get(name, 0.0) + value
    ordered = {name: stages[name] for name in STAGE_COLOURS if name in stages}
    ordered["idle"] = max(num_workers * sum(record.train_s for record in history) - sum(ordered.values()), 0.0)
    return ordered
