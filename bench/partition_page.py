"""docs/results/partitions.md, rendered from `partition.json` and `trainers.json` of `bench/results`."""

from __future__ import annotations

from typing import Any

from bench.common import fold_all, machine, table

INTRODUCTION = """
Who owns each node, by the methods of `penstock.partition`. An edge lives with its destination, and is cut where its source has another
owner. Halo: distinct sources of other parts, summed over the parts, per node of the graph. Traffic: of the distinct nodes that batches of
a part's own train nodes sample, the share that other parts own; that is what a trainer on the part would fetch. Balance: the largest part
over the mean. The least cut, halo and traffic are bold.
"""

READING = """
- `metis` cuts least nearly everywhere, in 4 to 40 times the time of `ldg` and with copies of all edges in memory. Use it where the graph
fits several times, else `ldg`.
- On a power law without communities (small) nothing helps: there is hardly anything to gain.
- Parts of equally many nodes do not have equally many edges: where hubs lie together, one part has two or three times the mean. No method
here balances edges; `random` does by chance.
- `pagraph` is made for its own purpose, train nodes with copies of all that they read. With one owner per node it fetches
least where there are few of them (hetero_dblp); of edges it cuts about as many as `bgl`, or more.
"""


TRAINERS = """
Where several processes train on a part (`penstock partition --trainers-per-part`), its seeds are divided among them by the method that made
the parts, over the edges within it, and each batch has those of one (DistDGLv2 5.3). Mean nodes of a batch, and the share of them that
other parts own, with 1, 2 and 4 trainers of each of four parts. The nearer seeds are to each other, the more they have in common; of what
a batch reads, a larger share may be others' then; in nodes it is less, but for web_cnr2000 by metis, where it is next to nothing.
"""


def render(result: dict[str, Any], trainers: dict[str, Any]) -> str:
    """The page."""
    fanouts = ", ".join(map(str, result["fanouts"]))
    sampled = f"Batches have {result['batch']} train nodes and fanouts {fanouts}; {result['batches']} batches of each part at most. "
    sampled += f"A graph without a split has {result['train']:.0%} of its nodes as train nodes, at random."
    made = "`python -m bench.partition DATA FOLDER` makes it; everything, also per part, is in `bench/results/partition.json`."
    head = ["graph", "parts", "method", "edges cut", "halo", "traffic", "nodes", "train nodes", "edges", "seconds"]
    return "\n".join(
        [
            "# Partitions",
            "",
            *fold_all(f"{INTRODUCTION} {sampled} {made}"),
            *table(["graph", "nodes", "edges", "train nodes"], sizes(result)),
            "",
            *table(head, rows_of(result)),
            "",
            *fold_all(READING.strip()),
            "## What BGL reports",
            "",
            *fold_all(
                "25 to 44 % less traffic between parts than random ones (BGL 3.3, on graphs of up to 1.2 billion nodes). Here, in percent; "
                f"{inside(result)}"
            ),
            *table(["graph", "parts", "bgl", "the best"], claims(result)),
            "",
            "## Trainers of a part",
            "",
            *fold_all(f"{TRAINERS.strip()} `python -m bench.trainers DATA FOLDER` makes it (`bench/results/trainers.json`)."),
            *table(["graph", "method", "nodes, 1 trainer", "2", "4", "of other parts, 1", "2", "4"], rows_of_trainers(trainers)),
            "",
            machine(result) + f". Other load at the start: {result['foreign_load_percent']} %.",
            "",
        ]
    )


def sizes(result: dict[str, Any]) -> list[list[str]]:
    """A row per graph."""
    return [[name, *(f"{each[key]:,}" for key in ("num_nodes", "num_edges", "num_train"))] for name, each in result["graphs"].items()]


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    """A row per graph, number of parts and method."""
    rows = []
    for name, graph in result["graphs"].items():
        for num_parts, methods in graph["parts"].items():
            for method, found in methods.items():
                cells = []
                for key in ("edge_cut", "halo_share", "traffic"):
                    cell = f"{found[key]:.3f}"
                    cells.append(f"**{cell}**" if found[key] == min(each[key] for each in methods.values()) else cell)
                balances = [f"{found[f'{key}_balance']:.2f}" for key in ("nodes", "train", "edges")]
                rows.append([name, num_parts, method, *cells, *balances, f"{found['seconds']:.2f}"])
    return rows


def rows_of_trainers(result: dict[str, Any]) -> list[list[str]]:
    """A row per graph and method."""
    rows = []
    for name, methods in result["graphs"].items():
        for method, found in methods.items():
            first, *others = (each["nodes"] for each in found.values())
            nodes = [f"{first:,.0f}", *(f"{each:,.0f} ({each / first:.2f})" for each in others)]
            rows.append([name, method, *nodes, *(f"{each['traffic']:.3f}" for each in found.values())])
    return rows


def savings(result: dict[str, Any]) -> list[tuple[str, str, float, float, str]]:
    """(graph, parts, percent of random's traffic that bgl saves, that the best saves, which that is)."""
    found = []
    for name, graph in result["graphs"].items():
        for num_parts, methods in graph["parts"].items():
            saved = {method: 100 * (1 - each["traffic"] / methods["random"]["traffic"]) for method, each in methods.items()}
            best = max(saved, key=lambda method: saved[method])
            found.append((name, num_parts, saved["bgl"], saved[best], best))
    return found


def claims(result: dict[str, Any]) -> list[list[str]]:
    """A row per graph and number of parts."""
    return [[name, num_parts, f"{ours:.0f}", f"{most:.0f} ({best})"] for name, num_parts, ours, most, best in savings(result)]


def inside(result: dict[str, Any]) -> str:
    """How often it holds."""
    saved = [round(ours) for _, _, ours, _, _ in savings(result)]
    kinds = [sum(each < 25 for each in saved), sum(25 <= each <= 44 for each in saved), sum(each > 44 for each in saved)]
    return f"of {len(saved)} rows {kinds[1]} lie in that range, {kinds[2]} above it and {kinds[0]} below."
