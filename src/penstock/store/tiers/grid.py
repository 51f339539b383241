"""How many programs read over the link at once: few, that are about as fast as any number; measured once on each device.

In: a device. Out: a number of programs. Invariant: rows are the same with any. A small share of a GPU saturates the link, and the rest is
the model's; which share depends on the GPU and the link. Source: UVA.
"""

from __future__ import annotations

import functools
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import BudgetError, TierError
from penstock.store.budget import format_bytes
from penstock.store.process_memory import aligned_bytes
from penstock.store.tiers.pin import pin
from penstock.threads import Guard

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("penstock")

NEAR = 0.97
"""Of the best rate, that is about as fast."""
TABLE_BYTES = 256 << 20
"""More than devices keep of what they have read."""
READ_BYTES = 32 << 20
"""Of one reading: a millisecond and more."""
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 5, 1 / 4, 1 / 2, 1, 2)
"""Of the multiprocessors, that are tried: as many programs."""
SPARE = 1 / 5
"""Of the multiprocessors, what a model should have to spare at most."""
ROW_BYTES = 512
REPEATS = 3
_one_at_a_time = Guard()
MOST_TIMES = 40
"""The programs that saturate the link, where nearly all rows are on the device: several on each multiprocessor, as its own memory needs."""


def programs_over_link(device: torch.device) -> int:
    """Return the programs of a read of the host's memory; measured when a device is first asked for, in a tenth of a second."""
    if device.type == "cpu":  # the interpreter's
        return 1
    with _one_at_a_time.lock:  # two measurements at once would share the link
        return _measured_programs(device)


@functools.cache
def _measured_programs(device: torch.device) -> int:
    processors = num_processors(device)
    try:
        rates = measure_rates(device, sorted({max(1, int(share * processors)) for share in SHARES}))
    except (BudgetError, TierError) as error:
        logger.warning("%s: what saturates the link is not measured, and a fifth of the device reads over it: %s", device, error)
        return max(1, int(SPARE * processors))
    chosen = with_room(smallest_near_best(rates), list(rates), int(SPARE * processors))
    logger.info("%s reads over the link by %d programs at once, at %s/s", device, chosen, format_bytes(rates[chosen]))
    return chosen


def num_processors(device: torch.device) -> int:
    """Return how many multiprocessors a device has; 1 in the interpreter."""
    import torch

    return 1 if device.type == "cpu" else torch.cuda.get_device_properties(device).multi_processor_count


def smallest_near_best(rates: Mapping[int, float]) -> int:
    """Return the fewest programs whose rate is near the best; `rates`: programs -> bytes per second."""
    best = max(rates.values())
    return min(programs for programs, rate in rates.items() if rate >= NEAR * best)


def with_room(programs: int, candidates: Sequence[int], most: int) -> int:
    """Return the next of the ascending `candidates` after `programs`, if it is at most `most`; else `programs`.

    What is measured is a small table that nobody else reads. Over a large one, and beside a model, each read takes longer, and programs
    that just saturate the link there no longer do.
    """
    more = next((one for one in candidates if one > programs), programs)
    return more if more <= most else programs


def programs_with_hits(over_link: int, num_rows: int, num_hits: int) -> int:
    """Return the programs of a read that finds some of its rows on the device.

    A program waits for a row of the host nearly as long as for a tile of them, and only misses come from there. So with as many programs as
    a read of misses alone takes, the link would idle: there are more, up to `MOST_TIMES` as many, so that as many misses are under way.
    """
    return over_link if num_rows == 0 else min(MOST_TIMES * over_link, over_link * num_rows // max(1, num_rows - num_hits))


def measure_rates(
    device: torch.device, candidates: Sequence[int], *, table_bytes: int = TABLE_BYTES, read_bytes: int = READ_BYTES
) -> dict[int, float]:
    """Return for each number of programs the bytes per second at which they read scattered rows of pinned memory, at best."""
    import torch

    from penstock.kernels.gather_rows.gpu import gather_rows

    table = pin(aligned_bytes(table_bytes), device, "the rate of the link").tensor  # given back at the end
    generator = torch.Generator(device).manual_seed(0)  # its own: the user's random numbers stay what they are
    order, size = torch.randperm(table_bytes // ROW_BYTES, device=device, generator=generator), read_bytes // ROW_BYTES
    sets = itertools.cycle(order[: order.numel() // size * size].view(-1, size))  # other rows each time: none is in a cache of the device
    out = torch.empty(size * ROW_BYTES, dtype=torch.uint8, device=device)

    def read(programs: int) -> Callable[[], None]:
        return lambda: gather_rows(table, ROW_BYTES, next(sets), out, max_programs=programs)

    read(candidates[0])()  # compiles
    # in turns: a device that was idle is slow at first, and that would be the fewest programs'
    rounds = [[_seconds(read(programs), device) for programs in candidates] for _ in range(REPEATS)]
    return {programs: out.numel() / min(times) for programs, *times in zip(candidates, *rounds, strict=True)}


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """How long the device takes for what is asked of the current stream."""
    if device.type == "cpu":
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.current_stream(device)
    work()  # the device is at it while the rest is asked for
    begin.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return begin.elapsed_time(end) / 1e3
