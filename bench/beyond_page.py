"""docs/results/disk.md, rendered from `bench/results/beyond_memory.json`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import product
from statistics import median
from typing import Any

from bench.beyond_stores import FAR, GROUP, IN_STEP, NEAR, STORES
from bench.common import fold, fold_all, machine, table

CONTENDERS = ("mmap", "ali+pg", "ginex", "ours")
MODELS = {"sage": "GraphSAGE", "gcn": "GCN"}
TARGETS = {"mmap": 4.0, "ali+pg": 1.5}
DEVICE_TARGET = 1.3

HEAD = """# Stores beyond memory

Samples per second where the store is ten times as large as memory, against the baselines of Ginex 5. `python -m bench.beyond_memory FOLDER
DATA` makes it; `bench/results/beyond_memory.json` holds every run.

- `mmap` (PyG+): features and lists from mapped files, read-ahead off, read by many threads at once.
- `ali+pg`: the same maps, under a static cache of lists by out/in ratio and one of rows by degree.
- `ginex`: reads past the page cache, under Belady's cache of rows, which looks ahead, and a static one of lists.
- `ours`: what we would take. Where each row is a request by itself ({far}), rows spooled (`Plan(spool=...)`): those of {group} batches are
  read at once, in the order of the file, and kept on the disk until their turn. On {near}, `ginex` in community order, which gives other
  batches of the same seeds. Else `ginex`, with {threads} sampling threads.

Neighbour lists are read for all threads that sample at the same time: four with a spool, {threads} for `ours` where rows lie far apart and
are not spooled, two for everybody else.

How it was measured:

- Every run is a process in a control group. From the first batch on its limit is a tenth of the store, page cache and row pointers
  included; ranking nodes and filling static caches comes before that, as in Ginex.
- Caches get what the same run without caches leaves of the limit, less a reserve: 12 % for maps, 6 % where reads go past the page cache.
- Each store is read in order before anything of it is measured, since the disk is virtual; the page cache is emptied before each run.
- A run warms up until its caches are full. Then {batches} batches or more, for 5 s at least, are timed from end to end: waiting and the
  step of the model, which is 64 wide and takes one thread (two cores, no GPU). With a spool, two whole groups warm up and two are timed.
- The seeds timed are none of those that were sampled to find out what is hot. Contenders alternate and read the same batches. Labels
  are made of node numbers.
- The stores are a twentieth of Ginex's, and so is the memory; a batch of 1,000 seeds would take most of it. So GraphSAGE with fanouts 10,
  10, 10 is trained by batches of {sage} seeds, GCN with 10, 10 by batches of {gcn}.
- "Samples per second" and what follows from its runs were measured within two hours on one machine, by one code. The curve over the
  dimension is three days older; "Beyond Ginex" and the other curves are of the code before rows were read in the place of a batch that is
  given up. The splits of `ali+pg` were tried on another machine. Where a cell has no spread it is one run.
{tuned}"""


REMARKS = """## Remarks

- The disk answers some 100,000 requests of a page a second here, and reads 1.5 to 2 GB/s in order. `mmap` has 65,000 to 80,000 pages a
  second of it, so a reader that is ahead of it asks for less, or in order. `ginex` does the first, `ours` on zipf-256 and twitter-128 the
  second: 96 batches together want every third or fourth row, and a row of 1 KiB that is a request by itself costs as much as 16 KiB in
  order. Two groups of 96 batches are 15 GB on the disk; groups of 64, 10 GB, did 321 samples a second on zipf-256 where those of 96 did
  341 (two threads that sample, older code, one run each).
- zipf-256 has no neighbourhoods: each row lies apart, an order of the seeds finds nothing, and a tenth of the store, less process, tables
  and window, holds 4 % of the rows, of which Belady makes a third of the hits. Four times `mmap` by hits alone would take 80 %. A longer
  window brings hits and takes the memory of rows: nothing is gained.
- What is left with a spool on zipf-256: 7,000 to 8,000 requests for neighbour lists a batch, a fifth of the time of the disk or more; 0.2
  GB of features a batch read in order, and the batch's own rows, 78 MB, written and read again.
- One figure for memory and one for the disk (`host_memory` and `spool`, nothing else) does 0.86 of what settings by hand do with a spool,
  and 1.75 times what `host_memory` does without. It counts libraries, and more in reserve: 462 MiB are left for caches in place of 706,
  and it takes groups of 64. The process stood at 1,440 of 1,935 MiB, files apart.
- On cnr-768 `ours` waits for next to nothing: the step of the model is all of a batch's time, so that the speed of the processor decides
  how far it is ahead. Three days before, on a machine of the same name, a step of GCN took 0.09 s in place of 0.17 (in turns, the code
  before and this one take the same), `ours` did 7,932 samples a second, and it was 4.44 (GraphSAGE) and 4.31 times as fast as `mmap`.
  `mmap` meets a disk of little delay, which is not the same from hour to hour: GCN over it did 1,541 to 2,165 samples a second within a
  day, by the same number of requests. In community order three quarters of the rows of GraphSAGE hit, in proximity order two thirds, in
  random order one. Two rounds in proximity order, before those of the table: 4.32 times `mmap` (GraphSAGE), 3.40 (GCN). Tried for GCN and
  no better, within what the disk varies: a window of 32, a fifth, 0.3 or half of the room for lists in place of 0.4, packed features. The
  rows that are read together lie together, so there is nothing to gain by a spool.
- A batch that its caller has let go of makes room for one more that is read: the disk need not rest while hits are copied and the next
  read is planned. In turns with the code before, on cnr-768: beside another training 4,456 and 4,651 samples a second in place of 3,605
  and 3,363 (GCN, `ours`); alone no gain, 7,684 to 8,324 in place of 8,048 to 8,394, and 1,635 and 1,783 in place of 1,830 and 1,872
  (GraphSAGE, `ginex`). Alone, waiting falls from 43 to 47 ms a batch of GCN to 34 to 45, and the step grows from 79 to 82 ms to 86 to 91:
  what reads meanwhile slows the step down on this machine. On rmat-64, hours apart, `ginex` did 1.14 and 1.09 times as much.
- The room for caches is what a run without them leaves, and on cnr-768 two such runs differed by 55 MB; with the larger caches one round
  was faster, and in the next `ginex` stood still, with no memory left for its row pointers. The figures are with the larger need. The
  budget of the whole process (`host_memory`) counts libraries too and keeps more in reserve: it does not stand still, and does less.
- On rmat-64 most of the store is lists, 200 edges a node, and the hottest tenth of the rows has 90 % of the visits. Three quarters of the
  requests of `ginex` are for lists, two a list: the longest ones are longer than what is worth reading along. `ours` reads those of up to
  16 samples together, by fewer requests, but the memory of 16 threads is the rows': 85 % hit in place of 91.
- GCN normalises by degrees. The model of `penstock train` reads those of the whole graph off the row pointers; here GCN has the degrees
  in the batch, as PyG's has, since that is the model's doing and not the reader's.
- Lists have no cache on zipf-256, twitter-128 and rmat-64: their table of places alone takes 4 bytes a node, and the search for a budget
  finds that rows make more of them.
- The disk is virtual: the host keeps what was read as far as its memory goes, and answers 59,000 to 116,000 requests a second within an
  hour. fio, which reads anywhere, meets colder blocks than the contenders, who read the same batches one after the other. Each store is
  read in order at the beginning of a sitting.
- What it depends on, one run a point on a machine that others use too: hits and requests are to be trusted, speeds to a tenth. Hits grow
  up to a window of 32 and fall from there, where the batches held ahead take the room of rows; speed hardly falls, since a longer window
  has more reads to hide one behind the other. Dimension: the paper's curve falls from 128 to 512, ours rises: at 128 the step of the
  model is half of the time of `mmap`, at 768 a third. Memory: all three gain, `mmap` 1.5 times from three quarters of a tenth to two,
  `ginex` 1.6 times. With eight batches of warm-up `ginex` did less with one and a half than with one: a cache that fills
  by and by was timed while it filled. So it has 48 of them, and three halves of the window where that is more.
""".splitlines()


def render(result: dict[str, Any]) -> str:
    """The page."""
    stores = result["stores"]
    every = [run for _, _, found in cells(stores) for runs in found.values() for run in runs]
    some = next(run for run in every if run["settings"]["model"] == "sage")
    sizes = sorted({run["settings"]["batch_size"] for store in stores.values() for run in runs_of(store, "main", "gcn", "ginex")})
    seeds = " or ".join(f"{size:,}" for size in sizes) or "?"
    head = HEAD.format(
        batches=min(len(run["batch_s"]) for run in every),
        sage=some["settings"]["batch_size"],
        gcn=seeds,
        group=GROUP,
        threads=IN_STEP,
        far=" and ".join(FAR),
        near=" and ".join(NEAR),
        tuned="\n".join(tuned(stores)),
    )
    lines = fold_all(head)
    lines += ["## The stores", "", *table(["store", "", "nodes", "edges", "features", "GB", "memory, MiB"], store_rows(stores)), ""]
    lines += ["## Samples per second", "", *verdict(stores), *missing(stores), "", *table(SPEED, speed_rows(stores)), ""]
    lines += ["![Samples per second](../pictures/disk-main.png)", "", "Ginex 5.2: 1.83 to 2.67 times PyG+, 1.23 to 1.57 times Ali+PG.", ""]
    lines += ["What they do per batch; medians:", "", *table(WORK, work_rows(stores)), ""]
    lines += ["## Against the device", "", *device_words(), *device_verdict(stores), "", *table(DEVICE, device_rows(stores)), ""]
    lines += [*bound_words(), "", *table(BOUND, bound_rows(stores)), ""]
    lines += sensitivity_lines(stores)
    lines += ours_lines(stores)
    loads = ", ".join(f"{load:g}" for load in result.get("foreign_load_percent", []))
    lines += [*REMARKS, "", *fold(f"`{result['command']}`; {machine(result)}. Other load at the starts: {loads} %."), ""]
    return "\n".join(lines)


def tuned(stores: dict[str, Any]) -> list[str]:
    """How the baselines were tuned: points of a list."""
    threads, splits = defaultdict(list), defaultdict(list)
    for name, store in stores.items():
        tried = {
            what: [key for key in store.get(f"pilot {what}", {}) if runs_of(store, f"pilot {what}", key)] for what in ("mmap", "ali+pg")
        }
        if len(tried["mmap"]) > 1:
            threads[" and ".join(sorted(tried["mmap"], key=int))].append(name)
        if runs_of(store, "main", "sage", "ali+pg"):
            number = len(tried["ali+pg"])
            splits[f"the best of {number} tried" if number > 1 else "not tuned"].append(name)
    words = [f"- Threads of the maps: {tried} were tried on {', '.join(names)}." for tried, names in threads.items()]
    return words + [f"- Split of the caches of `ali+pg` into lists and rows: {how} on {', '.join(names)}." for how, names in splits.items()]


def runs_of(store: dict[str, Any], *keys: str) -> list[dict[str, Any]]:
    """Runs at a place that came to their end."""
    at: Any = store
    for key in keys:
        at = at.get(key, {})
    return [run for run in at.get("runs", []) if "error" not in run]


def rate(runs: list[dict[str, Any]]) -> float:
    """Median of samples per second."""
    return median(run["samples_per_s"] for run in runs) if runs else float("nan")


def middle(runs: list[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> float:
    """Median of a value per batch."""
    return median(value(run) / len(run["batch_s"]) for run in runs)


def store_rows(stores: dict[str, Any]) -> list[list[str]]:
    """What the stores are."""
    return [
        [
            *(name, store["made_by"], f"{store['num_nodes']:,}", f"{store['num_edges']:,}", str(store["dim"])),
            *(f"{store['store_bytes'] / 1e9:.1f}", f"{store['limit_bytes'] / 2**20:,.0f}"),
        ]
        for name, store in stores.items()
    ]


SPEED = ["store", "model", *CONTENDERS, "ginex over mmap", "over ali+pg", "ours over mmap", "over ali+pg"]


def speed_rows(stores: dict[str, Any]) -> list[list[str]]:
    """Samples per second and ratios."""
    rows = []
    for name, model, found in cells(stores):
        rates = [f"{rate(runs):,.0f} ({least(runs):,.0f} to {most(runs):,.0f})" if runs else "-" for runs in found.values()]
        ratios = [
            f"{ratio(found, other, one):.2f}x" if found[other] and found[one] else "-" for one in ("ginex", "ours") for other in TARGETS
        ]
        rows.append([name, MODELS[model], *rates, *ratios])
    return rows


def cells(stores: dict[str, Any]) -> list[tuple[str, str, dict[str, list[dict[str, Any]]]]]:
    """(store, model, contender -> runs), where ginex was run."""
    every = [(n, m, {c: runs_of(store, "main", m, c) for c in CONTENDERS}) for n, store in stores.items() for m in MODELS]
    return [cell for cell in every if cell[2]["ginex"]]


def ratio(found: dict[str, list[dict[str, Any]]], other: str, one: str = "ginex") -> float:
    """How much faster ginex, or ours, is."""
    return rate(found[one]) / rate(found[other])


def least(runs: list[dict[str, Any]]) -> float:
    """The slowest run."""
    return min(run["samples_per_s"] for run in runs)


def most(runs: list[dict[str, Any]]) -> float:
    """The fastest run."""
    return max(run["samples_per_s"] for run in runs)


def verdict(stores: dict[str, Any]) -> list[str]:
    """What was wanted, and where it was reached."""
    words = []
    for one, (other, wanted) in product(("ginex", "ours"), TARGETS.items()):
        ratios = [ratio(found, other, one) for _, _, found in cells(stores) if found[other] and found[one]]
        if ratios:
            reached = sum(each >= wanted for each in ratios)
            words.append(
                f"`{one}` over `{other}`: {min(ratios):.2f} to {max(ratios):.2f} times, {wanted:g} times was wanted: reached in "
                f"{reached} of {len(ratios)} cells."
            )
    return words


def missing(stores: dict[str, Any]) -> list[str]:
    """What was planned and is not there."""
    measured = {(name, model) for name, model, _ in cells(stores)}
    absent = [f"{name} ({MODELS[model]})" for name in STORES for model in MODELS if (name, model) not in measured]
    return [f"Not measured yet: {', '.join(absent)}."] if absent else []


WORK = [
    "store",
    "model",
    "",
    "s",
    "step, s",
    "rows",
    "that hit",
    "lists",
    "that hit",
    "MB read",
    "requests",
    "warm-up",
    "s to build",
    "MiB",
]


def work_rows(stores: dict[str, Any]) -> list[list[str]]:
    """Per batch, contender by contender."""
    rows = []
    for name, model, found in cells(stores):
        for contender, runs in found.items():
            if not runs:
                continue
            per_batch = {
                name: middle(runs, lambda run, name=name: run[name]) for name in ("seconds", "step_s", "rows", "lists", "read_bytes")
            }
            requests = middle(runs, lambda run: run["requests"] or run["major_faults"])
            cells_of_run = [f"{per_batch['seconds']:.2f}", f"{per_batch['step_s']:.2f}", f"{per_batch['rows']:,.0f}", share(runs, "row")]
            cells_of_run += [f"{per_batch['lists']:,.0f}", share(runs, "list"), f"{per_batch['read_bytes'] / 1e6:,.0f}", f"{requests:,.0f}"]
            build = [
                f"{median(run['warmup_batches'] for run in runs):.0f}",
                f"{median(run['build_s'] for run in runs):.0f}",
                f"{max(run['group_peak_bytes'] for run in runs) / 2**20:,.0f}",
            ]
            rows.append([name, MODELS[model], contender, *cells_of_run, *build])
    return rows


def share(runs: list[dict[str, Any]], what: str) -> str:
    """Hits."""
    hits = median(run[f"{what}_hits"] / max(run[f"{what}s"], 1) for run in runs)
    return f"{100 * hits:.0f} %" if hits else "-"


DEVICE = ["store", "model", "s a batch", "requests", "pages", "fio, pages/s", "s for the pages", "ratio", "s for the requests", "ratio"]


def device_words() -> list[str]:
    """What the ratio is."""
    return [
        "Time of `ginex` per batch over the time that fio would take for the pages that were missed: 4 KiB at random, depth 128, the",
        f"same file, between the runs. {DEVICE_TARGET:g} at most was wanted. Pages are those of 4 KiB that missed rows and lists are on,",
        "counted once a read, without the holes that are read along. Requests are what was asked of the disk for them: near ones are put",
        "into one, of 64 KiB at most, which counts as one of fio's; longer ones take longer: fio does 101,000 of 4 KiB a second here,",
        "72,000 of 8 and 50,000 of 16.",
    ]


def device_verdict(stores: dict[str, Any]) -> list[str]:
    """What was wanted, and where it was reached."""
    rows = device_rows(stores)
    ratios = [[float(row[at]) for row in rows if row[at] != "-"] for at in (-3, -1)]
    reached = [f"{sum(ratio <= DEVICE_TARGET for ratio in each)} of {len(each)}" for each in ratios]
    return [f"By pages reached in {reached[0]} cells, by requests in {reached[1]}."]


def fio_rates(store: dict[str, Any], model: str) -> list[float]:
    """Requests a second between a model's runs."""
    return [one["requests_per_s"] for one in store.get("fio", []) if one["model"] == model]


def device_rows(stores: dict[str, Any]) -> list[list[str]]:
    """Ratios per store and model."""
    rows = []
    for name, model, found in cells(stores):
        runs, speeds = found["ginex"], fio_rates(stores[name], model)
        if not speeds:
            continue
        seconds, requests = middle(runs, lambda run: run["seconds"]), middle(runs, lambda run: run["requests"])
        pages, speed = middle(runs, lambda run: run.get("pages", 0)), median(speeds)  # older runs counted none
        counts = [f"{requests:,.0f}", f"{pages:,.0f}" if pages else "-", f"{speed:,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f})"]
        ratios = [
            text for each in (pages, requests) for text in ((f"{each / speed:.2f}", f"{seconds * speed / each:.2f}") if each else "--")
        ]
        rows.append([name, MODELS[model], f"{seconds:.2f}", *counts, *ratios])
    return rows


BOUND = [
    "store",
    "model",
    "pages a batch, mmap",
    "a second",
    "of fio's rate",
    "reads a batch, ginex",
    "of mmap's",
    "most over mmap",
    "reached",
]


def bound_words() -> list[str]:
    """What the device leaves to be gained."""
    return [
        "How much there is to gain over `mmap` here: its threads keep the device busy too. A reader at fio's rate that asks for what",
        '`ginex` asks for and hides either the reads behind the step or the step behind the reads would be ahead by "most over mmap".',
    ]


def bound_rows(stores: dict[str, Any]) -> list[list[str]]:
    """Reads of both per store and model, and what fio's rate makes of them."""
    rows = []
    for name, model, found in cells(stores):
        speeds = fio_rates(stores[name], model)
        if not speeds or not found["mmap"] or not found["ginex"]:
            continue
        speed, seconds, faults = (
            median(speeds),
            *(middle(found["mmap"], lambda run, what=what: run[what]) for what in ("seconds", "major_faults")),
        )
        requests, step = (middle(found["ginex"], lambda run, what=what: run[what]) for what in ("requests", "step_s"))
        most, reached = seconds / max(requests / speed, step), seconds / middle(found["ginex"], lambda run: run["seconds"])
        counts = [
            f"{faults:,.0f}",
            f"{faults / seconds:,.0f}",
            f"{faults / seconds / speed:.2f}",
            f"{requests:,.0f}",
            f"{requests / max(faults, 1):.2f}",
        ]
        rows.append([name, MODELS[model], *counts, f"{most:.1f}x", f"{reached:.1f}x"])
    return rows


SENSITIVITIES = {
    "window": "window, batches",
    "memory": "memory, times a tenth of the store",
    "batch size": "seeds per batch",
    "dimension": "features, within the same memory",
}
PAPER = {
    "window": "Ginex 5.4, figure 16: twice the superbatch saves 3 to 7 % of the time at its default, ever less beyond.",
    "memory": "Ginex, figure 18: half the memory leaves little between the two caches, both poor; twice the memory brings both forward.",
    "batch size": "Ginex, figure 19: faster than Ali+PG at every size from 500 on, not at 250.",
    "dimension": (
        "Ginex, figure 17: the wider the rows, the less there is between the three contenders, from 128 over 256 to 512; more again at "
        "768, where a row lies on two pages."
    ),
}


def sensitivity_lines(stores: dict[str, Any]) -> list[str]:
    """What it depends on."""
    lines = ["## What it depends on", "", "GraphSAGE; one run a point.", ""]
    for what, label in SENSITIVITIES.items():
        rows = sensitivity_rows(stores, what)
        if rows:
            names = ["ginex", "rows that hit"] if what == "window" else [*CONTENDERS[:3], "over mmap", "over ali+pg"]
            lines += [f"### {what.capitalize()}", "", *fold(PAPER[what]), "", *table(["store", label, *names], rows), ""]
    if any(what in store for store in stores.values() for what in SENSITIVITIES):
        lines += ["![What it depends on](../pictures/disk-sensitivity.png)", ""]
    return lines


def sensitivity_rows(stores: dict[str, Any], what: str) -> list[list[str]]:
    """A row per point."""
    rows = []
    for name, store in stores.items():
        for point, page in sorted(store.get(what, {}).items(), key=lambda item: float(item[0])):
            if what == "window":
                runs = runs_of(store, what, point)
                rows += [[name, point, f"{rate(runs):,.0f}", share(runs, "row")]] if runs else [[name, point, "does not fit", "-"]]
                continue
            found = {contender: runs_of(store, what, point, contender) for contender in CONTENDERS if contender in page}
            rates = [f"{rate(found[c]):,.0f}" if found.get(c) else "does not fit" for c in CONTENDERS[:3]]
            ratios = [f"{ratio(found, o):.2f}x" if found.get(o) and found.get("ginex") else "-" for o in TARGETS]
            rows.append([name, point, *rates, *ratios])
    return rows


def ours_lines(stores: dict[str, Any]) -> list[str]:
    """What goes beyond ginex."""
    rows = []
    for name, store in stores.items():
        first = rate(runs_of(store, "ours", "ginex"))
        for step in store.get("ours", {}):
            runs = runs_of(store, "ours", step)
            if runs:
                numbers = [f"{rate(runs):,.0f} ({least(runs):,.0f} to {most(runs):,.0f})", f"{rate(runs) / first:.2f}x", share(runs, "row")]
                rows.append([name, step, *numbers, share(runs, "list"), f"{middle(runs, lambda run: run['requests']):,.0f}"])
    if not rows:
        return []
    head = ["store", "with", "samples/s", "over ginex", "rows that hit", "lists that hit", "requests a batch"]
    words = (
        "GraphSAGE; least and most in brackets. Each line but the first is `ginex` changed by what it says. In all of them hits were "
        "copied while the disk was waited for."
    )
    return ["## Beyond Ginex", "", *fold(words), "", *table(head, rows), ""]
