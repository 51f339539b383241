"""docs/results/gpu.md and its pictures, rendered from `bench/results/gpu_*.json`: every figure that is asked for, its target, what the
paper reports, and what was measured; "not run" where no file says it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from bench.gpu_cells import NOT_RUN, Results, Table, pieces, row, spread, verdict
from bench.gpu_common import ALONE, AT_MOST, RECORDED, UNORDERED, WAYS
from bench.gpu_page_recipes import BATCHES, RECIPES, memory_rows, paper_rows, peer_rows, peers_said, recipe_rows

FILES = ("gpu_link", "gpu_sampling", "gpu_recipes", "gpu_busy")
STEP_MOST, ROW_LEAST = 1.05, 256
COLORS = {("samples", "kernel"): "#7a5195", ("rows", "kernel"): "#ef8b2c", ("model", "kernel"): "#2f6db3"}
LINE, SECTOR, PIECE, BESIDE = 128, 32, 256, 20
"""Bytes of a request of a kernel over the link, what it reads at least, what copies come in, and what comes beside the data of each."""
KINDS = ("uncached", "fused", "fused, programs of the link", "fused, all programs")
COPY_COLOR = "#8a8a8a"

HEAD = ["figure", "target", "paper", "measured", "met"]


def link_rows(results: Results) -> list[list[str]]:
    """Reads over the link."""
    found = pieces(results, "gpu_link")
    rows = found.get("link", {}).get("rows", {})
    at_512 = rows.get("512", {}).get("over_copy", {}).get(AT_MOST)
    larger = {
        size: over[AT_MOST]
        for size, over in ((size, one["over_copy"]) for size, one in rows.items())
        if int(size) > ROW_LEAST and AT_MOST in over
    }
    worst = min(larger, key=lambda size: larger[size]["median"]) if larger else None
    beside = {name: over for name, over in found.get("step", {}).get("over_alone", {}).items() if name.endswith(AT_MOST)}
    step = min(beside, key=lambda name: beside[name]["median"], default=None)
    slowest = None if step is None else beside[step]
    said = NOT_RUN if worst is None else f"{spread(larger[worst])}, {worst} bytes"
    return [
        row("zero-copy gather of rows of 512 bytes over a large pinned copy, by a fifth of the multiprocessors", "0.93", "UVA: 0.95",
            spread(at_512), verdict(median(at_512), 0.93)),
        row("the same, the worst of all row sizes above 256 bytes", "0.90", "UVA: 0.88 to 0.93",
            said, verdict(None if worst is None else larger[worst]["median"], 0.90)),
        row("a step of training beside such a gather over one alone", "at most 1.05", "UVA: 8 to 20 % of the GPU saturate the link",
            spread(slowest) + (" (recorded)" if step != AT_MOST and step else ""), verdict(median(slowest), STEP_MOST, at_most=True)),
    ]  # fmt: skip


def table_gib(results: Results) -> float:
    """Of the rows that were read; less than 8 where less memory could be pinned."""
    return pieces(results, "gpu_link").get("link", {}).get("table_gib", 8)


def median(values: dict[str, float] | None) -> float | None:
    """Of a spread, if there is one."""
    return None if values is None else values["median"]


def cache_rows(results: Results) -> list[list[str]]:
    """The cache on the device, rows of 512 bytes."""
    found = pieces(results, "gpu_link")
    fused = found.get("cache", {}).get("512", {}).get("90", {}).get("over_uncached")
    own = found.get("device", {}).get("rows", {}).get("512", {}).get("over_copy")
    return [
        row("fused gather at 90 % hits over the zero-copy gather", "3x", "-", spread(fused, "x"), verdict(median(fused), 3.0)),
        row("gather from the device's memory over a copy within it", "0.80", "-", spread(own), verdict(median(own), 0.8)),
    ]


def sampling_rows(results: Results) -> list[list[str]]:
    """Sampling on the device over the CPU, graph by graph."""
    found, made = pieces(results, "gpu_sampling"), []
    for graph in {**dict.fromkeys(f"ten-128, batches of {size}" for size in BATCHES), **found}:
        contenders = found.get(graph, {}).get("contenders", {})
        for where, target in (("device memory", 10.0), ("pinned memory", 3.0)):
            ways = [contenders[way]["over_cpu"] for way in (where + each for each in WAYS) if way in contenders]
            over = max(ways, key=lambda way: way["median"], default=None)
            what = f"sampling on the device, lists in {where}, over the CPU's kernel on all cores: {graph}"
            is_uniform = " " not in graph.partition(", ")[0]  # how others are drawn stands behind the graph
            told = (f"{target:.0f}x", verdict(median(over), target)) if is_uniform else ("-", "-")
            made.append(row(what, told[0], "-", spread(over, "x"), told[1]))
    return made


def busy_rows(results: Results) -> list[list[str]]:
    """The share of the time in which the device computes, the best recipe of each model and batch."""
    found, made = pieces(results, "gpu_busy"), []
    for model, size, target, paper in (
        ("sage", 1024, 0.9, "BGL: 65 %"),
        ("sage", 8000, 0.9, "BGL: 65 %"),
        ("gat", 1024, None, "BGL: 99 %"),
    ):
        ours = {piece: one for piece, one in found.items() if piece.endswith(f", {model}, batches of {size}")}
        best = max(ours, key=lambda piece: ours[piece]["seeds_per_s"]) if ours else None
        value = None if best is None else ours[best]["busy"]
        said = NOT_RUN if best is None else f"{value:.1%} ({best.split(',')[0]})"
        what = f"busy share, {'GraphSAGE' if model == 'sage' else 'GAT'}, batches of {size}"
        made.append(row(what, "-" if target is None else f"{target:.0%}", paper, said, "-" if target is None else verdict(value, target)))
    return made


def most_over_copy(row_bytes: int) -> float:
    """What reads of rows that lie one after the other can reach of a copy's rate, if the link is busy all the time."""
    begins = range(0, LINE, math.gcd(row_bytes, LINE))

    def touched(size: int) -> float:
        """Pieces of a size that a row lies on, in the mean."""
        return sum((begin + row_bytes - 1) // size - begin // size + 1 for begin in begins) / len(begins)

    return row_bytes / (SECTOR * touched(SECTOR) + BESIDE * touched(LINE)) / (PIECE / (PIECE + BESIDE))


def detail_of_link(results: Results, table: Table) -> list[str]:
    """Every size of rows, by programs."""
    found = pieces(results, "gpu_link")
    if "link" not in found:
        return []
    programs, rows = found["link"]["programs"], found["link"]["rows"]
    measured = {name for one in rows.values() for name in one["over_copy"]}
    told = {name: f"{name} of the SMs ({n})" for name, n in programs.items()} | {"chosen": f"chosen ({programs['chosen']})"}
    told = {name: said for name, said in {**told, UNORDERED: f"{UNORDERED} ({programs[AT_MOST]})"}.items() if name in measured}
    head = ["bytes of a row", "copy, GB/s", "the most", *told.values()]
    cells = [
        [size, f"{one['gb_per_s']['copy']['median']:.1f}", f"{most_over_copy(int(size)):.2f}",
         *(f"{one['over_copy'][name]['median']:.3f}" if name in one["over_copy"] else "-" for name in told)]
        for size, one in rows.items()
    ]  # fmt: skip
    how = f"read region by region, or {UNORDERED}" if UNORDERED in measured else "read as they stand: this commit knew no other order"
    return [
        "", "Rates over the copy's, by the programs that read at once, which is at most how many multiprocessors they are on. Rows are",
        f"{how}. The most: what requests of {LINE} bytes allow, if {BESIDE} bytes come beside the",
        f"data of each, sectors of {SECTOR} are read whole, and copies come in pieces of {PIECE}; short rows that are no multiple of",
        f"{LINE} do not reach 0.90, then.",
        "", *table(head, cells), *detail_of_step(found.get("step"), table),
    ]  # fmt: skip


def detail_of_step(found: dict[str, Any] | None, table: Table) -> list[str]:
    """A step beside reads, by their programs."""
    if not found:
        return []
    cells = [
        ["one launch" if prefix else "kernel by kernel", name if name == ALONE else f"{name} ({found['programs'][name]})",
         spread(found["step_ms"][prefix + name]),
         *(spread(found[key][prefix + name]) if name != ALONE else "-" for key in ("over_alone", "gather_gb_per_s_beside"))]
        for prefix in ("", RECORDED) for name in (ALONE, *found["programs"]) if prefix + name in found["step_ms"]
    ]  # fmt: skip
    return ["", "A step, and rows of 512 bytes that are read beside it:", "",
            *table(["a step", "multiprocessors that read (programs)", "ms", "over alone", "read, GB/s"], cells)]  # fmt: skip


def detail_of_cache(results: Results, table: Table) -> list[str]:
    """Every size of rows in the device's memory, and every share of hits."""
    own = pieces(results, "gpu_link").get("device", {}).get("rows", {})
    cells = [
        [size, *(f"{one['gb_per_s'][name]['median']:.0f}" for name in ("copy", "gather")), spread(one["over_copy"])]
        for size, one in own.items()
    ]
    told = ["", *table(["bytes of a row", "copy, GB/s", "gather, GB/s", "gather over copy"], cells)] if cells else []
    found = pieces(results, "gpu_link").get("cache")
    if not found:
        return told
    cells = [
        [size, percent, *(f"{one['gb_per_s'][name]['median']:.1f}" for name in KINDS),
         f"{one['over_uncached']['median']:.2f}x"]
        for size, by_hits in found.items() for percent, one in by_hits.items()
    ]  # fmt: skip
    head = ["bytes of a row", "hits, %", *(f"{name}, GB/s" for name in KINDS), "fused over uncached"]
    return [*told, "", *table(head, cells)]


def detail_of_sampling(results: Results, table: Table) -> list[str]:
    """Every way of sampling."""
    cells = [
        [graph, name, spread(one["m_edges_per_s"]), spread(one["over_cpu"], "x")]
        for graph, of_graph in pieces(results, "gpu_sampling").items() for name, one in of_graph["contenders"].items()
    ]  # fmt: skip
    times = {
        f"{graph}, {name}": longest for graph, of_graph in pieces(results, "gpu_sampling").items()
        for name, longest in of_graph.get("longest_ms", {}).items()
    }  # fmt: skip
    told = ["", *table(["graph", "sampled by", "million edges a second", "over the CPU"], cells)] if cells else []
    return told + detail_of_times(times, table)


def detail_of_times(times: dict[str, dict[str, list[float]]], table: Table) -> list[str]:
    """What takes longest on the device; run -> name -> (milliseconds of a batch, how often in one)."""
    cells = [[run, f"`{name}`", f"{ms:.3f}", f"{count:g}"] for run, longest in times.items() for name, (ms, count) in longest.items()]
    return ["", "What takes longest:", "", *table(["run", "what", "ms of a batch", "times a batch"], cells)] if cells else []


def detail_of_busy(results: Results, table: Table) -> list[str]:
    """Every run, and its picture."""
    found = pieces(results, "gpu_busy")
    cells = []
    for piece, one in found.items():
        by_stream, processor = one["busy_by_stream"], one.get("processor")
        cells.append([
            piece, f"{one['busy']:.1%}", *(f"{by_stream[lane]:.1%}" for lane in ("model", "samples", "rows")),
            "-" if one["utilization_percent"] is None else f"{one['utilization_percent']:.0f} %", f"{one['batch_ms']:.2f}",
            f"{one['batch_ms_profiled']:.2f}",
            f"{processor['caller']:.0%}, {processor['others']:.0%}" if processor else "-", f"[picture](../pictures/{picture_name(piece)})",
        ])  # fmt: skip
    if not cells:
        return []
    head = ["run", "busy", "model", "sampling", "rows", "nvidia-smi", "ms a batch", "profiled", "caller, busiest other", ""]
    return ["", *table(head, cells), *detail_of_times({piece: one["longest_ms"] for piece, one in found.items()}, table)]


def picture_name(piece: str) -> str:
    """File of the picture of a run."""
    return "gpu-busy-" + piece.replace(", batches of ", "-").replace(", ", "-") + ".png"


def elsewhere(one: dict[str, Any], at: dict[str, Any]) -> str:
    """The machine of an earlier result, where it is another one."""
    before = one["machine"]
    return "" if before == at else f", {before['processor']}, {before['cores']} cores, torch {before['torch']}"


def machines(results: Results, table: Table) -> list[str]:
    """Which hardware each file is of."""
    cells = []
    for name in FILES:
        result = results.get(name)
        if result is None:
            cells.append([f"`{name}.json`", NOT_RUN, *[""] * 3])
            continue
        at, device = result["machine"], result["device"]
        link = f", PCIe {device['link_generation']} x{device['link_lanes']}" if "link_generation" in device else ""
        cells.append([
            f"`{name}.json`",
            f"{device['name']}, {device.get('multiprocessors', '?')} multiprocessors, {device.get('memory_gib', '?')} GiB{link}",
            f"{at['processor']}, {at['cores']} cores, {at['memory_gib']:.0f} GiB; foreign load {result['foreign_load_percent']} %",
            f"driver {device.get('driver', '?')}, CUDA {device['cuda']}, torch {at['torch']}, triton {device['triton']}, "
            f"PyG {device['torch_geometric']}",
            "; ".join([
                f"{result['commit']}, {result['date']}: `{result['command']}`",
                *(f"{', '.join(one['pieces'])}: {one['commit']}, {one['date']}{elsewhere(one, at)}" for one in result.get("earlier", ())),
            ]),
        ])  # fmt: skip
    return table(["file", "device", "machine", "software", "commit and command"], cells)


def render(results: Results, table: Table) -> str:
    """The page. `results`: name of a file -> its content, None where it is not there. What was tried at toy size is no result."""
    results = {name: None if one is None or one["is_toy"] or one["interpreted"] else one for name, one in results.items()}
    asked = [link_rows(results), cache_rows(results), sampling_rows(results), peer_rows(results), busy_rows(results)]
    cells = [cell for rows in asked for one in rows for cell in one[3:4]]
    missing = sum(cell.startswith(NOT_RUN) for cell in cells)
    lines = [
        "# On a GPU",
        "",
        f"Of {len(cells)} figures that are asked for, {len(cells) - missing} were measured and {missing} were not run. How each is",
        "measured is in the head of its benchmark, the order of commands for a machine with a GPU in `bench/README.md`; everything is in",
        "`bench/results/gpu_*.json`. Medians, least and most in brackets. Figures of Triton's interpreter mean nothing and are not here.",
        "",
        *machines(results, table),
        "",
        "## The link",
        "",
        f"`python -m bench.gpu_link`. Rows at random, distinct, of a table of {table_gib(results):g} GiB in pinned memory.",
        "",
        *table(HEAD, asked[0]),
        *detail_of_link(results, table),
        "",
        "## The cache on the device",
        "",
        "`python -m bench.gpu_link`. A tenth of the rows on the device; rows of 512 bytes.",
        "",
        *table(HEAD, asked[1]),
        *detail_of_cache(results, table),
        "",
        "## Sampling",
        "",
        "`python -m bench.gpu_sampling FOLDER`. Fanouts 15, 10, 5; the same samples, bit for bit. ten-128: 10M nodes, 200M edges (Zipf).",
        "",
        *table(HEAD, asked[2]),
        *detail_of_sampling(results, table),
        "",
        "## End to end",
        "",
        "`python -m bench.gpu_recipes FOLDER`. 10M nodes, 200M edges (Zipf), 1M seeds, GraphSAGE of 3 layers of width 128, fanouts",
        "15, 10, 5; a tenth of the rows' bytes on the device for every recipe that keeps some, and labels where it reads rows. PyG with",
        "pinned memory and the fastest of the settings tried on that machine.",
        "",
        *table(HEAD, asked[3]),
        "",
        "Seeds a second, and over the one before, where both are of one run:",
        "",
        *table(["", "PyG", *RECIPES], recipe_rows(results)),
        "",
        *(f"- {name}: {words}." for name, words in RECIPES.items()),
        "",
        "GiB of the device that rows, lists and tables take, and the most that torch had taken there with the model:",
        "",
        *table(["", "PyG", *RECIPES], memory_rows(results)),
        *peers_said(results),
        "",
        "What papers report, on their hardware, next to ours, each ratio of one run; the least and the most of the configurations:",
        "",
        *table(["ratio", "paper", "measured"], paper_rows(results)),
        "",
        "## How busy the device is",
        "",
        "`python -m bench.gpu_busy FOLDER`. Time in which a kernel runs (torch's profiler, all streams) over time; the fastest recipe.",
        "Last, what the caller's thread takes of a processor, and the busiest of the others.",
        "",
        *table(HEAD, asked[4]),
        *detail_of_busy(results, table),
        "",
    ]
    return "\n".join(lines)


def draw(results: Results, folder: Path) -> None:
    """A picture of each run of `gpu_busy`: a lane per stream, kernels above, copies below."""
    for piece, one in pieces(results, "gpu_busy").items():
        folder.mkdir(exist_ok=True)
        draw_streams(piece, one, folder / picture_name(piece))


def draw_streams(piece: str, one: dict[str, Any], path: Path) -> None:
    """One picture."""
    from matplotlib.figure import Figure

    spans, lanes = one["picture"]["spans"], ("samples", "rows", "model")
    figure = Figure(figsize=(9, 2.4), layout="constrained")
    axes = figure.subplots()
    for number, lane in enumerate(lanes):
        for kind, bottom, color in (("kernel", -0.4, COLORS[lane, "kernel"]), ("copy", 0.1, COPY_COLOR)):
            ours = [span[2:] for span in spans if span[:2] == [lane, kind]]
            ours = [(begin, max(end - begin, one["picture"]["ms"] / 2000)) for begin, end in ours]
            axes.broken_barh(ours, (number + bottom, 0.5 if kind == "kernel" else 0.3), facecolors=color, linewidth=0)
    axes.set_yticks(range(len(lanes)), ["sampling", "rows", "model"])
    axes.invert_yaxis()
    axes.set_xlim(0, one["picture"]["ms"])
    axes.set_xlabel("ms; kernels in colour, copies in grey")
    axes.set_title(f"{piece}: a kernel runs in {one['busy']:.0%} of the time", fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
