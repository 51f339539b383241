"""One budget for neighbour lists and rows: DUCATI's division against every fixed one in steps of 10 %.

    python -m bench.ducati_splits DATA [GRAPH ...] [--dim 128] [--budgets 5% 10% 20% 40%]      in a model of the link; load does not matter
    python -m bench.ducati_splits FOLDER --device cuda [--budgets ...]                         by time; the graph `small` of bench.graphs

Each division keeps the lists and rows of the most visits per byte; visits are presampled, and the epoch that is judged is another one.
The budget covers lists, rows and the tables of both, and is a share of the bytes of all lists and rows.

In the model a second is what the link needs for a gigabyte (its speed does not change which division is best): a missed row costs its
lines of 128 bytes, a missed list one line per neighbour drawn, but no more than it has. The slopes that DUCATI divides by are the means
over the presampled reads, as they would be measured; of a list it is one for each line that a read of it is expected to take, as a loader
has it, and in a second division one for all lists, as in the paper. And where an eighth of an epoch is all that is presampled
(`Plan.presample_batches`), DUCATI divides by the counts, by visits to expect after them, which is what a loader does, and by inclusion
probabilities, for which nothing is sampled; against the best fixed division of a whole epoch.

On a device, batches are sampled and their rows gathered, one after the other, all divisions in alternation; slopes are measured there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import begin, spread, write_result
from penstock.cache.inclusion import inclusion_probability
from penstock.cache.presample import draw_apart, iterate_samples
from penstock.cache.workload import Workload
from penstock.feed.setup.device_slopes import lines_per_read
from penstock.order import RandomOrder
from penstock.plan import plan_shared
from penstock.plan.knapsack import fill_by_rank
from penstock.plan.lists import list_sizes, table_bytes
from penstock.records import EDGE, NODE, Graph, Sample
from penstock.sample import NeighborSampler
from penstock.sample.seeds import NodeSeeds

FANOUTS, BATCH_SIZE, TRAIN, LINE, STEPS, PART = (15, 10, 5), 1024, 0.1, 128, tuple(range(0, 101, 10)), 8
GRAPHS = ("ogbn_arxiv_nofeat", "cit_hepph", "soc_slashdot0902", "web_cnr2000", "coauth_dblp2010")
DUCATI, ONE_SLOPE = "ducati", "ducati, one slope for all lists"
Kept = tuple[np.ndarray, np.ndarray]
"""(nodes whose lists are kept, rows that are kept)."""
Worth = tuple[np.ndarray, np.ndarray]
"""Seconds that keeping saves: (each list, each row)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes over the link of all reads of an epoch: by node, of its list and of its row."""

    lists: np.ndarray
    rows: np.ndarray

    def seconds(self, kept: Kept) -> float:
        """What is left with some kept."""
        missed = self.lists.sum() - self.lists[kept[0]].sum() + self.rows.sum() - self.rows[kept[1]].sum()
        return float(missed) / 1e9


def lines(num_bytes: Any) -> Any:
    """Bytes that come over the link where so many are asked for."""
    return -(-np.asarray(num_bytes, np.int64) // LINE) * LINE


def count(samples: list[Sample], graph: Graph, row_bytes: int) -> tuple[Cost, np.ndarray, np.ndarray]:
    """(cost, list reads by node, row reads by node) of an epoch."""
    csc, num_nodes = graph.adjacency[EDGE], graph.num_nodes[NODE]
    most = lines(np.diff(csc.indptr) * csc.indices.itemsize)
    cost = Cost(np.zeros(num_nodes), np.zeros(num_nodes))
    list_reads, row_reads = np.zeros(num_nodes), np.zeros(num_nodes)
    for sample in samples:
        drawn = np.diff(sample.edges[EDGE].row_ptr)
        nodes = sample.nodes[NODE]
        np.add.at(cost.lists, nodes[: drawn.size], np.minimum(drawn * LINE, most[nodes[: drawn.size]]))
        np.add.at(list_reads, nodes[: drawn.size], drawn > 0)
        np.add.at(row_reads, nodes, 1)
        np.add.at(cost.rows, nodes, int(lines(row_bytes)))
    return cost, list_reads, row_reads


def sizes_of(graph: Graph) -> np.ndarray:
    """Bytes that keeping each list takes."""
    return list_sizes(graph.adjacency[EDGE], np.arange(graph.num_nodes[NODE]), "prefix")


def fixed(share: int, total: int, graph: Graph, worth: Worth, row_bytes: int) -> Kept:
    """So many percent of a budget for lists, the rest for rows; the best of each. `total`: bytes, without the tables."""
    sizes = sizes_of(graph)
    density = worth[0] / np.maximum(sizes, 1) * (sizes > 0)
    ranking = np.argsort(-density, kind="stable")
    ranking = ranking[density[ranking] > 0]
    lists = ranking[fill_by_rank(sizes[ranking], total * share // 100)]
    rows = np.argsort(-worth[1], kind="stable")[: total * (100 - share) // 100 // row_bytes]
    return lists, rows[worth[1][rows] > 0]


def divisions(budget: str, graph: Graph, reads: Worth, per_list: np.ndarray, per_row: float, row_bytes: int) -> dict[str, Kept]:
    """Name -> what is kept, by every fixed division and by DUCATI's two. `per_list`, `per_row`: seconds that a hit saves."""
    total, tables = bytes_in(budget, graph, row_bytes), table_bytes(graph.adjacency) + 4 * graph.num_nodes[NODE]
    worth = reads[0] * per_list, reads[1] * per_row
    kept = {f"{share} % for lists": fixed(share, total - tables, graph, worth, row_bytes) for share in STEPS}
    kept[DUCATI] = knapsack(budget, graph, worth, row_bytes)
    kept[ONE_SLOPE] = knapsack(budget, graph, (reads[0] * (worth[0].sum() / reads[0].sum()), worth[1]), row_bytes)
    return kept


def knapsack(budget: str, graph: Graph, worth: Worth, row_bytes: int) -> Kept:
    """DUCATI's division."""
    lists, rows = plan_shared(
        f"{bytes_in(budget, graph, row_bytes)}", {EDGE: worth[0]}, {NODE: worth[1]}, {NODE: row_bytes}, graph.adjacency, "prefix",
        seconds_per_list_hit={EDGE: 1.0}, seconds_per_row_hit={NODE: 1.0},
    )  # fmt: skip
    return lists[EDGE], rows[NODE]


def best_fixed(seconds: Mapping[str, float]) -> str:
    """Name of the fixed division that takes the least."""
    return min((name for name in seconds if name not in (DUCATI, ONE_SLOPE)), key=seconds.__getitem__)


def bytes_in(budget: str, graph: Graph, row_bytes: int) -> int:
    """A share of the bytes of all lists and rows."""
    return int(float(budget.rstrip("%")) / 100 * (graph.adjacency[EDGE].indices.nbytes + graph.num_nodes[NODE] * row_bytes))


def bytes_of(kept: Kept, graph: Graph, row_bytes: int) -> tuple[int, int]:
    """What the lists and the rows take, without tables."""
    return int(sizes_of(graph)[kept[0]].sum()), kept[1].size * row_bytes


def make_workload(graph: Graph, num_train: int, seed: int = 0) -> Workload:
    """Nodes at random to train on."""
    train = np.sort(np.random.default_rng(seed).permutation(graph.num_nodes[NODE])[:num_train])
    return Workload(NeighborSampler(graph, FANOUTS, seed=seed), NodeSeeds(NODE, train), RandomOrder(train.size, seed), BATCH_SIZE)


def epochs_of(workload: Workload, sampler: NeighborSampler, num_epochs: int) -> list[Sample]:
    """All samples of so many epochs."""
    return list(iterate_samples(replace(workload, sampler=sampler), epochs=range(num_epochs)))


def compare(graph: Graph, dim: int, budgets: list[str], num_epochs: int = 1) -> dict[str, Any]:
    """Every division of every budget, by the model; visits are from `num_epochs` presampled ones."""
    workload, row_bytes = make_workload(graph, max(1, int(TRAIN * graph.num_nodes[NODE]))), 4 * dim
    presampled, *counted = count(epochs_of(workload, draw_apart(workload.sampler), num_epochs), graph, row_bytes)
    taken = lines_per_read(workload.sampler, EDGE)
    per_line, per_row = presampled.lists.sum() / (counted[0] @ taken), presampled.rows.sum() / counted[1].sum()
    reads = workload.expected_lists(counted[0], EDGE, None), workload.expected_rows(counted[1], NODE, None)  # as a loader has them
    cost, *_ = count(epochs_of(workload, workload.sampler, 1), graph, row_bytes)
    nothing = np.empty(0, np.int64)
    found: dict[str, Any] = {"seconds_without": cost.seconds((nothing, nothing)), "bytes_per_hit": [float(per_line), float(per_row)]}
    for budget in budgets:
        kept = divisions(budget, graph, reads, per_line * taken, per_row, row_bytes)
        seconds = {name: round(cost.seconds(one), 6) for name, one in kept.items()}
        best, (in_lists, in_rows) = best_fixed(seconds), bytes_of(kept[DUCATI], graph, row_bytes)
        found[budget] = {
            "seconds": seconds, "best_fixed": best, "ducati_over_best": round(seconds[DUCATI] / max(seconds[best], 1e-9), 4),
            "one_slope_over_best": round(seconds[ONE_SLOPE] / max(seconds[best], 1e-9), 4),
            "share_for_lists": round(in_lists / max(1, in_lists + in_rows), 3),
        }  # fmt: skip
    return found


def compare_after_part(graph: Graph, dim: int, budgets: list[str], whole: dict[str, Any]) -> dict[str, Any]:
    """DUCATI's division after a part of an epoch, over the best fixed one of a `whole` one (from `compare`), by what it divides by."""
    workload, row_bytes = make_workload(graph, max(1, int(TRAIN * graph.num_nodes[NODE]))), 4 * dim
    num_batches = workload.order.num_batches(BATCH_SIZE, False)
    after = replace(workload, max_batches=max(1, num_batches // PART))
    cost, *_ = count(epochs_of(workload, workload.sampler, 1), graph, row_bytes)
    visits = after.visits()

    def inclusion(fanouts: tuple[int, ...]) -> np.ndarray:
        return inclusion_probability(NeighborSampler(graph, fanouts), NODE, workload.seeds.ids, batch_size=BATCH_SIZE)[NODE]

    reads = {
        "counts": (visits.lists[EDGE].astype(float), visits.nodes[NODE].astype(float)),
        "expected": (after.list_visits(EDGE), after.row_visits(NODE)),
        "inclusion": (inclusion(FANOUTS[:-1]), inclusion(FANOUTS)),
    }
    per_line, per_row = whole["bytes_per_hit"]
    per_list = per_line * lines_per_read(workload.sampler, EDGE)
    found: dict[str, Any] = {"batches": after.max_batches, "of": num_batches}
    for budget in budgets:
        best = max(whole[budget]["seconds"][whole[budget]["best_fixed"]], 1e-9)
        found[budget] = {
            f"{name}_over_best": round(cost.seconds(knapsack(budget, graph, (lists * per_list, rows * per_row), row_bytes)) / best, 4)
            for name, (lists, rows) in reads.items()
        }
    return found


def time_on_device(store: Any, device: Any, budgets: list[str], rounds: int, num_batches: int) -> dict[str, Any]:
    """Every division of every budget, by the clock: samples and rows of the same batches, divisions in alternation."""
    from functools import partial

    from penstock.cache.choose import fixed_choice
    from penstock.feed.setup.device_slopes import measure_device_slopes
    from penstock.gather import DeviceTable, FusedCache, RowKind
    from penstock.records import CSC
    from penstock.sample.device_graph import device_sampler
    from penstock.store.tiers import PinnedTier

    csc, x = store.csc(), store.node_field("x", NODE)
    graph = Graph({NODE: csc.num_dst}, {EDGE: CSC(np.array(csc.indptr), np.array(csc.indices))}, True)
    sampler, train = NeighborSampler(graph, FANOUTS, seed=0), np.array(store.split("train"))
    workload = Workload(sampler, NodeSeeds(NODE, train), RandomOrder(train.size, 0), BATCH_SIZE)
    pinned, row_bytes = PinnedTier([x], device), x.itemsize * x.shape[1]
    slopes = measure_device_slopes(workload, {NODE: DeviceTable(pinned, [RowKind("x", x.dtype, x.shape[1:])])}, device)
    reads, per_list, per_row = (workload.list_visits(EDGE), workload.row_visits(NODE)), slopes[0][EDGE], slopes[1][NODE]
    found: dict[str, Any] = {"seconds_per_hit": [float(reads[0] @ per_list / reads[0].sum()), per_row]}
    for budget in budgets:
        kept = divisions(budget, graph, reads, per_list, per_row, row_bytes)
        seconds: dict[str, list[float]] = {name: [] for name in kept}
        for number in range(rounds + 1):
            for name, (lists, rows) in kept.items():
                ours, choice = device_sampler(sampler, device, "pinned", {EDGE: lists}), fixed_choice(csc.num_dst, rows)
                cache = FusedCache(choice.make, pinned, choice.content)
                run = partial(run_batches, workload, ours, cache, device)
                run(range(1))
                took = run(range(number * num_batches, (number + 1) * num_batches))
                if number:
                    seconds[name].append(took / num_batches)
        medians = {name: float(np.median(each)) for name, each in seconds.items()}
        best, (in_lists, in_rows) = best_fixed(medians), bytes_of(kept[DUCATI], graph, row_bytes)
        found[budget] = {
            "seconds_per_batch": {name: spread(each) for name, each in seconds.items()},
            "best_fixed": best,
            "ducati_over_best": round(medians[DUCATI] / medians[best], 4),
            "one_slope_over_best": round(medians[ONE_SLOPE] / medians[best], 4),
            "share_for_lists": round(in_lists / max(1, in_lists + in_rows), 3),
        }
    return found


def run_batches(workload: Workload, ours: Any, cache: Any, device: Any, numbers: range) -> float:
    """Seconds for sampling some batches and gathering their rows."""
    import torch

    workspace, num_batches = ours.workspace(), workload.order.num_batches(BATCH_SIZE, False)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    for number in numbers:
        seeds = workload.seeds.ids[workload.order.batch(0, number % num_batches, BATCH_SIZE)]
        nodes = ours.sample({NODE: seeds}, epoch=0, batch=number % num_batches, workspace=workspace).nodes[NODE].cpu().numpy()
        out = torch.empty(nodes.size * cache.row_bytes[0], dtype=torch.uint8, device=device)
        cache.submit(nodes, [out], np.arange(nodes.size)).wait()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def main() -> None:
    """Compare and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the data sets; with --device: where the graph is made")
    parser.add_argument("graphs", nargs="*", default=list(GRAPHS))
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--budgets", nargs="+", default=["5%", "10%", "20%", "40%"])
    parser.add_argument("--epochs", nargs="+", type=int, default=[1, 4], help="presampled")
    parser.add_argument("--device")
    parser.add_argument(
        "--toy", action="store_true", help="with --device, in Triton's interpreter: checks the flow, writes nothing without --out"
    )
    parser.add_argument("--out", type=Path, help="folder of the result file; default bench/results")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=16)
    given = parser.parse_args()
    values = begin("python -m bench.ducati_splits " + " ".join(["DATA", *sys.argv[2:]]))
    with tempfile.TemporaryDirectory() as temporary:
        if given.device:
            from bench.gpu_common import choose_device, describe_device
            from bench.graphs import make
            from penstock.kernels._triton import is_interpreted
            from penstock.store import Store

            device = choose_device(given.toy)
            store = Store.open(make("small", given.folder or Path(temporary)))
            values |= {"interpreted": is_interpreted(), "device": describe_device(device)}
            values |= {"small": time_on_device(store, device, given.budgets, given.rounds, given.batches)}
        else:
            from penstock.store import ingest

            for name in given.graphs:
                store = ingest(given.folder / f"{name}.npz", Path(temporary) / name, memory="4GiB", undirected=False)
                values[name] = {"nodes": store.num_nodes[NODE]}
                for num_epochs in given.epochs:
                    values[name][f"{num_epochs} presampled"] = compare(store.graph(), given.dim, given.budgets, num_epochs)
                    show(f"{name}, {num_epochs} presampled", values[name][f"{num_epochs} presampled"], given.budgets)
                part = compare_after_part(store.graph(), given.dim, given.budgets, values[name][f"{given.epochs[0]} presampled"])
                values[name]["a part presampled"] = part
                show_part(f"{name}, {part['batches']} of {part['of']} batches", part, given.budgets)
    if given.out or not given.toy:
        print(write_result("ducati_splits_device" if given.device else "ducati_splits", values, given.out))


def show(name: str, found: dict[str, Any], budgets: list[str]) -> None:
    """One line per budget."""
    for budget in budgets:
        one = found[budget]
        against = f"{one['ducati_over_best']:.3f} of the best fixed ({one['best_fixed']}); by one slope {one['one_slope_over_best']:.3f}"
        print(f"{name:<32} {budget:>4} {one['share_for_lists']:>6.1%} for lists, {against}", flush=True)


def show_part(name: str, found: dict[str, Any], budgets: list[str]) -> None:
    """Likewise."""
    for budget in budgets:
        by = ", ".join(f"{each.removesuffix('_over_best')} {over:.3f}" for each, over in found[budget].items())
        print(f"{name:<32} {budget:>4} of the best fixed: {by}", flush=True)


if __name__ == "__main__":
    main()
