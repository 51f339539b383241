"""The report of a run: `report.html`, one page that needs no network and fits a phone, `report.json` with the same numbers, and
`report.trace.json`, its timeline for a viewer of traces."""

from __future__ import annotations

import html
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import penstock
from penstock.errors import argument
from penstock.feed.stats import sources_of
from penstock.report import plots, timeline, words
from penstock.store.whole_file import replacing
from penstock.train import Result

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2433; background: #f6f7f9; margin: 0; }
main { max-width: 46rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.35rem; margin: .5rem 0 0; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin: 0 0 .5rem; }
p { margin: .4rem 0 0; font-size: .9rem; } p.sub { color: #5b6475; margin: .1rem 0 1rem; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin-bottom: 1rem; }
.figure { background: #fff; border-radius: .6rem; padding: .7rem .9rem; }
.figure b { display: block; font-size: 1.3rem; } .figure span { color: #5b6475; font-size: .85rem; }
section { background: #fff; border-radius: .6rem; padding: 1rem; margin-bottom: 1rem; overflow-x: auto; }
svg { width: 100%; height: auto; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: .5rem; }
ul { list-style: none; margin: .4rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; }
li { font-size: .85rem; color: #3d4657; }
ul i { display: inline-block; width: .7rem; height: .7rem; border-radius: .15rem; margin-right: .35rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
td, th { text-align: left; padding: .25rem .6rem .25rem 0; border-top: 1px solid #e6e9ee; vertical-align: top; overflow-wrap: anywhere; }
th { font-weight: 600; white-space: nowrap; width: 1%; padding-right: 1.2rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; width: auto; padding-right: .8rem; }
"""


def write_report(result: Result, folder: Path) -> Path:
    """Write `report.html`, `report.json` and, if there is a timeline, `report.trace.json` into a folder, replacing old ones; returns the
    page's path."""
    values = {**asdict(result), "history": [record.as_dict() for record in result.history], "penstock": penstock.__version__}
    _write(folder / "report.json", json.dumps(values, indent=2) + "\n")
    trace = folder / "report.trace.json"
    if result.timeline:
        _write(trace, json.dumps(timeline.as_trace(result.timeline)) + "\n")
    else:
        trace.unlink(missing_ok=True)
    page = folder / "report.html"
    _write(page, render(result))
    return page


def render(result: Result) -> str:
    """Return the page."""
    description, unit = result.description, words.unit(result.description["seeds"])
    figures = [
        (words.score(result.test, result.metric), f"test {result.metric}"),
        (words.score(result.val, result.metric), f"val {result.metric}"),
        (words.count(result.seeds_per_s), f"{unit} per second"),
        (str(result.epochs), _epochs(result)),
        (words.num_bytes(result.peak_memory_bytes), "peak memory"),
    ]
    store = Path(description["store"]).name
    title = f"{description['model'].split()[0]} on {store}"
    sections = [
        ("Learning", f'<div class="pair">{plots.draw_loss(result.history)}{plots.draw_scores(result.history, result.metric)}</div>'),
        ("Where the time went", plots.draw_stages(result.history, description["num_workers"]) + _stage_tables(result)),
        *([("What went on at the same time", _timeline(result))] if result.timeline else []),
        *[
            (f"Where {what} came from", plots.draw_tiers(result.history, kind) + _tier_table(result, kind))
            for kind, what in (("tiers", "rows"), ("lists", "neighbour lists"))
            if getattr(result.history[-1], kind)
        ],
        ("Speed", plots.draw_throughput(result.history, unit) + _batch_table(result)),
        ("What was trained on what", _table(_facts(result))),
        ("Settings", _table([(name, _plain(value)) for name, value in description["config"].items() if value is not None])),
    ]
    cards = "".join(f'<div class="figure"><b>{_text(value)}</b><span>{_text(name)}</span></div>' for value, name in figures)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<h1>{_text(title)}</h1><p class="sub">{_text(description["store"])}</p><div class="figures">{cards}</div>'
        + "".join(f"<section><h2>{_text(name)}</h2>{body}</section>" for name, body in sections)
        + f'<p class="sub">Penstock {penstock.__version__}, weights {result.weights_digest}</p></main></body></html>\n'
    )


def _text(value: str) -> str:
    """Return a value as text for the page, escaped: names come from users."""
    return html.escape(words.printable(value))


def _epochs(result: Result) -> str:
    word = "epoch" if result.epochs == 1 else "epochs"
    return word if result.best_epoch is None else f"{word}, best is {result.best_epoch + 1}"


def _timeline(result: Result) -> str:
    shown = result.timeline or {}
    return timeline.draw_timeline(shown) + f"<p>{_text(timeline.describe(shown, result.history) + TRACE)}</p>"


TRACE = " Perfetto and chrome://tracing show the same span by span: report.trace.json."
OF_THE_FIRST = "times, memory, what was read, and the score on train nodes are those of the first"
"""Sentence in the report of a training by several processes."""


def _facts(result: Result) -> list[tuple[str, str]]:
    d = result.description
    scored = words.scored_parts(d)
    return [
        ("model", d["model"]),
        ("target", d["target"] + (f", split {d['split']}" if d["split"] else "")),
        *([("label", d["config"]["edge_label"])] if d["config"]["edge_label"] else []),
        *[(f"nodes: {name}", f"{count:,}") for name, count in d["nodes"].items()],
        *[(f"edges: {name}", f"{count:,}") for name, count in d["edges"].items()],
        *[(f"features: {name}", " x ".join(f"{length:,}" for length in shape)) for name, shape in d["features"].items()],
        *([("aggregated", f"by {d['aggregated']}, over all neighbours: the first layer has no edges")] if d["aggregated"] else []),
        *[(f"features: {name}", "none: each node learns a row of its own") for name in d["nodes"] if name not in d["features"]],
        *[(part, f"{count:,} {d['seeds']}") for part, count in d["parts"].items()],
        *([("processes", f"{d['num_ranks']}, each with batches of its own; {OF_THE_FIRST}")] if d["num_ranks"] > 1 else []),
        *([("weights", f"by {d['config']['weight']}, {words.num_bytes(d['weight_bytes'])}")] if d["weight_bytes"] else []),
        *([("plan", f"{d['plan']['recipe']}: {words.kept(d)}")] if d["plan"] else []),
        *([("memory", d["memory"])] if d["memory"] else []),
        *[(name, how) for name, how in d["disks"].items()],
        *[
            (name, f"{words.num_bytes(num_bytes)}{what}")
            for name, num_bytes, what in (
                ("kept rows", bool(d["features"]) * (d["cache_bytes"] - d["list_bytes"]), " with directory and state"),
                ("kept neighbour lists", d["list_bytes"], " with their table"),
                ("read into memory", d["loaded_bytes"], ""),
            )
            if num_bytes
        ],
        *_levels(d["plan"] or {}),
        *([("device", f"{d['config']['device']}, samples drawn {d['sampling']}")] if d["sampling"] else []),
        *[(name, how) for name, how in d["devices"].items()],
        *([("rows kept on the device", d["device_cache"])] if d["device_cache"] else []),
        *([("memory of the device", f"{words.num_bytes(d['device_bytes'])} for rows, topology and sampling")] if d["device_bytes"] else []),
        *([("tensors on the device", f"{words.num_bytes(d['device_peak_bytes'])} at most")] if d["device_peak_bytes"] else []),
        *([(" and ".join(scored), f"by {d['evaluation']} neighbourhoods")] if scored else []),
        ("threads", f"{d['num_workers']} for sampling, {d['torch_threads']} for the model"),
        ("before the first batch", f"{words.seconds(d['setup_s'])} to open, to find out what is hot and to fill caches"),
    ]


def _levels(plan: dict[str, Any]) -> list[tuple[str, str]]:
    """Describe two levels of caches."""
    if not plan.get("policy") or not plan.get("device_policy"):
        return []
    near = plan["device_cache"] or "as many rows as find room"
    return [("caches of rows", f"{plan['device_policy']} on the device ({near}), above {plan['policy']} in memory ({plan['cache']})")]


def _stage_tables(result: Result) -> str:
    num_workers = result.description["num_workers"]
    parts = [(plots.split_caller(result.history), plots.CALLER_COLOURS)]
    if num_workers:
        parts.append((plots.split_feeding(result.history, num_workers), plots.STAGE_COLOURS))
    lists = []
    for seconds, colours in parts:
        total = sum(seconds.values()) or 1.0
        items = [
            f'<li><i style="background:{colours.get(name, plots.GREY)}"></i>{name} {words.seconds(value)}, {100 * value / total:.1f} %</li>'
            for name, value in seconds.items()
        ]
        lists.append(f"<ul>{''.join(items)}</ul>")
    return "".join(lists)


def _tier_table(result: Result, kind: str) -> str:
    sums: dict[str, dict[str, float]] = {}
    for record in result.history:
        for tier, counts in getattr(record, kind).items():
            total = sums.setdefault(tier, dict.fromkeys(counts, 0.0))
            for name, value in counts.items():
                total[name] = total.get(name, 0.0) + value
    columns = ("num_rows",) if kind == "tiers" else ("num_lists", "num_edges")
    asked = sum(counts[columns[0]] for counts in sources_of(sums).values()) or 1.0
    names = [
        columns[0].removeprefix("num_"),
        "of all",
        *(name.removeprefix("num_") for name in columns[1:]),
        "bytes",
        "waited",
        "deciding",
        "updating",
    ]
    names += ["requests", "read", "per byte asked"] * any("read_bytes" in one for one in sums.values())
    heads = "".join(f'<th class="number">{name}</th>' for name in names)
    rows = "".join(
        f"<tr><th>{_text(tier)}</th>"
        + "".join(
            f'<td class="number">{cell}</td>'
            for cell in (
                words.count(counts[columns[0]]),
                f"{100 * counts[columns[0]] / asked:.1f} %",
                *(words.count(counts[name]) for name in columns[1:]),
                words.num_bytes(counts["num_bytes"]),
                words.seconds(counts["seconds"]),
                *(words.seconds(counts[name]) if counts.get(name) else "" for name in ("decide_s", "update_s")),
                *_disk_cells(counts),
            )
        )
        + "</tr>"
        for tier, counts in sums.items()
    )
    return f"<table><tr><th>tier</th>{heads}</tr>{rows}</table>"


def _disk_cells(counts: dict[str, float]) -> list[str]:
    """Return the cells about what was read from a disk, if the tier is one."""
    if "read_bytes" not in counts:
        return []
    per_byte = counts["read_bytes"] / (counts["num_bytes"] or 1.0)
    return [words.count(counts["num_requests"]), words.num_bytes(counts["read_bytes"]), f"{per_byte:.2f}"]


def _batch_table(result: Result) -> str:
    num_batches = max(sum(record.num_batches for record in result.history), 1)
    rows = [
        ("nodes", words.count(sum(record.num_nodes for record in result.history) / num_batches)),
        ("edges", words.count(sum(record.num_edges for record in result.history) / num_batches)),
        ("features moved", words.num_bytes(sum(record.gathered_bytes for record in result.history) / num_batches)),
        ("model step", words.seconds(sum(record.step_s for record in result.history) / num_batches)),
    ]
    return "<h2>An average batch</h2>" + _table(rows)


def _table(rows: list[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><th>{_text(a)}</th><td>{_text(b)}</td></tr>' for a, b in rows)}</table>"


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _write(path: Path, text: str) -> None:
    again = f"the training is over and saved; free some space, and {argument('resume', True)} writes the report again"
    with replacing(path, again) as aside:
        aside.write_text(text, encoding="utf-8", errors="replace")  # a path may hold bytes that are not UTF-8
