"""How many GPU programs read over the link: the fewest that are about as fast as any number; measured once per device.

In: a device. Out: a number of programs. Invariant: the rows read do not depend on it. A small share of a GPU saturates the link, and the
rest is left to the model; which share depends on the GPU and the link. Source: UVA.
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
"""Share of the best rate that counts as about as fast."""
TABLE_BYTES = 256 << 20
"""Size of the table to measure with: more than the caches of devices hold."""
READ_BYTES = 32 << 20
"""Bytes per measured read: a millisecond or more."""
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 5, 1 / 4, 1 / 2, 1, 2)
"""Numbers of programs to try, per multiprocessor."""
SPARE = 1 / 5
"""Largest share of the multiprocessors that a model should have to give up."""
ROW_BYTES = 512
REPEATS = 3
_one_at_a_time = Guard()
MOST_TIMES = 40
"""Most programs, as a multiple of those that saturate the link, if nearly all rows are on the device: several per multiprocessor, as
reading the device's own memory needs."""


def programs_over_link(device: torch.device) -> int:
    """Return the number of programs for reading host memory; measured at the first call for a device, in a tenth of a second."""
    if device.type == "cpu":  # the interpreter's
        return 1
    with _one_at_a_time.lock:  # concurrent measurements would share the link
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
    """Return the number of multiprocessors of a device; 1 in the interpreter."""
    import torch

    return 1 if device.type == "cpu" else torch.cuda.get_device_properties(device).multi_processor_count


def smallest_near_best(rates: Mapping[int, float]) -> int:
    """Return the fewest programs whose rate is near the best; `rates`: programs -> bytes per second."""
    best = max(rates.values())
    return min(programs for programs, rate in rates.items() if rate >= NEAR * best)


def with_room(programs: int, candidates: Sequence[int], most: int) -> int:
    """Return the next of the ascending `candidates` after `programs`, if it is at most `most`; else `programs`.

    The measurement uses a small table that nobody else reads. Over a large table, and beside a model, each read takes longer, so programs
    that just saturate the link in the measurement no longer do.
    """
    more = next((one for one in candidates if one > programs), programs)
    return more if more <= most else programs


def programs_with_hits(over_link: int, num_rows: int, num_hits: int) -> int:
    """Return the number of programs for a read that finds some of its rows on the device.

    A program waits for one row of the host nearly as long as for a tile of rows, and only misses come from there. With the number of
    programs for misses alone, the link would idle; so there are more, up to `MOST_TIMES` as many, to keep equally many misses under way.
    """
    return over_link if num_rows == 0 else min(MOST_TIMES * over_link, over_link * num_rows // max(1, num_rows - num_hits))


def measure_rates(
    device: torch.device, candidates: Sequence[int], *, table_bytes: int = TABLE_BYTES, read_bytes: int = READ_BYTES
) -> dict[int, float]:
    """Return for each number of programs the best rate, in bytes per second, at which they read scattered rows of pinned memory."""
    import torch

    from penstock.kernels.gather_rows.gpu import gather_rows

    table = pin(aligned_bytes(table_bytes), device, "the rate of the link").tensor  # freed at the end
    generator = torch.Generator(device).manual_seed(0)  # a generator of its own, so that the user's random numbers do not change
    order, size = torch.randperm(table_bytes // ROW_BYTES, device=device, generator=generator), read_bytes // ROW_BYTES
    sets = itertools.cycle(order[: order.numel() // size * size].view(-1, size))  # other rows each time: none are cached
    out = torch.empty(size * ROW_BYTES, dtype=torch.uint8, device=device)

    def read(programs: int) -> Callable[[], None]:
        return lambda: gather_rows(table, ROW_BYTES, next(sets), out, max_programs=programs)

    read(candidates[0])()  # compiles
    # alternating: a device that was idle is slow at first, which would count against the first candidate
    rounds = [[_seconds(read(programs), device) for programs in candidates] for _ in range(REPEATS)]
    return {programs: out.numel() / min(times) for programs, *times in zip(candidates, *rounds, strict=True)}


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """Return the seconds that the device takes for the work, on the current stream."""
    if device.type == "cpu":
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.current_stream(device)
    work()  # keeps the device busy while the rest is queued
    begin.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return begin.elapsed_time(end) / 1e3
