"""The part of docs/results/gpu.md on recipes and PyG, end to end: rates of contenders, ratios within one run, memory."""

from __future__ import annotations

from typing import Any

from bench.gpu_cells import NOT_RUN, Results, pieces, row, times, verdict

GIB = 1 << 30
DIMS, BATCHES, MODES = (128, 256), (1024, 8000), {"load": "without the model", "train": "with the model"}
RECIPES = {
    "pyg": "rows and lists in memory of the host, nothing overlaps",
    "mmap": "both mapped; threads sample and gather ahead",
    "pagraph": "threads sample; the rows of the highest degrees on the device",
    "uva": "the device samples and gathers, all of it over the link",
    "gnnlab": "all lists on the device, and beside them the rows that presampling finds hot",
    "recorded": "gnnlab with batches of one size, whose step of training is launched as one CUDA graph",
    "ducati": "one budget on the device for lists and rows, as large as what others have for rows alone",
    "rows": "ducati's budget for rows alone, lists over the link",
    "lists": "ducati's budget for lists alone, rows over the link",
    "bgl": "threads sample in proximity order; rows on the device, first in, first out",
}
VARIANTS = ("recorded",)
"""Of the recipe before them: what comes next is compared with that."""
PAPERS = (
    ("PaGraph over DGL, which gathers on the CPU", "pagraph", ("pyg",), "2.4 to 4.8"),
    ("the GPU reads rows itself, over CPU gather and copy", "uva", ("mmap",), "1.16 to 1.44"),
    ("GNNLab over DGL", "gnnlab", ("pyg",), "2.4 to 9.1"),
    ("DUCATI over the best single cache", "ducati", ("rows", "lists"), "1.32"),
    ("DUCATI over reads over the link without a cache", "ducati", ("uva",), "2.07"),
    ("BGL over PaGraph", "bgl", ("pagraph",), "1.91"),
)
"""(what, recipe, recipes it is compared with: the best of them, the paper's ratio)."""


def configurations() -> list[tuple[int, int, str]]:
    """(features, seeds of a batch, name of the piece)."""
    return [(dim, size, f"{dim} features, batches of {size}") for dim in DIMS for size in BATCHES]


def rates(piece: dict[str, Any], mode: str) -> dict[str, float]:
    """Contender -> median seeds a second; of PyG, where it has gone no round, that of its fastest setting when tried."""
    return (as_tried(piece) if mode == "load" else {}) | piece.get("seeds_per_s", {}).get(mode, {})


def as_tried(piece: dict[str, Any]) -> dict[str, float]:
    """PyG, if it has tried its settings for some seconds each, without the model, and gone no round."""
    row = piece.get("contenders", {}).get("PyG", {})
    tried = row.get("about", {}).get("tried_seeds_per_s", {})
    return {"PyG": max(tried.values())} if tried and not {"load", "failed"} & row.keys() else {}


def of_one_run(results: Results, name: str, mode: str, *names: str) -> tuple[dict[str, float], dict[str, Any]]:
    """(rates, the piece) of the latest run in which all of some contenders were; empty where there is none."""
    result = results.get("gpu_recipes") or {}
    runs = [result, *reversed(result.get("earlier", []))]
    for piece in (one["pieces"][name] for one in runs if name in one.get("pieces", {})):
        if set(names) <= set(found := rates(piece, mode)):
            return found, piece
    return {}, {}


def peer_rows(results: Results) -> list[list[str]]:
    """The best recipe over PyG."""
    made = []
    for _, _, name in configurations():
        for mode, words in MODES.items():
            found, piece = of_one_run(results, name, mode, "PyG")
            ours = {recipe: rate for recipe, rate in found.items() if recipe in RECIPES}
            best = max(ours, key=lambda recipe: ours[recipe], default=None)
            ratio = None if best is None else ours[best] / found["PyG"]
            failed = pieces(results, "gpu_recipes").get(name, {}).get("contenders", {}).get("PyG", {}).get("failed")
            said = (f"{NOT_RUN}: {failed}" if failed else NOT_RUN) if ratio is None else f"{times(ratio)} ({best})"
            said += ", PyG as tried" if ratio is not None and mode == "load" and as_tried(piece) else ""
            made.append(row(f"the best recipe over PyG's NeighborLoader: {name}, {words}", "10x", "-", said, verdict(ratio, 10.0)))
    return made


def paper_rows(results: Results) -> list[list[str]]:
    """Ratios that papers report, all configurations: the least and the most."""
    made = []
    for what, recipe, others, reported in PAPERS:
        for mode, words in MODES.items():
            ratios = []
            for _, _, name in configurations():
                found, _ = of_one_run(results, name, mode, recipe, *others)
                if found:
                    ratios.append(found[recipe] / max(found[other] for other in others))
            said = f"{times(min(ratios))} to {times(max(ratios))}, of {len(ratios)}" if ratios else NOT_RUN
            made.append([f"{what} ({recipe} / {' or '.join(others)}), {words}", reported, said])
    return made


def recipe_rows(results: Results) -> list[list[str]]:
    """Seeds a second of every contender, and each over the one before it."""
    made = []
    for _, _, name in configurations():
        for mode, words in MODES.items():
            piece = pieces(results, "gpu_recipes").get(name, {})
            found, cells, before, run_before = rates(piece, mode), [], None, None
            earlier = piece.get("earlier", {})
            for contender in ("PyG", *RECIPES):
                rate, run = found.get(contender), earlier.get(contender)
                over = f" ({rate / before:.2f}x)" if rate and before and run == run_before else ""
                cells.append(NOT_RUN if rate is None else f"{rate:,.0f}{over}")
                if contender not in VARIANTS:
                    before, run_before = rate, run
            made.append([f"{name}, {words}", *cells])
    return made


def memory_rows(results: Results) -> list[list[str]]:
    """What lies on the device by each recipe's plan, and the most that torch had taken there with the model, in GiB."""
    made = []
    for _, _, name in configurations():
        rows = pieces(results, "gpu_recipes").get(name, {}).get("contenders", {})
        cells = []
        for contender in ("PyG", *RECIPES):
            row = rows.get(contender, {})
            peaks = [one["device_peak_bytes"] for one in row.get("train", ()) if "device_peak_bytes" in one]
            kept = row.get("about", {}).get("device_bytes", 0)
            cells.append(f"{kept / GIB:.2f}, {max(peaks) / GIB:.1f}" if peaks else "-" if rows else NOT_RUN)
        made.append([name, *cells])
    return made


def peers_said(results: Results) -> list[str]:
    """What PyG ran with, and what could not run."""
    lines = []
    for name, piece in pieces(results, "gpu_recipes").items():
        earlier = {one: commit for one, commit in piece.get("earlier", {}).items() if one in rates(piece, "load")}
        for commit in dict.fromkeys(earlier.values()):
            lines.append(f"- {name}: of another run, at {commit}: {', '.join(one for one in earlier if earlier[one] == commit)}.")
        for contender, one in piece["contenders"].items():
            if "failed" in one:
                lines.append(f"- {name}: {contender} did not run: {one['failed']}")
            elif contender == "PyG" and "about" in one:
                about = one["about"]
                lines.append(f"- {name}: PyG sampled with {about['sampler']}, {about['chosen']}. Tried, in seeds a second:")
                lines += [f"  - {setting}: {rate:,.0f}" for setting, rate in about["tried_seeds_per_s"].items()]
    return ["", *lines] if lines else []
