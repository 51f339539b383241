"""The page on neighbour lists from a slow place, rendered from what `bench.slow_lists` measured."""

from __future__ import annotations

from typing import Any

from bench.common import fold, machine, table

HEAD = """# Neighbour lists from a slow place

Training where the adjacency is read from a device that is played: 1 GB/s, 100 us per request of a block of 4 KiB (`indptr` is in memory).
1M nodes, 16M edges by Zipf, 128 features; 2-layer GraphSAGE, fanouts 10, 5, batches of 1,024, 2 sampling threads. Weights
are the same under every setting, bit for bit. `python -m bench.slow_lists FOLDER --part lists|budget` makes them.
""".splitlines()


def render(lists: dict[str, Any], budget: dict[str, Any]) -> str:
    """docs/results/neighbor_lists.md."""
    return "\n".join(
        [
            *HEAD,
            "",
            "## Which lists to keep",
            "",
            "Only the lists are slow; 10 requests are under way at once, 100,000 a second. In the first column: what the choice goes by,",
            "and the share of the edges that is kept.",
            "",
            *table(
                ["lists", "s/epoch", "faster by", "lists that hit", "lists missed per epoch", "sampling, ms a batch", "MiB kept"],
                [
                    [
                        name,
                        f"{row['epoch_s']['median']:.2f}",
                        f"{lists['faster_by'][name]:.2f}x",
                        percent(row["list_hit_rate"]["median"]),
                        f"{row['missed_lists_per_epoch']['median']:,.0f}",
                        f"{row['sample_ms']['median']:.0f}",
                        f"{row['list_mib']['median']:.1f}",
                    ]
                    for name, row in lists["plans"].items()
                ],
            ),
            "",
            *fold(source(lists)),
            "",
            f"## One budget for lists and rows: {budget.get('budget', '')}".rstrip(": "),
            "",
            "Lists and features are on one device, 32 requests under way.",
            "",
            *table(
                ["division", "s/epoch", "faster by", "lists that hit", "rows that hit", "MiB of lists", "MiB of rows"],
                [
                    [
                        name,
                        f"{row['epoch_s']['median']:.2f}",
                        f"{budget['faster_by'][name]:.2f}x",
                        *(percent(row[f"{kind}_hit_rate"]["median"]) for kind in ("list", "row")),
                        *(f"{row[f'{kind}_mib']['median']:.1f}" for kind in ("list", "row")),
                    ]
                    for name, row in budget["plans"].items()
                ],
            ),
            "",
            *fold(source(budget)),
            "",
        ]
    )


def percent(share: float) -> str:
    """0.123 -> 12 %, and nothing where there is no cache."""
    return f"{100 * share:.0f} %" if share else "-"


def source(result: dict[str, Any]) -> str:
    """One line on where a table comes from."""
    return f"`{result['command']}`; {machine(result)}; other load at the start {result['foreign_load_percent']} %."
