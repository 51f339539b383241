"""The pages of results, rendered from `bench/results/*.json`: all of docs/results, and the README's table.

python -m bench.tables
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bench import beyond_page, beyond_pictures, caching_page, caching_pictures, gpu_page, layout_page, lists_page, partition_page
from bench.accuracy import RECIPES
from bench.caching_claims import CLAIMS
from bench.common import RESULTS, ROOT, fold, machine, read, table
from bench.ways import PROCESSES, PYG

MODES = {
    "sample": "sampling",
    "features": "sampling + features",
    "plain": "training, `model(x, edge_index)`; here trimmed by `penstock.trim`",
    "plain-gcn": "the same, GCN",
    "plain-gat": "the same, GAT of 4 heads",
    "loop": "training, GraphSAGE trimmed by hand (`trim_to_layer`); here also by `penstock.trim`",
    "train": "training, the fastest step of each",
}
ON_THE_PAGE = ("plain-gcn", "plain-gat")
"""Rows that the README leaves out."""
PEERS = {
    "penstock, 2 workers": "Penstock, 2 threads",
    "pyg, 0 workers": "PyG",
    "pyg, 2 workers": "PyG, 2 workers",
    "dgl, 0 workers": "DGL classic",
    "graphbolt, 0 workers": "GraphBolt",
    "graphbolt, 2 workers": "GraphBolt, 2 workers",
}


def accuracy_page() -> str:
    """docs/results/accuracy.md."""
    rows, machines = [], []
    for name in RECIPES:
        result = read(f"accuracy-{name}")
        if result is None:
            continue
        settings = result["settings"]
        machines.append(f"- {name}: {machine(result)}")
        spreads = [f"{result[kind]['mean']:.1f} ± {result[kind]['stdev']:.1f}" for kind in ("sampled", "full")]
        fanouts = ", ".join(map(str, settings["num_neighbors"]))
        rows.append(
            [name, settings["model"], fanouts, result["metric"], str(len(result["sampled"]["runs"])), *spreads, str(result["target"])]
        )
    return "\n".join(
        [
            "# Accuracy on real graphs",
            "",
            "Test metric in percent at the best epoch by validation, mean and standard deviation over seeds (seed i takes split i",
            "where a graph has several). The same model, on sampled and on full neighbourhoods. `python -m bench.accuracy DATA` makes",
            "it; each run and its settings are in `bench/results/accuracy-*.json`.",
            "",
            "Settings were chosen by hand, with test scores of single runs in view (for amazon_computers about ten settings, on splits 0",
            "to 2 of its ten): figures reached with tuning, not blind estimates.",
            "",
            "ogbn_arxiv_nofeat has no features: each node learns a row of its own. Its figure to reach is that of plain label propagation;",
            "published figures without features are 68.3 (label propagation) and 70.1 (node2vec).",
            "",
            *table(["graph", "model", "fanouts", "metric", "seeds", "sampled", "full neighbourhoods", "to reach"], rows),
            "",
            *machines,
            "",
            *_together(),
        ]
    )


def _together() -> list[str]:
    """Of the accuracy page: several processes that train together."""
    result = read("together")
    if result is None:
        return []
    graphs = result["graphs"]
    contenders, seeds = list(next(iter(graphs.values()))), len(next(iter(graphs.values()))["1 process"]["tests"])
    rows = [[name, *(f"{found[one]['mean']:.1f} ± {found[one]['stdev']:.1f}" for one in contenders)] for name, found in graphs.items()]
    return [
        "## By several processes",
        "",
        f"The same settings and {seeds} seeds, batches divided by the number of processes, val and test over sampled neighbourhoods. All",
        "processes come to the same scores. `python -m bench.together DATA` makes it.",
        "",
        *table(["graph", *contenders], rows),
        "",
        machine(result),
        "",
    ]


def speed_rows(spreads: bool = False) -> list[list[str]]:
    """Rows graph, what, then seeds per second, wanted with the least and the most, and ratio per contender."""
    rows = []
    for graph in ("small", "large"):
        for mode, words in MODES.items():
            result = read(f"peers-{graph}-{mode}")
            if result is None or (mode in ON_THE_PAGE and not spreads):
                continue
            row = [graph, words]
            for label in PEERS:
                cell = result["contenders"].get(label)
                ratio = result["penstock_is_faster_by"].get(label)
                if cell is None:
                    row.append("-")
                    continue
                rate = cell["seeds_per_s"]
                said = f"{rate['median']:,.0f}" + (f" ({ratio:.1f}x)" if label != "penstock, 2 workers" else "")
                row.append(said + (f"; {rate['min']:,.0f} to {rate['max']:,.0f}" if spreads else ""))
            rows.append(row)
    return rows


def kept_memory() -> list[str]:
    """What loops gain where freed memory is kept, and what they hold."""
    rows = []
    for mode in ("plain", "plain-gcn", "plain-gat", "loop"):
        result = read(f"peers-small-{mode}")
        if result is None:
            continue
        labels = ("penstock, 2 workers", "penstock, kept, 2 workers", "penstock, untrimmed, 2 workers", "pyg, 0 workers")
        cells = [result["contenders"].get(label) for label in labels]
        said = ["-" if cell is None else f"{cell['seeds_per_s']['median']:,.0f}; {cell['peak_mib']:,}" for cell in cells]
        rows.append([MODES[mode].partition(";")[0], *said])
    return [
        "Activations and messages of edges are large arrays that come and go with each step; by default their pages go back to the",
        "system each time, and are asked for and cleared again. A call of `penstock.train.keep_freed_memory()` keeps them, for more",
        "memory; it is a setting of malloc, which would serve PyG's loader as well. The row of the fastest steps has it for Penstock, the",
        "others have not. Seeds per second on small, and MiB at the peak of the main process:",
        "",
        *table(["", "Penstock", "memory kept", "not trimmed", "PyG"], rows),
    ]


def speed_page() -> str:
    """docs/results/speed.md."""
    lines = [
        "# Speed",
        "",
        "Complete batches through the public interfaces, the same arrays, fanouts 15, 10, 5, batches of 1,024 seeds, without",
        "replacement; one run per row, contenders in alternation, medians of the rounds. In brackets: how many times faster Penstock",
        "is; then the least and the most. `python -m bench.peers STORE --mode MODE --pyg PYTHON --dgl PYTHON` makes them.",
        "DGL and GraphBolt sample the whole frontier again at each hop, so their batches hold other edges.",
        "",
        "Training: a 3-layer GraphSAGE of width 128. On this machine a step takes longer than its batch. A model that is called as",
        "most are, `model(x, edge_index)`, computes all nodes of a batch in each layer; given to `penstock.trim`, the rows that later",
        "layers read, by sparse products. So is one that is trimmed by hand, layer by layer (`trim_to_layer`): each layer still computes",
        "rows that nothing reads, and writes a message per edge. Without `penstock.trim`, changing the import gains what loading took.",
        "Rows are of different days, on which the machine was faster or slower: compare within a row.",
        "",
        *kept_memory(),
        "",
        "Graphs: small has 1M nodes, 16M edges, 128 features; large 8M, 128M, 64; power laws (`python -m bench.graphs`).",
        "",
        "Seeds per second:",
        "",
        *table(["graph", "what", *PEERS.values()], speed_rows(spreads=True)),
        "",
        f"Measured at {measured_at()}; a later version may be faster or slower.",
        *peers_versions(),
        "",
    ]
    rows = []
    for graph in ("small", "large"):
        result = read(f"peers-{graph}-features")
        if result:
            lines += [f"{graph}: {machine(result)}. Other load at the start: {result['foreign_load_percent']} %.", ""]
            rows += [
                [graph, PEERS[label], f"{row['peak_mib']:,}", f"{row['features_gb_per_s']['median']:.2f}", f"{row['ready_s']:.1f}"]
                for label, row in result["contenders"].items()
                if label in PEERS
            ]
    lines += [
        "Sampling + features, further. The arrays of large alone take 3,052 MiB with 64-bit ids, as PyG and DGL hold them, 2,564 MiB in a",
        "store. On small Penstock holds more than the peers: it has three batches in flight where they have one per process, and the peak",
        "of a contender is that of its main process, without PyG's workers:",
        "",
    ]
    lines += [*table(["graph", "", "peak MiB", "features GB/s", "s until ready"], rows), ""]
    kernels = read("kernels")
    if kernels:
        lines += ["## Kernels alone", "", "`python -m bench.kernels`; medians, least and most in brackets.", ""]
        names = {
            "one_thread_m_edges_per_s": "M edges/s, 1 thread",
            "two_threads_m_edges_per_s": "2 threads",
            "speedup": "ratio",
            "pyg_m_edges_per_s": "PyG, no workers, same run",
            "one_thread_over_pyg": "1 thread over PyG",
            "gather_gb_per_s": "gather GB/s",
            "ratio": "over index_select",
        }
        cells = [[graph, *(spread(kernels[graph][key]) for key in names)] for graph in ("small", "large")]
        lines += [*table(["graph", *names.values()], cells), ""]
    opening = read("opening")
    if opening:
        lines += [
            "## First batch",
            "",
            f"`python -m bench.opening`: from `penstock.open` to the first batch, {opening['store_bytes'] / 1e9:.1f} GB of store.",
            "",
            *table(
                ["store", "open, s", "first batch, s after the call of open", "after its return"],
                [
                    [kind, *(spread(values[key]) for key in ("open_s", "from_call_s", "from_return_s"))]
                    for kind, values in opening.items()
                    if kind.startswith(("in memory", "on disk"))
                ],
            ),
            "",
        ]
    typed = read("typed")
    if typed:
        lines += typed_section(typed)
    small = read("small_graphs")
    if small:
        lines += small_section(small)
    subgraphs = read("subgraph_types")
    if subgraphs:
        lines += subgraphs_section(subgraphs)
    attention = read("attention")
    if attention:
        lines += attention_section(attention)
    disk = read("disk")
    if disk:
        lines += disk_section(disk)
    return "\n".join(lines)


def typed_section(typed: dict[str, Any]) -> list[str]:
    """Typed graphs: batches with features, and steps of models."""
    ways = {"plain": "PyG's", "trimmed by hand": "PyG's of `trim_to_layer`"}
    rows = []
    for graph, found in typed.items():
        if not isinstance(found, dict) or "features" not in found:
            continue
        for part, values in found.items():
            kinds = {"features": "batches with features"} if part == "features" else ways
            for kind, said in kinds.items():
                rates, ratios = values["seeds_per_s"], values["over_pyg"]
                ours = rates["features" if part == "features" else "trimmed"]
                peers = (f"{PYG}{kind}", f"{PYG}{kind}{PROCESSES}")
                cells = [f"{rate(rates[name])}: {ratios[name]['median']:.3g}x" if name in rates else "-" for name in peers]
                if part == "features" or cells[0] != "-":
                    rows.append([graph, said if part == "features" else f"{part}, {said}", rate(ours), *cells])
    head = ["graph", "what", "Penstock, 2 threads", "PyG", "PyG, 2 workers"]
    return [
        "## Typed graphs",
        "",
        *fold(
            f"`{typed['command']}`, {machine(typed)}. Seeds a second, medians, least and most in brackets; then how many times as fast "
            "Penstock is. academic: 400k papers, 600k authors, 5k institutions and 30k fields, 25M edges of eight types, fanouts 10, 10, "
            "128 features. Models of two layers and width 64: a SAGEConv for each edge type, summed (`HeteroConv`), and HGT with four "
            "heads; Penstock's are the same behind `penstock.trim`."
        ),
        "",
        *table(head, rows),
        "",
    ]


def small_section(small: dict[str, Any]) -> list[str]:
    """Small graphs and small batches."""
    rows = []
    for graph, sizes in small.items():
        for size, found in sizes.items() if graph.endswith(" nodes") else ():
            rates, ratios = found["batches_per_s"], found["over_pyg"]
            peers = [f"{rate(rates[f'PyG, {way}'])}: {ratios[way]['median']:.3g}x" for way in ("no workers", "2 workers")]
            rows.append([graph, size, *(rate(rates[way]) for way in ("no threads", "2 threads")), *peers])
    return [
        "## Small graphs, small batches",
        "",
        *fold(
            f"`{small['command']}`, {machine(small)}. Batches a second, medians, least and most in brackets; then how many times as "
            "fast Penstock is in the same way. Fanouts 10, 10, with features. The last graph has 30 edge types. Whatever its size, a batch "
            "takes 0.15 ms of Python, as with PyG, and more for each type. Only one thread at a time runs Python, so more threads make "
            "small batches come slower, not faster: take `num_workers=0` for them."
        ),
        "",
        *table(["graph", "seeds a batch", "Penstock, no threads", "Penstock, 2 threads", "PyG, no workers", "PyG, 2 workers"], rows),
        "",
    ]


def subgraphs_section(subgraphs: dict[str, Any]) -> list[str]:
    """Kinds of subgraphs."""
    rates, ratios, rows = subgraphs["seeds_per_s"], subgraphs["over_pyg"], []
    for kind in (name for name in rates if not name.startswith(PYG)):
        peers = (f"{PYG}{kind}", f"{PYG}{kind}{PROCESSES}")
        cells = [f"{rate(rates[name])}: {ratios[name]['median']:.3g}x" if name in rates else "-" for name in peers]
        rows.append([kind, rate(rates[kind]), *cells])
    return [
        "## Kinds of subgraphs",
        "",
        *fold(
            f"`{subgraphs['command']}`, {machine(subgraphs)}. Seeds a second, medians, least and most in brackets; then how many times as "
            "fast Penstock is. Small, batches of 1,024 seeds with features, fanouts 15, 10, 5. Bidirectional: each sampled edge and its "
            "reverse; induced: all edges among the nodes, for which PyG needs torch-sparse."
        ),
        "",
        *table(["subgraph", "Penstock, 2 threads", "PyG", "PyG, 2 workers"], rows),
        "",
        *fold(
            "Any layer may read any row of such a batch, so `penstock.trim` leaves none out; but its layers go by products of matrices. "
            "Seconds of a step of PyG's models of three layers of width 128, of batches of 256 seeds and two hops of 10, in turns; then "
            "how many times as long PyG's own step takes:"
        ),
        "",
        *table(
            ["subgraph", "model", "`penstock.trim`", "PyG"],
            [
                [kind, name, spread(one["step_s"]["trimmed"]), f"{spread(one['step_s']['as it is'])}: {one['over']['median']:.3g}x"]
                for kind, models in subgraphs["steps"].items()
                for name, one in models.items()
            ],
        ),
        "",
    ]


def attention_section(attention: dict[str, Any]) -> list[str]:
    """Steps of layers of attention."""
    rows = []
    for memory in ("memory as it is", "freed memory kept"):
        for kind, found in attention[memory].items():
            cells = [f"{spread(found['step_s'][way])}: {found['over_pyg'][way]['median']:.3g}x" for way in ("plain", "by hand")]
            rows.append([kind, memory, spread(found["step_s"]["trimmed"]), *cells])
    return [
        "## Layers of attention",
        "",
        *fold(
            f"`{attention['command']}`, {machine(attention)}. Seconds of a step without loading, over the same batches in turns: medians, "
            "least and most in brackets; then how many times as long PyG's take. Small, three layers of 128 in four heads; Penstock's "
            "are PyG's behind `penstock.trim`."
        ),
        "",
        *table(["layer", "memory", "`penstock.trim`", "PyG, `model(x, edge_index)`", "PyG, `trim_to_layer`"], rows),
        "",
    ]


def disk_section(disk: dict[str, Any]) -> list[str]:
    """What the tier on a disk reaches beside fio."""
    rows = []
    for name, row in disk["workloads"].items():
        cells = [f"{row[who][what]['median']:,.0f}" for what in ("requests_per_s", "mb_per_s") for who in ("fio", "ours")]
        cpu = [spread(row[who]["us_of_cpu_per_read"]) for who in ("fio", "ours")]
        rows.append([name, *cells, spread(row["rate_over_fio"]), *cpu])
    return [
        "## Disk",
        "",
        f"`python -m bench.disk FOLDER`: a file of {disk['file_bytes'] / 2**30:.0f} GiB, fio and the disk tier in alternation,",
        f"{disk['rounds']} rounds of a second each; medians, and of the ratio of neighbours also least and most. The disk is virtual,",
        "and others share its speed. CPU is of all threads, from row numbers to rows in place.",
        "",
        *table(
            ["what", "fio, requests/s", "ours", "fio, MB/s", "ours", "rate over fio", "fio, us of CPU per request", "ours"],
            rows,
        ),
        "",
        machine(disk) + f". Other load at the start: {disk['foreign_load_percent']} %.",
        "",
    ]


def measured_at() -> str:
    """The commits at which the peers were compared."""
    results = [read(path.stem) for path in sorted(RESULTS.glob("peers-*.json"))]
    return "commit " + ", ".join(sorted({result["commit"] for result in results if result}))


def peers_versions() -> list[str]:
    """What the peers ran on, a line each."""
    said = {}
    for path in sorted(RESULTS.glob("peers-*.json")):
        for label, row in json.loads(path.read_text())["contenders"].items():
            if label in PEERS and "versions" in row and not label.startswith("penstock"):
                said[PEERS[label].split(",")[0]] = ", ".join(f"{name} {number}" for name, number in row["versions"].items())
    return ["", *(f"- {peer}: {numbers}" for peer, numbers in said.items())]


def spread(values: dict[str, float]) -> str:
    """Median (least to most)."""
    return f"{values['median']:.3g} ({values['min']:.3g} to {values['max']:.3g})"


def rate(values: dict[str, float]) -> str:
    """The same of whole numbers."""
    return f"{values['median']:,.0f} ({values['min']:,.0f} to {values['max']:,.0f})"


def pages() -> dict[str, str]:
    """The page of each file of docs/results whose results are there."""
    made = {"accuracy": accuracy_page(), "speed": speed_page(), "gpu": gpu_page.render(gpu_results(), table)}
    rendered: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
        "caching": (lambda result: caching_page.render(result, CLAIMS), ("caching",)),
        "neighbor_lists": (lists_page.render, ("slow_lists", "slow_budget")),
        "layout": (layout_page.render, ("layout",)),
        "partitions": (partition_page.render, ("partition", "trainers")),
        "disk": (beyond_page.render, ("beyond_memory",)),
    }
    for name, (render, needed) in rendered.items():
        results = [read(one) for one in needed]
        if None not in results:
            made[name] = render(*results)
    return {f"{name}.md": page for name, page in made.items()}


def gpu_results() -> dict[str, dict[str, Any] | None]:
    """What was measured on a GPU, as far as it was."""
    return {name: read(name) for name in gpu_page.FILES}


def main() -> None:
    """Write the pages and their pictures."""
    folder, pictures = ROOT / "docs" / "results", ROOT / "docs" / "pictures"
    for name, page in pages().items():
        (folder / name).write_text(page)
    for name, draw in (("caching", caching_pictures.draw), ("beyond_memory", beyond_pictures.draw)):
        if (result := read(name)) is not None:
            draw(result, pictures)
    gpu_page.draw(gpu_results(), pictures)
    readme = ROOT / "README.md"
    rows = "\n".join(table(["seeds per second", "", *PEERS.values()], speed_rows()))
    before, rest = readme.read_text().split("<!-- speed -->\n")
    readme.write_text(f"{before}<!-- speed -->\n{rows}\n<!-- end -->{rest.split('<!-- end -->')[1]}")
    print(folder, readme)


if __name__ == "__main__":
    main()
