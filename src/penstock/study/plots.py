"""The pictures of a study: misses against capacity, and the skew of accesses. Each as SVG and PNG."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cache.choose import DYNAMIC
from penstock.errors import argument
from penstock.report import words
from penstock.report.plots import frame, new_figure, save
from penstock.store.whole_file import replacing
from penstock.study.config import LOOK_AHEAD

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, BLACK = "#8b93a1", "#1d2433"
ORDER_COLOURS = ("#3b6fb6", "#c8463d", "#3f9d62", "#e08a2c", "#7f5fb0", "#37a2a2")
COLOURS = {
    "random": GREY, "degree": "#e08a2c", "ratio": "#a3588f", "presample": "#3b6fb6", "presample-2": "#7a9fd4",
    "inclusion": "#59a5d8", "oracle": "#17365f",
    "fifo": "#c8463d", "lru": "#3f9d62", "lfu": "#7f5fb0", "clock": "#d977a8", "sieve": "#9a8f2d", "s3-fifo": "#37a2a2",
}  # fmt: skip
OTHER_COLOURS = ("#6b4f3a", "#b5577d", "#4c8c7d", "#9c7a3c", "#5b5ea6", "#7d8c4c")
"""Static policies have solid lines, dynamic ones dashed lines, bounds and look-ahead are black and grey."""


def write_pictures(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write all pictures of a study into a folder; returns their paths."""
    written = []
    for name, order in result["orders"].items():
        written += write_both(draw_curves(name, order, result), folder / f"misses-{name}")
        written += write_both(draw_accesses(name, order), folder / f"accesses-{name}")
    if len(result["orders"]) > 1:
        written += write_both(draw_orders(result), folder / "orders")
    return written


def write_both(figure: Figure, path: Path) -> list[Path]:
    """Write `<path>.svg` and `<path>.png`."""
    paths = [path.with_name(f"{path.name}.{kind}") for kind in ("svg", "png")]
    for target in paths:
        with replacing(target, f"free some space, or choose another {argument('out')}") as aside:
            save(figure, aside, target.suffix[1:])
    return paths


def draw_curves(name: str, order: dict[str, Any], result: dict[str, Any]) -> Figure:
    """Hit rate and missed rows per epoch against capacity, a line per policy."""
    figure = new_figure(9.6, 4.2)
    left, right = figure.subplots(1, 2)
    shares = [100 * each["share"] for each in result["capacities"]]
    left.fill_between(shares, [100 * share for share in order["ceiling"]], 102, color="#f0f1f4", lw=0, label="out of reach")
    for label, curve in order["curves"].items():
        left.plot(shares, [100 * rate for rate in curve["hit_rate"]], label=label, **line_of(label))
        right.plot(shares, curve["missed_rows"], label=label, **line_of(label))
    right.axhline(order["asked_rows_per_epoch"], color=GREY, lw=0.8, ls=":")
    finish(left, "hit rate, %", shares, top=102)
    finish(right, "rows missed per epoch (dotted: asked for)", shares)
    right.yaxis.set_major_formatter(lambda value, position: words.count(value))
    figure.suptitle(f"{name} order, fanouts {','.join(map(str, result['settings']['num_neighbors']))}", fontsize=11)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    return figure


def draw_orders(result: dict[str, Any]) -> Figure:
    """Draw missed rows per epoch, a panel per capacity, a row per policy, a dot per order, since an order changes what a batch asks for."""
    orders = result["orders"]
    labels = [label for label in next(iter(orders.values()))["curves"] if all(label in order["curves"] for order in orders.values())]
    shown = list(enumerate(result["capacities"]))[-4:]
    figure = new_figure(2.6 * len(shown) + 1.6, 0.24 * len(labels) + 1.5)
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False).ravel()
    for panel, (place, capacity) in zip(panels, shown, strict=True):
        for number, ((name, order), colour) in enumerate(zip(orders.items(), cycle(ORDER_COLOURS), strict=False)):
            missed = [order["curves"][label]["missed_rows"][place] for label in labels]
            panel.plot(missed, apart(len(labels), number, len(orders)), color=colour, marker="o", ms=4, lw=0, label=name)
            panel.axvline(order["asked_rows_per_epoch"], color=colour, lw=0.8, ls=":")
        frame(panel, f"{capacity['text']} kept")
        panel.set_yticks(range(len(labels)), labels, fontsize=8)
        panel.set_xlim(0, None)
        panel.xaxis.set_major_formatter(lambda value, position: words.count(value))
    panels[0].invert_yaxis()
    figure.supxlabel("rows missed per epoch (dotted: asked for)", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(orders), frameon=False, fontsize=9)
    return figure


def draw_accesses(name: str, order: dict[str, Any]) -> Figure:
    """Draw how often nodes are read (PaGraph Fig. 5), and which share of the bytes serves which share of the reads, of rows and of
    lists."""
    figure = new_figure(9.6, 3.6)
    left, right = figure.subplots(1, 2)
    rows, lists = order["accesses"]["rows"], order["accesses"]["lists"]
    left.step(rows["cdf"]["visits"], [100 * share for share in rows["cdf"]["share"]], where="post", color="#3b6fb6")
    epochs = "1 epoch" if rows["num_epochs"] == 1 else f"{rows['num_epochs']} epochs"
    frame(left, f"nodes read at most so often in {epochs}, %")
    left.set_xscale("log")
    left.set_xlabel("reads of a node")
    left.set_ylim(0, 102)
    for data, label, colour in ((rows, "rows, by number", "#3b6fb6"), (lists, "neighbour lists, by bytes", "#e08a2c")):
        curve = data["skew"]["curve"]
        right.plot([100 * x for x in curve["size_share"]], [100 * y for y in curve["access_share"]], color=colour, label=label)
    frame(right, "reads served by the hottest, %")
    right.set_xlabel("share kept, %")
    right.set_xlim(0, 100)
    right.set_ylim(0, 102)
    right.legend(frameon=False, fontsize=8, loc="lower right")
    figure.suptitle(f"{name} order", fontsize=11)
    return figure


def apart(num_rows: int, number: int, count: int) -> list[float]:
    """Return the heights of the dots of one of `count` series in `num_rows` rows, so that dots do not overlap."""
    return [row + 0.5 * (number - (count - 1) / 2) / count for row in range(num_rows)]


def line_of(label: str) -> dict[str, Any]:
    """Return the style of a policy's line."""
    name, _, window = label.partition(" ")
    if name not in LOOK_AHEAD:
        wide = 3.4 if name == "degree" else 1.5  # wide, as it is often under another line
        colour = COLOURS.get(name, OTHER_COLOURS[sum(name.encode()) % len(OTHER_COLOURS)])
        return {"color": colour, "ls": "--" if name in DYNAMIC else "-", "marker": "o", "ms": 3, "lw": wide}
    style = {"belady": "-.", "belady-plain": ":", "superbatch": (0, (1, 3))}[name]
    if window == "all":
        return {"color": BLACK, "ls": style, "marker": "D", "ms": 3, "lw": 1.3}
    darkness = 0.75 - 0.12 * min(int(window).bit_length(), 5)
    return {"color": (darkness, darkness, darkness), "ls": style, "marker": "s" if name == "belady" else "^", "ms": 3, "lw": 1.2}


def finish(axes: Axes, title: str, shares: Iterable[float], *, top: float | None = None, xlabel: str = "rows kept, % of the nodes") -> None:
    """Set a title, axes from 0 on, and a grid."""
    frame(axes, title)
    axes.set_xlabel(xlabel)
    axes.set_xlim(0, max([*shares, 1e-9]) * 1.03)
    axes.set_ylim(0, top)
