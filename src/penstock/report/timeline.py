"""Which work overlapped, as a picture and in words: some batches from the middle of an epoch, with a lane for each kind of work.

In: a timeline (`penstock.feed.timeline`) and the history of the run. Out: SVG text, trace events, and sentences with the sums.
"""

from __future__ import annotations

from typing import Any

from penstock.report import plots, words
from penstock.train import EpochRecord

LANES = {
    "sample": ("sampling", plots.BLUE),
    "decide": ("deciding", plots.PURPLE),
    "read": ("reading rows", plots.ORANGE),
    "gather": ("copying rows", plots.GREEN),
    "update": ("updating cache", plots.PURPLE),
    "assemble": ("assembling", plots.GREY),
    "train": ("training", plots.BLUE),
    "stall": ("waiting", plots.RED),
}
MAX_ROWS = 6
"""Most bars side by side in one lane; if more overlap, the rest is drawn on top."""

LEAST = 0.0015
"""Least width of a bar, as a share of the picture, so that every bar is visible."""


def draw_timeline(timeline: dict[str, Any]) -> str:
    """Draw a lane per kind of work over time; work of several threads at the same time is side by side. Waiting is shaded across all
    lanes."""
    spans = {stage: [span for span in timeline["spans"] if span[0] == stage] for stage in LANES}
    spans = {stage: ours for stage, ours in spans.items() if ours}
    (figure, axes), least = plots.new_axes(4.6, 0.36 * len(spans) + 0.6), LEAST * timeline["seconds"]
    for lane, (stage, ours) in enumerate(spans.items()):
        rows, num_rows = stack([(begin, end) for _, _, begin, end, _ in ours])
        height = 0.8 / num_rows
        for (_, batch, begin, end, _), row in zip(ours, rows, strict=True):
            axes.barh(
                lane - 0.4 + row * height, max(end - begin, least), left=begin, height=height * 0.92, align="edge",
                color=LANES[stage][1], alpha=1.0 if batch % 2 else 0.6, linewidth=0,
            )  # fmt: skip
            if stage == "stall":
                axes.axvspan(begin, end, color=plots.RED, alpha=0.13, linewidth=0, zorder=0)
    axes.set_yticks(range(len(spans)), [LANES[stage][0] for stage in spans], fontsize=8.5)
    axes.invert_yaxis()
    axes.set_xlim(0, timeline["seconds"])
    axes.locator_params(axis="x", nbins=5)  # with more, the labels overlap
    axes.xaxis.set_major_formatter(lambda value, position: words.seconds(value) if value else "0")
    axes.tick_params(axis="x", labelsize=8.5)
    axes.tick_params(axis="y", left=False)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return plots.as_svg(figure)


def as_trace(timeline: dict[str, Any]) -> dict[str, Any]:
    """Return the timeline as trace events for Perfetto or chrome://tracing: a row for each thread, a bar for each span.

    Source: Trace Event Format, "complete events".
    """
    named = [
        {"name": LANES[stage][0], "cat": stage, "ph": "X", "pid": 0, "tid": thread, "ts": round(1e6 * begin),
         "dur": round(1e6 * (end - begin)), "args": {"batch": batch}}
        for stage, batch, begin, end, thread in timeline["spans"]
    ]  # fmt: skip
    callers = {thread for stage, _, _, _, thread in timeline["spans"] if stage in ("train", "stall")}
    threads = sorted({thread for *_, thread in timeline["spans"]})
    names = {thread: "training" if thread in callers else f"loader {thread}" for thread in threads}
    told = [{"name": "thread_name", "ph": "M", "pid": 0, "tid": thread, "args": {"name": name}} for thread, name in names.items()]
    return {"traceEvents": told + named, "displayTimeUnit": "ms"}


def describe(timeline: dict[str, Any], history: list[EpochRecord]) -> str:
    """Return sentences about what the picture shows, and the sums over the whole run."""
    covered, whole = timeline["covered_s"], timeline["seconds"]
    first, last = timeline["first_batch"] + 1, timeline["first_batch"] + timeline["num_batches"]
    batches = f"Batch {first}" if first == last else f"Batches {first} to {last}"
    text = (
        f"{batches} of epoch {timeline['epoch'] + 1}, in {words.seconds(whole)}: a lane for each "
        "kind of work (sampling includes the reading of neighbour lists), bars side by side where several threads are at it, "
        "neighbouring batches in two shades, and red across where the model waits. "
    )
    if reading := covered.get("read", 0.0):
        hidden = 100 * timeline["read_hidden_s"] / reading
        text += (
            f"Rows were being read in {words.seconds(reading)} of this time; {hidden:.0f} % of that was hidden, the model did not wait. "
        )
    stall = covered.get("stall", 0.0)
    text += f"The stall that is left: {words.seconds(stall)}, {100 * stall / whole:.0f} %. "
    per_batch = [f"{name} {exact(seconds)}" for name, seconds in costs(history).items() if seconds]
    return text + (f"Over the whole run, per batch: {', '.join(per_batch)}." if per_batch else "")


def costs(history: list[EpochRecord]) -> dict[str, float]:
    """Return seconds per batch, over all epochs and summed over threads, for Ginex' inspect, switch and cache update, and for waiting."""
    num_batches = max(sum(record.num_batches for record in history), 1)
    sums = {
        kind: sum(counts.get(kind, 0.0) for record in history for counts in record.tiers.values()) / num_batches
        for kind in ("decide_s", "update_s")
    }
    sampled = sum(record.stage_s.get(stage, 0.0) for record in history for stage in ("order", "sample")) / num_batches
    return {
        "sampling": sampled,
        "deciding what to keep (with sampling, what Ginex calls inspect)": sums["decide_s"],
        "updating the cache (switch and cache update)": sums["update_s"],
        "waiting": sum(record.wait_s for record in history) / num_batches,
    }


def exact(seconds: float) -> str:
    """Return short times with two digits: 0.000123 -> '0.12 ms'."""
    return words.seconds(seconds) if seconds >= 0.01 else f"{1e3 * seconds:.2g} ms"


def stack(spans: list[tuple[float, float]]) -> tuple[list[int], int]:
    """Choose a row for each span, so that spans of a row do not overlap; spans are sorted by their begin. Returns (rows, number of
    rows)."""
    ends: list[float] = []
    rows = []
    for begin, end in spans:
        free = next((row for row, until in enumerate(ends) if until <= begin), len(ends))
        if free == len(ends) and free < MAX_ROWS:
            ends.append(end)
        free = min(free, MAX_ROWS - 1)
        ends[free] = max(ends[free], end)
        rows.append(free)
    return rows, max(len(ends), 1)
