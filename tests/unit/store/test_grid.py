"""The number of programs that read over the link: few, near the best, and nothing is measured where there is no link."""

import numpy as np
import pytest
import torch
from tests.devices import DEVICES

from penstock.kernels import _triton
from penstock.store.tiers import PinnedTier, grid


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ({2: 10.0, 4: 20.0, 8: 25.0, 16: 25.1, 32: 24.0}, 8),
        ({2: 25.0, 4: 24.0, 8: 23.0}, 2),
        ({2: 1.0, 4: 2.0, 8: 3.0}, 8),
        ({132: 0.0}, 132),
    ],
    ids=["saturated", "more is slower", "more is faster", "one"],
)
def test_the_fewest_near_the_best(rates, chosen):
    assert grid.smallest_near_best(rates) == chosen


@pytest.mark.parametrize(("programs", "chosen"), [(4, 8), (8, 16), (16, 26), (26, 26), (33, 33), (264, 264)])
def test_it_has_room_for_slower_reads_as_far_as_the_model_can_spare(programs, chosen):
    assert grid.with_room(programs, [4, 8, 16, 26, 33, 66, 132, 264], 26) == chosen


@pytest.mark.parametrize(
    ("num_rows", "num_hits", "programs"),
    [(1000, 0, 16), (1000, 500, 32), (1000, 800, 80), (1000, 900, 160), (1000, 990, 640), (1000, 1000, 640), (0, 0, 16), (3, 3, 48)],
)
def test_hits_are_read_by_more(num_rows, num_hits, programs):
    assert grid.programs_with_hits(16, num_rows, num_hits) == programs


@pytest.mark.parametrize("device", DEVICES)
def test_rates_are_those_of_reads(device):
    rates = grid.measure_rates(_triton.tensor_device(device), [1, 2], table_bytes=1 << 14, read_bytes=1 << 13)
    assert list(rates) == [1, 2]
    assert min(rates.values()) > 0


def test_a_device_that_is_slow_at_first_is_so_for_all(monkeypatch):
    times = iter([9.0, 9.0, 9.0, 4.0, 2.0, 1.0, 4.0, 2.0, 1.0])
    monkeypatch.setattr(grid, "_seconds", lambda work, device: next(times))
    rates = grid.measure_rates(torch.device("cpu"), [1, 2, 3], table_bytes=1 << 14, read_bytes=1 << 12)
    assert rates == {1: 1024.0, 2: 2048.0, 3: 4096.0}


def test_it_is_measured_once_on_a_device_and_never_in_the_interpreter(monkeypatch):
    measured = []

    def measure(device, candidates):
        measured.append(candidates)
        return dict.fromkeys(candidates, 1.0)

    monkeypatch.setattr(grid, "measure_rates", measure)
    grid._measured_programs.cache_clear()
    assert PinnedTier([np.zeros((3, 2))], torch.device("cpu")).max_programs == 1
    assert measured == []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: type("Properties", (), {"multi_processor_count": 132}))
    assert [grid.programs_over_link(torch.device("cuda", 0)) for _ in range(2)] == [8, 8]
    assert measured == [[4, 8, 16, 26, 33, 66, 132, 264]]
    grid._measured_programs.cache_clear()
