"""What a cache sized by free memory takes: never the reserve."""

import pytest

from penstock.plan.device import plan_device_cache, reserve_of
from penstock.store.device_memory import DeviceMemory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("total", "free", "held", "expected"),
    [(16, 12, 0, 11), (16, 12, 8, 9), (16, 3, 8, 0), (16, 1, 0, 0), (128, 128, 0, 120)],
)
def test_a_reserve_stays_free(total, free, held, expected):
    memory = DeviceMemory(total * GIB, free * GIB, held * GIB)
    assert plan_device_cache(memory) == expected * GIB
    assert plan_device_cache(memory) + reserve_of(memory) <= max(free * GIB, reserve_of(memory))


def test_what_no_batch_changes_needs_no_reserve():
    memory = DeviceMemory(16 * GIB, 4 * GIB, 12 * GIB)
    assert [plan_device_cache(memory, fixed * GIB) // GIB for fixed in (0, 4, 8, 12, 16)] == [0, 1, 2, 3, 3]
