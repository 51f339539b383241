"""docs/results/caching.md, rendered from `bench/results/caching.json`: each claim of a paper, its figure, ours, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

from bench.common import fold, machine, table

WIDE, TENTH, FEW, DEEP = "10,10 of 65%", "10,10 of 10%", "10,10 of 1%", "15,10,5 of 1%"
GATHERED = "15,10,5 of 1%, gathered"
RECENT, RECENT_TENTH, BY_EDGE = "15,10,5 of 1%, by recency", "10,10 of 10%, by recency", "15,10,5 of 1%, by edge"
PAGRAPH, LARGE, ORDERS, GINEX = "2,2 of 65%", "10,10 of 10%, large batches", "10,10 of 10%, orders", "10,10,10 of 2%"
WINDOWS = ("1", "4", "16", "64")


@dataclass(frozen=True)
class Cells:
    """The figures of one graph, for claims to ask."""

    found: dict[str, Any]

    def order(self, setting: str, order: str = "random") -> dict[str, Any]:
        """All of one order."""
        return self.found["settings"][setting]["orders"][order]

    def _place(self, setting: str, capacity: str) -> int:
        return self.found["settings"][setting]["capacities"].index(capacity)

    def hits(self, setting: str, policy: str, capacity: str = "10%", order: str = "random") -> float:
        """Hit rate."""
        return self.order(setting, order)["curves"][policy]["hit_rate"][self._place(setting, capacity)]

    def missed(self, setting: str, policy: str, capacity: str = "10%", order: str = "random") -> float:
        """Missed rows per epoch, as a share of what the random order asks for: comparable between orders."""
        rows = self.order(setting, order)["curves"][policy]["missed_rows"][self._place(setting, capacity)]
        return rows / max(self.order(setting)["asked_rows_per_epoch"], 1)

    def gain(self, setting: str, policy: str, capacity: str = "10%") -> float:
        """Share of what full knowledge gains over the presampled static cache that a policy gains."""
        static, best = self.missed(setting, "presample", capacity), self.missed(setting, "belady all", capacity)
        return (static - self.missed(setting, policy, capacity)) / max(static - best, 1e-12)

    def ceiling(self, setting: str, capacity: str = "10%") -> float:
        """Hit rate that no policy exceeds."""
        return self.order(setting)["ceiling"][self._place(setting, capacity)]

    def asked_share(self, setting: str) -> float:
        """Share of the nodes that a batch asks for."""
        return self.order(setting)["asked_rows_per_batch"] / self.found["graph"]["num_nodes"]

    def asked(self, setting: str, order: str) -> float:
        """Rows asked for, as a share of what the random order asks for."""
        return self.order(setting, order)["asked_rows_per_epoch"] / self.order(setting)["asked_rows_per_epoch"]

    def seeds_share(self, setting: str) -> float:
        """Seeds, as a share of the rows asked for."""
        return self.found["settings"][setting]["num_seeds"] / self.order(setting)["asked_rows_per_epoch"]

    def correlation(self, setting: str) -> float:
        """Rank correlation of out-degree with visits."""
        return self.order(setting)["rank_correlation_with_visits"]["degree"]


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes:
        title: of the section.
        says: the paper's figure, and what counts as holding here.
        columns: head -> figure of a graph, as text.
        holds: whether it does on a graph; None for what is no claim.
        explains: text below the table, from the figures of all graphs.
    """

    title: str
    says: str
    columns: dict[str, Callable[[Cells], str]]
    holds: Callable[[Cells], bool] | None
    explains: Callable[[dict[str, Cells]], str]


def percent(value: float) -> str:
    """0.1234 -> '12.3%'."""
    return f"{100 * value:.3g}%"


def times(value: float) -> str:
    """1.5 -> '1.5x'."""
    return f"{value:.2f}x"


def average(cells: dict[str, Cells], figure: Callable[[Cells], float]) -> float:
    """Mean over graphs."""
    return mean(map(figure, cells.values()))


def extremes(cells: dict[str, Cells], figure: Callable[[Cells], float], show: Callable[[float], str]) -> str:
    """'least (graph) to most (graph)'."""
    values = {name: figure(each) for name, each in cells.items()}
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return f"{show(values[low])} ({low}) to {show(values[high])} ({high})"


def render(result: dict[str, Any], claims: list[Claim]) -> str:
    """Return the page."""
    cells = {name: Cells(found) for name, found in result["graphs"].items()}
    lines = [*_introduction(result, cells)]
    lines += [
        "## Verdicts",
        "",
        *table(["claim", "holds on"], [[claim.title, verdict(claim, cells)] for claim in claims if claim.holds]),
        "",
    ]
    for claim in claims:
        heads = ["graph", *claim.columns, *(["holds"] if claim.holds else [])]
        rows = [
            [name, *(figure(each) for figure in claim.columns.values()), *(["yes" if claim.holds(each) else "no"] if claim.holds else [])]
            for name, each in cells.items()
        ]
        lines += [f"## {claim.title}", "", *fold(claim.says), "", *table(heads, rows), "", *fold(claim.explains(cells)), ""]
    return "\n".join(lines)


def verdict(claim: Claim, cells: dict[str, Cells]) -> str:
    """'5 of 7 graphs'."""
    held = sum(claim.holds(each) for each in cells.values()) if claim.holds else 0
    return f"{held} of {len(cells)} graphs"


def _introduction(result: dict[str, Any], cells: dict[str, Cells]) -> list[str]:
    graphs = [
        [
            name,
            f"{graph['num_nodes']:,}",
            f"{graph['num_edges']:,}",
            percent(graph["top_hundredth_of_out_edges"]),
            percent(graph["never_a_source"]),
        ]
        for name, graph in ((name, each.found["graph"]) for name, each in cells.items())
    ]
    settings = [
        [name, ",".join(map(str, each["num_neighbors"])), percent(each["train_fraction"]), str(each["batch_size"]), str(each["epochs"]),
         percent(average(cells, lambda graph, name=name: graph.asked_share(name)))]
        for name, each in result["settings"].items()
    ]  # fmt: skip
    return [
        "# Caches of features: what the papers say, measured again",
        "",
        *fold(
            f"""`{result["command"]}` samples each graph in each setting, plays the accesses through the policies and writes
            `bench/results/caching.json`; `python -m bench.tables` makes this page of it. Any row by itself: `penstock study cache
            STORE`. It took {result["seconds"] / 60:.0f} minutes. {machine(result)}. Other load at the start:
            {result["foreign_load_percent"]} %, which counts do not depend on."""
        ),
        "",
        *fold(
            """One epoch is played first and not counted. Hit rate: hits / rows asked for, over all batches. Train nodes are a random
            share of all nodes. *presample* ranks by visits in sampled epochs, as GNNLab does; what is chance in them is replaced by the
            mean of nodes of the same kind (`cache/expected.py`). *oracle* is the best static content for the very epochs measured;
            *belady all* knows every batch to come. Thresholds of
            "holds" are ours, where a paper gives a picture or a word."""
        ),
        "",
        *table(["graph", "nodes", "edges", "out-edges of the top 1% of nodes", "never read as a neighbour"], graphs),
        "",
        *table(["setting", "fanouts", "train nodes", "batch", "epochs measured", "a batch asks for, mean share of the nodes"], settings),
        "",
        "![hit rate of static caches by share of nodes kept](../pictures/caching-static.png)",
        "",
        "![rows missed at 10% kept, by policy and order](../pictures/caching-dynamic.png)",
        "",
        "![what look-ahead gains, by window](../pictures/caching-windows.png)",
        "",
    ]
