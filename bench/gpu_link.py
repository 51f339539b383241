"""Reading rows over the link, and out of the device's cache, against plain copies on the same device.

    python -m bench.gpu_link [--minutes 9] [--out FOLDER]            python -m bench.gpu_link --toy

link: bytes a second of a tier of pinned memory, rows of many sizes, over those of one large copy of pinned memory; by the number of
programs, and as rows stand in place of region by region. registered: the same out of ordinary memory and of a mapped file that were
registered, which is what a loader reads. step: a step of training, of so many seeds that the device is busy with it, alone and beside such
reads; and the same as a CUDA graph ("recorded"). device: `gather_rows` out of the device's own memory over a copy within it. cache:
`gather_cached` by the share of hits, over a read of all rows over the link.

Times are the device's own (events), of several launches, all that a read asks for included; rows are distinct and at random over a table
that no cache holds; contenders alternate, medians count. The bytes of a gather are those of its rows; of a copy within the device, those
that are read, as of a gather.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from bench.gpu_common import (
    ALONE,
    AT_MOST,
    RECORDED,
    SHARE,
    UNORDERED,
    ResultFile,
    alternate,
    filled,
    id_sets,
    seconds,
    set_up,
    spread_of,
    synchronize,
)  # fmt: skip
from bench.gpu_model import penstock_step
from penstock.kernels.gather_cached.gpu import gather_cached
from penstock.kernels.gather_rows.gpu import MAX_PROGRAMS, gather_rows
from penstock.store.tiers import PinnedTier
from penstock.store.tiers.grid import programs_over_link, programs_with_hits

GIB = 1 << 30


@dataclass(frozen=True)
class Sizes:
    """How much is read.

    Attributes:
        table, copied: bytes of the table of rows, of a copy. read: bytes of a launch. launches: in a timing.
        rows: sizes of rows, in bytes. shares: of the multiprocessors, tried for `shared_rows`. hits: in percent.
        nodes, edges, dim, fanouts, batch, steps: of the graph that the step is of; steps in a timing. slices: bytes, see `Bench.in_slices`.
    """

    table: int = 8 * GIB
    copied: int = GIB // 4
    read: int = GIB // 4
    launches: int = 4
    rounds: int = 5
    rows: tuple[int, ...] = (128, 256, 258, 272, 320, 400, 512, 600, 1000, 1024, 2048)
    shared_rows: tuple[int, ...] = (400, 512)
    shares: tuple[float, ...] = (1 / 32, 1 / 16, 1 / 8, SHARE, 1 / 4, 1 / 2, 1.0, 2.0)
    cached_rows: tuple[int, ...] = (400, 512, 1024)
    hits: tuple[int, ...] = (0, 50, 90, 99, 100)
    nodes: int = 1_000_000
    edges: int = 16_000_000
    dim: int = 128
    fanouts: tuple[int, ...] = (15, 10, 5)
    batch: int = 8000
    steps: int = 20
    slices: tuple[int, ...] = (1 << 20, 4 << 20, 16 << 20)


TOY = Sizes(
    table=1 << 16, copied=1 << 14, read=1 << 12, launches=2, rounds=1, rows=(64, 258, 512), shared_rows=(512,), shares=(SHARE, 1.0),
    cached_rows=(512,), hits=(0, 90, 100), nodes=200, edges=800, dim=8, fanouts=(2, 2), batch=8, steps=2,
    slices=(1 << 11,),
)  # fmt: skip
PIECES = ("link", "registered", "device", "cache", "step")


class Bench:
    """What all pieces share: the device, and a pinned table."""

    def __init__(self, device: torch.device, sizes: Sizes) -> None:
        self.device, self.sizes = device, sizes
        is_cuda = device.type == "cuda"
        self.processors = torch.cuda.get_device_properties(device).multi_processor_count if is_cuda else 10
        self.table = pinned_table(sizes.table, is_pinned=is_cuda)
        self.chosen = programs_over_link(device)

    def programs(self) -> dict[str, int]:
        """Share of the multiprocessors -> programs; no program is on more than one of them."""
        return {f"{share:.1%}": max(1, int(share * self.processors)) for share in self.sizes.shares} | {"chosen": self.chosen}

    def reads(self, tier: PinnedTier) -> Callable[[], float]:
        """Gigabytes a second of rows of a tier, read once each and at random."""
        (row_bytes,), sizes = tier.row_bytes, self.sizes
        sets = id_sets(tier.num_rows, sizes.read // row_bytes, sizes.launches, self.device)
        out = torch.empty(sets[0].numel() * row_bytes, dtype=torch.uint8, device=self.device)

        def work() -> None:
            for ids in sets:
                tier.submit(ids, [out], None)

        work()
        self.check(tier.buffers[0], row_bytes, sets[-1], out)
        return lambda: out.numel() * len(sets) / 1e9 / seconds(work, self.device)

    def tier(self, row_bytes: int, programs: int | None = None) -> PinnedTier:
        """The table, as rows of so many bytes."""
        return tier_of(self.table.numpy(), row_bytes, self.device, self.chosen if programs is None else programs)

    def gathers(
        self, table: torch.Tensor, row_bytes: int, programs: int | None, times_as_much: int = 1, *, is_far: bool = False
    ) -> Callable[[], float]:
        """Gigabytes a second of rows from a table, read once each; of a launch at random, as they stand. `is_far`: by the kernel that takes
        an order, which is that one."""
        sizes = self.sizes
        num_rows = table.numel() // row_bytes
        sets = id_sets(num_rows, times_as_much * sizes.read // row_bytes, sizes.launches, self.device)
        out = torch.empty(sets[0].numel() * row_bytes, dtype=torch.uint8, device=self.device)
        whole = table[: num_rows * row_bytes]
        order = torch.arange(sets[0].numel(), dtype=torch.int32, device=self.device) if is_far else None

        def work() -> None:
            for ids in sets:
                gather_rows(whole, row_bytes, ids, out, order=order, max_programs=programs)

        work()
        self.check(whole, row_bytes, sets[-1], out)
        return lambda: out.numel() * len(sets) / 1e9 / seconds(work, self.device)

    def copies(self, source: torch.Tensor) -> Callable[[], float]:
        """Gigabytes a second of copies of one piece of memory to the device."""
        target = torch.empty(min(self.sizes.copied, source.numel()), dtype=torch.uint8, device=self.device)
        pieces = source[: source.numel() // target.numel() * target.numel()].view(-1, target.numel())

        def work() -> None:
            for number in range(self.sizes.launches):
                target.copy_(pieces[number % len(pieces)], non_blocking=True)

        return lambda: target.numel() * self.sizes.launches / 1e9 / seconds(work, self.device)

    def check(self, table: torch.Tensor, row_bytes: int, ids: torch.Tensor, out: torch.Tensor) -> None:
        """The first rows that were read are the right ones."""
        some = ids[:100]
        rows = table.view(-1, row_bytes)[some.to(table.device)]
        if not torch.equal(out.view(-1, row_bytes)[: some.numel()].cpu(), rows.cpu()):
            sys.exit(f"rows of {row_bytes} bytes: the gather gave wrong ones")

    def link(self) -> dict[str, Any]:
        """Every size of rows by as many programs as there may be, some by every number of them."""
        programs, found = self.programs(), {}
        for row_bytes in self.sizes.rows:
            contenders = {"copy": self.copies(self.table)}
            for name, count in programs.items():
                if row_bytes in self.sizes.shared_rows or name == AT_MOST:
                    contenders[name] = self.reads(self.tier(row_bytes, count))
            contenders[UNORDERED] = self.gathers(self.table, row_bytes, programs[AT_MOST], is_far=True)
            found[str(row_bytes)] = self.over_copy(contenders)
        return {"table_gib": self.table.numel() / GIB, "multiprocessors": self.processors, "programs": programs, "rows": found}

    def registered(self) -> dict[str, Any]:
        """What a loader reads: memory that the driver was told of, ordinary or of a mapped file, by as many programs as were chosen."""
        array = np.empty(self.table.numel() // 2, np.uint8)
        array[:] = self.table[: array.size].numpy()
        with tempfile.NamedTemporaryFile() as file:
            array.tofile(file.name)
            taken, found = {}, {}
            tables = {
                "pinned": self.table[: array.size].numpy(),
                "registered": array,
                "registered map": np.memmap(file.name, np.uint8, "r"),
            }
            for row_bytes in self.sizes.cached_rows:
                contenders = {"copy": self.copies(self.table)}
                for name, one in tables.items():
                    started = time.perf_counter()
                    tier = tier_of(one, row_bytes, self.device, self.chosen)
                    took = round((time.perf_counter() - started) / (array.nbytes / GIB), 4)
                    taken.setdefault(name, {"how": tier.how[0], "s_per_gib": took})
                    contenders[name] = self.reads(tier)
                found[str(row_bytes)] = self.over_copy(contenders)
        return {"taken": taken, "rows": found}

    def over_copy(self, contenders: dict[str, Callable[[], float]]) -> dict[str, Any]:
        """Rates in alternation, and over that of the contender "copy"."""
        rates = alternate(contenders, self.sizes.rounds)
        over = {name: [a / b for a, b in zip(each, rates["copy"], strict=True)] for name, each in rates.items() if name != "copy"}
        return {"gb_per_s": spread_of(rates), "over_copy": spread_of(over)}

    def own(self) -> dict[str, Any]:
        """Rows out of the device's own memory, against a copy within it."""
        found, source = {}, filled(self.sizes.table, str(self.device))
        for row_bytes in self.sizes.cached_rows:
            contenders = {"copy": self.copies(source), "gather": self.gathers(source, row_bytes, None, times_as_much=4)}
            rates = alternate(contenders, self.sizes.rounds)
            over = [a / b for a, b in zip(rates["gather"], rates["copy"], strict=True)]
            found[str(row_bytes)] = {"gb_per_s": spread_of(rates), "over_copy": spread_of({"gather": over})["gather"]}
        return {"programs": MAX_PROGRAMS, "rows": found}

    def cache(self) -> dict[str, Any]:
        """A tenth of the rows on the device; by how many of those asked for are among them."""
        return {str(row_bytes): self.cache_of(row_bytes) for row_bytes in self.sizes.cached_rows}

    def cache_of(self, row_bytes: int) -> dict[str, Any]:
        """One size of rows."""
        tier, device = self.tier(row_bytes), self.device
        (table,), num_rows = tier.buffers, tier.num_rows
        order = torch.randperm(num_rows, device=device, generator=torch.Generator(device).manual_seed(1))
        kept, others = order[: num_rows // 10], order[num_rows // 10 :]
        slots = torch.full((num_rows,), -1, dtype=torch.int32, device=device)
        slots[kept] = torch.arange(kept.numel(), dtype=torch.int32, device=device)
        rows = torch.empty(kept.numel() * row_bytes, dtype=torch.uint8, device=device)
        gather_rows(table, row_bytes, kept, rows)
        count = min(self.sizes.read // row_bytes, kept.numel(), others.numel())
        out, hits = torch.empty(count * row_bytes, dtype=torch.uint8, device=device), torch.zeros(1, dtype=torch.int64, device=device)
        found = {}
        for percent in self.sizes.hits:
            sets = [self.mix(kept, others, count, percent, number) for number in range(self.sizes.launches)]

            def fused(programs: int, sets: list[torch.Tensor] = sets) -> None:
                for ids in sets:
                    gather_cached(
                        table, rows, slots, ids, row_bytes, out, hits,
                        by_position=False, order=tier.order_of(ids), max_programs=programs,
                    )  # fmt: skip

            def plain(sets: list[torch.Tensor] = sets) -> None:
                for ids in sets:
                    tier.submit(ids, [out], None)

            hits.zero_()
            fused(self.chosen)
            self.check(table, row_bytes, sets[-1], out)
            work = {
                "uncached": plain,
                "fused": partial(fused, programs_with_hits(self.chosen, 100, percent)),  # as `FusedCache` does
                "fused, programs of the link": partial(fused, self.chosen),
                "fused, all programs": partial(fused, MAX_PROGRAMS),
            }
            share = int(hits) / (count * len(sets))
            times = alternate({name: partial(seconds, each, device) for name, each in work.items()}, self.sizes.rounds)
            over = [a / b for a, b in zip(times["uncached"], times["fused"], strict=True)]
            rates = {name: [count * row_bytes * len(sets) / 1e9 / one for one in each] for name, each in times.items()}
            found[str(percent)] = {"hits": share, "gb_per_s": spread_of(rates), "over_uncached": spread_of({"fused": over})["fused"]}
        return found

    def mix(self, kept: torch.Tensor, others: torch.Tensor, count: int, percent: int, number: int) -> torch.Tensor:
        """Distinct rows at random, so many percent of them kept."""
        random = torch.Generator(self.device).manual_seed(100 * number + percent)
        num_hits = count * percent // 100
        taken = [
            each[torch.randperm(each.numel(), device=self.device, generator=random)[:size]]
            for each, size in ((kept, num_hits), (others, count - num_hits))
        ]
        return torch.cat(taken)[torch.randperm(count, device=self.device, generator=random)]

    def step(self) -> dict[str, Any]:
        """A step of GraphSAGE on one batch, kernel by kernel and as one launch, alone and while rows of 512 bytes are read beside it."""
        sizes, device, batch = self.sizes, self.device, make_batch(self.sizes, self.device)
        programs = {name: count for name, count in self.programs().items() if count <= max(1, int(SHARE * self.processors))}
        contenders: dict[Any, Callable[[], float]] = {}
        rates: dict[str, list[float]] = {}
        alone: dict[str, str] = {}

        slices = {f"{AT_MOST}, {size / 2**20:.3g} MiB at a time": size for size in sizes.slices}
        programs |= dict.fromkeys(slices, programs[AT_MOST])

        def beside(name: str, steps: Callable[[], None], count: int, alone_s: float) -> float:
            took, rate = self.beside(steps, count, alone_s, slices.get(name.removeprefix(RECORDED)))
            rates.setdefault(name, []).append(rate)
            return took

        for is_recorded, prefix in ((False, ""), (True, RECORDED)):
            learn = partial(penstock_step("sage", sizes.dim, len(sizes.fanouts), device, is_recorded=is_recorded), batch)
            steps = partial(repeat, learn, sizes.steps)
            alone_s = min(seconds(steps, device) for _ in range(2))
            contenders[prefix + ALONE] = partial(seconds, steps, device)
            for name, count in programs.items():
                contenders[prefix + name] = partial(beside, prefix + name, steps, count, alone_s)
                alone[prefix + name] = prefix + ALONE
        times = alternate(contenders, sizes.rounds)
        return {
            "step_ms": spread_of({name: [1e3 * one / sizes.steps for one in each] for name, each in times.items()}),
            "over_alone": spread_of({
                name: [a / b for a, b in zip(times[name], times[one], strict=True)] for name, one in alone.items()
            }),
            "gather_gb_per_s_beside": spread_of(rates),
            "programs": programs,
        }  # fmt: skip

    def beside(self, steps: Callable[[], None], programs: int, alone_s: float, size: int | None) -> tuple[float, float]:
        """(seconds of the steps, gigabytes a second of what was read in that time) with a gather on another stream all the time; `size`:
        bytes that its programs read before others take their places, None: all."""
        row_bytes, device = 512, self.device
        tier = self.tier(row_bytes, programs)
        sets = id_sets(tier.num_rows, self.sizes.read // row_bytes, self.sizes.launches, device)
        out = torch.empty(sets[0].numel() * row_bytes, dtype=torch.uint8, device=device)
        reads = [partial(tier.submit, ids, [out], None) if size is None else self.in_slices(tier, ids, out, size) for ids in sets]
        synchronize(device)
        if device.type == "cpu":
            reads[0]()
            return seconds(steps, device), 1.0
        stream, per_launch = torch.cuda.Stream(device), max(1e-3, out.numel() / 20e9)  # tiny ones, at toy size, would be thousands
        num_launches = 2 + int(1.5 * alone_s / per_launch)
        while True:
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(num_launches + 1)]
            with torch.cuda.stream(stream):
                marks[0].record()
                for number in range(num_launches):
                    reads[number % len(reads)]()
                    marks[number + 1].record()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            steps()
            end.record()
            end.synchronize()
            is_covered = not marks[-1].query()
            torch.cuda.synchronize(device)
            if is_covered or self.sizes is TOY:  # whose reads are over before the next one begins
                took = begin.elapsed_time(end) / 1e3
                done = sum(1 for mark in marks[1:] if begin.elapsed_time(mark) >= 0 and mark.elapsed_time(end) >= 0)
                return took, out.numel() * done / 1e9 / took
            num_launches *= 2

    def in_slices(self, tier: PinnedTier, ids: torch.Tensor, out: torch.Tensor, size: int) -> Callable[[], None]:
        """A read by a launch for each so many bytes, all of them one graph: between two of them the multiprocessors that read are free for
        blocks of others that wait for them, such as those of a product that fills the device exactly once."""
        (row_bytes,), order = tier.row_bytes, tier.order_of(ids)
        order = torch.arange(ids.numel(), dtype=torch.int32, device=self.device) if order is None else order

        def read() -> None:
            for some in order.split(max(1, size // row_bytes)):
                gather_rows(tier.buffers[0], row_bytes, ids, out, order=some, max_programs=tier.max_programs)

        read()
        self.check(tier.buffers[0], row_bytes, ids, out)
        if self.device.type == "cpu":
            return read
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            read()

        def replay(kept: torch.Tensor = order) -> None:
            graph.replay()  # which knows addresses, and does not keep what was there before it

        return replay


def repeat(work: Callable[[], object], times: int) -> None:
    """Do it so often."""
    for _ in range(times):
        work()


def tier_of(table: np.ndarray, row_bytes: int, device: torch.device, programs: int) -> PinnedTier:
    """Bytes as a tier of rows."""
    num_rows = table.size // row_bytes
    return PinnedTier([table[: num_rows * row_bytes].reshape(num_rows, row_bytes)], device, max_programs=programs)


def pinned_table(num_bytes: int, *, is_pinned: bool) -> torch.Tensor:
    """A table of so many bytes, or of half as many where the system does not give as much pinned memory, and so on."""
    while True:
        try:
            return filled(num_bytes, "cpu", is_pinned=is_pinned)
        except RuntimeError as error:
            if num_bytes <= GIB:
                raise
            print(f"{num_bytes / GIB:.0f} GiB of pinned memory: {str(error).splitlines()[0]}; half of it is tried", flush=True)
            num_bytes //= 2


def make_batch(sizes: Sizes, device: torch.device) -> Any:
    """A batch of a random graph, on the device."""
    from torch_geometric.data import Data

    from penstock import NeighborLoader

    random = torch.Generator().manual_seed(0)
    edges = (torch.rand((2, sizes.edges), generator=random) ** 2 * sizes.nodes).long()
    data = Data(
        x=torch.rand((sizes.nodes, sizes.dim), generator=random), edge_index=edges, y=torch.randint(0, 50, (sizes.nodes,), generator=random)
    )
    loader = NeighborLoader(data, list(sizes.fanouts), batch_size=sizes.batch, shuffle=True, seed=0, device="cuda")
    batch = next(iter(loader))
    synchronize(device)
    return batch


def main(arguments: list[str] | None = None) -> None:
    """Measure what is not in the result yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pieces", nargs="+", choices=PIECES, default=PIECES)
    options, device, deadline, command = set_up("gpu_link", parser, arguments)
    result = ResultFile("gpu_link", options, device, command)
    missing, bench = [piece for piece in options.pieces if piece not in result], None
    for piece in missing:
        if deadline.allows(40 if not options.toy else 1, piece):
            bench = bench or Bench(device, TOY if options.toy else Sizes())
            work = {"link": bench.link, "registered": bench.registered, "device": bench.own, "cache": bench.cache, "step": bench.step}
            result.measure(piece, work[piece])
    result.end()


if __name__ == "__main__":
    main()
