"""Figures of the study of caches, for bench/caching_claims.py to put together: each a function from the cells of a graph to a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.caching_page import BY_EDGE, DEEP, FEW, ORDERS, PAGRAPH, RECENT, RECENT_TENTH, TENTH, WIDE, WINDOWS, Cells, average

Figure = Callable[[Cells], float]
Graphs = dict[str, Cells]
ALL_WINDOWS = (*WINDOWS, "all")
RANDOM_SHARES = (WIDE, TENTH, FEW, DEEP)
BY_WEIGHT = (RECENT, RECENT_TENTH, BY_EDGE)
DYNAMIC = ("lru", "lfu", "clock", "sieve", "s3-fifo")


def hits(policy: str, setting: str, capacity: str = "10%") -> Figure:
    """Hit rate in random order."""
    return lambda graph: graph.hits(setting, policy, capacity)


def missed(policy: str, setting: str = ORDERS, capacity: str = "10%", order: str = "random") -> Figure:
    """Missed rows, as a share of what the random order asks for."""
    return lambda graph: graph.missed(setting, policy, capacity, order)


def over(one: Figure, other: Figure) -> Figure:
    """Quotient."""
    return lambda graph: one(graph) / max(other(graph), 1e-12)


def skill(policy: str, setting: str) -> Figure:
    """What is gained over random, as a share of what the oracle gains over it, at 10%."""
    ours, base, best = (hits(name, setting) for name in (policy, "random", "oracle"))
    return lambda graph: (ours(graph) - base(graph)) / max(best(graph) - base(graph), 1e-12)


def presample_over(other: str) -> Callable[[str], Figure]:
    """Quotient of hit rates at 10%, by setting."""
    return lambda setting: over(hits("presample", setting), hits(other, setting))


def best_static(order: str) -> Figure:
    """Fewest rows missed by a static cache that can be made: by degree or presampling."""
    return lambda graph: min(graph.missed(ORDERS, name, order=order) for name in ("degree", "presample"))


def gained(window: str, setting: str = ORDERS) -> Figure:
    """Share of full knowledge's gain over presampling, of a sliding window."""
    return lambda graph: graph.gain(setting, f"belady {window}")


def without(policy: str) -> Callable[[str], Figure]:
    """Rows missed by another policy over those missed by a sliding window, by window."""
    return lambda window: over(missed(f"{policy} {window}"), missed(f"belady {window}"))


def shown(figure: Figure, show: Callable[[float], str]) -> Callable[[Cells], str]:
    """As text."""
    return lambda graph: show(figure(graph))


def each(names: Iterable[str], figure: Callable[[str], Figure], show: Callable[[float], str], head: str = "{}") -> dict:
    """A column per name."""
    return {head.format(name): shown(figure(name), show) for name in names}


def means(graphs: Graphs, names: Iterable[str], figure: Callable[[str], Figure], show: Callable[[float], str]) -> str:
    """'1.02x (this), 1.5x (that)': means over graphs."""
    return ", ".join(f"{show(average(graphs, figure(name)))} ({name})" for name in names)


def count(graphs: Graphs, holds: Callable[[Cells], bool]) -> str:
    """'3 of 7 graphs'."""
    return f"{sum(map(holds, graphs.values()))} of {len(graphs)} graphs"


DEGREE_20, ORACLE_20, RANDOM_20, RATIO_20 = (hits(name, PAGRAPH, "20%") for name in ("degree", "oracle", "random", "ratio"))
FIFO_NEAR, FIFO_SEQUENCE = missed("fifo", order="proximity"), missed("fifo", order="one-sequence")
